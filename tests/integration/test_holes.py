"""Memory of a client that has no pages where the daemon is to work ([S18]): it is not made on the daemon's account."""
import contextlib
import os
import pathlib
import stat
import sys
import textwrap

from harness import *
from harness.users import become, open_to_all

os.environ["NEXAR_MEMFDS_IN_PLACE"] = "false"

OTHER = 2002
MIB = 1 << 20
LIMIT = 150 * MIB  # of the daemon's memory; its own is a fifth of that


def works(me):
    """All-reduces until it is released; how often."""
    become(OTHER)
    session = me.session(slots=16)
    group = session.group(me.name, size=1, rank=0, timeout=20)
    values, turns = session.alloc(1000), 0
    me.mark()
    while not me.is_released() or turns < 10:
        values[:] = 3
        group.all_reduce(values)
        assert (values == 3).all(), "the values are wrong"
        turns += 1


def use_holes(node, seconds):
    """Another user operates on 300 MiB of which there are few pages, again and again."""
    greedy = program(node, "NEXAR_TEST_HOSTILE_CLIENT", "holes", seconds, 1)
    output, _ = greedy.communicate(timeout=60)
    equal(greedy.returncode, 0, f"the end of the hostile client: {output}")


@contextlib.contextmanager
def memory_limit(node, nbytes):
    """The daemon in a memory cgroup of its own; without one where this machine does not let us make it."""
    old, new = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
    root, limit = (old, "memory.limit_in_bytes") if old.is_dir() else (new, "memory.max")
    folder = root / f"nexar-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        print(f"without a limit of memory: {error}")
        yield
        return
    try:
        try:
            (folder / limit).write_text(str(nbytes))
            (folder / "cgroup.procs").write_text(str(node.pid))
        except OSError as error:
            print(f"without a limit of memory: {error}")
        yield
    finally:
        node.end()
        with contextlib.suppress(OSError):
            eventually(lambda: not (folder / "cgroup.procs").read_text(), "the group to be empty")
        folder.rmdir()


def test_holes_in_a_users_memory_cost_the_daemon_none(cluster):
    """[H9] The daemon may have less memory than the holes; their owner's operations fail, and the daemon works on."""
    open_to_all(cluster)
    node = cluster[1]
    equal(node.ask("status")["holes_unguarded"] is not None, "holes_unguarded" in node.log(), "what status says of it")
    if "holes_unguarded" in node.log():
        print("userfaultfd is refused here: nothing to see")
        return
    other = Job([node], works)
    other.await_marks()
    with memory_limit(node, LIMIT):
        use_holes(node, 2)
        eventually(lambda: "has no page" in node.log(), "the reason in the log, which a thread writes")
        other.go()
        other.outcomes()
        assert node.alive(), "the daemon has died"


def without_userfaultfd(folder):
    """A program in nexard's place that runs it where userfaultfd(2) is refused, as in many containers."""
    program = folder / "nexard-without-userfaultfd"
    program.write_text(textwrap.dedent(f"""\
        #!{sys.executable} -B
        import ctypes, os, platform, struct, sys
        number = {{"x86_64": 323, "aarch64": 282}}[platform.machine()]
        filters = b"".join(struct.pack("HBBI", *f) for f in
                           [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)])
        room = ctypes.create_string_buffer(filters)
        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("filters", ctypes.c_void_p)]
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
        libc.prctl(38, 1, 0, 0, 0)
        if libc.prctl(22, 2, ctypes.addressof(Program(4, ctypes.addressof(room))), 0, 0) != 0: sys.exit("no seccomp")
        os.execv({os.environ["NEXAR_TEST_NEXARD"]!r}, sys.argv)
        """))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_without_userfaultfd_the_daemon_says_so_and_works(cluster):
    """What a sandbox refuses is in the log once; holes are then filled on the daemon's account."""
    open_to_all(cluster)
    node, nexard = cluster[1], os.environ["NEXAR_TEST_NEXARD"]
    node.end()
    os.environ["NEXAR_TEST_NEXARD"] = str(without_userfaultfd(node.folder))
    try:
        node.start()
    finally:
        os.environ["NEXAR_TEST_NEXARD"] = nexard
    use_holes(node, 1)
    assert "has no page" not in node.log().partition("holes_unguarded")[2], "an operation on holes has failed"
    equal(node.log().count("holes_unguarded"), 1, "lines that say so")
    for command in ("status", "doctor"):
        contains(str(node.ask(command)["holes_unguarded"]), "userfaultfd is not allowed")
    assert "userfaultfd is not allowed: Operation not permitted" in node.log(), node.log()


if __name__ == "__main__":
    main(globals(), nodes=1)
