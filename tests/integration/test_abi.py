"""The C ABI: structs of another age, the environment, errors, requests, openings. Two nodes:

    node 1 ──┐
    node 2 ──┴── switch

What several ranks or threads of one session do is in test_ranks.py.
"""
import contextlib
import ctypes
import fcntl
import mmap
import os
import re
import resource
import select
import signal
import socket
import struct
import tempfile
import threading
import time
from ctypes import byref, c_uint64, c_void_p

from harness import *
from harness.states import in_collective
from harness.values import check, given, reduced

lib = cabi.lib
SOON = BUSY


def one_sum(me, group):
    check(group.all_reduce(given("int64", "sum", group.rank, 100)), reduced("int64", "sum", group.size, 100), "sum")


# ---- Structs of a later version, and of an earlier one ----

def test_programs_of_a_later_and_an_earlier_0_2_work_with_this_library(cluster):
    started = program(cluster[1], "NEXAR_TEST_ABI_FUTURE", "daemon")
    output, _ = started.communicate(timeout=30)
    equal((started.returncode, output), (0, "all as it should be\n"), "exit and output")


# ---- Who is in a group: the environment ----

def in_environment(**variables):
    for name in list(os.environ):
        of_a_launcher = name.startswith(("NEXAR_", "TORCHELASTIC_", "SLURM_", "OMPI_", "PMIX_"))
        if name in ("RANK", "WORLD_SIZE") or (of_a_launcher and name != "NEXAR_SOCKET"):
            del os.environ[name]
    for name, value in variables.items():
        os.environ[name] = str(value)


def c_group(session):
    """(status, handle) of nexar_group_open without options."""
    handle = c_void_p()
    return lib.nexar_group_open(cabi.of(session), None, byref(handle)), handle.value


def says_nothing_of_its_job(me, job):
    in_environment(RANK=me.rank, WORLD_SIZE=me.size)
    session = me.session()
    by_c = cabi.name_of(c_group(session)[0]), cabi.last_error().text.decode()
    by_python = me.fails(session.group, timeout=2)
    return by_c, (by_python.name, by_python.text)


def test_a_job_without_a_name_of_its_own_meets_nobody(cluster):
    """[D18] In 0.1.0 two jobs whose launcher gave ranks only met in the group "default", and added each other's
    numbers."""
    jobs = [Job([cluster[1], cluster[2]], says_nothing_of_its_job, job) for job in (1, 100)]
    for job in jobs:
        for outcome in job.outcomes():
            for name, text in outcome:
                equal(name, "INVALID_ARGUMENT", text)
                contains(text, "NEXAR_GROUP", "NEXAR_JOB_SECRET")


def adds(me, value, variables):
    in_environment(RANK=me.rank, WORLD_SIZE=me.size, NEXAR_JOB_SECRET="a secret of both jobs", **variables)
    group = me.session().group(timeout=10)
    return int(group.all_reduce(np.array([value]))[0])


def test_jobs_that_their_launcher_names_stay_apart(cluster):
    """[D18]"""
    names = [({"TORCHELASTIC_RUN_ID": "one"}, {"TORCHELASTIC_RUN_ID": "other"}),
             ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "host", "MASTER_PORT": 1},
              {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "host", "MASTER_PORT": 2})]
    for variables in names:
        jobs = [Job([cluster[1], cluster[2]], adds, value, mine) for value, mine in zip((1, 100), variables)]
        equal([job.outcomes() for job in jobs], [[2, 2], [200, 200]], f"sums of the jobs of {variables}")


def overrides(me):
    """One option is given; the environment says the rest."""
    in_environment(NEXAR_RANK=me.rank, NEXAR_WORLD_SIZE=me.size, NEXAR_GROUP=me.name, NEXAR_JOB_SECRET=me.secret)
    session = me.session()
    group = session.group(timeout=10)
    other = session.group(name=me.name + "-other", timeout=10)
    one_sum(me, other)
    return group.rank, group.size, other.rank, other.size


def test_a_given_option_leaves_the_rest_to_the_environment(cluster):
    """[U6]"""
    equal(run([cluster[1], cluster[2]], overrides), [(0, 2, 0, 2), (1, 2, 1, 2)], "ranks and sizes")


