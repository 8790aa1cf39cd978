#!/usr/bin/env python3
"""A libnexar_c that is missing, is none, is of another version or lacks a function is an ImportError that says what to do.

    loading_test.py PACKAGE_FOLDER LIBRARY COMPILER
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

VERSION = "unsigned nexar_version(void) { return %d << 8; } const char* nexar_version_text(void) { return \"0.%d.7\"; }"


def imports(folder, package, **variables):
    """What `import nexar` says at its end, in a process whose nexar is this copy."""
    clean = {name: value for name, value in os.environ.items() if name not in ("NEXAR_LIBRARY", "LD_LIBRARY_PATH")}
    done = subprocess.run([sys.executable, "-B", "-c", "import nexar; print(nexar.__version__)"], text=True, cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                          env={**clean, "PYTHONPATH": str(package), **variables})
    return done.returncode, done.stdout


def says(answer, *parts):
    code, out = answer
    assert code == 1 and "ImportError: " in out, answer
    error = out[out.rindex("ImportError: "):]
    for part in parts:
        assert part in error, f"{part!r} is not in: {error}"


def build(compiler, folder, name, source):
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name)], input=source, text=True, check=True)
    return str(folder / name)


def main():
    package, library, compiler = pathlib.Path(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
    if subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode != 0:
        print("numpy is missing: skipped")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copytree(package / "nexar", folder / "prefix/share/nexar/python/nexar")
        here = folder / "prefix/share/nexar/python"
        (folder / "prefix/lib").mkdir()
        whose = f"the package nexar at {here}/nexar"
        code, out = imports(folder, here, NEXAR_LIBRARY=library)
        assert code == 0 and out.startswith("0.2."), out

        says(imports(folder, here, NEXAR_LIBRARY="/nowhere.so"), whose, "/nowhere.so: cannot open shared object file", "libnexar_c 0.2",
             "NEXAR_LIBRARY names it: correct that to the path of a libnexar_c.so.0.2, or unset it")
        text = folder / "text.so"
        text.write_text("no library")
        says(imports(folder, here, NEXAR_LIBRARY=str(text)), f"{text}: ", "file too short")
        says(imports(folder, here, NEXAR_LIBRARY=build(compiler, folder, "other.so", "int x;")), "other.so is no libnexar_c", whose[4:], "0.2")
        for minor in (1, 9):
            wrong = build(compiler, folder, f"wrong{minor}.so", VERSION % (minor, minor))
            says(imports(folder, here, NEXAR_LIBRARY=wrong), f"{wrong} is libnexar_c version 0.{minor}.7; {whose} needs 0.2: install both "
                 "from one tree", "or set NEXAR_LIBRARY to the path of a libnexar_c.so.0.2")
        older = build(compiler, folder, "older.so", VERSION % (2, 2))
        says(imports(folder, here, NEXAR_LIBRARY=older), f"{older} is libnexar_c version 0.2.7, but older than {whose}: it lacks nexar_",
             " more. What to do: install both from one tree")

        # The library of its prefix comes first; one of another version beside it is named.
        build(compiler, folder, "prefix/lib/libnexar_c.so.0.1", VERSION % (1, 1))
        code, out = imports(folder, here)
        if code != 0:  # none is installed on this machine
            says((code, out), whose, "libnexar_c.so.0.2: cannot open shared object file", "(by the loader: LD_LIBRARY_PATH, ldconfig)",
                 f"Of other versions there is: {folder}/prefix/lib/libnexar_c.so.0.1",
                 "install nexar 0.2, or set NEXAR_LIBRARY to the path of its libnexar_c.so.0.2")
        shutil.copy(text, folder / "prefix/lib/libnexar_c.so.0.2")
        code, out = imports(folder, here)
        if code != 0:
            says((code, out), f"{folder}/prefix/lib/libnexar_c.so.0.2: file too short")
        shutil.copy(library, folder / "prefix/lib/libnexar_c.so.0.2")
        code, out = imports(folder, here)
        assert code == 0 and out.startswith("0.2."), out
    return 0


if __name__ == "__main__":
    sys.exit(main())
