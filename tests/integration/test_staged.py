"""Ordinary memory that is larger than scratch: staged operations. Two ranks on each of two nodes, or three on one:

    node 1: ranks 0, 2 ──┐                   node 1: ranks 0, 1, 2
    node 2: ranks 1, 3 ──┴── switch

The Python binding starts and waits; what it never calls (blocking operations, wait_any, fd and poll) is called here.
"""
import os
import select
import time
import types
from ctypes import byref, c_uint64

from harness import *
from harness.states import arrived, in_collective
from harness.values import check, given, reduced

MIB = 1 << 20
SEGMENT = 256 << 10  # between nodes; on one node segments are a MiB
LIMIT = 3 * MIB      # of scratch: less than any operation below, enough for windows
COUNT = 400_003      # int64: 3.1 MiB a block
KINDS = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "scan",
         "exclusive_scan", "all_gatherv", "gatherv", "scatterv", "reduce_scatterv")
PACKED = {"all_gatherv": "out", "gatherv": "out", "scatterv": "in", "reduce_scatterv": "in"}  # with a count for each rank: which side has all blocks
ROOTED = ("gatherv", "scatterv")
SOON = BUSY
PENDING = cabi.PENDING

lib = cabi.lib


def stats(session):
    return types.SimpleNamespace(**session.stats())


def two_nodes(cluster):
    return [cluster[n] for n in (1, 2, 1, 2)]


def one_node(cluster):
    return [cluster[1]] * 3


