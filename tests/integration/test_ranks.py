"""Several ranks of a group in one session, several threads of one rank, time-outs that a group agrees on, and ranks that
leave. Two nodes:

    node 1 ──┐
    node 2 ──┴── switch
"""
import os
import threading
import time

from harness import *
from harness.states import arrived, in_collective, receiving
from harness.values import check, given, reduced

lib = cabi.lib
AT_ONCE = BUSY
F64, SUM = nexar.DTYPES["float64"], nexar.OPS["sum"]


def one_sum(me, group):
    check(group.all_reduce(given("int64", "sum", group.rank, 1000)), reduced("int64", "sum", group.size, 1000), "sum")


def in_threads(calls):
    """What each call returned, or raised."""
    results = [None] * len(calls)

    def work(n):
        try:
            results[n] = calls[n]()
        except Exception as error:
            results[n] = error

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


# ---- Several ranks in one session ----

def shares_outputs(me, ranks):
    """The ranks of a session may name one memory as their output: it is one result."""
    session = me.session()
    opening = [session.group_start(me.name, 3, rank, job_secret=me.secret, timeout=10) for rank in ranks]
    groups = dict(zip(ranks, nexar.wait_all(opening, 15)))
    for op in ("sum", "avg", "max"):
        data = {rank: session.alloc(1000, "float64") for rank in ranks}
        for rank, array in data.items():
            array[:] = given("float64", op, rank, 1000)
        out = session.alloc(1000, "float64")
        nexar.wait_all([groups[rank].all_reduce_start(data[rank], out, op) for rank in ranks], 10)
        check(out, reduced("float64", op, 3, 1000), f"{op} in one output of ranks {ranks}")
    return True


def test_ranks_of_a_session_may_share_an_output(cluster):
    for places, split in (((1, 1), ([0, 2], [1])), ((1, 2), ([0, 1], [2]))):
        jobs = [Job([cluster[place]], shares_outputs, ranks, name=f"shared {places}")
                for place, ranks in zip(places, split)]
        equal([job.outcomes() for job in jobs], [[True], [True]], "outcomes")


def several(me, ranks, size):
    """This process has `ranks` of the group, in one session. Everything is started from one thread."""
    session = me.session()
    opening = [session.group_start(me.name, size, rank, job_secret=me.secret, timeout=10) for rank in ranks]
    groups = dict(zip(ranks, nexar.wait_all(opening, 15)))
    equal({rank: group.rank for rank, group in groups.items()}, {rank: rank for rank in ranks}, "who is who")

    # Each rank sends to each other: the number says from whom to whom.
    room = {(f, t): np.zeros(4, np.int64) for t in ranks for f in range(size)}
    receives = [(f, t, groups[t].recv_start(room[f, t], f, 7)) for f, t in room]
    sends = [groups[f].send_start(np.array([f * 100 + t] * 3), t, 7) for f in ranks for t in range(size)]
    for f, t, request in receives:
        equal(request.wait(10), (f, 7, 3), f"message from {f} to {t}")
        equal(room[f, t].tolist(), [f * 100 + t] * 3 + [0], f"message from {f} to {t}")
    nexar.wait_all(sends, 10)

    for count in (3, 50_000):
        data = {rank: given("int64", "sum", rank, count) for rank in ranks}
        ends = nexar.wait_all([groups[rank].all_reduce_start(data[rank]) for rank in ranks], 10)
        for out in ends:
            check(out, reduced("int64", "sum", size, count), f"all_reduce of {count}")
        ends = nexar.wait_all([groups[rank].all_gather_start(np.array([rank * 11])) for rank in ranks], 10)
        equal([out.ravel().tolist() for out in ends], [[rank * 11 for rank in range(size)]] * len(ranks), "all_gather")
        data = {rank: np.full(count, rank * 1.5) for rank in ranks}
        for root in range(size):
            copies = [data[rank].copy() for rank in ranks]
            nexar.wait_all([groups[rank].broadcast_start(copy, root) for rank, copy in zip(ranks, copies)], 10)
            equal({float(copy[-1]) for copy in copies}, {root * 1.5}, f"broadcast from {root}")
    nexar.wait_all([group.barrier_start() for group in groups.values()], 10)
    in_threads([group.barrier for group in groups.values()])


def test_two_ranks_of_a_group_in_one_session_are_two(cluster):
    """[D3] In 0.1.0 rank 1's receive took what was sent to rank 0, and collectives hung."""
    jobs = [Job([cluster[n + 1]], several, ranks, 4, name="several") for n, ranks in enumerate(([0, 3], [2, 1]))]
    equal([job.outcomes() for job in jobs], [[None], [None]], "outcomes")


