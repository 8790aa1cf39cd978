"""[U16] What is shipped has what the compiler and the linker offer against exploits. `--release`: also what only the
Release build is compiled with. usage: hardening.py [--release] FILE"""

import re
import subprocess
import sys


def readelf(*arguments):
    return subprocess.run(["readelf", "--wide", *arguments], check=True, capture_output=True, text=True,
                          env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout


def linked(path):
    """What is missing of the linker's part."""
    dynamic, headers, kind = readelf("-d", path), readelf("-l", path), readelf("-h", path)
    if not re.search(r"Type:\s+DYN", kind):
        yield "position independent code (-pie, -fPIC)"
    if "GNU_RELRO" not in headers:
        yield "read-only relocations (-z relro)"
    if not re.search(r"FLAGS.*\bBIND_NOW\b|FLAGS_1.*\bNOW\b|\(BIND_NOW\)", dynamic):
        yield "binding at start (-z now)"
    stack = re.search(r"GNU_STACK(.*)", headers)
    if not stack or "E" in stack[1].split()[-2]:
        yield "a stack without code (-z noexecstack)"
    if re.search(r"\((RPATH|TEXTREL)\)", dynamic):
        yield "no RPATH and no TEXTREL"


def compiled(path):
    """What is missing of the compiler's part: seen by what it calls in libc."""
    symbols = readelf("--dyn-syms", path)
    if "__stack_chk_fail" not in symbols:
        yield "stack protector (-fstack-protector-strong)"
    if not re.search(r"\b__\w+_chk\b(?<!__stack_chk)", symbols):
        yield "checked calls of libc (-D_FORTIFY_SOURCE)"


def main():
    release = "--release" in sys.argv
    path = sys.argv[-1]
    missing = [*linked(path), *(compiled(path) if release else ())]
    if missing:
        raise SystemExit(f"{path} lacks: {', '.join(missing)}")


main()
