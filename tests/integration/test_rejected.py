"""A call that is rejected on one rank only, for each kind of collective, through the C ABI: the others learn whom they wait
for, nobody loses step, and the group goes on. Two nodes:

    node 1 ──┐
    node 2 ──┴── switch
"""
import ctypes

from harness import *
from harness.values import check

from nexar._rows import ROWS

lib = cabi.lib
ELEMENTS, F64, SUM = 4, nexar.DTYPES["float64"], nexar.OPS["sum"]


def arguments(row, size, dtype=F64):
    """Memory that is large enough for every kind, and what a call of this one takes; kept with it."""
    room = [np.ones(ELEMENTS * size) for _ in range(2)]
    counts = (ctypes.c_uint64 * size)(*[ELEMENTS] * size)
    values, out = (each.ctypes.data for each in room)
    named = {"nothing": [], "data": [values, ELEMENTS, dtype], "in_out": [values, out, ELEMENTS, dtype],
             "in_out_counts": [values, out, counts, dtype],
             "in_out_own_counts": [values, counts, out, counts, dtype]}[row.memory]
    return [*named, *[SUM] * row.reduces, *[0] * row.rooted], (room, counts)


def rejected_on_one(me):
    """For each kind: what this rank got for the call that one rank is refused, and the collectives' numbers."""
    group = me.group()
    got, numbers = [], []
    for kind, row in ROWS.items():
        wrong = row.number % group.size
        call = getattr(lib, f"nexar_{kind}")
        right, kept = arguments(row, group.size)
        if me.rank == wrong:
            refused = [call(group._handle, *right, cabi.op_options(timeout_ms=-7))]
            if row.memory != "nothing":
                refused += [call(group._handle, *arguments(row, group.size, dtype=99)[0], cabi.op_options())]
            equal(refused, [cabi.INVALID_ARGUMENT] * len(refused), kind)
            for other in range(group.size):
                if other != wrong:
                    group.recv(np.zeros(1), other, row.number)
        # The one that was refused calls it when the others have given up: it is the same collective.
        late = row.number == 1  # once as long as it takes until the daemon says whom it waits for
        status = call(group._handle, *right, cabi.op_options(timeout_ms=2500 if late else 400))
        error = cabi.last_error()
        got.append((kind, cabi.name_of(status), error.rank, error.sequence))
        if me.rank != wrong:
            group.send(np.zeros(1), wrong, row.number)
        number = cabi.started(kind, group, *right)
        status, last = cabi.end(number)
        equal(status, 0, kind)
        numbers.append(last.sequence)
        check(group.all_reduce(np.arange(5) + me.rank), np.arange(5) * group.size + sum(range(group.size)), kind)
    return got, numbers


def test_the_others_learn_whom_they_wait_for_and_nobody_loses_step(cluster):
    places = [cluster[1], cluster[2], cluster[1]]
    job = Job(places, rejected_on_one)
    outcomes = job.outcomes(seconds=120)
    for rank, (got, numbers) in enumerate(outcomes):
        equal(numbers, [1 + 3 * n for n in range(len(ROWS))], f"the collectives' numbers at rank {rank}")
        for n, (kind, name, blamed, number) in enumerate(got):
            wrong = ROWS[kind].number % len(places)
            equal((blamed, number), (wrong, 3 * n), f"{kind} at rank {rank}")
            assert name in (("ABORTED",) if rank == wrong else ("TIMED_OUT", "ABORTED")), (kind, rank, name)
    lines = [line for node in set(places) for line in node.log().splitlines() if "collective_late" in line]
    assert any("what=\"all_reduce" in line and "rank 1" in line for line in lines), lines


main(globals())
