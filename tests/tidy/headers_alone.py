"""Every header compiles alone: .hpp as C++23, .h also as C11. Compiler and include folders come from ctest.
Not compiled here is x.hpp that x.cpp beside it includes before anything else: the everyday build shows it. The standard
headers that includes.py looks for are compiled once.

usage: headers_alone.py --compile CACHE CXX CC -- FLAGS...   (FLAGS: include folders and definitions)
       headers_alone.py --self-test CXX CC

CACHE remembers, per header, the files it was compiled from: a header is compiled again when one of them changed.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import includes
import tidy

# Each folder's headers and nothing else; -inl files are included several times by design.
FOLDERS = ("daemon", "libnexar_c", "proto", "include", "tests/support", "tests/sim")
WARNINGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]


def commands_for(path, cxx, cc, flags, standard):
    # Included by an empty file and not the main file itself: there, #pragma once and unused constants would warn.
    include = ["-include", str(path), "/dev/null"]
    cpp = [cxx, "-std=c++23", "-xc++", *standard, *WARNINGS, *flags, *include]
    c = [cc, "-std=c11", "-pedantic", "-xc", *WARNINGS, *flags, *include]
    return [cpp, c] if str(path).endswith(".h") else [cpp]


def check_header(path, cxx, cc, flags, standard=()):
    complaints = []
    for command in commands_for(path, cxx, cc, flags, standard):
        done = subprocess.run(command, capture_output=True, text=True, cwd=tidy.ROOT, check=False)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error:" in line]
            language = "C++23" if "-xc++" in command else "C11"
            complaints.append(f"{path} does not compile alone as {language}: {(errors or ['?'])[0]}")
    return complaints


def shown_by_its_source(path):
    source = (tidy.ROOT / path).with_suffix(".cpp")
    if Path(path).suffix != ".hpp" or not source.exists():
        return False
    includes = re.search(r'^#include (\S+)', source.read_text(encoding="utf-8"), re.MULTILINE)
    name = includes.group(1)[1:-1] if includes and includes.group(1).startswith('"') else None
    return name is not None and ("/" + str(path)).endswith("/" + name)


def inputs_of(path, cxx, flags):
    """The project's own files that the header includes, itself among them, as the compiler lists them."""
    command = [cxx, "-std=c++23", "-xc++", "-MM", "-D_GNU_SOURCE", *flags, str(path)]
    listed = subprocess.run(command, capture_output=True, text=True, cwd=tidy.ROOT, check=False)
    return [word for word in listed.stdout.split(":", 1)[-1].split() if word != "\\"]


def stamp(files):
    """Changes when one of the files does; None when one is gone."""
    try:
        states = [os.stat(tidy.ROOT / name) for name in files]
    except OSError:
        return None
    return [[name, state.st_mtime_ns, state.st_size] for name, state in zip(files, states)]


def unchanged(entry):
    return bool(entry) and stamp([name for name, _, _ in entry]) == entry


def check_cached(path, cxx, cc, flags, known, standard=()):
    """(complaints, what to remember): only success is remembered."""
    if unchanged(known.get(path)):
        return [], known[path]
    before = stamp(inputs_of(path, cxx, flags))
    complaints = check_header(path, cxx, cc, flags, standard)
    return complaints, None if complaints else before


def precompiled(folder, cxx):
    """Options that make the compiler use the precompiled standard headers."""
    header = folder / "standard.hpp"
    header.write_text("".join(f"#include <{name}>\n" for name in includes.NAMES), encoding="utf-8")
    command = [cxx, "-std=c++23", "-D_GNU_SOURCE", "-xc++-header", str(header), "-o", f"{header}.gch"]
    subprocess.run(command, check=True)
    return ["-include", str(header)]


def check_repository(cache, cxx, cc, flags):
    headers = [name for name in tidy.repository_files(".hpp", ".h", under=FOLDERS)
               if "-inl." not in name and not shown_by_its_source(name)]
    setting = [cxx, cc, *flags]
    known = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}
    known = known if known.pop("setting", None) == setting else {}
    with (tempfile.TemporaryDirectory() as folder,
          concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool):
        standard = precompiled(Path(folder), cxx)
        results = list(pool.map(lambda path: check_cached(path, cxx, cc, flags, known, standard), headers))
    remembered = {path: entry for path, (_, entry) in zip(headers, results) if entry}
    cache.write_text(json.dumps({"setting": setting, **remembered}), encoding="utf-8")
    return [complaint for complaints, _ in results for complaint in complaints]


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
        for first, shown in (("good.hpp", True), ("<cstdint>", False), ("other/good.hpp", False)):
            line = first if first.startswith("<") else f'"{first}"'
            text = f'// A file.\n#include {line}\n#include "good.hpp"\n'
            (Path(folder) / "good.cpp").write_text(text, encoding="utf-8")
            assert shown_by_its_source(str(Path(folder) / "good.hpp")) == shown, first
        assert not shown_by_its_source(str(Path(folder) / "good.h"))
        self_test_cache(Path(folder), cxx, cc)
    print("self-test passed")


def self_test_cache(folder, cxx, cc):
    """A header that compiled is compiled again after a change in what it includes."""
    outer, inner = folder / "outer.hpp", folder / "inner.hpp"
    outer.write_text('#include "inner.hpp"\ninline Inner make() { return {}; }\n', encoding="utf-8")
    inner.write_text("struct Inner {};\n", encoding="utf-8")
    complaints, entry = check_cached(str(outer), cxx, cc, [], {})
    assert not complaints and unchanged(entry), (complaints, entry)
    inner.write_text("struct Other {};\n", encoding="utf-8")
    tidy.expect(check_cached(str(outer), cxx, cc, [], {str(outer): entry})[0], "outer.hpp does not compile alone")


def main(arguments):
    if arguments[:1] == ["--self-test"] and len(arguments) == 3:
        self_test(*arguments[1:])
    elif arguments[:1] == ["--compile"] and len(arguments) >= 5 and arguments[4] == "--":
        complaints = check_repository(Path(arguments[1]), arguments[2], arguments[3], arguments[5:])
        print("\n".join(complaints))
        sys.exit(1 if complaints else 0)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