def environments(me):
    """What each makes of the call without options: (status, text)."""
    session, found = me.session(), {}
    good = {"NEXAR_RANK": 0, "NEXAR_WORLD_SIZE": 1, "NEXAR_GROUP": "environment"}
    for what, variables in {
            "nothing": {}, "half": {"RANK": 0}, "rank": {**good, "NEXAR_RANK": "x"}, "size": {**good, "NEXAR_WORLD_SIZE": 0},
            "alone": {"NEXAR_RANK": 0, "RANK": 0, "WORLD_SIZE": 1}, "time": {**good, "NEXAR_BARRIER_TIMEOUT_SECS": "soon"}, "beyond": {**good, "NEXAR_RANK": 1},
            "good": good, "none": {**good, "NEXAR_COLLECTIVE_TIMEOUT_SECS": 0}, "auto": {**good, "NEXAR_RANK": "auto"},
            "srun": {"SLURM_PROCID": 0, "SLURM_NTASKS": 1, "SLURM_JOB_ID": 7, "SLURM_STEP_ID": 1},
            "mpirun": {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 1, "PMIX_NAMESPACE": "x"}}.items():
        in_environment(**variables)
        status, handle = c_group(session)
        found[what] = cabi.name_of(status), cabi.last_error().text.decode() if status else ""
        if status == 0:
            cabi.check(lib.nexar_group_free(handle))
    return found


def test_the_environment_is_understood_or_refused_by_its_variable(cluster):
    found = run([cluster[1]], environments)[0]
    for what in ("good", "none", "auto", "srun", "mpirun"):
        equal(found[what], ("OK", ""), what)
    for what, variable in {"rank": "NEXAR_RANK", "size": "NEXAR_WORLD_SIZE", "time": "NEXAR_BARRIER_TIMEOUT_SECS",
                           "beyond": "NEXAR_RANK", "nothing": "NEXAR_RANK", "half": "RANK is set, WORLD_SIZE is not",
                           "alone": "NEXAR_RANK is set, NEXAR_WORLD_SIZE is not"}.items():
        equal(found[what][0], "NOT_FOUND" if what in ("nothing", "half") else "INVALID_ARGUMENT", what)
        contains(found[what][1], variable)


# ---- Errors ----

def loses_rank_1(me):
    group = me.group()
    one_sum(me, group)
    if me.rank == 1:
        me.mark()
        me.stay()
    request = group.all_reduce_start(np.zeros(3))
    me.mark()
    failure = me.fails(request.wait)
    before = cabi.last_error().code
    with tempfile.TemporaryFile() as file:
        stderr = os.dup(2)
        os.dup2(file.fileno(), 2)
        lib.nexar_perror(b"step 1")
        lib.nexar_perror(None)
        thread = threading.Thread(target=lib.nexar_perror, args=(b"",))
        thread.start()
        thread.join()
        os.dup2(stderr, 2)
        file.seek(0)
        return failure, before, file.read().decode().splitlines()


def test_an_error_names_operation_group_number_rank_host_and_process(cluster):
    """[U5] In 0.1.0 the operation was "wait", and the rest was missing."""
    for other in (cluster[1], cluster[2]):
        job = Job([cluster[1], other, cluster[2]], loses_rank_1)
        job.await_marks()
        # Of a group that has failed before, an operation is refused without a number.
        eventually(lambda: in_collective(job, 0, 2), "the operation to have begun")
        job[1].kill()
        for failure, code, lines in job.outcomes(0, 2):
            error = failure.error
            equal((failure.name, type(error), code), ("PEER_LOST", nexar.GroupError, error.code), "the error")
            equal((error.op, error.group, error.epoch, error.sequence), ("all_reduce", job.name, 1, 1), f"{failure}")
            equal((error.rank, error.node, error.pid), (1, other.id, job[1].pid), f"who is at fault: {failure}")
            equal((error.host, error.lost_ranks, error.lost_count), (socket.gethostname(), (1,), 1), f"{failure}")
            start = f'all_reduce 1 of group "{job.name}" (epoch 1): PEER_LOST: '
            assert lines[0].startswith("step 1: " + start) and lines[1].startswith(start), lines
            contains(lines[0], "rank 1", socket.gethostname(), str(job[1].pid))
            equal(lines[2], "no error", "of a thread without a failure")


def fails_by(me, how):
    """Rank 1 is late; rank 0's own deadline passes, or it cancels."""
    group = me.group()
    one_sum(me, group)
    if me.rank == 1:
        me.wait_for_go()
        failure = me.fails(group.barrier)
    elif me.rank == 0:
        request = group.barrier_start(timeout=0.5 if how == "timeout" else None)
        if how == "cancel":
            request.cancel()
        failure = me.fails(request.wait, 10)
        me.mark()
    else:
        failure = me.fails(group.barrier)
    one_sum(me, group)
    return failure