class Case:
    """One collective with its data: what goes in, where it goes, and what must come out."""

    def __init__(self, me, session, kind, turn, in_place=False, region=False, dtype="int64", count=COUNT):
        self.me, self.kind, self.turn, self.dtype, self.count = me, kind, turn, dtype, count
        self.root = turn % me.size
        rank, size = me.rank, me.size
        blocks_in = size if kind in ("reduce_scatter", "scatter", "all_to_all") else 1
        blocks_out = size if kind in ("all_gather", "gather", "all_to_all") else 1

        def memory(elements):
            out = session.alloc(elements, dtype) if region else np.empty(elements, dtype)
            out[:] = 77
            return out

        self.counts = [count * (other % 3) + other for other in range(size)]  # of PACKED; rank 0 has none
        own = slice(sum(self.counts[:rank]), sum(self.counts[:rank + 1]))
        packed_in = kind in PACKED and PACKED[kind] == "in"
        mine = self.values(rank, sum(self.counts) if packed_in else self.counts[rank] if kind in PACKED else count * blocks_in)
        if kind == "broadcast":
            self.x = self.out = memory(count)
            self.x[:] = mine if rank == self.root else 5
        elif kind in PACKED:
            packed, shared = memory(sum(self.counts)), in_place and (kind not in ROOTED or rank == self.root)
            block = packed[own] if shared else memory(self.counts[rank])
            self.x, self.out = (packed, block) if packed_in else (block, packed)
            self.x[:] = mine
        elif in_place and (kind == "all_gather" or kind == "gather" and rank == self.root):
            self.out = memory(count * size)
            self.x = self.out[rank * count:(rank + 1) * count]
            self.x[:] = mine
        else:
            self.x = memory(count * blocks_in)
            self.x[:] = mine
            self.out = memory(count * blocks_out) if not in_place else self.x
            if in_place and (kind == "reduce_scatter" or kind == "scatter" and rank == self.root):
                self.out = self.x[rank * count:(rank + 1) * count]
        # Its out is not looked at, and may be anything.
        self.only_sends = kind in ("gather", "gatherv") and rank != self.root
        self.apart = mine if self.only_sends or (not in_place and kind != "broadcast") else None

    def values(self, rank, count):
        return given(self.dtype, "sum", rank, count, salt=self.turn)

    def arguments(self):
        number, op = nexar.DTYPES[self.dtype], nexar.OPS["sum"]
        pair = (self.x.ctypes.data, self.out.ctypes.data, self.count, number)
        counts = (c_uint64 * len(self.counts))(*self.counts)
        return {"all_gatherv": (*pair[:2], counts, number), "gatherv": (*pair[:2], counts, number, self.root),
                "scatterv": (*pair[:2], counts, number, self.root), "reduce_scatterv": (*pair[:2], counts, number, op),
                "all_reduce": (*pair, op), "reduce": (*pair, op, self.root), "all_gather": pair,
                "scan": (*pair, op), "exclusive_scan": (*pair, op), "gather": (*pair, self.root), "scatter": (*pair, self.root),
                "all_to_all": pair, "reduce_scatter": (*pair, op),
                "broadcast": (self.x.ctypes.data, self.count, number, self.root)}[self.kind]

    def call(self, group):
        cabi.check(getattr(lib, f"nexar_{self.kind}")(group._handle, *self.arguments(), None))

    def start(self, group):
        return cabi.started(self.kind, group, *self.arguments())

    def verify(self, what=""):
        rank, size, count = self.me.rank, self.me.size, self.count
        what = f"{self.kind} {self.turn} {what}"
        if self.kind == "broadcast":
            check(self.out, self.values(self.root, count), what)
        elif self.kind == "all_gather" or self.kind == "gather" and rank == self.root:
            check(self.out, np.concatenate([self.values(r, count) for r in range(size)]), what)
        elif self.kind == "all_gatherv" or self.kind == "gatherv" and rank == self.root:
            check(self.out, np.concatenate([self.values(r, n) for r, n in enumerate(self.counts)]), what)
        elif self.kind == "all_to_all":
            mine = slice(rank * count, (rank + 1) * count)
            check(self.out, np.concatenate([self.values(r, count * size)[mine] for r in range(size)]), what)
        elif self.kind in ("scan", "exclusive_scan"):
            ranks = rank + (self.kind == "scan")
            want = reduced(self.dtype, "sum", ranks, count, salt=self.turn) if ranks else np.zeros_like(self.out)
            check(self.out, want, what)
        elif self.kind == "scatterv":
            begin = sum(self.counts[:rank])
            check(self.out, self.values(self.root, sum(self.counts))[begin:begin + self.counts[rank]], what)
        elif self.kind == "reduce_scatterv":
            want, begin = reduced(self.dtype, "sum", size, sum(self.counts), salt=self.turn), sum(self.counts[:rank])
            check(self.out, want[begin:begin + self.counts[rank]], what)
        elif self.kind == "scatter":
            check(self.out[:count], self.values(self.root, count * size)[rank * count:(rank + 1) * count], what)
        elif self.kind == "reduce_scatter":
            want = reduced(self.dtype, "sum", size, count * size, salt=self.turn)
            check(self.out, want[rank * count:(rank + 1) * count], what)
        elif self.kind == "all_reduce" or self.kind == "reduce" and rank == self.root:
            check(self.out, reduced(self.dtype, "sum", size, count, salt=self.turn), what)
        if self.only_sends and self.out is not self.x:
            check(self.out, np.full(len(self.out), 77, self.dtype), f"{what}, an output that it has not")
        if self.apart is not None:
            check(self.x, self.apart, f"{what}, its input afterwards")


def end(request):
    """Its status; the request is freed."""
    status = lib.nexar_request_test(request, None)
    assert status != PENDING
    assert lib.nexar_request_free(request) == 0
    return status


# ---- Right results ----

def every_collective(me, started):
    session = me.session(scratch_limit=LIMIT)
    group = me.group(session)
    turn = 0
    for region in (False, me.rank == 1):  # the second time one rank's memory is nexar's, the others' ordinary
        for in_place in (False, True):
            for kind in KINDS:
                turn += 1
                case = Case(me, session, kind, turn, in_place, region)
                if started:
                    request = case.start(group)
                    cabi.check(lib.nexar_request_wait(request, 20000, None))
                    equal(end(request), 0)
                else:
                    case.call(group)
                case.verify(f"{'in place' if in_place else 'apart'}, {'region' if region else 'ordinary'}")
    now = stats(session)
    assert now.scratch_bytes <= LIMIT, f"{now.scratch_bytes} bytes of scratch"
    return now.bytes_copied


def test_every_collective_gives_the_reference_on_ordinary_memory_beyond_scratch(cluster):
    for place in (two_nodes, one_node):
        for started in (False, True):
            copied = run(place(cluster), every_collective, started, seconds=120)
            assert min(copied) > 10 * LIMIT, f"so little was copied: {copied}"


