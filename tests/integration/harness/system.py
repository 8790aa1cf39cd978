"""What the tests need from the kernel and Python does not offer: namespaces, death with the parent, a thread that stands.

Namespaces have no name here: a descriptor holds each, so that none outlives the test, not even when it is killed.
"""
import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
PR_SET_PDEATHSIG = 1
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WAIT_ALL = 0x4206, 0x4207, 17, 0x40000000
SKIPPED = 77  # for ctest

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def skip(why):
    print(f"SKIPPED: {why}", flush=True)
    sys.exit(SKIPPED)


def need_namespaces():
    """Makes this process one that may make network namespaces and mounts, seen by nobody else; or skips the test."""
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    if not shutil.which("ip"):
        skip("the command ip (package iproute2) is missing")
    try:
        if os.geteuid() != 0:
            uid, gid = os.geteuid(), os.getegid()
            _check(_libc.unshare(CLONE_NEWUSER), "unshare(user)")
            for file, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                with open(f"/proc/self/{file}", "w") as f:
                    f.write(text)
        _check(_libc.unshare(CLONE_NEWNS), "unshare(mount)")
        _check(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount --make-rprivate /")
        os.close(new_network())
    except OSError as error:
        skip(f"namespaces are not permitted here ({error})")


def mount_tiny(folder, kilobytes):
    _check(_libc.mount(b"none", str(folder).encode(), b"tmpfs", 0, f"size={kilobytes}k".encode()), "mount tmpfs")


def unmount(folder):
    _check(_libc.umount2(str(folder).encode(), 2), "umount")  # 2: MNT_DETACH


def die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def exit_normally():
    """With what the C library does at the end of a process, but without Python's: this may be a fork's child."""
    _libc.exit(0)


def enter(namespace):
    _check(_libc.setns(namespace, CLONE_NEWNET), "setns")


def new_network():
    """A descriptor of a new, empty network namespace."""
    ready_out, ready_in = os.pipe()
    done_out, done_in = os.pipe()
    child = os.fork()
    if child == 0:
        failed = _libc.unshare(CLONE_NEWNET)
        os.write(ready_in, b"n" if failed else b"y")
        os.close(done_in)
        os.read(done_out, 1)
        os._exit(0)
    try:
        if os.read(ready_out, 1) != b"y":
            raise OSError(1, "unshare(network) was refused")
        return os.open(f"/proc/{child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (ready_out, ready_in, done_out, done_in):
            os.close(fd)
        os.waitpid(child, 0)


@contextlib.contextmanager
def held_thread(pid, name):
    """One thread of a process that this test has started stands still; the others go on."""
    tids = [int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
            if (task / "comm").read_text().strip() == name]
    if len(tids) != 1:
        raise AssertionError(f"process {pid} has {len(tids)} threads '{name}'")
    _libc.ptrace.argtypes = [ctypes.c_long] * 4
    _check(_libc.ptrace(PTRACE_SEIZE, tids[0], 0, 0), "ptrace(seize)")
    try:
        _check(_libc.ptrace(PTRACE_INTERRUPT, tids[0], 0, 0), "ptrace(interrupt)")
        os.waitpid(tids[0], WAIT_ALL)
        yield
    finally:
        _check(_libc.ptrace(PTRACE_DETACH, tids[0], 0, 0), "ptrace(detach)")


def run_in(namespace, *command):
    """A short command in a namespace; its output, or an error with its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, preexec_fn=lambda: enter(namespace))
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