def test_all_ranks_of_a_group_in_one_session(cluster):
    """[D3]"""
    equal(run([cluster[1]], several, [0, 1, 2], 3), [None], "outcome")


def one_of_two_leaves(me):
    session = me.session()
    opening = [session.group_start(me.name, 3, rank, job_secret=me.secret, timeout=10) for rank in
               ((0, 1) if me.rank == 0 else (2,))]
    groups = nexar.wait_all(opening, 10)
    if me.rank == 0:
        me.mark()
        me.wait_for_go()
        groups[1].free()
        return me.fails(groups[0].barrier)
    request = groups[0].barrier_start()
    me.mark()
    return me.fails(request.wait, 10)


def test_a_rank_of_a_session_leaves_its_group_alone(cluster):
    """[D3] [D7]"""
    job = Job([cluster[1], cluster[2]], one_of_two_leaves, name="half")
    job.await_marks()
    job.go(0)
    for outcome in job.outcomes():
        equal((outcome.name in ("ABORTED", "PEER_LOST"), outcome.rank), (True, 1), f"{outcome}")


# ---- Leaving with requests pending ----

def leaves(me):
    """Rank 0 frees the group while a thread of its waits in a barrier, and with a receive and a send pending:
    all but the send end."""
    session = me.session()
    group = me.group(session)
    one_sum(me, group)
    if me.rank == 0:
        handle, x, y, ends = group._handle, np.arange(8.0), np.zeros(8), {}
        pending = {"recv": cabi.started("recv", group, y.ctypes.data, 8, F64, 1, 5),
                   "send": cabi.started("send", group, x.ctypes.data, 8, F64, 1, 6)}

        def blocks():
            ends["blocked"] = cabi.name_of(lib.nexar_barrier(handle, None)), time.monotonic()

        thread = threading.Thread(target=blocks)
        thread.start()
        me.mark()
        me.wait_for_go()
        since = time.monotonic()
        cabi.check(lib.nexar_group_free(handle))
        thread.join(10)
        ends["later"] = cabi.name_of(lib.nexar_barrier(handle, None)), time.monotonic()
        ends["recv"] = cabi.name_of(cabi.end(pending["recv"], 5000)[0]), time.monotonic()
        took = max(at for _, at in ends.values()) - since
        ends["send"] = cabi.name_of(cabi.end(pending["send"], 10000)[0]), time.monotonic()  # rank 1 takes its time
        return {what: name for what, (name, _) in ends.items()}, took
    begun = group.barrier_start() if me.rank == 1 else group.recv_start(np.zeros(1), 0, 9)
    me.mark()
    first = me.fails(begun.wait, 10)
    got = np.zeros(8)
    if me.rank == 1:  # what was sent before is delivered
        group.recv(got, 0, 6)
        equal(list(got), list(np.arange(8.0)), "what rank 0 had sent")
        group.send(got, 2, 7)
    else:  # it has not come to the barrier that was left
        late = me.fails(group.barrier)
        equal((late.name, late.rank), ("ABORTED", 0), f"{late}")
        group.recv(got, 1, 7)
    return first, me.fails(group.barrier)


def test_a_rank_that_frees_its_group_ends_what_was_pending(cluster):
    """[D7] In 0.1.0 its own requests stayed pending, and a thread in a barrier was never released."""
    for other in (1, 2):
        job = Job([cluster[1], cluster[other], cluster[2]], leaves)
        job.await_marks()
        eventually(lambda: in_collective(job, 0, 1) and receiving(job, 0, 2), "what is pending to have arrived")
        since = time.monotonic()
        job.go(0)
        ends, took = job.outcomes(0)[0]
        equal(ends, {"recv": "CLOSED", "send": "OK", "blocked": "CLOSED", "later": "CLOSED"}, "own requests")
        assert took < AT_ONCE, f"they ended after {took:.2f} s"
        for first, later in job.outcomes(1, 2):
            equal((first.name, first.rank), ("ABORTED", 0), f"{first}")
            equal((later.name, later.rank), ("PEER_LOST", 0), f"{later}")
            assert first.at - since < AT_ONCE, f"{first}: after {first.at - since:.2f} s"


