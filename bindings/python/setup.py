"""What pyproject.toml cannot say: the version, which is that of include/nexar/base.h, and _native for the stable ABI.

    pip install bindings/python        (from the tree: the headers are beside it; libnexar_c is looked for at import)
    python -m build bindings/python    (a source distribution, which has the headers in it, and the wheel of that)
"""
import atexit
import glob
import os
import re
import shutil
import tempfile

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

here = os.path.dirname(os.path.abspath(__file__))
include = next(folder for folder in ("include", os.path.join("..", "..", "include")) if os.path.exists(os.path.join(here, folder, "nexar.h")))
with open(os.path.join(include, "nexar", "base.h"), encoding="utf-8") as file:
    numbers = dict(re.findall(r"#define NEXAR_VERSION_(MAJOR|MINOR|PATCH) (\d+)", file.read()))


class WithHeaders(sdist):
    """The tree is not beside what is unpacked elsewhere."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for folder, to in ((os.path.join(include, "nexar"), "include/nexar"), (include, "include"), ("nexar", "nexar")):
            os.makedirs(os.path.join(base_dir, to), exist_ok=True)
            for header in glob.glob(os.path.join(folder, "*.h")):
                shutil.copy(header, os.path.join(base_dir, to))


# What setuptools builds on the way is not left in the tree.
place = tempfile.mkdtemp(prefix="nexar-build-")
atexit.register(shutil.rmtree, place, ignore_errors=True)

setup(version="{MAJOR}.{MINOR}.{PATCH}".format(**numbers), cmdclass={"sdist": WithHeaders},
      ext_modules=[Extension("nexar._native", sorted(glob.glob("nexar/_native*.c")), include_dirs=[include], py_limited_api=True,
                             extra_compile_args=["-fvisibility=hidden"])],
      options={"bdist_wheel": {"py_limited_api": "cp311"}, "build": {"build_base": place}, "egg_info": {"egg_base": place}})
