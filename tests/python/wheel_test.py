#!/usr/bin/env python3
"""pip builds a wheel from the tree, without a network; installed elsewhere it finds the library, and refuses another version's.

    wheel_test.py SOURCE LIBRARY
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

PROBE = "import nexar, nexar._quick; print(nexar.__version__, nexar._quick._native is not None, nexar.__file__)"
FILES = {"nexar/py.typed", "nexar/_native.abi3.so", "nexar/_native.pyi", "nexar/__init__.py", "nexar/testing.py"}


def run(*command, **named):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=250, **named)
    return done.returncode, done.stdout


def main():
    source, library = map(pathlib.Path, sys.argv[1:])
    if any(run(sys.executable, "-c", f"import {name}")[0] for name in ("pip", "setuptools", "wheel", "numpy")):
        print("pip, setuptools, wheel or numpy is missing: skipped")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        tree, place = pathlib.Path(folder, "tree"), pathlib.Path(folder, "installed")
        for part in ("bindings/python", "include"):  # setuptools leaves its files where it builds
            shutil.copytree(source / part, tree / part, ignore=shutil.ignore_patterns("build", "__pycache__", "*.egg-info"))
        code, out = run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder,
                        str(tree / "bindings/python"))
        assert code == 0, out
        wheel, = pathlib.Path(folder).glob("nexar-*.whl")
        assert "-cp311-abi3-" in wheel.name, wheel.name
        assert not FILES - set(zipfile.ZipFile(wheel).namelist()), zipfile.ZipFile(wheel).namelist()
        code, out = run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(place), str(wheel))
        assert code == 0, out
        clean = {**{k: v for k, v in os.environ.items() if k != "NEXAR_LIBRARY"}, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        code, out = run(sys.executable, "-c", PROBE, env={**clean, "LD_LIBRARY_PATH": str(library.parent)}, cwd=folder)
        version = wheel.name.split("-")[1]
        assert code == 0 and out.startswith(f"{version} True {place}"), out
        # A library of another ABI, by the name that was asked for.
        other = pathlib.Path(folder, "other.so")
        code, out = run("cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(other),
                        input="unsigned nexar_version(void) { return 9 << 8; } const char* nexar_version_text(void) { return \"0.9.0\"; }")
        assert code == 0, out
        code, out = run(sys.executable, "-c", PROBE, env={**clean, "NEXAR_LIBRARY": str(other)}, cwd=folder)
        assert code != 0 and "is version 0.9.0; this binding needs 0.2" in out, out
        code, out = run(sys.executable, "-c", PROBE, env={**clean, "NEXAR_LIBRARY": "/nowhere.so"}, cwd=folder)
        assert code != 0 and "/nowhere.so cannot be loaded" in out, out
    return 0


if __name__ == "__main__":
    sys.exit(main())
