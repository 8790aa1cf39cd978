"""C and C++ files are as clang-format leaves them (.clang-format).

usage: format.py CLANG-FORMAT [--fix | --self-test]
"""

import subprocess
import sys

import tidy


def run(clang_format, options, text=None):
    command = [clang_format, "--style=file", *options]
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=tidy.ROOT, check=False)


def files():
    return tidy.repository_files(".h", ".hpp", ".c", ".cpp", ".cu")


def complaints_of(done):
    lines = [line for line in done.stderr.splitlines() if "code should be clang-formatted" in line]
    names = sorted({line.split(":")[0] for line in lines})
    return [f"{name}: not formatted (tests/tidy/format.py clang-format-19 --fix)" for name in names]


def self_test(clang_format):
    check = ["--dry-run", "--assume-filename=daemon/x.cpp"]
    tidy.expect(complaints_of(run(clang_format, check, "int f() {\n    return 1;\n}\n")))
    tidy.expect(complaints_of(run(clang_format, check, "int f() { return 1; }  int   g();\n")), "not formatted")
    print("self-test passed")


def main(arguments):
    if len(arguments) == 2 and arguments[1] == "--self-test":
        self_test(arguments[0])
    elif len(arguments) == 2 and arguments[1] == "--fix":
        sys.exit(run(arguments[0], ["-i", *files()]).returncode)
    elif len(arguments) == 1:
        done = run(arguments[0], ["--dry-run", *files()])
        complaints = complaints_of(done)
        print("\n".join(complaints))
        sys.exit(1 if complaints or done.returncode != 0 else 0)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
