#!/usr/bin/env python3
"""pip builds a wheel from the tree, without a network; installed elsewhere it finds the library. And from a source distribution.
(What it says of a wrong one: loading_test.py.)

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
SDIST = "import os; from setuptools import build_meta; build_meta.build_sdist(os.environ['DIST'])"  # as python -m build does
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
        for part in ("bindings/python", "include"):
            shutil.copytree(source / part, tree / part, ignore=shutil.ignore_patterns("build", "__pycache__", "*.egg-info"))
        before = sorted(tree.rglob("*"))
        code, out = run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder,
                        str(tree / "bindings/python"))
        assert code == 0, out
        left = set(tree.rglob("*")) - set(before)
        assert not left, f"pip has left {left}"
        wheel, = pathlib.Path(folder).glob("nexar-*.whl")
        assert "-cp311-abi3-" in wheel.name, wheel.name
        assert not FILES - set(zipfile.ZipFile(wheel).namelist()), zipfile.ZipFile(wheel).namelist()
        code, out = run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(place), str(wheel))
        assert code == 0, out
        clean = {**{k: v for k, v in os.environ.items() if k != "NEXAR_LIBRARY"}, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        code, out = run(sys.executable, "-c", PROBE, env={**clean, "LD_LIBRARY_PATH": str(library.parent)}, cwd=folder)
        version = wheel.name.split("-")[1]
        assert code == 0 and out.startswith(f"{version} True {place}"), out
        from_its_own_source(pathlib.Path(folder), tree)
    return 0


def from_its_own_source(folder, tree):
    """A source distribution is whole: without the tree beside it a wheel can be built from it."""
    os.environ["DIST"] = str(folder / "dist")
    code, out = run(sys.executable, "-c", SDIST, cwd=tree / "bindings/python")
    assert code == 0, out
    packed, = (folder / "dist").glob("nexar-*.tar.gz")
    shutil.unpack_archive(packed, folder / "unpacked")
    unpacked, = (folder / "unpacked").iterdir()
    code, out = run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", str(folder / "again"),
                    str(unpacked))
    assert code == 0, out
    wheel, = (folder / "again").glob("nexar-*.whl")
    assert not FILES - set(zipfile.ZipFile(wheel).namelist()), zipfile.ZipFile(wheel).namelist()


if __name__ == "__main__":
    sys.exit(main())