def test_one_event_has_one_class_on_all_ranks(cluster):
    """[U2] [U1] And the one who was late is named, to the one too whose deadline passed."""
    for how, name in (("timeout", "TIMED_OUT"), ("cancel", "CANCELLED")):
        job = Job([cluster[1], cluster[2], cluster[1]], fails_by, how)
        job[0].await_mark()
        job.go(1)
        outcomes = job.outcomes()
        equal([outcome.name for outcome in outcomes], [name, "ABORTED", "ABORTED"], f"{outcomes}")
        equal([isinstance(outcome.error, nexar.OperationError) for outcome in outcomes], [True] * 3, "classes")
        if how == "timeout":
            equal(outcomes[0].rank, 1, f"who is late: {outcomes[0]}")
            for outcome in outcomes:
                contains(outcome.text, "the deadline of rank 0", "not arrived: rank 1", "NEXAR_BARRIER_TIMEOUT_SECS")  # [U19]


def fake_daemon(path, answer):
    """Answers a hello with those bytes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()
    pid = os.fork()
    if pid == 0:
        conn, _ = listener.accept()
        conn.recv(256)
        conn.send(answer)
        conn.recv(256)
        os._exit(0)
    return pid


MAGIC = 0x4C52584E


def cannot_open(me):
    """The statuses of sessions that cannot be."""
    found, folder = {}, tempfile.mkdtemp()

    def opens(what, path=me.node.socket, **options):
        found[what] = me.fails(nexar.Session, path, **options)

    opens("nobody", os.path.join(folder, "nothing"))
    refusal = struct.pack("<IIiI160s", MAGIC, 3, -703, 0, b"too many sessions")
    for what, answer in (("refused", refusal), ("nonsense", b"x" * 50)):
        path = os.path.join(folder, what)
        pid = fake_daemon(path, answer)
        opens(what, path)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent.bind(os.path.join(folder, "silent"))
    silent.listen()
    opens("silent", os.path.join(folder, "silent"), connect_timeout=0.3)
    opens("no time", connect_timeout=0)
    limits, held = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    with contextlib.suppress(OSError):
        while True:
            held.append(os.dup(0))
    opens("descriptors")
    for fd in held:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    return found


def test_a_session_that_cannot_be_opened_says_why(cluster):
    found = run([cluster[1]], cannot_open)[0]
    equal({what: failure.name for what, failure in found.items()},
          {"nobody": "NOT_FOUND", "refused": "SESSION_REFUSED", "nonsense": "PROTOCOL_ERROR",
           "silent": "DAEMON_UNRESPONSIVE", "no time": "INVALID_ARGUMENT", "descriptors": "IO"}, f"statuses of {found}")
    contains(found["refused"].text, "too many sessions")
    for what in ("refused", "silent"):
        assert isinstance(found[what].error, nexar.SessionError), found[what]
    equal((type(found["descriptors"].error), found["descriptors"].error.errno), (nexar.NexarSystemError, 24), "EMFILE")


def has_no_permission(me):
    os.chmod(me.node.socket, 0o700)
    try:
        os.setresuid(65534, 65534, 65534)
    except OSError:
        return None  # a user namespace with one user
    failure = me.fails(me.session)
    return failure.name, failure.error.errno, f"ls -l {me.node.socket}" in failure.text


def test_a_socket_that_this_user_may_not_use_is_a_matter_of_permission_and_the_text_says_where_to_look(cluster):
    assert run([cluster[1]], has_no_permission)[0] in (("PERMISSION", 13, True), None)
    os.chmod(cluster[1].socket, 0o666)


# ---- Requests ----

def waits(me):
    session = me.session()
    group = me.group(session, size=1, rank=0)
    x, numbers, last, index = np.zeros(1), [], cabi.completion(), c_uint64(77)
    for tag in range(3):
        numbers.append(cabi.started("recv", group, x.ctypes.data, 1, 1, 0, tag, options=cabi.op_options(user_data=50 + tag)))
    some = cabi.requests(0, *numbers)
    for call in (lambda: lib.nexar_request_test(numbers[0], byref(last)),
                 lambda: lib.nexar_request_wait(numbers[0], 20, byref(last)),
                 lambda: lib.nexar_request_wait(numbers[0], 0, None),
                 lambda: lib.nexar_request_test_any(some, 4, byref(index), None),
                 lambda: lib.nexar_request_wait_any(some, 4, 20, byref(index), byref(last)),
                 lambda: lib.nexar_request_wait_all(some, 4, 20, None, 0)):
        equal((call(), index.value), (cabi.PENDING, 77), "what has not ended")
    equal((last.status, last.request, last.user_data), (cabi.PENDING, numbers[0], 50), "completion of a pending one")
    equal(cabi.last_error().code, 0, "a wait that runs out is no failure")

    group.send(x, 0, 1)
    equal(lib.nexar_request_wait_any(some, 4, 5000, byref(index), byref(last)), 0, "wait_any")
    equal((index.value, last.status, last.user_data, last.bytes, last.tag, last.source),
          (2, 0, 51, 8, 1, 0), "the one that has ended, as that of the array")
    equal((last.group, last.epoch, last.sequence), (group._handle, 1, 2**64 - 1), "its group")

    cabi.check(lib.nexar_request_cancel(numbers[0]))
    ends = (cabi.Completion * 4)()
    equal(lib.nexar_request_wait_all(some, 4, 20, ends, ctypes.sizeof(cabi.Completion)), cabi.PENDING, "one is pending")
    equal([end.struct_size == 0 for end in ends], [True, False, False, False], "which are written")
    group.send(x, 0, 2)
    equal(cabi.name_of(lib.nexar_request_wait_all(some, 4, 5000, ends, ctypes.sizeof(cabi.Completion))), "CANCELLED",
          "status of the first that failed")
    equal([cabi.name_of(end.status) for end in ends[1:]], ["CANCELLED", "OK", "OK"], "each")
    equal(cabi.last_error().op, b"recv", "the operation, though a wait reports it")
    for again in range(2):
        equal(cabi.name_of(lib.nexar_request_wait(numbers[0], -1, None)), "CANCELLED", "the same answer for ever")
    equal(lib.nexar_request_cancel(numbers[0]), 0, "cancel of what has ended")
    for wrong, why in (((cabi.requests(0, 0), 2), "are 0"), ((some, 0), "count"), ((some, 5000), "count"),
                       ((None, 1), "NULL")):
        equal(lib.nexar_request_test_any(*wrong, byref(index), None), cabi.INVALID_ARGUMENT, why)
        contains(cabi.last_error().text.decode(), why)
    status, ended = cabi.poll(session)
    equal((status, sorted(end.user_data for end in ended)), (0, [50, 51, 52]), "poll gives each that was not freed")
    equal(cabi.poll(session), (0, []), "... once")
    for number in numbers:
        cabi.check(lib.nexar_request_free(number))
    equal(lib.nexar_request_wait_all(some, 4, 0, None, 0), -107, "wait_all of freed ones")
    equal(lib.nexar_request_wait_all(cabi.requests(0, 0), 2, 0, None, 0), 0, "those that are 0 count as ended")


def test_waiting_testing_and_polling_distinguish_pending_from_ended(cluster):
    run([cluster[1]], waits)


def in_other_threads(me):
    """Blocking calls that end while another thread polls without end."""
    session = me.session()
    group, seen, stop = me.group(session), [], threading.Event()

    def polls():
        while not stop.is_set():
            seen.extend(cabi.poll(session)[1])

    poller = threading.Thread(target=polls)
    poller.start()
    x = np.ones(100)
    for _ in range(300):
        cabi.check(lib.nexar_all_reduce(group._handle, x.ctypes.data, x.ctypes.data, 100, 1, 2, None))
    stop.set()
    poller.join()
    return len(seen)


def test_requests_of_blocking_calls_are_invisible_to_poll(cluster):
    """[D1]"""
    equal(run([cluster[1], cluster[2]], in_other_threads), [0, 0], "requests that a poll saw")


def interrupted(me):
    """A handler without SA_RESTART, as Python's are; the wait is in C."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, True)
    group = me.group(size=1, rank=0)
    x, last = np.zeros(1), cabi.completion()
    number = cabi.started("recv", group, x.ctypes.data, 1, 1, 0, 5)
    me.mark()
    status = lib.nexar_request_wait(number, 20000, byref(last))
    equal((cabi.name_of(status), last.status), ("INTERRUPTED", cabi.PENDING), "the wait that a signal ended")
    cabi.check(lib.nexar_request_cancel(number))
    equal(cabi.name_of(cabi.end(number)[0]), "CANCELLED", "the request afterwards")


