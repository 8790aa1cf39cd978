"""Mistakes of applications: each gets a clear error, nothing is lost, and the group works on. Two ranks per node:

    node 1: ranks 0, 3 ──┐
    node 2: ranks 1, 4 ──┼── switch
    node 3: ranks 2, 5 ──┘
"""
import contextlib
import ctypes
import os
import signal
import threading
import time

from harness import *
from harness.states import arrived, asleep_in_threads, forming, receiving
from harness.values import check, given, reduced

lib = cabi.lib
F64, SUM = nexar.DTYPES["float64"], nexar.OPS["sum"]


def two_each(cluster):
    return [cluster[n] for n in (1, 2, 3, 1, 2, 3)]


def one_sum(me, group, **options):
    check(group.all_reduce(given("int64", "sum", group.rank, 1000), **options), reduced("int64", "sum", group.size, 1000),
          "all_reduce")


# ---- Groups that cannot be ----

def asks_for(me, ranks, sizes, timeouts):
    """Each process asks for its own idea of the group, when the test says go."""
    me.wait_for_go()
    group = me.group(rank=ranks[me.rank], size=sizes[me.rank], timeout=timeouts[me.rank])
    one_sum(me, group)
    return group.rank


def test_the_second_that_asks_for_a_rank_gets_an_error_and_the_first_is_not_disturbed(cluster):
    for second in (cluster[1], cluster[2]):
        job = Job([cluster[1], second, cluster[3]], asks_for, [0, 0, 1], [2, 2, 2], [10, 10, 10])
        job.go(0)
        eventually(lambda: forming(cluster[1], job.name) == [0], "the first to wait")
        job.go(1)

        clash = job.outcomes(1)[0]
        equal((clash.name, clash.op), ("RANK_CLASH", "group_open"), "error of the second")
        contains(clash.text, "rank 0", f"pid {job[0].pid}", f"pid {job[1].pid}")
        job.go(2)
        equal(job.outcomes(0, 2), [0, 1], "ranks of the others")


def test_different_sizes_under_one_name_are_an_error(cluster):
    for second in (cluster[1], cluster[2]):
        job = Job([cluster[2], second], asks_for, [0, 1], [2, 3], [10, 10])
        job.go(0)
        eventually(lambda: forming(cluster[2], job.name) == [0], "the first to wait")
        job.go(1)

        for outcome in job.outcomes():  # nobody knows who of them is right
            equal((outcome.name, outcome.op), ("OPTIONS_DIFFER", "group_open"), f"{outcome}")
            contains(outcome.text, "2", "3", f"pid {job[0].pid}", f"pid {job[1].pid}")


def opens(me, timeout, **options):
    return me.fails(me.group, timeout=timeout, **options)


def test_a_group_that_never_fills_names_who_is_missing(cluster):
    begin = time.monotonic()
    placement = two_each(cluster)
    job = Job(placement, opens, 3, without={2, 4})  # time for all four to come on a busy machine

    for failure in job.outcomes():
        equal((failure.name, failure.op, failure.rank), ("GROUP_INCOMPLETE", "group_open", 2), f"error {failure}")
        contains(failure.text, "rank 2", "rank 4")
        assert failure.at - begin < 3 + 0.3 + BUSY, f"it came {failure.at - begin:.1f} s after the opens"


def test_who_has_come_is_named_too(cluster):
    job = Job([cluster[1], cluster[2]], opens, 1, without={1})
    failure = job.outcomes(0)[0]
    equal((failure.name, failure.rank), ("GROUP_INCOMPLETE", 1), f"error {failure}")
    contains(failure.text, f"pid {job[0].pid}")

    automatic = Job([cluster[1], cluster[2]], lambda me: me.fails(me.group, rank=nexar.RANK_AUTO, timeout=1), without={1})
    failure = automatic.outcomes(0)[0]
    equal((failure.name, failure.rank), ("GROUP_INCOMPLETE", None), f"error {failure}")


def test_another_job_secret_is_another_group(cluster):
    ours = Job([cluster[1], cluster[2]], opens, 1, name="shared", secret="the secret that is ours", without={1})
    theirs = Job([cluster[1], cluster[2]], opens, 1, name="shared", secret="the secret that is theirs", without={0})

    for failure, missing in ((ours.outcomes(0)[0], 1), (theirs.outcomes(1)[0], 0)):
        equal((failure.name, failure.rank), ("GROUP_INCOMPLETE", missing), f"error {failure}")