def odd_counts(me):
    session = me.session(scratch_limit=64 * MIB)
    group = me.group(session)
    unit = 2 * MIB // 2 if me.size == 3 else 2 * SEGMENT // 2  # two segments of int16
    for turn, count in enumerate((1, unit, unit + 1, 3 * unit // 2 + 1, 4 * unit + 7)):
        for kind in KINDS:
            case = Case(me, session, kind, turn, turn % 2 == 1, dtype="int16", count=count)
            case.call(group)
            case.verify(f"of {count}")


def test_blocking_calls_around_the_size_from_which_they_are_staged(cluster):
    for place in (two_nodes, one_node):
        run(place(cluster), odd_counts, seconds=120)


def without_waitv(me):
    os.environ["NEXAR_WITHOUT_WAITV"] = "1"
    every_collective(me, False)
    many_at_once(me, "poll")


def test_the_same_where_futex_waitv_is_refused(cluster):
    run(two_nodes(cluster), without_waitv, seconds=120)


# ---- Several at once ----

def by_tests(session, requests):
    left = list(requests)
    while left:
        left = [request for request in left if lib.nexar_request_test(request, None) == PENDING]


def by_wait_any(session, requests):
    left = list(requests)
    while left:
        index = c_uint64()
        cabi.check(lib.nexar_request_wait_any(cabi.requests(*left), len(left), 20000, byref(index), None))
        left.pop(index.value)


def by_poll(session, requests):
    fd, left = session.fileno(), set(requests)
    while left:
        while True:
            status, ended = cabi.poll(session, 4)
            cabi.check(status)
            for each in ended:
                left.remove(each.request)  # each is reported once
            if not ended:
                break
        assert not left or select.select([fd], [], [], 10)[0], "the descriptor was not readable for 10 s"


def many_at_once(me, how):
    one_node = me.size == 3  # and larger segments
    session = me.session(scratch_limit=(32 if one_node else 9) * MIB)
    group = me.group(session)
    count = 3_000_001 if one_node else 1_500_001
    cases = [Case(me, session, kind, turn, count=count if kind in ("all_reduce", "broadcast") else count // me.size)
             for turn, kind in enumerate(("all_reduce", "all_gather", "broadcast", "reduce_scatter"))]
    requests = [case.start(group) for case in cases]
    {"test": by_tests, "wait_any": by_wait_any, "poll": by_poll}[how](session, requests)
    for request, case in zip(requests, cases):
        equal(end(request), 0, f"status of {case.kind}")
        case.verify(f"by {how}")


def test_several_started_at_once_are_moved_by_tests_by_wait_any_and_by_an_event_loop(cluster):
    for how in ("test", "wait_any", "poll"):
        run(two_nodes(cluster), many_at_once, how, seconds=120)
    run(one_node(cluster), many_at_once, "poll", seconds=120)


def others_wait_moves(me):
    """A wait for a message moves the bytes of an all_reduce that nobody waits for yet."""
    session = me.session(scratch_limit=LIMIT)
    group = me.group(session)
    case = Case(me, session, "all_reduce", 1)
    request = case.start(group)
    if me.rank == 0:
        cabi.check(lib.nexar_request_wait(request, 20000, None))
        equal(end(request), 0)
        for other in range(1, me.size):
            group.send(np.ones(1), other)
    else:
        group.recv(np.zeros(1), 0, timeout=15)  # without it rank 0 waits for its bytes, and sends nothing
        cabi.check(lib.nexar_request_wait(request, 20000, None))
        equal(end(request), 0)
    case.verify()


def test_a_wait_for_something_else_moves_the_bytes_too(cluster):
    run(two_nodes(cluster), others_wait_moves)


def test_threads_that_come_to_move_the_same_bytes_get_them_right(cluster):
    """With futex_waitv on one node, without on the other."""
    ranks = []
    for rank in range(4):
        os.environ.pop("NEXAR_WITHOUT_WAITV", None)
        if rank % 2:
            os.environ["NEXAR_WITHOUT_WAITV"] = "1"
        ranks.append(program(cluster[rank % 2 + 1], "NEXAR_TEST_STAGED_CLIENT", 4, 4, 1_200_001, 9 * MIB, rank=rank,
                             size=4, group="threads"))
    os.environ.pop("NEXAR_WITHOUT_WAITV", None)
    for rank, started in enumerate(ranks):
        output, _ = started.communicate(timeout=90)
        equal((started.returncode, output), (0, f"rank {rank}: 0 failures\n"), "exit and output")


# ---- Limits ----

def too_small(me):
    session = me.session(scratch_limit=100_000)
    group = me.group(session)
    case = Case(me, session, "all_reduce", 1)
    failure = me.fails(case.call, group)
    equal(failure.name, "NO_MEMORY")
    contains(failure.text, "scratch_limit", "100000")
    failure = me.fails(case.start, group)
    equal(failure.name, "NO_MEMORY")
    equal(stats(session).scratch_bytes, 0, "scratch after the refusals")
    x = session.alloc(10, "int64")  # nothing was used up: the group goes on
    x[:] = me.rank
    check(group.all_reduce(x), np.full(10, sum(range(me.size)), np.int64), "all_reduce afterwards")


def not_staged(me):
    session = me.session(scratch_limit=1 * MIB)
    group, many, few = me.group(session), [100_000] * me.size, [1000] * me.size
    failure = me.fails(group.all_to_allv, np.zeros(sum(many)), many, many)
    equal(failure.name, "NO_MEMORY")
    contains(failure.text, "scratch_limit")
    x, out = session.alloc(sum(many)), session.alloc(sum(many))  # nexar's memory needs no scratch
    x[:] = me.rank
    check(group.all_to_allv(x, many, many, out), np.repeat(np.arange(me.size, dtype=x.dtype), 100_000), "all_to_allv in place")
    check(group.all_to_allv(x[:sum(few)], few, few), np.repeat(np.arange(me.size, dtype=x.dtype), 1000), "all_to_allv that fits")


def test_all_to_allv_is_not_staged_and_says_so_beyond_scratch(cluster):
    for place in (two_nodes, one_node):
        run(place(cluster), not_staged)


def test_where_not_even_one_window_fits_the_call_says_so_and_had_no_effect(cluster):
    run(two_nodes(cluster), too_small)


def large_messages(me):
    session = me.session(scratch_limit=2 * MIB)
    group = me.group(session)
    group.barrier()
    peer = me.rank ^ 1
    out, back = given("int64", "sum", me.rank, COUNT), np.zeros(COUNT, np.int64)
    for _ in range(3):
        sent, received = group.send_start(out, peer), group.recv_start(back, peer)
        assert stats(session).scratch_bytes > 6 * MIB
        equal(received.wait()[2], COUNT, "elements received")
        sent.wait()
        check(back, given("int64", "sum", peer, COUNT), "message")
        back[:] = 0
        assert stats(session).scratch_bytes <= 2 * MIB, "the blocks of large messages were kept"
        assert shared_pages() < 4 * MIB, "the pages of large messages were kept"
    memory = session.alloc(8, np.uint8)
    equal(stats(session).regions, 1, "regions besides")
    del memory


def shared_pages():
    """Of this process, in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssShmem"))


def test_messages_beyond_scratch_have_memory_of_their_own_while_they_are_pending(cluster):
    run(two_nodes(cluster), large_messages)


# ---- Ends in the middle ----

def sums(me, group, count=100, **options):
    check(group.all_reduce(given("int64", "sum", me.rank, count), **options), reduced("int64", "sum", me.size, count), "sum")


def begins_and_stays(me, staying, blocking, timeout=None):
    """One rank starts and moves no more bytes; the others wait for it. All report how it ended, and what happened then."""
    session = me.session(scratch_limit=LIMIT)
    group = me.group(session, collective_timeout=timeout)
    sums(me, group)
    case = Case(me, session, "all_reduce", 1)
    if me.rank == staying:
        request = case.start(group)
        me.mark()
        me.wait_for_go()
        status = lib.nexar_request_wait(request, 10000, None)
        first = me.failure(cabi.error_of(status))
        equal(end(request), status)
    else:
        me.mark()
        if blocking:
            first = me.fails(case.call, group)
        else:
            request = case.start(group)
            first = me.failure(cabi.error_of(lib.nexar_request_wait(request, 20000, None)))
            end(request)
    return first, stats(session).scratch_bytes


def test_a_rank_that_dies_with_half_of_its_bytes_moved_is_named_to_the_others(cluster):
    for place in (two_nodes, one_node):
        for blocking in (True, False):
            job = Job(place(cluster), begins_and_stays, 1, blocking)
            job.await_marks()
            eventually(lambda: in_collective(job, *(r for r in job.ranks if r != 1)), "the others to wait for rank 1")
            since = time.monotonic()
            job[1].kill()
            outcomes = job.outcomes(*(r for r in range(len(place(cluster))) if r != 1))
            same_failure([first for first, _ in outcomes], "PEER_LOST", rank=1, node=place(cluster)[1].id, since=since,
                         within=SOON)


def late_but_alive(me):
    session = me.session(scratch_limit=LIMIT)
    group = me.group(session, collective_timeout=1)
    sums(me, group, timeout=10)
    case = Case(me, session, "all_reduce", 1)
    if me.rank == 1:
        request = case.start(group)
        me.wait_for_go()
        first = me.failure(cabi.error_of(lib.nexar_request_wait(request, 10000, None)))
        end(request)
    else:
        first = me.fails(case.call, group)
    me.mark()
    me.wait_for_go()
    sums(me, group, timeout=10)  # that one operation failed; the group can still be used
    return first


def test_a_rank_that_moves_no_bytes_is_named_by_the_deadline(cluster):
    for place in (two_nodes, one_node):
        job = Job(place(cluster), late_but_alive)
        for rank in job.ranks:
            if rank != 1:
                job[rank].await_mark()
        job.go(1)
        job[1].await_mark()
        job.go()
        for outcome in job.outcomes():
            assert outcome.name in ("TIMED_OUT", "ABORTED") and outcome.rank == 1, outcome


def cancels(me):
    session = me.session(scratch_limit=LIMIT)
    group = me.group(session)
    sums(me, group)
    names = []
    for turn in range(6):
        case = Case(me, session, "all_reduce", turn)
        request = case.start(group)
        if me.rank == turn % me.size:
            for _ in range(turn):
                lib.nexar_request_test(request, None)
            cabi.check(lib.nexar_request_cancel(request))
        status = lib.nexar_request_wait(request, 20000, None)
        names.append("OK" if status == 0 else me.failure(cabi.error_of(status)).name)
        equal(end(request), status)
        if status == 0:
            case.verify("that was not cancelled in time")
        case = Case(me, session, "all_reduce", 100 + turn)
        case.call(group)
        case.verify("after a cancel")
    assert stats(session).scratch_bytes <= LIMIT
    return names


def test_a_cancel_in_the_middle_ends_it_everywhere_and_the_group_goes_on(cluster):
    for place in (two_nodes, one_node):
        every = run(place(cluster), cancels)
        for turn, names in enumerate(zip(*every)):
            assert names[turn % len(names)] in ("CANCELLED", "OK"), names
            assert set(names) <= {"CANCELLED", "ABORTED", "OK"}, names
        assert any("CANCELLED" in names for names in every), every


def until_it_fails(me, blocking):
    session = me.session(scratch_limit=LIMIT)
    group = me.group(session)
    sums(me, group)
    case = Case(me, session, "all_reduce", 1)
    me.mark()
    while True:
        if blocking:
            status = lib.nexar_all_reduce(group._handle, *case.arguments(), None)
        else:
            request = case.start(group)
            while (status := lib.nexar_request_test(request, None)) == PENDING:
                pass
            lib.nexar_request_free(request)
        if status != 0:
            return me.failure(cabi.error_of(status))


def test_a_daemon_that_is_killed_in_the_middle_ends_them_at_once(cluster):
    for blocking in (True, False):
        job = Job(two_nodes(cluster), until_it_fails, blocking)
        job.await_marks()
        eventually(lambda: all(rank in arrived(job[rank].node, job.name) for rank in job.ranks), "all ranks to work")
        since = time.monotonic()
        cluster[2].kill()
        for outcome in job.outcomes(1, 3):
            equal(outcome.name, "DAEMON_LOST", str(outcome))
            assert outcome.at - since < SOON, f"after {outcome.at - since:.2f} s"
        for outcome in job.outcomes(0, 2):
            equal((outcome.name, outcome.node), ("PEER_LOST", cluster[2].id), str(outcome))
        cluster.mend()


main(globals(), nodes=2, NEXAR_PIPELINE_SEGMENT_BYTES=str(SEGMENT))
