"""Every header compiles alone: .hpp as C++23, .h also as C11. Compiler and include folders come from ctest.

usage: headers_alone.py --compile CXX CC -- FLAGS...   (FLAGS: include folders and definitions)
       headers_alone.py --self-test CXX CC
"""

import concurrent.futures
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tidy

# Each folder's headers and nothing else; -inl files are included several times by design.
FOLDERS = ("daemon", "libnexar_c", "proto", "include", "tests/support", "tests/sim")
WARNINGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]


def commands_for(path, cxx, cc, flags):
    # Included by an empty file and not the main file itself: there, #pragma once and unused constants would warn.
    include = ["-include", str(path), "/dev/null"]
    cpp = [cxx, "-std=c++23", "-xc++", *WARNINGS, *flags, *include]
    c = [cc, "-std=c11", "-pedantic", "-xc", *WARNINGS, *flags, *include]
    return [cpp, c] if str(path).endswith(".h") else [cpp]


def check_header(path, cxx, cc, flags):
    complaints = []
    for command in commands_for(path, cxx, cc, flags):
        done = subprocess.run(command, capture_output=True, text=True, cwd=tidy.ROOT, check=False)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error:" in line]
            language = "C++23" if "-xc++" in command else "C11"
            complaints.append(f"{path} does not compile alone as {language}: {(errors or ['?'])[0]}")
    return complaints


def check_repository(cxx, cc, flags):
    headers = [name for name in tidy.repository_files(".hpp", ".h", under=FOLDERS) if "-inl." not in name]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda path: check_header(path, cxx, cc, flags), headers)
        return [complaint for complaints in results for complaint in complaints]


def self_test(cxx, cc):
    with tempfile.TemporaryDirectory() as folder:
        for name, text, fragments in (
            ("good.hpp", "#include <cstdint>\ninline std::uint8_t f() { return 1; }\n", ()),
            ("bad.hpp", "inline std::uint8_t f() { return 1; }\n", ("bad.hpp does not compile alone as C++23",)),
            ("good.h", "#include <stdint.h>\nuint8_t f(void);\n", ()),
            ("bad.h", "namespace x { int f(); }\n", ("bad.h does not compile alone as C11",)),
        ):
            (Path(folder) / name).write_text(text, encoding="utf-8")
            tidy.expect(check_header(Path(folder) / name, cxx, cc, []), *fragments)
    print("self-test passed")


def main(arguments):
    if arguments[:1] == ["--self-test"] and len(arguments) == 3:
        self_test(*arguments[1:])
    elif arguments[:1] == ["--compile"] and len(arguments) >= 4 and arguments[3] == "--":
        complaints = check_repository(arguments[1], arguments[2], arguments[4:])
        print("\n".join(complaints))
        sys.exit(1 if complaints else 0)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
