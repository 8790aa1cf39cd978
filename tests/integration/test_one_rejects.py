"""A call that one rank's library rejects, of every kind, while the other ranks make theirs: those end at their deadline, with an
error and an event that name the rank; no rank's count of collectives differs afterwards, and the group works on.

    node 1: ranks 0, 1 ──┐
    node 2: ranks 2, 3 ──┴── switch
"""
import ctypes
from ctypes import byref, c_uint64, c_void_p

from harness import *
from harness.values import check, given, reduced
from nexar import _library
from nexar._rows import ROWS

lib = cabi.lib
F64, SUM, COUNT, ODD, DEADLINE_MS = nexar.DTYPES["float64"], nexar.OPS["sum"], 3, 1, 1500
KINDS = (*ROWS, "group_split", "group_dup")


class Calls:
    """Of one rank: each kind, right or wrong."""

    def __init__(self, me):
        self.session = me.session()
        self.group, self.block = me.group(self.session), self.session.alloc(1024, np.float64)
        self.at, self.out = self.block.ctypes.data, self.block.ctypes.data + 4096
        self.counts = (c_uint64 * me.size)(*[COUNT] * me.size)

    def arguments(self, kind, right):
        if kind == "group_split":
            return [0, 0]
        if kind == "group_dup":
            return []
        row, dtype = ROWS[kind], F64 if right else 99
        found = {"nothing": [], "data": [self.at, COUNT, dtype], "in_out": [self.at, self.out, COUNT, dtype],
                 "in_out_counts": [self.at, self.out, self.counts, dtype],
                 "in_out_own_counts": [self.at, self.counts, self.out, self.counts, dtype]}[row.memory]
        return found + [SUM] * row.reduces + [0] * row.rooted

    def options(self, kind, timeout_ms):
        if kind.startswith("group_"):
            made = _library.ChildOptions()
            lib.nexar_child_options_init(byref(made), ctypes.sizeof(made))
        else:
            made = cabi.op_options()
        made.timeout_ms = timeout_ms
        return made

    def start(self, kind, timeout_ms=cabi.DEFAULT, right=True):
        """(status in words, request)"""
        request = c_uint64()
        status = getattr(lib, f"nexar_{kind}_start")(self.group._handle, *self.arguments(kind, right), byref(self.options(kind, timeout_ms if right else 0)),
                                                     byref(request))
        return cabi.name_of(status), request.value

    def end(self, request, kind=""):
        """(status in words, the rank in the error, the number of the collective)"""
        status, last = cabi.end(request)
        if status == 0:
            if kind.startswith("group_"):
                cabi.check(lib.nexar_group_free(c_void_p(last.group)))
            return "OK", None, last.sequence
        return cabi.name_of(status), cabi.last_error().rank, last.sequence


def calls_all(me):
    """What became of each kind in three rounds: rejected on one rank; the same calls of that rank, right, but too late; all right."""
    calls = Calls(me)
    cabi.check(lib.nexar_barrier(calls.group._handle, None))
    if me.rank == ODD:
        rejected = {kind: calls.start(kind, right=False)[0] for kind in KINDS}
        me.mark()
        me.wait_for_go()
        first = {kind: calls.end(calls.start(kind)[1], kind) for kind in KINDS}
    else:
        rejected = None
        requests = {kind: calls.start(kind, DEADLINE_MS)[1] for kind in KINDS}
        first = {kind: calls.end(request, kind) for kind, request in requests.items()}
        me.mark()
    then = {kind: calls.end(request, kind) for kind, request in [(kind, calls.start(kind)[1]) for kind in KINDS]}
    x = given("int64", "sum", me.rank, 100)
    check(calls.group.all_reduce(x), reduced("int64", "sum", me.size, 100), "the sum afterwards")
    return rejected, first, then


def test_a_call_rejected_on_one_rank_is_named_to_the_others_and_nobody_loses_count(cluster):
    job = Job([cluster[1], cluster[1], cluster[2], cluster[2]], calls_all)
    job.await_marks()
    job.go(ODD)
    outcomes = job.outcomes()
    for rank, outcome in enumerate(outcomes):
        assert not isinstance(outcome, Failure), f"rank {rank}: {outcome}"
        rejected, first, then = outcome
        assert not rejected or set(rejected.values()) == {"INVALID_ARGUMENT"}, f"the statuses of rank {rank}: {rejected}"
        for number, kind in enumerate(KINDS):
            status, culprit, sequence = first[kind]
            assert status in (("ABORTED",) if rank == ODD else ("TIMED_OUT", "ABORTED")), f"{kind} of rank {rank}: {first[kind]}"
            equal((culprit, sequence), (ODD, 1 + number), f"who is named by {kind} on rank {rank}, and its number")
            equal(then[kind], ("OK", None, 1 + len(KINDS) + number), f"the next {kind} on rank {rank}")
    for node in cluster:
        late = [line for line in node.log().splitlines() if "collective_late" in line]
        contains("\n".join(late), f"rank {ODD} ")


def a_message(me, sends):
    """Rank 1's part is rejected; the other rank's has a deadline."""
    calls, options = Calls(me), cabi.op_options(300)
    name, peer = ("send", 0) if (me.rank == ODD) == sends else ("recv", ODD if me.rank == 0 else 0)
    if me.rank == ODD:
        request = c_uint64()
        wrong = getattr(lib, f"nexar_{name}_start")(calls.group._handle, calls.at, COUNT, 99, 0, 5, None, byref(request))
        me.mark()
        me.wait_for_go()
        cabi.check(cabi.end(cabi.started("recv", calls.group, calls.at, 0, F64, 0, 6))[0])
        return cabi.name_of(wrong), cabi.end(cabi.started(name, calls.group, calls.at, COUNT, F64, 0, 5))[0]
    peer = ODD
    ended = calls.end(cabi.started(name, calls.group, calls.at, COUNT, F64, peer, 5, options=options))[:2]
    me.mark()
    # Behind the withdrawal in the log: until its receiver's node knows of it, a message that was taken back may be delivered all the same.
    cabi.check(cabi.end(cabi.started("send", calls.group, calls.at, 0, F64, peer, 6))[0])
    return ended, cabi.end(cabi.started(name, calls.group, calls.at, COUNT, F64, peer, 5))[0]


def test_a_message_rejected_on_one_side_times_out_on_the_other_and_the_next_arrives(cluster):
    for sends in (True, False):
        job = Job([cluster[1], cluster[2]], a_message, sends)
        job.await_marks()
        job.go(ODD)
        other, odd = job.outcomes()
        equal(odd, ("INVALID_ARGUMENT", 0), "the rank whose call was rejected")
        equal(other, (("TIMED_OUT", ODD if sends else other[0][1]), 0), "the other rank")


main(globals(), nodes=2)