def aborts(me, reason):
    group = me.group()
    one_sum(me, group)
    if me.rank == 0:
        pending = cabi.started("recv", group, np.zeros(8).ctypes.data, 8, F64, 1, 5), cabi.started("barrier", group)
        me.mark()
        me.wait_for_go()
        cabi.check(lib.nexar_group_abort(group._handle, reason))
        ends = [cabi.name_of(cabi.end(number, 10000)[0]) for number in pending]
        return ends, cabi.name_of(lib.nexar_barrier(group._handle, None))
    begun = group.recv_start(np.zeros(1), 0, 9) if me.rank == 1 else group.barrier_start()
    me.mark()
    if me.rank == 1:
        me.wait_for_go()
    return me.fails(begun.wait, 10), me.fails(group.barrier), me.fails(group.barrier)


def test_a_rank_that_aborts_ends_the_group_for_all_with_its_reason(cluster):
    """[F22] [U18] The others name it and say why, whatever they called and however often."""
    for other in (1, 2):
        for reason, text in ((b"ValueError: row 7", "it aborted the group: ValueError: row 7"),
                             (None, "it aborted the group"),
                             ("ä".encode() * 300, "it aborted the group: " + "ä" * 192)):
            job = Job([cluster[1], cluster[other], cluster[1]], aborts, reason)
            job.await_marks()
            job.go(0)
            own, later = job.outcomes(0)[0]
            equal((own, later), (["CLOSED", "CLOSED"], "CLOSED"), "own requests")
            job.go(1)
            for errors in job.outcomes(1, 2):
                for error in errors:
                    equal((error.name, error.rank), ("PEER_LOST", 0), f"{error}")
                    assert error.text.endswith(text), error.text


# ---- Threads ----

def overlap(me):
    """A thread is in a blocking collective for which rank 1 is late; this one starts another."""
    group = me.group()
    one_sum(me, group)
    if me.rank == 1:
        me.wait_for_go()
        group.barrier()
        return one_sum(me, group)
    results = []
    inside = threading.Thread(target=lambda: results.append(lib.nexar_barrier(group._handle, None)))
    inside.start()
    eventually(lambda: me.rank in arrived(me.node, me.name), "the barrier to be there")
    x = np.zeros(1)
    names = [cabi.name_of(status) for status in (
        lib.nexar_barrier(group._handle, None),
        lib.nexar_all_reduce(group._handle, x.ctypes.data, x.ctypes.data, 1, F64, SUM, None),
        lib.nexar_barrier_start(group._handle, None, cabi.requests(0)))]
    text = cabi.last_error().text.decode()
    # Messages may be sent meanwhile.
    mine = group.recv_start(x, 0, 3)
    group.send(np.ones(1), 0, 3)
    mine.wait(30)
    me.mark()
    inside.join(10)
    one_sum(me, group)
    return names, text, results


def test_a_collective_beside_another_threads_is_refused_and_has_no_effect(cluster):
    """[D19]"""
    job = Job([cluster[1], cluster[2]], overlap)
    job[0].await_mark()
    job.go(1)
    names, text, results = job.outcomes()[0]
    equal((names, results), (["BAD_STATE"] * 3, [0]), text)
    contains(text, "thread")


def in_any_order(me, threads, rounds, how):
    """Threads of each rank reduce in one group, in whatever order they come; each has its own match_id. Counts the
    results that were wrong, and those that were refused."""
    group = me.group(collective_timeout=10)
    right, wrong, refused = [0] * threads, [0] * threads, [0] * threads

    def work(n):
        for turn in range(rounds):
            x = np.full(64, (n + 1) * 1000.0 + me.rank)
            options = cabi.op_options(match_id=1 + n if how == "numbers" else 0)
            status = lib.nexar_all_reduce(group._handle, x.ctypes.data, x.ctypes.data, 64, F64, SUM, options)
            if status == cabi.BAD_STATE or status == -304:  # MISMATCH
                refused[n] += 1
            elif status != 0:
                raise AssertionError(str(cabi.error_of(status)))
            elif (x == sum((n + 1) * 1000.0 + rank for rank in range(me.size))).all():
                right[n] += 1
            else:
                wrong[n] += 1

    errors = [error for error in in_threads([lambda n=n: work(n) for n in range(threads)]) if error]
    assert not errors or how == "numbers", errors
    return sum(right), sum(wrong), sum(refused), [str(error) for error in errors]


def test_threads_without_an_order_get_errors_and_never_a_wrong_result_when_they_use_match_ids(cluster):
    """[D19] In 0.1.0 nearly all results were wrong, and success."""
    outcomes = run([cluster[1], cluster[2]], in_any_order, 3, 40, "numbers", seconds=60)
    print("        right, wrong, refused:", *[outcome[:3] for outcome in outcomes])
    equal([wrong for _, wrong, _, _ in outcomes], [0, 0], f"wrong results of {outcomes}")


