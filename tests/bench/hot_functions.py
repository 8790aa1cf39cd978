#!/usr/bin/env python3
"""Writes cmake/hot_functions.txt: the functions that small operations of two hosts run, in the order in which they first
do. The linker puts them next to each other (docs/performance/small-operations.md, "Order"). It single-steps the control
loop of a release daemon, so it takes a minute; x86-64 only. Run it again after changes that rename much of that path.

    tests/bench/hot_functions.py [--build DIR] [--check]
"""
import argparse
import bisect
import concurrent.futures
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from builds import Build
from hosts import Cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ROOT / "cmake/hot_functions.txt"
STEPS = 400_000  # some ten operations, with what comes between
SECONDS = 60
# Larger ones, such as unrolled ciphers, use a small part of themselves: they come last.
LARGE_BYTES = 16 * 1024
PTRACE_PEEKUSER, PTRACE_SINGLESTEP, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 3, 9, 17, 0x4206, 0x4207
RIP = 16 * 8  # in struct user
WALL = 0x40000000


def ptrace(request, pid, address=0, data=0):
    answer = _ptrace(request, pid, address, data)
    if answer == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), f"ptrace({request}): {os.strerror(ctypes.get_errno())}")
    return answer & 0xFFFFFFFFFFFFFFFF


_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_ptrace.restype = ctypes.c_long


def stop(pid):
    if os.WIFEXITED(status := os.waitpid(pid, WALL)[1]) or os.WIFSIGNALED(status):
        raise SystemExit("hot_functions: the daemon has ended")


def steps_of(pid):
    """The addresses of its main thread's next instructions, each once, in the order in which they are first run."""
    ptrace(PTRACE_SEIZE, pid)
    ptrace(PTRACE_INTERRUPT, pid)
    stop(pid)
    seen = {}
    late = time.monotonic() + SECONDS
    for _ in range(STEPS):
        if time.monotonic() > late:
            raise SystemExit(f"hot_functions: {STEPS} steps take more than {SECONDS} s: does the daemon have work?")
        ptrace(PTRACE_SINGLESTEP, pid)
        stop(pid)
        ctypes.set_errno(0)
        seen[ptrace(PTRACE_PEEKUSER, pid, RIP)] = None
    ptrace(PTRACE_DETACH, pid)
    return list(seen)


class Functions:
    """Of a program: which one has an address of its process."""

    def __init__(self, program):
        command = ["nm", "--numeric-sort", "--print-size", program]
        rows = [line.split() for line in subprocess.check_output(command, text=True).splitlines()]
        code = [(int(row[0], 16), int(row[1], 16), row[3]) for row in rows if len(row) == 4 and row[2] in "tTwWi"]
        self.begins, self.sizes, self.names = ([each[i] for each in code] for i in range(3))

    def at(self, address):
        """(name, bytes); None: it is in none."""
        i = bisect.bisect_right(self.begins, address) - 1
        return (self.names[i], self.sizes[i]) if i >= 0 and address - self.begins[i] < self.sizes[i] else None


def mapped_at(pid, program):
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith(str(program)):
            return int(line.split("-")[0], 16)  # a position-independent program begins at 0
    raise SystemExit(f"hot_functions: {program} is not mapped by {pid}")


def hot_functions(build, client):
    """Their names: of a daemon whose client's ranks take turns with small operations and computation."""
    functions = Functions(build.nexard)
    command = [client, "--operations", "cold,latency", "--bytes", "8,4096", "--memory", "alloc",
               "--seconds", str(SECONDS / 4), "--repetitions", "1000000"]
    with Cluster(build, 2) as cluster, concurrent.futures.ThreadPoolExecutor() as pool:
        job = pool.submit(cluster.run, command, 1, 10 * SECONDS)
        time.sleep(1.5)  # sleep: until it is in the middle of them
        pid = cluster.daemon_pid(1)
        begin = mapped_at(pid, build.nexard)
        found = {}
        for address in steps_of(pid):
            if function := functions.at(address - begin):
                found.setdefault(*function)
        if job.done():
            job.result()
            raise SystemExit("hot_functions: the operations were over before the steps")
    # What the linker's optimiser numbers has another name in another build.
    named = [name for name in found if ".llvm." not in name]
    return sorted(named, key=lambda name: found[name] >= LARGE_BYTES)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", metavar="DIR", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--check", action="store_true", help="only says how many of the names that build still has")
    options = parser.parse_args()
    build = Build(options.build)
    if options.check:
        names, have = NAMES.read_text().split(), set(Functions(build.nexard).names)
        print(f"{sum(name in have for name in names)} of {len(names)} names are in {build.nexard}")
        return
    with tempfile.TemporaryDirectory() as folder:
        names = hot_functions(build, build.compile_client(pathlib.Path(folder) / "client"))
    NAMES.write_text("".join(f"{name}\n" for name in names))
    print(f"{len(names)} functions in {NAMES}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
