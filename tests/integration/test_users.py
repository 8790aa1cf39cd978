"""What one user of a host may take from another, and from the daemon: a share of its tables and workers, no memory."""
import contextlib
import ctypes
import mmap
import os
import pathlib
import socket
import time

from harness import *
from harness.users import become, open_to_all

GREEDY, OTHER = 2001, 2002
MIB = 1 << 20


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def sparse(session, nbytes):
    """(array, descriptor) of a registered memfd that nobody has touched; the mapping stays until the process ends."""
    fd = os.memfd_create("sparse", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, nbytes)
    # Not Python's mmap: it keeps a descriptor for each.
    address = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
    return session.register_memfd(array, fd), fd


def anonymous_mib(node):
    """The daemon's own memory: what clients share with it is not in it."""
    status = pathlib.Path(f"/proc/{node.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) // 1024


def in_flight(node, name):
    return [op for op in node.ask("ops")["ops"] if op["group"].startswith(name)]


def works(me):
    """A session, memory and an operation of a neighbour: "ok", or the error."""
    become(OTHER)
    try:
        session = me.session(slots=16)
        values = session.alloc(1000)
        values[:] = 3
        session.group("neighbour", size=1, rank=0, timeout=10).all_reduce(values)
        return "ok" if (values == 3).all() else "wrong values"
    except nexar.Error as error:
        return f"{error.name}: {error.text}"


def registers_all(me):
    become(GREEDY)
    sessions, refused = [], None
    try:
        for _ in range(70):
            session = me.session(slots=16)
            sessions.append(session)
            for _ in range(250):
                os.close(sparse(session, mmap.PAGESIZE)[1])
    except nexar.Error as error:
        refused = error.name
    me.mark(refused)
    me.wait_for_go(60)


def test_a_user_with_as_many_regions_as_there_are_leaves_room_for_others(cluster):
    """[H8] One process that registers one-page regions until it is refused; then another user needs one."""
    open_to_all(cluster)
    greedy = Job([cluster[1]], registers_all)
    refused = greedy[0].await_mark(60)
    if not refused:
        raise RuntimeError("no region was refused: the test asks for too few")
    outcome, = Job([cluster[1]], works).outcomes()
    greedy.go()
    equal(outcome, "ok", "the work of another user")


def starts_in_untouched_memory(me):
    session = me.session(slots=16)
    group = session.group(size=1, rank=0, name=me.name, timeout=10)
    nbytes = 8 * MIB
    values, fd = sparse(session, nbytes)
    me.mark()
    me.wait_for_go()
    request = group.all_reduce_start(values)
    me.mark(os.fstat(fd).st_blocks * 512 / nbytes)
    request.wait(timeout=20)


def test_the_first_touch_of_a_region_is_its_owners(cluster):
    """[D21] [H9] What an operation works on is there, on its owner's account, before the daemon can touch it."""
    job = Job([cluster[1]], starts_in_untouched_memory)
    job.await_marks()
    cluster[1].pause()
    try:
        job.go()
        there, = job.await_marks()
    finally:
        cluster[1].resume()
    job.outcomes()
    assert there >= 1, f"{there:.0%} of the region is there when the daemon first sees the operation"


REDUCES = 16


def reduces_to_a_root_that_never_calls(me):
    session = me.session(slots=64)
    group = me.group(session, collective_timeout=nexar.NO_TIMEOUT)
    if me.rank == 0:
        values = session.alloc(8 * MIB, "uint8")
        values[:] = 1
        started = [group.reduce_start(values, root=1) for _ in range(REDUCES)]
        me.mark(len(started))
    me.wait_for_go(60)


def test_reduces_to_a_root_that_never_calls_take_no_memory_of_the_daemon(cluster):
    """[H9] 16 reduces of 8 MiB wait for their root; the daemon that would send keeps no copies of them meanwhile."""
    before = anonymous_mib(cluster[1])
    job = Job([cluster[1], cluster[2]], reduces_to_a_root_that_never_calls)
    job[0].await_mark()
    eventually(lambda: len(in_flight(cluster[1], job.name)) == REDUCES, "all reduces to be known")
    eventually(lambda: cluster[1].idle(), "the daemon to have nothing more to do")
    grown = anonymous_mib(cluster[1]) - before
    job.go()
    assert grown < 32, f"the daemon grew by {grown} MiB"


GROUPS, OPS = 4, 16


def queues_large_operations(me):
    become(GREEDY)
    session = me.session(slots=256)
    values, out = session.alloc(64 * MIB, "uint8"), session.alloc(64 * MIB, "uint8")
    groups = [session.group(f"{me.name}-{i}", size=1, rank=0, timeout=10, collective_timeout=nexar.NO_TIMEOUT) for i in range(GROUPS)]
    me.mark()
    me.wait_for_go(60)
    started = [group.all_reduce_start(values, out) for _ in range(OPS) for group in groups]
    me.mark(len(started))
    ends = []
    for request in started:
        request.wait(60)
        ends.append(time.monotonic())
    return ends


def one_operation(me):
    become(OTHER)
    session = me.session(slots=16)
    group = session.group(me.name, size=1, rank=0, timeout=10)
    values, out = session.alloc(MIB, "uint8"), session.alloc(MIB, "uint8")
    values[:] = 7
    me.mark()
    me.wait_for_go(60)
    request = group.all_reduce_start(values, out)
    me.mark()
    request.wait(60)
    ended = time.monotonic()
    return ended, bool((out == 7).all())


def test_an_operation_does_not_wait_for_all_that_another_user_has_queued(cluster):
    """[H17] When one small operation ends that came after 64 large ones of another user, most of those are not done."""
    open_to_all(cluster)
    many, one = Job([cluster[1]], queues_large_operations), Job([cluster[1]], one_operation)
    many.await_marks(60)
    one.await_marks()
    cluster[1].pause()  # until all have been handed over, in this order
    try:
        many.go()
        equal(many.await_marks(), [GROUPS * OPS], "operations of the other user")
        one.go()
        one.await_marks()
    finally:
        cluster[1].resume()
    (ended, right), = one.outcomes(seconds=60)
    equal(right, True, "the result is right")
    ends, = many.outcomes(seconds=60)
    left = sum(at > ended for at in ends)
    assert left >= GROUPS * OPS // 2, f"{left} of {GROUPS * OPS} large operations are left when the small one ends"


def opens_through(me, timeout, *sockets):
    """Two ranks without a secret, each through a socket of its own."""
    del os.environ["NEXAR_JOB_SECRET"]
    try:
        group = nexar.Session(sockets[me.rank]).group(me.name, size=2, rank=me.rank, timeout=timeout)
        me.mark()
        me.wait_for_go()
        return int(group.all_reduce(np.array([me.rank + 1]))[0])
    except nexar.Error as error:
        return error.name


def test_users_of_equal_uid_are_apart_when_their_sockets_have_labels(cluster):
    """[H19] [N1] A container's processes meet those of their own socket only, and are counted for themselves."""
    node = cluster[1]
    pod, other = node.folder / "pod.sock", node.folder / "other.sock"
    node.end()
    node.start(NEXAR_SESSION_SOCKETS=f"{pod} label=pod mode=0600,{other} label=pod")
    equal(pod.stat().st_mode & 0o777, 0o600, "the socket's mode")
    apart = Job([node] * 2, opens_through, 2, node.socket, pod)
    equal(apart.outcomes(), ["GROUP_INCOMPLETE"] * 2, "a group of users with and without a label")
    together = Job([node] * 2, opens_through, 20, pod, other)
    together.await_marks()

    def pods(what):
        return {(user["uid"], user["label"]): user for user in node.ask("status")["users"]}[os.getuid(), "pod"][what]

    # Sessions of processes that have ended count until their memory is unmapped.
    eventually(lambda: pods("sessions") == 2, "two sessions of the label's user")
    eventually(lambda: pods("groups") == 2, "two ranks of the label's user")
    together.go()
    equal(together.outcomes(), [3, 3], "a group of users of one label")


def comes_and_goes(me):
    become(GREEDY)
    while not me.is_released():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, \
                contextlib.suppress(PermissionError):  # shut out for now [S16]
            connection.connect(str(me.node.socket))


def test_a_user_who_fills_the_log_suppresses_only_own_lines(cluster):
    """[H8] [N11] Connections that come and go without end: what is left out is counted for that user; another's is there."""
    open_to_all(cluster)
    node = cluster[1]
    noise = Job([node], comes_and_goes)

    def left_out(uid):
        return sum(user["log_lines_left_out"] for user in node.ask("status")["users"] if user["uid"] == uid)

    eventually(lambda: left_out(GREEDY) > 100, "lines to be left out")
    quiet = Job([node], works)
    pid = quiet[0].pid
    equal(quiet.outcomes(), ["ok"], "the work of another user")
    eventually(lambda: any("session_ended" in line and f"pid={pid} " in line for line in node.log().splitlines()),
               "the other user's line")
    equal(left_out(OTHER), 0, "lines of the other user that were left out")
    noise.go()
    noise.outcomes()
    assert left_out(GREEDY) > 100, "the count has gone with the sessions"


if __name__ == "__main__":
    main(globals(), nodes=2)