def impossible_groups(me):
    session = me.session()
    cases = {"size 0": {"size": 0}, "rank beyond": {"rank": 2, "size": 2}, "size beyond": {"size": 4097},
             "long name": {"name": "x" * 129}, "empty name": {"name": ""}}
    failures = {what: me.fails(me.group, session, timeout=100, **options) for what, options in cases.items()}
    alone = me.group(session, size=1, rank=0, name="\u00e4\u4e2d")
    one_sum(me, alone)
    return failures


def test_groups_that_cannot_be_are_refused_before_anybody_waits(cluster):
    for what, failure in run([cluster[1]], impossible_groups)[0].items():  # in less than the time that one of them would wait
        equal(failure.name, "INVALID_ARGUMENT", f"error of {what}")


# ---- Calls that this process must reject, without losing step with the others ----

def start(group, function, *arguments):
    number = ctypes.c_uint64()
    return cabi.name_of(function(group._handle, *arguments, None, ctypes.byref(number)))


def rejected_calls(me):
    session = me.session(slots=16, scratch_limit=1 << 20)
    group, x = me.group(session), session.alloc(64, "float64")
    at = x.ctypes.data
    all_reduce, broadcast, gather = lib.nexar_all_reduce_start, lib.nexar_broadcast_start, lib.nexar_all_gather_start
    scatter, send, recv = lib.nexar_reduce_scatter_start, lib.nexar_send_start, lib.nexar_recv_start
    scan, exclusive_scan = lib.nexar_scan_start, lib.nexar_exclusive_scan_start
    all_gatherv, gatherv, scatterv = lib.nexar_all_gatherv_start, lib.nexar_gatherv_start, lib.nexar_scatterv_start
    reduce_scatterv, all_to_allv, list_of = lib.nexar_reduce_scatterv_start, lib.nexar_all_to_allv_start, ctypes.c_uint64 * me.size
    ones, huge = list_of(*[1] * me.size), list_of(*[1 << 62] * me.size)
    wrong = {
        "list": (all_gatherv, at, at, None, F64), "sum of counts": (all_gatherv, at, at, huge, F64),
        "bytes of counts": (all_gatherv, at, at, list_of(1 << 60), F64), "dtype of counts": (all_gatherv, at, at, ones, 99),
        "output of counts": (all_gatherv, at, None, ones, F64), "input of counts": (all_gatherv, None, at, ones, F64),
        "counts overlap": (all_gatherv, at + 8 * ((me.rank + 1) % me.size or 1), at, ones, F64),
        "list of gatherv": (gatherv, at, at, None, F64, me.rank), "sum of gatherv": (gatherv, at, at, huge, F64, me.rank),
        "bytes of gatherv": (gatherv, at, at, list_of(1 << 60), F64, me.rank), "dtype of gatherv": (gatherv, at, at, ones, 99, me.rank),
        "output of gatherv": (gatherv, at, None, ones, F64, me.rank), "input of gatherv": (gatherv, None, at, ones, F64, me.rank),
        "overlap of gatherv": (gatherv, at + 8 * ((me.rank + 1) % me.size or 1), at, ones, F64, me.rank),
        "root of gatherv": (gatherv, at, at, ones, F64, me.size),
        "list of scatterv": (scatterv, at, at, None, F64, me.rank), "sum of scatterv": (scatterv, at, at, huge, F64, me.rank),
        "bytes of scatterv": (scatterv, at, at, list_of(1 << 60), F64, me.rank), "dtype of scatterv": (scatterv, at, at, ones, 99, me.rank),
        "output of scatterv": (scatterv, at, None, ones, F64, me.rank), "input of scatterv": (scatterv, None, at, ones, F64, me.rank),
        "overlap of scatterv": (scatterv, at, at + 8 * ((me.rank + 1) % me.size or 1), ones, F64, me.rank),
        "root of scatterv": (scatterv, at, at, ones, F64, me.size),
        "list of sums": (reduce_scatterv, at, at, None, F64, SUM), "sum of list of sums": (reduce_scatterv, at, at, huge, F64, SUM),
        "bytes of sums": (reduce_scatterv, at, at, list_of(1 << 60), F64, SUM), "dtype of sums": (reduce_scatterv, at, at, ones, 99, SUM),
        "input of sums": (reduce_scatterv, None, at, ones, F64, SUM), "output of sums": (reduce_scatterv, at, None, ones, F64, SUM),
        "op of sums": (reduce_scatterv, at, at, ones, F64, 14), "op that the sums' dtype lacks": (reduce_scatterv, at, at, ones, F64, nexar.OPS["bor"]),
        "sums without scalar": (reduce_scatterv, at, at, ones, F64, nexar.OPS["premul_sum"]),
        "overlap of sums": (reduce_scatterv, at, at + 8 * ((me.rank + 1) % me.size or 1), ones, F64, SUM),
        "sends": (all_to_allv, at, None, at + 256, ones, F64), "receives": (all_to_allv, at, ones, at + 256, None, F64),
        "sum of sends": (all_to_allv, at, huge, at + 256, ones, F64), "dtype of exchange": (all_to_allv, at, ones, at + 256, ones, 99),
        "sum of receives": (all_to_allv, at, ones, at + 256, huge, F64), "bytes of sends": (all_to_allv, at, list_of(1 << 60), at, ones, F64),
        "bytes of receives": (all_to_allv, at, ones, at + 256, list_of(1 << 61), F64),
        "input of exchange": (all_to_allv, None, ones, at, ones, F64), "output of exchange": (all_to_allv, at, ones, None, ones, F64),
        "exchange in place": (all_to_allv, at, ones, at, ones, F64), "overlap of exchange": (all_to_allv, at, ones, at + 8, ones, F64),
        "dtype": (all_reduce, at, at, 3, 99, SUM), "negative dtype": (all_reduce, at, at, 3, -1, SUM),
        "op": (all_reduce, at, at, 3, F64, 14), "op that the dtype lacks": (all_reduce, at, at, 3, F64, nexar.OPS["band"]),
        "no scalar": (all_reduce, at, at, 3, F64, nexar.OPS["premul_sum"]), "no input": (all_reduce, None, at, 3, F64, SUM),
        "no output": (all_reduce, at, None, 3, F64, SUM), "count": (all_reduce, at, at, 1 << 61, F64, SUM),
        "count of all": (gather, at, at, 1 << 60, F64), "largest count": (scatter, at, at, (1 << 64) - 1, F64, SUM),
        "root": (broadcast, at, 3, F64, me.size), "overlap": (all_reduce, at, at + 8, 3, F64, SUM),
        "gather overlap": (gather, at + 8 * (me.rank + 1 if me.rank + 1 < me.size else 1), at, 1, F64),
        "scan dtype": (scan, at, at, 3, 99, SUM), "scan op": (scan, at, at, 3, F64, nexar.OPS["lxor"]),
        "scan without scalar": (exclusive_scan, at, at, 3, F64, nexar.OPS["premul_sum"]),
        "scan input": (exclusive_scan, None, at, 3, F64, SUM), "scan output": (scan, at, None, 3, F64, SUM),
        "exclusive output": (exclusive_scan, at, None, 3, F64, SUM),
        "exclusive mean": (exclusive_scan, at, at, 3, F64, nexar.OPS["avg"]),
        "scan count": (exclusive_scan, at, at, 1 << 61, F64, SUM), "scan overlap": (scan, at, at + 8, 3, F64, SUM),
        "to": (send, at, 3, F64, me.size, 0), "from": (recv, at, 3, F64, me.size + 7, 0),
        "tag": (send, at, 3, F64, 0, (1 << 64) - 1),
    }
    for turn in range(2):
        for what, (function, *arguments) in wrong.items():
            equal(start(group, function, *arguments), "INVALID_ARGUMENT", f"status of a wrong {what}")
        equal(start(group, all_reduce, at, at, 1 << 40, F64, SUM) in ("INVALID_ARGUMENT", "NO_MEMORY"), True,
              "a count beyond its memory was refused")
        big = np.zeros(1 << 18)
        equal(me.fails(group.all_reduce, big).name, "NO_MEMORY", "error of ordinary memory beyond the scratch limit")
        one_sum(me, group)
    return me.fails(group.all_reduce, big).name


