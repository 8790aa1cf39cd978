"""What pyproject.toml cannot say: the version, which is that of include/nexar/base.h, and _native for the stable ABI.

    pip install bindings/python        (from the tree: the header is beside it; libnexar_c is looked for at import)
"""
import atexit
import glob
import os
import re
import shutil
import tempfile

from setuptools import Extension, setup

include = os.path.join("..", "..", "include")
with open(os.path.join(include, "nexar", "base.h"), encoding="utf-8") as file:
    numbers = dict(re.findall(r"#define NEXAR_VERSION_(MAJOR|MINOR|PATCH) (\d+)", file.read()))

# What setuptools builds on the way is not left in the tree.
place = tempfile.mkdtemp(prefix="nexar-build-")
atexit.register(shutil.rmtree, place, ignore_errors=True)

setup(version="{MAJOR}.{MINOR}.{PATCH}".format(**numbers),
      ext_modules=[Extension("nexar._native", sorted(glob.glob("nexar/_native*.c")), include_dirs=[include], py_limited_api=True,
                             extra_compile_args=["-fvisibility=hidden"])],
      options={"bdist_wheel": {"py_limited_api": "cp311"}, "build": {"build_base": place}, "egg_info": {"egg_base": place}})
