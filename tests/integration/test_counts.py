"""Operations with a count for each rank, on three healthy nodes: what numpy gives, however uneven the counts are.

    node 1 ──┐
    node 2 ──┼── switch
    node 3 ──┘
"""
import time

from harness import *
from harness.memory import Memory
from harness.values import FLOATS, INTEGERS, check, given, narrow, reduced

SMALL = (0, 1, 2, 5)
LARGE = 120_011  # several segments of int64
PLACEMENTS = {"alone": [1], "one node": [1] * 4, "interleaved": [1, 2, 3, 2, 1, 3], "uneven": [3, 1, 1, 2, 1, 1, 3]}
PACKED = {"all_gatherv": "out", "gatherv": "out", "scatterv": "in", "reduce_scatterv": "in"}  # the side with the blocks of all ranks
OPS = ("prod", "min", "max", "avg")
ROOTED = ("gatherv", "scatterv")


def on(cluster, numbers):
    return [cluster[n] for n in numbers]


class Bench:
    """Calls one operation after the other, each in the next kind of memory, in place and apart, and checks the result."""

    def __init__(self, me, nbytes):
        session = me.session()
        self.me, self.group, self.turn = me, me.group(session), 0
        self.memory = [(Memory(session, kind, nbytes), Memory(session, kind, nbytes))
                       for kind in ("ordinary", "alloc", "registered")]

    def next_memory(self):
        self.turn += 1
        return self.memory[self.turn // 2 % 3]

    def input(self, kind, dtype, counts, rank, root, op):
        """None: it has none."""
        if PACKED[kind] == "out":
            return given(dtype, op, rank, counts[rank], salt=rank)
        return given(dtype, op, rank, sum(counts)) if kind not in ROOTED or rank == root else None

    def want(self, kind, dtype, counts, root, op):
        rank = self.me.rank
        own = slice(sum(counts[:rank]), sum(counts[:rank + 1]))
        if kind == "reduce_scatterv":
            return reduced(dtype, op, len(counts), sum(counts))[own]
        if kind == "scatterv":
            return self.input(kind, dtype, counts, root, root, op)[own]
        if kind == "gatherv" and rank != root:
            return None
        return np.concatenate([self.input(kind, dtype, counts, other, root, op) for other in range(len(counts))])

    def call(self, kind, dtype, counts, root=0, op="sum"):
        rank = self.me.rank
        first, second = self.next_memory()
        has_packed = kind not in ROOTED or rank == root
        in_place = has_packed and self.turn % 2
        packed = first.array(sum(counts), dtype) if has_packed else None
        block = packed[sum(counts[:rank]):sum(counts[:rank + 1])] if in_place else second.array(counts[rank], dtype)
        values, out = (packed, block) if PACKED[kind] == "in" else (block, packed)
        for side in (values, out):
            if side is not None:
                side[:] = narrow(np.full(side.size, 55), dtype)
        given_values = self.input(kind, dtype, counts, rank, root, op)
        if values is not None:
            values[:] = given_values
        named = {"root": root} if kind in ROOTED else {"op": op} if kind == "reduce_scatterv" else {}
        result = getattr(self.group, kind)(values, counts, out, **named)
        what = f"{kind} {dtype} {op} x {counts}, root {root}, {first.kind}, {'in place' if in_place else 'apart'}"
        want = self.want(kind, dtype, counts, root, op)
        equal(result is None, want is None, what)
        if want is not None:
            check(result, want, what)
        if values is not None and not (in_place and kind == "reduce_scatterv"):
            check(values, given_values, f"{what}, its input afterwards")

    def exchange(self, dtype, sent):
        """sent[s][r]: what rank s sends to rank r."""
        rank = self.me.rank
        first, second = self.next_memory()
        if self.turn % 2:
            second = self.memory[(self.turn // 2 + 1) % 3][1]  # of another kind
        inputs = [given(dtype, "sum", s, sum(row), salt=s) for s, row in enumerate(sent)]
        received = [row[rank] for row in sent]
        values, out = first.array(sum(sent[rank]), dtype), second.array(sum(received), dtype)
        values[:], out[:] = inputs[rank], narrow(np.full(out.size, 55), dtype)
        result = self.group.all_to_allv(values, sent[rank], received, out)
        what = f"all_to_allv {dtype} x {sent}, {first.kind} to {second.kind}"
        check(result, np.concatenate([inputs[s][sum(row[:rank]):sum(row[:rank + 1])] for s, row in enumerate(sent)]), what)
        check(values, inputs[rank], f"{what}, its input afterwards")


def blocks(count, size):
    """Between any two ranks count, none, or a third; all from one to one; the same for all."""
    ranks = range(size)
    yield [[(count, 0, count // 3)[(s + 2 * r + count) % 3] for r in ranks] for s in ranks]
    yield [[count * (s == count % size and r == (count + 1) % size) for r in ranks] for s in ranks]
    yield [[count] * size for s in ranks]


def lists(count, size):
    """Each has count, none, or a third; one has all; the same for all."""
    yield [(count, 0, count // 3)[(rank + count) % 3] for rank in range(size)]
    yield [count * (rank == count % size) for rank in range(size)]
    yield [count] * size


def everything_small(me):
    bench = Bench(me, 8 * max(SMALL) * me.size)
    for dtype in INTEGERS + FLOATS:
        for count in SMALL:
            for counts in lists(count, me.size):
                for op in OPS:
                    bench.call("reduce_scatterv", dtype, counts, op=op)
                for kind in PACKED:
                    for root in sorted({0, count % me.size, me.size - 1}) if kind in ROOTED else (0,):
                        bench.call(kind, dtype, counts, root)
            for sent in blocks(count, me.size):
                bench.exchange(dtype, sent)
    bench.group.barrier()


def everything_large(me):
    bench = Bench(me, 8 * LARGE * me.size)
    for dtype in ("int64", "uint8"):
        for counts in (*lists(LARGE, me.size), [1 + (LARGE * me.size - 10) * (rank == me.size - 1) for rank in range(me.size)]):
            for kind in PACKED:
                bench.call(kind, dtype, counts, 1 % me.size)
        for sent in blocks(LARGE, me.size):
            bench.exchange(dtype, sent)


def test_every_list_and_type_gives_what_numpy_gives(cluster):
    for name, placement in PLACEMENTS.items():
        begin = time.monotonic()
        run(on(cluster, placement), everything_small, seconds=60)
        print(f"        {name}: {time.monotonic() - begin:.1f} s")


def test_long_and_wildly_uneven_blocks_give_what_numpy_gives(cluster):
    for name, placement in PLACEMENTS.items():
        begin = time.monotonic()
        run(on(cluster, placement), everything_large, seconds=60)
        print(f"        {name}: {time.monotonic() - begin:.1f} s")


def other_counts(me, lists, kind):
    counts = lists[me.rank]
    own, packed = np.zeros(counts[me.rank], np.float32), np.zeros(sum(counts), np.float32)
    arrays = (packed, counts, own) if PACKED[kind] == "in" else (own, counts)
    group, outcome = me.group(), None
    try:
        getattr(group, kind)(*arrays, timeout=10)
    except nexar.Error as error:
        failure = me.failure(error)
        outcome = failure.name, failure.text
    group.barrier(timeout=10)  # the group goes on; and a rank that has ended well stays until all have ended
    return outcome


def test_lists_of_counts_that_differ_are_reported_and_not_waited_for(cluster):
    """Rank 0 expects nothing from rank 1, and rank 1 nothing from rank 0: a root may then have ended well before."""
    for kind in PACKED:
        for placement in ([1, 2], [1, 1]):
            for lists in ([[9, 0], [0, 9]], [[5, 5], [5, 6]]):
                outcomes = [outcome for outcome in run(on(cluster, placement), other_counts, lists, kind) if outcome]
                assert len(outcomes) >= (1 if kind in ROOTED else 2), f"{kind} {placement} {lists}: {outcomes}"
                for name, text in outcomes:
                    equal(name, "MISMATCH", text)
                    where = "[0] is 9 of rank 0, 0 of rank 1" if lists[0][0] == 9 else "[1] is 5 of rank 0, 6 of rank 1"
                    if len(set(placement)) > 1:  # whose lists are known to their own nodes
                        where = "with one sum, 9" if lists[0][0] == 9 else "their sums are 10 of rank 0, 11 of rank 1"
                    contains(text, "differ in counts (", where, f"{kind} f32", "rank 0 (", "rank 1 (")
                    assert "digest" not in text, text


def other_blocks(me, sent, expected):
    out, counts = [0, 0], [0, 0]
    out[1 - me.rank], counts[1 - me.rank] = sent[me.rank], expected[me.rank]
    failure = me.fails(me.group().all_to_allv, np.zeros(sum(out), np.float32), out, counts, timeout=10)
    return failure.name, failure.text


def test_blocks_that_a_rank_sends_and_another_does_not_expect_are_reported_and_not_waited_for(cluster):
    """What each sends to the other, and what each expects."""
    for placement in ([1, 2], [1, 1]):
        for sent, expected in (([9, 0], [0, 8]), ([20, 5], [16, 20]), ([0, 0], [3, 2]), ([300000, 7], [8, 1])):
            for name, text in run(on(cluster, placement), other_blocks, sent, expected):
                equal(name, "MISMATCH", text)
                contains(text, "all_to_allv f32", " sends ", " elements to rank ", "which receives ", "rank 0 (", "rank 1 (")


main(globals())