def test_a_signal_ends_a_wait_and_not_the_request(cluster):
    job = Job([cluster[1]], interrupted)
    job[0].await_mark()
    end = time.monotonic() + 15
    while job[0].status is None and time.monotonic() < end:  # the first may come before the wait has begun
        job[0].kill(signal.SIGUSR1)
        if select.select([job[0]._from], [], [], 0.2)[0]:
            break
    equal(job.outcomes(), [None], "outcome")


# ---- Openings that are started ----

def opens_by_start(me):
    session = me.session()
    first, second = (session.group_start(f"{me.name}-{n}", me.size, me.rank, job_secret=me.secret, timeout=10, user_data=n)
                     for n in (1, 2))
    groups = nexar.wait_all([second, first], 10)
    equal([first.completion.user_data, first.completion.group is groups[1], first.completion.epoch], [1, True, 1], "end")
    for group in groups:
        one_sum(me, group)


def test_groups_can_be_opened_several_at_once(cluster):
    run([cluster[1], cluster[2]], opens_by_start)


def cancels_an_opening(me):
    """Two ask for rank 0 one after the other; the first has left when the second comes."""
    session = me.session()
    if me.rank == 0:
        request = session.group_start(me.name, 2, 0, job_secret=me.secret, timeout=20)
        request.cancel()
        equal(me.fails(request.wait, 10).name, "CANCELLED", "the opening")
        equal(session.stats()["operations"] >= 1, True)
        me.mark()
        group = me.group(session)
    else:
        me.wait_for_go()
        group = me.group(session)
    one_sum(me, group)