def test_a_rejected_call_uses_up_no_place_in_the_order_of_operations(cluster):
    equal(set(run(two_each(cluster), rejected_calls)), {"NO_MEMORY"}, "errors")


def refuses(call):
    """The exception's name."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def python_refuses(me):
    """What is no argument for the C functions: {what: exception}; and how many regions that has cost."""
    session = me.session()
    group, x = me.group(session), session.alloc(4)
    one_sum(me, group)  # so that there is scratch memory
    before = session.stats()["regions"]
    refusals = {what: refuses(call) for what, call in {
        "root": lambda: group.broadcast(x, root=-1), "large root": lambda: group.reduce(x, root=1 << 32),
        "to": lambda: group.send(x, -1), "tag": lambda: group.send(x, 0, tag=-1), "node": lambda: group.node(-1),
        "source": lambda: group.recv(x, source=-1), "list to gather": lambda: group.all_gather([1j, 2]),
        "list to scatter": lambda: group.reduce_scatter([1, 2]), "shape": lambda: session.alloc(-1),
        "shape of two": lambda: session.alloc((-1, -2)), "objects": lambda: session.alloc(3, object),
        "half an element": lambda: session.alloc(1.5)}.items()}
    one_sum(me, group)
    return refusals, session.stats()["regions"] - before


def test_python_refuses_what_is_no_argument_and_keeps_no_memory(cluster):
    for refusals, regions in run(two_each(cluster), python_refuses):
        wanted = dict.fromkeys(refusals, "ValueError") | {"half an element": "TypeError"}
        equal(refusals, wanted, "exceptions")
        equal(regions, 0, "regions of calls that failed")


def group_beside_its_job(me):
    os.environ.update(NEXAR_RANK="1", NEXAR_WORLD_SIZE="2")
    failure = me.fails(me.session().group, "beside", size=1)
    return failure.name, failure.text


def test_a_rank_of_the_environment_that_does_not_fit_is_reported_as_one(cluster):
    name, text = run([cluster[1]], group_beside_its_job)[0]
    equal(name, "INVALID_ARGUMENT", "status")
    contains(text, "rank is 1 (from NEXAR_RANK", "allowed: 0 to 0")


def fills_its_table(me):
    session = me.session(slots=16)
    group = me.group(session)
    pending = []
    with contextlib.suppress(nexar.RetryError):
        while len(pending) < 16:
            pending.append(group.recv_start(np.zeros(1), (me.rank + 1) % me.size, len(pending)))
    full = me.fails(group.recv_start, np.zeros(1))
    assert len(pending) >= 12, f"only {len(pending)} requests fit in 16 slots, some of which the library needs itself"
    pending[3].cancel()
    equal(me.fails(pending[3].wait, 5).name, "CANCELLED", "the cancelled receive")
    one_sum(me, group)
    return full.name


def test_a_full_table_is_an_error_and_works_again_when_one_has_ended(cluster):
    equal(set(run(two_each(cluster), fills_its_table)), {"TABLE_FULL"}, "errors")


def handles(me):
    session = me.session()
    group, x = me.group(session), np.zeros(4)
    request = group.all_reduce_start(x)
    request.wait()
    number = request._number
    statuses = {"freed twice": lib.nexar_request_free(number), "waited when freed": lib.nexar_request_wait(number, 10, None),
                "request 0": lib.nexar_request_wait(0, 10, None), "never a request": lib.nexar_request_test(12345678901, None)}
    pending = group.recv_start(x, 0, 9)
    statuses["freed while pending"] = lib.nexar_request_free(pending._number)
    pending.cancel()
    one_sum(me, group)
    handle = group._handle
    group.free()
    statuses["group freed twice"] = lib.nexar_group_free(handle)
    statuses["group freed"] = lib.nexar_barrier_start(handle, None, ctypes.byref(ctypes.c_uint64()))
    statuses["no group"] = lib.nexar_barrier_start(None, None, ctypes.byref(ctypes.c_uint64()))
    number = session._connection.handle
    cabi.check(lib.nexar_session_close(number))
    statuses["session closed"] = lib.nexar_alloc(number, 100, None, ctypes.byref(ctypes.c_void_p()))
    return {what: lib.nexar_status_name(status).decode() for what, status in statuses.items()}


def test_every_wrong_handle_is_an_error(cluster):
    for statuses in run([cluster[1], cluster[2]], handles):
        equal(statuses, {"freed twice": "BAD_HANDLE", "waited when freed": "BAD_HANDLE", "request 0": "BAD_HANDLE",
                         "never a request": "BAD_HANDLE", "freed while pending": "BAD_STATE",
                         "group freed twice": "CLOSED", "group freed": "CLOSED", "no group": "BAD_HANDLE",
                         "session closed": "CLOSED"}, "statuses")


def closes_under_waiters(me):
    session = me.session()
    group, failures = me.group(session), []
    if me.rank == 1:
        me.wait_for_go()
        return me.fails(group.barrier)
    requests = [group.recv_start(np.zeros(1), 1, tag) for tag in range(4)]
    waiters = [threading.Thread(target=lambda r=r: failures.append(me.fails(r.wait))) for r in requests]
    for waiter in waiters:
        waiter.start()
    me.mark()
    me.wait_for_go()
    cabi.check(lib.nexar_session_close(session._connection.handle))
    for waiter in waiters:
        waiter.join(10)
    me.mark()
    return [failure.name for failure in failures]


def test_a_closed_session_ends_the_waits_of_other_threads(cluster):
    job = Job([cluster[1], cluster[2]], closes_under_waiters)
    job[0].await_mark()
    eventually(lambda: asleep_in_threads(job[0].pid, 4), "four threads to wait")
    job.go(0)
    job[0].await_mark()
    job.go(1)

    equal(job.outcomes(0)[0], ["CLOSED"] * 4, "how the waits ended")
    same_failure(job.outcomes(1), "PEER_LOST", rank=0, node=cluster[1].id)


# ---- Ranks that do not agree ----

DISAGREEMENTS = {
    "kind": ("barrier_start", (), "all_reduce_start", (np.zeros(3),)),
    "dtype": ("all_reduce_start", (np.zeros(4),), "all_reduce_start", (np.zeros(8, np.float32),)),
    "op": ("all_reduce_start", (np.zeros(3),), "all_reduce_start", (np.zeros(3), None, "max")),
    "count": ("all_reduce_start", (np.zeros(3),), "all_reduce_start", (np.zeros(4),)),
    "large count": ("all_reduce_start", (np.zeros(300_000),), "all_reduce_start", (np.zeros(300_001),)),
    "small and large": ("all_reduce_start", (np.zeros(3),), "all_reduce_start", (np.zeros(300_000),)),
    "nothing and something": ("all_gather_start", (np.zeros(0),), "all_gather_start", (np.zeros(3),)),
    "root": ("broadcast_start", (np.zeros(3), 0), "broadcast_start", (np.zeros(3), 2)),
    "root of reduce": ("reduce_start", (np.zeros(3), None, "sum", 1), "reduce_start", (np.zeros(3), None, "sum", 0)),
}


def disagrees(me, odd):
    """In every way, one after the other; the ranks in `odd` do the second thing."""
    group, failures = me.group(), {}
    for what, (one, arguments, other, other_arguments) in DISAGREEMENTS.items():
        name, given_arguments = (other, other_arguments) if me.rank in odd else (one, arguments)
        try:
            getattr(group, name)(*given_arguments).wait(10)
            failures[what] = None
        except nexar.Error as error:
            failures[what] = me.failure(error)
        one_sum(me, group)
    return failures


def test_ranks_that_disagree_all_get_mismatch_and_the_group_can_be_used(cluster):
    for odd in ({2, 5}, {4}, {0}):  # a node against the others; two ranks of one node; the first rank
        outcomes = Job(two_each(cluster), disagrees, odd).outcomes()
        for what in DISAGREEMENTS:
            for rank, outcome in enumerate(outcomes):
                assert not isinstance(outcome, Failure), f"rank {rank}: {outcome}"
                # Who had what it was to have from a root before anybody saw the disagreement keeps its success.
                if outcome[what] is None and what.startswith("root") and rank not in odd:
                    continue
                assert outcome[what], f"{what} (odd: {odd}): rank {rank} got success"
                equal(outcome[what].name, "MISMATCH", f"{what}, rank {rank}: {outcome[what]}")
            for text in {outcome[what].text for outcome in outcomes if outcome[what]}:
                words = text.replace(",", " ").replace(";", " ").split()
                assert sum(word.startswith("rank") for word in words) >= 2, f"{what}: both sides are not named: {text}"


def too_long(me):
    group, x = me.group(), np.arange(5.0)
    if me.rank == 0:
        return [me.fails(group.recv, np.zeros(3), 1, 7).name, group.recv(np.zeros(9), 1, 7)]
    for count in (4, 5):
        try:
            group.send(x[:count], 0, 7)
        except nexar.Error as error:
            equal(error.name, "MISMATCH", "error of the sender")


def test_a_message_beyond_its_buffer_is_an_error_and_the_next_one_arrives(cluster):
    for other in (cluster[1], cluster[2]):
        equal(run([cluster[1], other], too_long)[0], ["MISMATCH", (1, 7, 5)], "what the receiver got")


# ---- Time and cancellation ----

def cancels(me, who, count):
    group = me.group()
    one_sum(me, group)
    x = given("float32", "sum", me.rank, count)
    if me.rank == 5:  # so that it cannot end
        me.wait_for_go()
        failure = me.fails(group.all_reduce, x)
    else:
        request = group.all_reduce_start(x)
        me.mark()
        if me.rank == who:
            me.wait_for_go()
            request.cancel()
        failure = me.fails(request.wait, 10)
        me.mark()
    one_sum(me, group)
    return failure


def test_a_cancelled_collective_ends_on_all_ranks_and_the_next_works(cluster):
    for who, count in ((1, 3), (0, 300_000), (3, 1000)):
        job = Job(two_each(cluster), cancels, who, count)
        started = range(5)
        for rank in started:
            job[rank].await_mark()
        eventually(lambda: all(rank in arrived(job[rank].node, job.name) for rank in started), "all but rank 5")
        job.go(who)
        for rank in started:
            job[rank].await_mark()
        job.go(5)

        outcomes = job.outcomes()
        equal(outcomes[who].name, "CANCELLED", f"error of the one that cancelled: {outcomes[who]}")
        others = [outcome for rank, outcome in enumerate(outcomes) if rank != who]
        for outcome in others:
            equal((outcome.name, outcome.rank), ("ABORTED", who), f"error: {outcome}")


def comes_late(me, late, timeout, how):
    group = me.group(collective_timeout=timeout)
    one_sum(me, group, timeout=10)
    begin = time.monotonic()
    if me.rank in late:
        me.wait_for_go()
    failure = me.fails(group.barrier) if how == "small" else me.fails(group.all_reduce, np.zeros(200_000))
    me.mark()
    one_sum(me, group, timeout=10)
    return failure, failure.at - begin


def test_a_collective_that_not_all_join_in_time_names_who_is_missing(cluster):
    for late, how in (({4}, "small"), ({1, 2}, "large"), ({0}, "small")):
        job = Job(two_each(cluster), comes_late, late, 1, how)
        early = [rank for rank in range(6) if rank not in late]
        for rank in early:
            job[rank].await_mark()
        job.go(*late)

        outcomes = job.outcomes()
        for rank in early:
            failure, after = outcomes[rank]
            assert failure.name in ("TIMED_OUT", "ABORTED"), f"rank {rank}: {failure}"
            for absent in late:
                contains(failure.text, f"rank {absent}")
            assert 0.9 < after < 1 + BUSY, f"rank {rank} got its error after {after:.1f} s"
        for rank in late:  # they join an operation that is over
            equal(outcomes[rank][0].name, "ABORTED", f"error of the late rank {rank}: {outcomes[rank][0]}")


def test_ctrl_c_ends_a_wait_in_python(cluster):
    job = Job([cluster[1]], alone_interrupted)
    job.await_marks()
    eventually(lambda: receiving(job, 0), "the receive to wait")
    begin = time.monotonic()
    os.kill(job[0].pid, signal.SIGINT)

    equal(job.outcomes(), ["interrupted"], "outcome")
    assert time.monotonic() - begin < BUSY


def alone_interrupted(me):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    group = me.group()
    me.mark()
    try:
        group.recv(np.zeros(1), 0, 5)
    except KeyboardInterrupt:
        one_sum(me, group)
        return "interrupted"


main(globals())
