#!/usr/bin/env python3
"""mypy --strict is content with the package and with a program that uses it, and finds wrong uses.

    types_test.py SOURCE
"""
import os
import subprocess
import sys
import tempfile

WRONG = """
import nexar
def work(group: nexar.Group) -> None:
    group.all_reduce(1.0, operation="sum")
    group.barrier(timeout="1")
    x: int = group.all_reduce_start(1)
"""


def mypy(source, *files):
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull, *files],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=source,
                          env={**os.environ, "MYPYPATH": os.path.join(source, "bindings/python")})
    return done.returncode, done.stdout


def main():
    source = sys.argv[1]
    if subprocess.run([sys.executable, "-m", "mypy", "--version"], capture_output=True).returncode != 0:
        print("mypy is not installed: skipped")
        return 77
    code, out = mypy(source, "bindings/python/nexar", "tests/python/uses_hints.py")
    assert code == 0, out
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(WRONG)
        file.flush()
        code, out = mypy(source, file.name)
    assert code == 1 and "Found 3 errors" in out, out
    return 0


if __name__ == "__main__":
    sys.exit(main())