def test_a_cancelled_opening_has_left_the_meeting(cluster):
    job = Job([cluster[1], cluster[2]], cancels_an_opening)
    job[0].await_mark()
    job.go(1)
    equal(job.outcomes(), [None, None], "outcomes")


def never_looks(me):
    """Openings whose ends nobody sees."""
    session = me.session()
    options = cabi.group_options(name=f"{me.name}-{me.rank}", size=1, rank=0, job_secret="x" * 16)
    for _ in range(300):  # more than a session may have groups
        number = c_uint64()
        cabi.check(lib.nexar_group_open_start(cabi.of(session), byref(options), byref(number)))
        assert lib.nexar_request_wait(number, 5000, None) == 0
        cabi.check(lib.nexar_request_free(number))
    group = me.group(session)
    one_sum(me, group)
    return len(me.node.ask("groups")["groups"])


def test_the_group_of_an_opening_that_nobody_looked_at_is_freed_with_its_request(cluster):
    assert max(run([cluster[1]], never_looks)) == 1


# ---- Memory ----

def kinds_of_memory(me):
    session = me.session()
    group = me.group(session)
    for how in ({}, {"lazy": True}, {"huge_pages": True}, {"lazy": True, "huge_pages": True}):
        x = session.alloc(3_000_000, "int64", **how)
        assert not x.any(), "memory that is not zeroed"
        x[:] = given("int64", "sum", me.rank, x.size)
        check(group.all_reduce(x), reduced("int64", "sum", me.size, x.size), f"all_reduce in {how}")
        del x
    names = {"bytes": me.fails(session.alloc, 1 << 45, "uint8").name}
    plain = np.frombuffer(mmap.mmap(-1, 4096), np.uint8)
    with tempfile.TemporaryFile() as file:
        names["not a memfd"] = me.fails(session.register_memfd, plain, file.fileno()).name
    fd = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    names["sealed"] = me.fails(session.register_memfd, plain, fd).name
    out = c_void_p()
    names["0 bytes"] = cabi.name_of(lib.nexar_alloc(cabi.of(session), 0, None, byref(out)))
    names["not allocated"] = cabi.name_of(lib.nexar_free(cabi.of(session), plain.ctypes.data))
    return names


def touches_later(me):
    session = me.session()
    lazy = session.alloc(1 << 24, "int64", lazy=True)
    before = resident()
    lazy[: 1 << 22] = 1
    return before, resident()


def test_lazy_memory_takes_pages_when_it_is_touched(cluster):
    """[D20]"""
    before, after = run([cluster[1]], touches_later)[0]
    assert before < 8, f"{before} MiB, though nothing was touched"
    assert 32 <= after < 48, f"{after} MiB, where 32 were touched"


def resident():
    """MiB of memory shared with the daemon."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("RssShmem"))


def test_kinds_of_memory_and_what_is_none(cluster):
    for names in run([cluster[1], cluster[2]], kinds_of_memory):
        equal(names, {"bytes": "NO_MEMORY", "not a memfd": "UNSUPPORTED", "sealed": "UNSUPPORTED",
                      "0 bytes": "INVALID_ARGUMENT", "not allocated": "NOT_FOUND"}, "refusals")


def drops(me):
    """Requests that nobody holds are no leak: more of them than there are slots."""
    session = me.session(slots=16)
    group = me.group(session, size=1, rank=0)
    for tag in range(100):
        group.recv_start(np.zeros(1), 0, tag)
        group.barrier()
    return session.stats()["operations"]


def test_a_dropped_request_gives_its_slot_back(cluster):
    """[U18]"""
    assert run([cluster[1]], drops)[0] >= 200


main(globals(), nodes=2)