def disagree_on_match_id(me):
    group = me.group()
    failures = [me.fails(group.all_reduce, np.zeros(n), match_id=match_id)
                for n, match_id in ((3, 1 + me.rank), (300_000, me.rank // 2))]
    failures.append(me.fails(group.barrier, match_id=me.rank == 2))
    check(group.all_reduce(np.ones(3), match_id=1 << 63), np.full(3, me.size * 1.0), "with one match_id")
    wrong = me.fails(group.send, np.zeros(1), 0, match_id=3)
    one_sum(me, group)
    return failures, wrong.name


def test_ranks_with_different_match_ids_all_get_mismatch(cluster):
    """[D19]"""
    for outcome, wrong in run([cluster[1], cluster[2], cluster[1]], disagree_on_match_id):
        equal([failure.name for failure in outcome], ["MISMATCH"] * 3, f"{outcome}")
        equal(wrong, "INVALID_ARGUMENT", "a message with a match_id")


# ---- Time-outs that a group agrees on ----

def waits_alone(me, options, variables, kind):
    """Rank 0 comes only when the others' deadline has passed. How long that took, and whom it named."""
    os.environ.update(variables.get(me.rank, {}))
    session = me.session()
    given_options = {"name": me.name, "size": me.size, "rank": me.rank, "job_secret": me.secret, "timeout": 10}
    group = session.group(**given_options, **options.get(me.rank, {}))
    group.all_reduce(np.ones(1), timeout=10)
    if me.rank == 0:
        me.wait_for_go()
        return None
    begin = time.monotonic()
    failure = me.fails(group.barrier if kind == "barrier" else lambda: group.all_reduce(np.zeros(3)))
    me.mark()
    return failure, failure.at - begin


def test_the_time_outs_of_one_member_are_those_of_all(cluster):
    short, long = {"collective_timeout": 1}, {"collective_timeout": 20}
    cases = {"one says": ({0: short}, {}, "all_reduce"), "both say": ({0: short, 1: short}, {}, "all_reduce"),
             "barriers": ({0: {**long, "barrier_timeout": 1}}, {}, "barrier"),
             "as collectives": ({1: short}, {}, "barrier"),
             "environment": ({}, {0: {"NEXAR_COLLECTIVE_TIMEOUT_SECS": "1"}}, "all_reduce"),
             "barriers of the environment": ({}, {1: {"NEXAR_BARRIER_TIMEOUT_SECS": "1"}}, "barrier")}
    for what, arguments in cases.items():
        job = Job([cluster[1], cluster[2]], waits_alone, *arguments)
        job[1].await_mark()
        job.go(0)
        failure, took = job.outcomes()[1]
        equal((failure.name, failure.rank), ("TIMED_OUT", 0), f"{what}: {failure}")
        assert 0.9 < took < COLLECTIVE_TIMEOUT - 0.1, f"{what}: it took {took:.1f} s, not 1"


def opens_with(me, options):
    return me.fails(me.group, timeout=4, **options[me.rank])


def test_members_that_want_different_time_outs_get_an_error(cluster):
    for kind in ("collective_timeout", "barrier_timeout", "rpc_timeout"):
        for values in ((1, 2), (3, nexar.NO_TIMEOUT)):
            for other in (1, 2):
                job = Job([cluster[1], cluster[other]], opens_with, [{kind: value} for value in values])
                outcomes = job.outcomes()
                equal({outcome.name for outcome in outcomes}, {"OPTIONS_DIFFER"}, f"{kind} {values}: {outcomes}")
                equal({type(outcome.error) for outcome in outcomes}, {nexar.OpenError}, "classes")
                contains(outcomes[0].text, "time-out")


def refused_times(me):
    session = me.session()
    group = me.group(session, size=1, rank=0)
    names = {what: me.fails(call).name for what, call in {
        "collective 0": lambda: group.barrier(timeout=0),
        "group 0": lambda: me.group(session, name="x", size=1, rank=0, collective_timeout=0),
        "barrier 0": lambda: me.group(session, name="x", size=1, rank=0, barrier_timeout=0)}.items()}
    names["receive 0"] = me.fails(group.recv, np.zeros(1), 0, timeout=0).name
    group.barrier(timeout=nexar.NO_TIMEOUT)
    return names


def test_a_collective_refuses_to_wait_for_nothing_and_a_receive_does_not(cluster):
    """[U3]"""
    equal(run([cluster[1]], refused_times)[0],
          {"collective 0": "INVALID_ARGUMENT", "group 0": "INVALID_ARGUMENT", "barrier 0": "INVALID_ARGUMENT",
           "receive 0": "TIMED_OUT"}, "statuses")


main(globals(), nodes=2)
