"""A build that is measured: where its programs are, which version it is, and the client compiled against its header."""
import os
import pathlib
import re
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent


class Build:
    """folder: a build's, or a source tree whose build stands in build/release."""

    def __init__(self, folder):
        folder = pathlib.Path(folder).resolve()
        if not (folder / "CMakeCache.txt").exists() and (folder / "build/release/CMakeCache.txt").exists():
            folder = folder / "build/release"
        self.folder = folder
        self.nexard, self.nexarctl = folder / "daemon/nexard", folder / "tools/nexarctl/nexarctl"
        self.library = folder / "libnexar_c/libnexar_c.so"
        self.hostile_member = folder / "tests/integration/hostile_member"  # not in a release
        for file in (folder / "CMakeCache.txt", self.nexard, self.nexarctl, self.library):
            if not file.exists():
                raise SystemExit(f"bench: {file} is missing: build nexard, nexarctl and nexar_c there, or name another "
                                 "build with --build")
        cache = (folder / "CMakeCache.txt").read_text()
        self.source = pathlib.Path(re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)$", cache, re.M).group(1))
        found = "".join(file.read_text() for file in folder.glob("CMakeFiles/*/CMakeCXXCompiler.cmake"))
        self.compiler = re.search(r'^set\(CMAKE_CXX_COMPILER "(.*)"\)$', found, re.M).group(1)
        self.kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache, re.M).group(1)

    @property
    def version(self):
        files = [self.source / "include/nexar/base.h", self.source / "include/nexar.h"]  # an older tree's has no parts
        header = next(file for file in files if file.exists()).read_text()
        parts = ("MAJOR", "MINOR", "PATCH")
        return ".".join(re.search(rf"NEXAR_VERSION_{part}\s+(\d+)", header).group(1) for part in parts)

    @property
    def commit(self):
        """Of its source; None outside git. A change that is not committed shows as a plus."""
        command = ["git", "-C", self.source, "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None

    def compile_client(self, program, source="ops_bench.cpp"):
        """A client, usually the measuring one, against this build's header and library."""
        command = [self.compiler, "-std=c++23", "-O2", f"-I{self.source / 'include'}", f"-I{self.source / 'proto'}",
                   FOLDER / source, "-o", program, self.library, f"-Wl,-rpath,{self.library.parent}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise SystemExit(f"bench: the client does not compile against {self.source}:\n{done.stderr[-2000:]}")
        return program

    def describe(self):
        return {"version": self.version, "commit": self.commit, "build_type": self.kind,
                "compiler": os.path.basename(self.compiler)}
