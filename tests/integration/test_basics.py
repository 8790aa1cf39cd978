"""Three nodes on one switch, healthy: every collective, type, reduction and memory gives what numpy gives.

    node 1 ──┐
    node 2 ──┼── switch
    node 3 ──┘
"""
import threading
import time

from harness import *
from harness.memory import Memory
from harness.values import FLOATS, INTEGERS, check, element, given, narrow, reduced, storage, typed

DTYPES = INTEGERS + FLOATS
OPS = ("sum", "prod", "min", "max", "avg")
SMALL = (0, 1, 2, 3, 5)
LARGE = 1000003
PLACEMENTS = {"alone": [1], "one node": [1] * 4, "interleaved": [1, 2, 3, 2, 1, 3], "uneven": [3, 1, 1, 2, 1, 1, 3]}


def on(cluster, numbers):
    return [cluster[n] for n in numbers]


known = {}  # what the reductions of LARGE elements must give: computed once, before the ranks are forked


def wanted(dtype, op, size, count):
    result = known.get((dtype, op, size, count))
    return reduced(dtype, op, size, count) if result is None else result


def identity(dtype, op, count):
    """What an exclusive scan gives rank 0: from what numpy knows of the type; of pairs with the largest index."""
    def filled(kind, edge):
        least, greatest = (np.iinfo(kind).min, np.iinfo(kind).max) if np.issubdtype(kind, np.integer) else (-np.inf, np.inf)
        values = {"min": greatest, "max": least, "prod": 1, "land": 1, "band": -1 if least else greatest}
        return np.full(count, values.get(edge, 0), kind)
    if dtype == "bool":
        return np.full(count, op in ("min", "band", "land"))
    if dtype == "bfloat16":
        return typed((filled(np.float32, op).view(np.uint32) >> 16).astype(np.uint16), dtype)
    if dtype in ("float8_e4m3fn", "float8_e5m2"):
        one, largest = (0x38, 0x7e) if dtype == "float8_e4m3fn" else (0x3c, 0x7c)
        return typed(np.full(count, {"prod": one, "min": largest, "max": largest | 0x80}.get(op, 0), np.uint8), dtype)
    if isinstance(dtype, tuple):
        out = np.zeros(count, [("value", dtype[0]), ("index", dtype[1])])
        out["value"], out["index"] = filled(np.dtype(dtype[0]), op[:3]), np.iinfo(dtype[1]).max
        return out
    return filled(np.dtype(dtype), op)


class Bench:
    """Calls one collective after the other, each in the next kind of memory, and checks the result."""

    def __init__(self, me, nbytes):
        session = me.session()
        self.me, self.group, self.turn = me, me.group(session), 0
        self.memory = [(Memory(session, kind, nbytes * me.size), Memory(session, kind, nbytes * me.size))
                       for kind in ("ordinary", "alloc", "registered")]

    def input(self, count, dtype, values):
        """(array that holds values, array for `out` elements: None says in place)."""
        self.turn += 1
        first, second = self.memory[self.turn // 2 % 3]
        self.second = second if self.turn % 2 else None
        self.what = f"{first.kind}, {'apart' if self.second else 'in place'}"
        array = first.array(count, dtype)
        array[:] = values
        return array

    def output(self, count, dtype):
        array = self.second.array(count, dtype)
        array[:] = 77
        return array

    def all_reduce(self, dtype, op, count):
        x = self.input(count, dtype, given(dtype, op, self.me.rank, count))
        out = self.output(count, dtype) if self.second else None
        check(self.group.all_reduce(x, out, op), wanted(dtype, op, self.me.size, count),
              f"all_reduce {dtype} {op} x {count}, {self.what}")

    def reduce(self, dtype, op, count, root):
        x = self.input(count, dtype, given(dtype, op, self.me.rank, count))
        out = self.output(count, dtype) if self.second and self.me.rank == root else None
        result = self.group.reduce(x, out, op, root)
        if self.me.rank == root:
            check(result, wanted(dtype, op, self.me.size, count), f"reduce {dtype} {op} x {count} to {root}, {self.what}")

    def reduce_scatter(self, dtype, op, count):
        size, rank = self.me.size, self.me.rank
        x = self.input(count * size, dtype, given(dtype, op, rank, count * size))
        out = self.output(count, dtype) if self.second else x[rank * count:(rank + 1) * count]
        want = wanted(dtype, op, size, count * size)[rank * count:(rank + 1) * count]
        check(self.group.reduce_scatter(x, out, op), want, f"reduce_scatter {dtype} {op} x {count}, {self.what}")

    def all_gather(self, dtype, count):
        size, rank = self.me.size, self.me.rank
        want = np.concatenate([given(dtype, "sum", other, count, salt=other) for other in range(size)])
        if self.turn % 2:
            x = self.input(count, dtype, given(dtype, "sum", rank, count, salt=rank))
            out = (self.second or self.memory[0][1]).array(count * size, dtype)
        else:  # in place: the block stands where it belongs
            out = self.input(count * size, dtype, 55)
            x = out[rank * count:(rank + 1) * count]
            x[:] = given(dtype, "sum", rank, count, salt=rank)
        check(self.group.all_gather(x, out), want, f"all_gather {dtype} x {count}, {self.what}")

    def gather(self, dtype, count, root):
        size, rank = self.me.size, self.me.rank
        mine = given(dtype, "sum", rank, count, salt=rank)
        if self.turn % 2 or rank != root:
            x = self.input(count, dtype, mine)
            out = (self.second or self.memory[0][1]).array(count * size, dtype) if rank == root else None
        else:
            out = self.input(count * size, dtype, 55)
            x = out[rank * count:(rank + 1) * count]
            x[:] = mine
        result = self.group.gather(x, out, root)
        if rank == root:
            want = np.concatenate([given(dtype, "sum", other, count, salt=other) for other in range(size)])
            check(result, want, f"gather {dtype} x {count} to {root}, {self.what}")

    def scatter(self, dtype, count, root):
        size, rank = self.me.size, self.me.rank
        own = slice(rank * count, (rank + 1) * count)
        values = given(dtype, "sum", root, count * size, salt=root)
        other = narrow(np.full(count * size, 55), dtype)  # not looked at
        x = self.input(count * size, dtype, values if rank == root else other)
        in_place = rank == root and not self.second
        out = x[own] if in_place else (self.second or self.memory[0][1]).array(count, dtype)
        result = self.group.scatter(x if rank == root or root % 2 else None, out, root)
        check(result, values[own], f"scatter {dtype} x {count} from {root}, {self.what}")
        check(x, values if rank == root else other, "what was scattered")

    def scan(self, dtype, op, count, exclusive=False):
        name, ranks = ("exclusive_scan", self.me.rank) if exclusive else ("scan", self.me.rank + 1)
        mine = given(dtype, op, self.me.rank, count)
        x = self.input(count, dtype, mine)
        out = self.output(count, dtype) if self.second else None
        want = reduced(dtype, op, ranks, count) if ranks else identity(dtype, op, count)
        check(getattr(self.group, name)(x, out, op), want, f"{name} {dtype} {op} x {count}, {self.what}")

    def all_to_all(self, dtype, count):
        size, mine = self.me.size, slice(self.me.rank * count, (self.me.rank + 1) * count)
        x = self.input(count * size, dtype, given(dtype, "sum", self.me.rank, count * size))
        out = self.output(count * size, dtype) if self.second else None
        want = np.concatenate([given(dtype, "sum", other, count * size)[mine] for other in range(size)])
        check(self.group.all_to_all(x, out), want, f"all_to_all {dtype} x {count}, {self.what}")

    def broadcast(self, dtype, count, root):
        x = self.input(count, dtype, given(dtype, "sum", root, count) if self.me.rank == root else 9)
        check(self.group.broadcast(x, root), given(dtype, "sum", root, count),
              f"broadcast {dtype} x {count} from {root}, {self.what}")


def everything_small(me):
    bench, calls = Bench(me, 8 * max(SMALL)), 0
    for dtype in DTYPES:
        for count in SMALL:
            for op in OPS:
                bench.all_reduce(dtype, op, count)
                bench.reduce_scatter(dtype, op, count)
                bench.reduce(dtype, op, count, (calls := calls + 1) % me.size)
                bench.scan(dtype, op, count)
                if op != "avg":
                    bench.scan(dtype, op, count, exclusive=True)
            bench.all_gather(dtype, count)
            for _ in range(2):  # apart and in place
                bench.all_to_all(dtype, count)
            bench.broadcast(dtype, count, calls % me.size)
            for root in {0, calls % me.size, me.size - 1}:
                bench.gather(dtype, count, root)
                bench.scatter(dtype, count, root)
        bench.group.barrier()
    return calls


LARGE_REDUCTIONS = (("all_reduce", "float32", "sum", ()), ("all_reduce", "bfloat16", "avg", ()),
                    ("reduce_scatter", "int64", "max", ()), ("reduce", "uint8", "prod", (0,)))


def everything_large(me):
    bench, size = Bench(me, 8 * LARGE), me.size
    for _ in range(2):  # so that each comes apart and in place
        bench.turn += 1
        for name, dtype, op, root in LARGE_REDUCTIONS:
            getattr(bench, name)(dtype, op, LARGE, *root)
        bench.all_gather("int16", LARGE)
        bench.all_to_all("int32", LARGE // size)
        bench.broadcast("float64", LARGE, 2 % size)
        bench.gather("uint16", LARGE, 1 % size)
        bench.scatter("float32", LARGE, size - 1)
        bench.scan("float32", "sum", LARGE)
        bench.scan("int32", "prod", LARGE, exclusive=True)


def test_every_collective_type_and_count_gives_what_numpy_gives(cluster):
    for name, placement in PLACEMENTS.items():
        begin = time.monotonic()
        run(on(cluster, placement), everything_small, seconds=60)
        print(f"        {name}: {time.monotonic() - begin:.1f} s")


def test_a_million_elements_give_what_numpy_gives(cluster):
    for name, placement in PLACEMENTS.items():
        size, begin = len(placement), time.monotonic()
        known.clear()
        for collective, dtype, op, _ in LARGE_REDUCTIONS:
            count = LARGE * (size if collective == "reduce_scatter" else 1)
            known[dtype, op, size, count] = reduced(dtype, op, size, count)
        run(on(cluster, placement), everything_large, seconds=60)
        print(f"        {name}: {time.monotonic() - begin:.1f} s")


def float8(values, dtype):
    """Whole numbers up to 16, of which e5m2 has only the even ones above 8, as their bits."""
    if dtype == "float8_e5m2":
        return typed((values.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8), dtype)
    power = np.frexp(np.maximum(values, 1))[1] - 1
    bits = (power + 7 << 3) + (values * 8 >> power) - 8
    return typed(np.where(values == 0, 0, bits).astype(np.uint8), dtype)


def pairs(kinds, rank, count):
    """Few values, so that the index often decides; and in floats NaNs, of which the lowest index is taken too."""
    out = np.zeros(count, [("value", kinds[0]), ("index", kinds[1])])
    out["value"] = element("int64", "min", rank, count) % 5 - 2
    out["index"] = (np.arange(count) * 5 + rank * 3) % 11
    if kinds[0][0] == "f":
        out["value"][rank::7] = np.nan
    return out


def located(op, inputs):
    """By numpy: NaNs first, then by value, then by index."""
    values, indices = np.stack([i["value"] for i in inputs]), np.stack([i["index"] for i in inputs])
    number = np.nan_to_num(values.astype(np.float64)) * (1 if op == "minloc" else -1)
    first = np.lexsort((indices, number, ~np.isnan(values.astype(np.float64))), axis=0)[0]
    return np.stack(inputs)[first, np.arange(len(first))]


BIT_BY_BIT = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
LOGICAL = {"land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor}
OF_BOOL = {**BIT_BY_BIT, **LOGICAL, "min": np.logical_and, "max": np.logical_or}


def other_types(me, count):
    """all_reduce, reduce_scatterv and scans of each type and reduction that everything_small leaves out; in place and apart, in two kinds of
    memory."""
    session = me.session()
    group, ranks = me.group(session), range(me.size)
    ranks_in = {"all_reduce": me.size, "scan": me.rank + 1, "exclusive_scan": me.rank}

    def reductions(op, inputs, of, what, scalars=None):
        """of(n): what the inputs of the first n ranks give; what: their type."""
        mine = inputs[me.rank]
        extra = {} if scalars is None else {"scalar": scalars[me.rank]}
        for name, included in ranks_in.items():
            want = np.ascontiguousarray(of(included) if included else identity(what, op, count)).tobytes()
            for allocated in (True, False):
                x = session.alloc(mine.shape, mine.dtype).view(type(mine)) if allocated else mine.copy()
                x[:] = mine
                for out in (np.zeros_like(mine), None):
                    have = getattr(group, name)(x, out, op, **extra)
                    equal(have.tobytes(), want, f"{name} {op} of {what}")
                    x[:] = mine
        counts = [count * (rank % 3) // max(1, sum(rank % 3 for rank in ranks)) for rank in ranks]
        counts[-1] += count - sum(counts)
        own = slice(sum(counts[:me.rank]), sum(counts[:me.rank + 1]))
        want = np.ascontiguousarray(of(me.size)[own]).tobytes()
        for out in (np.zeros_like(mine[own]), x[own]):
            have = group.reduce_scatterv(x, counts, out, op, **extra)
            equal(have.tobytes(), want, f"reduce_scatterv {op} of {what}")
            x[:] = mine

    for dtype in INTEGERS:
        inputs = [element(dtype, "sum", rank, count).astype(dtype) * (np.arange(count) % 3 > 0).astype(dtype) for rank in ranks]
        for op, function in BIT_BY_BIT.items():
            reductions(op, inputs, lambda n: function.reduce(inputs[:n]), dtype)
        for op, function in LOGICAL.items():
            reductions(op, inputs, lambda n: function.reduce(inputs[:n]).astype(dtype), dtype)
        scalars = [rank + 2 for rank in ranks]
        products = [x * np.array(s, dtype) for x, s in zip(inputs, scalars)]
        reductions("premul_sum", inputs, lambda n: np.add.reduce(products[:n], dtype=dtype), dtype, scalars)
    for op, function in OF_BOOL.items():
        inputs = [element("int64", "sum", rank, count) % 3 > 0 for rank in ranks]
        reductions(op, inputs, lambda n: function.reduce(inputs[:n]), "bool")
    for dtype in ("float32", "float64", "float16"):
        inputs, scalars = [given(dtype, "prod", rank, count) for rank in ranks], [0.5 * (rank + 1) for rank in ranks]
        products = [x * np.array(s, dtype) for x, s in zip(inputs, scalars)]
        reductions("premul_sum", inputs, lambda n: np.add.reduce(products[:n], dtype=dtype), dtype, scalars)
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        inputs = [element("int64", "sum", rank, count) % 2 for rank in ranks]
        stored = [float8(values, dtype) for values in inputs]
        for op, function in (("sum", np.add), ("prod", np.multiply), ("min", np.minimum), ("max", np.maximum)):
            reductions(op, stored, lambda n: float8(function.reduce(inputs[:n]), dtype), dtype)
        two = [int(float8(np.array([2]), dtype)[0])] * me.size
        reductions("premul_sum", stored, lambda n: float8(2 * np.add.reduce(inputs[:n]), dtype), dtype, two)
    for kinds in (("f4", "i4"), ("f8", "i8"), ("i4", "i4"), ("i8", "i8")):
        inputs = [pairs(kinds, rank, count) for rank in ranks]
        for op in ("minloc", "maxloc"):
            reductions(op, inputs, lambda n: located(op, inputs[:n]), kinds)


def test_the_other_types_and_reductions_give_what_numpy_gives(cluster):
    for name, placement in PLACEMENTS.items():
        for count in (5, 40003):
            begin = time.monotonic()
            run(on(cluster, placement), other_types, count, seconds=60)
            print(f"        {name} x {count}: {time.monotonic() - begin:.1f} s")


def products_below(me):
    """Of the group, and of a group of this rank alone."""
    session = me.session()
    groups = me.group(session), me.group(session, size=1, rank=0, name=f"alone {me.rank}")
    x = np.full(2, me.rank + 1, np.int32)
    request = groups[0].exclusive_scan_start(x, np.zeros_like(x), "sum")
    equal((request.wait().tolist(), request.completion.sequence), ([sum(range(1, me.rank + 1))] * 2, 0), "sum")
    return [group.exclusive_scan(x, np.zeros_like(x), "prod").tolist() for group in groups]


def test_the_exclusive_products_of_1_2_3_4_are_1_1_2_6(cluster):
    for placement in ([1, 1, 1, 1], [1, 2, 3, 1]):
        outcomes = run(on(cluster, placement), products_below)
        equal(outcomes, [[[product] * 2, [1, 1]] for product in (1, 1, 2, 6)], placement)


def refused_reduction(me):
    group, x = me.group(), np.ones(3, np.float32)
    return [me.fails(group.all_reduce, x, op="band"), me.fails(group.all_reduce, x > 0), me.fails(group.all_reduce, x, op="premul_sum"),
            me.fails(group.all_reduce, x, scalar=2), float(group.all_reduce(x)[0])]


def test_a_reduction_that_a_type_lacks_is_refused_with_those_that_it_has(cluster):
    bits, truth, without, needless, total = run(on(cluster, [1]), refused_reduction)[0]
    equal([error.name for error in (bits, truth, without, needless)], ["INVALID_ARGUMENT"] * 4, "errors")
    contains(bits.text, "f32 has no reduction band; allowed: sum, prod, min, max, avg, premul_sum")
    contains(truth.text, "bool has no reduction sum; allowed: min, max, band, bor, bxor, land, lor, lxor")
    contains(without.text, "scalar=")
    contains(needless.text, 'op="premul_sum" only')
    equal(total, 1.0, "the operation behind them")


def inexact_sum(me):
    session = me.session()
    group, random = me.group(session), np.random.default_rng(me.rank)
    x = session.alloc(LARGE)
    x[:] = mine = random.standard_normal(LARGE).astype(np.float32)
    return group.all_reduce(x).tobytes(), mine.tobytes()


def test_an_inexact_sum_has_the_same_bits_on_all_ranks(cluster):
    outcomes = run(on(cluster, PLACEMENTS["interleaved"]), inexact_sum)

    sums = [outcome[0] for outcome in outcomes]
    equal(len(set(sums)), 1, "number of different results")
    want = np.sum([np.frombuffer(mine, np.float32) for _, mine in outcomes], axis=0, dtype=np.float64)
    np.testing.assert_allclose(np.frombuffer(sums[0], np.float32), want, rtol=1e-6, atol=1e-5)


def inexact_scans(me):
    session = me.session()
    group, inputs = me.group(session), [np.random.default_rng(r).standard_normal(LARGE).astype(np.float32) for r in range(me.size)]
    for count in (3, 1000, LARGE):
        sums = np.add.accumulate([values[:count] for values in inputs], dtype=np.float32)
        x = session.alloc(count)
        x[:] = inputs[me.rank][:count]
        below = group.exclusive_scan(x, np.full(count, 7, np.float32))
        want = sums[me.rank - 1] if me.rank else np.zeros(count, np.float32)
        equal(below.tobytes(), want.tobytes(), f"exclusive scan of {count}")
        equal(group.scan(x).tobytes(), sums[me.rank].tobytes(), f"scan of {count}")


def test_scans_add_in_the_order_of_the_ranks_wherever_they_are(cluster):
    for placement in PLACEMENTS.values():
        run(on(cluster, placement), inexact_scans, seconds=60)


def barriers(me, rounds):
    group, times = me.group(), []
    for turn in range(rounds):
        if turn % me.size == me.rank:
            time.sleep(0.02)  # sleep: everybody else is early
        before = time.monotonic()
        group.barrier()
        times.append((before, time.monotonic()))
    return times


def test_no_rank_leaves_a_barrier_before_the_last_has_come(cluster):
    outcomes = run(on(cluster, PLACEMENTS["interleaved"]), barriers, 12)

    for turn in range(12):
        last_in = max(times[turn][0] for times in outcomes)
        first_out = min(times[turn][1] for times in outcomes)
        assert first_out >= last_in, f"barrier {turn}: somebody left {last_in - first_out:.4f} s too early"


def messages(me):
    """Rank 0 sends to each other rank with three tags; they take them in another order, then answer from anywhere."""
    session = me.session()
    group = me.group(session)
    text = {tag: element("int64", "sum", me.rank, 3 + 50000 * (tag == 9), salt=tag) for tag in (7, 8, 9)}
    if me.rank == 0:
        sends = [group.send_start(text[tag] + peer, peer, tag) for peer in range(me.size) for tag in (7, 8, 9)]
        own = {}
        for tag in (9, 7, 8):
            x = np.zeros(60000, np.int64)
            own[tag] = (group.recv(x, 0, tag), x[:len(text[tag])].copy())
        for send in sends:
            send.wait()
        for tag, ((source, got_tag, count), x) in own.items():
            equal((source, got_tag, count), (0, tag, len(text[tag])), "message to oneself")
            check(x, text[tag], "message to oneself")
        answers = {}
        for _ in range(1, me.size):
            x = np.zeros(2, np.float64)
            source, tag, count = group.recv(x)
            equal((count, tag), (2, 100 + source), "an answer")
            answers[source] = x.tolist()
        return answers
    for tag in (8, 9, 7):
        x = session.alloc(60000, "int64")
        source, got_tag, count = group.recv(x, 0, tag)
        want = element("int64", "sum", 0, 3 + 50000 * (tag == 9), salt=tag) + me.rank
        equal((source, got_tag, count), (0, tag, len(want)), "a message")
        check(x[:count], want, f"message with tag {tag}")
    group.send(np.array([me.rank, me.rank * 0.5]), 0, 100 + me.rank)
    return None


def test_messages_find_their_tag_and_any_source_takes_what_comes(cluster):
    outcomes = run(on(cluster, PLACEMENTS["interleaved"]), messages)

    equal(outcomes[0], {rank: [rank, rank * 0.5] for rank in range(1, 6)}, "answers to rank 0")


def in_order(me):
    group, other = me.group(), 1 - me.rank
    for i in range(300):
        if me.rank == 0:
            group.send(np.full(1 + i % 5, i, np.int32), other, tag=i % 2)
        else:
            x = np.zeros(5, np.int32)
            source, tag, count = group.recv(x, 0, i % 2)
            equal((source, tag, count, x[0]), (0, i % 2, 1 + i % 5, i), "message")


def test_messages_of_one_pair_and_tag_keep_their_order(cluster):
    run(on(cluster, [1, 2]), in_order)
    run(on(cluster, [2, 2]), in_order)


def opposite_orders(me):
    session = me.session()
    a, b = me.group(session, name=me.name + "-a"), me.group(session, name=me.name + "-b")
    groups = (a, b) if me.rank % 2 else (b, a)
    for turn in range(10):
        count = 200_000 if turn % 2 else 3
        inputs = {g: given("float32", "sum", me.rank, count, salt=turn + (g is a)) for g in groups}
        requests = [(g, g.all_reduce_start(inputs[g], np.empty(count, np.float32))) for g in groups]
        for g, request in reversed(requests):
            check(request.wait(10), reduced("float32", "sum", me.size, count, salt=turn + (g is a)), f"turn {turn}")


def test_two_groups_may_post_in_opposite_orders(cluster):
    run(on(cluster, [1, 2, 3, 1, 2, 3]), opposite_orders)


def starts_and_leaves(me, count):
    """Rank 0 starts from ordinary memory, and makes no nexar call until the others have ended."""
    group, want = me.group(), reduced("float32", "sum", me.size, count)
    x = given("float32", "sum", me.rank, count)
    group.barrier()
    request = group.all_reduce_start(x, out := np.empty(count, np.float32))
    if me.rank == 0:
        x[:] = -1  # it was copied
        me.wait_for_go()
    check(request.wait(10), want, "all_reduce")
    me.mark()


def test_peers_complete_while_the_one_that_started_makes_no_call(cluster):
    for count in (3, 300_000):
        job = Job(on(cluster, [1, 2, 3, 1]), starts_and_leaves, count)
        for rank in (1, 2, 3):
            job[rank].await_mark()
        job.go(0)
        equal(job.outcomes(), [None] * 4, "how the ranks ended")


def with_cpp(me, count, rounds):
    group = me.group()
    for turn in range(rounds):
        check(group.all_reduce(given("float32", "sum", me.rank, count, salt=turn)),
              reduced("float32", "sum", me.size, count, salt=turn), f"turn {turn}")
        mine = slice(me.rank * count, (me.rank + 1) * count)
        inputs = [given("float32", "sum", rank, count * me.size, salt=turn) for rank in range(me.size)]
        check(group.all_to_all(inputs[me.rank]), np.concatenate([values[mine] for values in inputs]), f"turn {turn}")
        counts = [(turn + rank) % 4 * count for rank in range(me.size)]
        inputs = [given("float32", "sum", rank, n, salt=turn) for rank, n in enumerate(counts)]
        check(group.all_gatherv(inputs[me.rank], counts), np.concatenate(inputs), f"turn {turn}, counts")
        gathered = group.gatherv(inputs[me.rank], counts, root=turn % me.size)
        if me.rank == turn % me.size:
            check(gathered, np.concatenate(inputs), f"turn {turn}, counts at a root")
        back = group.scatterv(gathered, counts, np.zeros(counts[me.rank], np.float32), turn % me.size)
        check(back, inputs[me.rank], f"turn {turn}, counts from a root")
        sent = [[(turn + s + 2 * r) % 3 * count for r in range(me.size)] for s in range(me.size)]
        inputs = [given("float32", "sum", s, sum(row), salt=turn) for s, row in enumerate(sent)]
        want = [inputs[s][sum(row[:me.rank]):sum(row[:me.rank + 1])] for s, row in enumerate(sent)]
        exchanged = group.all_to_allv(inputs[me.rank], sent[me.rank], [row[me.rank] for row in sent])
        check(exchanged, np.concatenate(want), f"turn {turn}, blocks")
        inputs, own = given("float32", "sum", me.rank, sum(counts), salt=turn), slice(sum(counts[:me.rank]), sum(counts[:me.rank + 1]))
        check(group.reduce_scatterv(inputs, counts), reduced("float32", "sum", me.size, sum(counts), salt=turn)[own], f"turn {turn}, sums")
        root, values = turn % me.size, given("float32", "sum", me.rank, count, salt=turn)
        gathered = group.gather(values, root=root)
        back = group.scatter(gathered, np.zeros(count, np.float32), root)
        check(back, values, f"turn {turn}, there and back")
        check(group.scan(values.copy()), reduced("float32", "sum", me.rank + 1, count, salt=turn), f"turn {turn}, scan")
        below = group.exclusive_scan(values, np.full(count, 7, np.float32))
        want = reduced("float32", "sum", me.rank, count, salt=turn) if me.rank else np.zeros(count, np.float32)
        check(below, want, f"turn {turn}, exclusive scan")


def test_python_and_cpp_ranks_share_a_group(cluster):
    placement, count, rounds = on(cluster, [1, 2, 3, 1]), 1003, 20
    programs = {rank: program(placement[rank], "NEXAR_TEST_RANK_CLIENT", count, rounds, rank=rank, size=4, group="mixed")
                for rank in (2, 3)}
    job = Job(placement, with_cpp, count, rounds, name="mixed", without=programs)

    job.outcomes()
    for rank, started in programs.items():
        output, _ = started.communicate(timeout=20)
        equal((started.returncode, output.strip()), (0, f"rank {rank}: {rounds} right"), "the C++ rank's end")


def automatic(me):
    group = me.group(rank=nexar.RANK_AUTO)
    total = group.all_reduce(np.array([1 << group.rank], np.int64))
    return group.rank, int(total[0]), [group.node(rank) for rank in range(group.size)]


def test_automatic_ranks_are_each_given_once_and_stand_together_per_node(cluster):
    placement = on(cluster, [1, 2, 3, 1, 2, 3])
    outcomes = run(placement, automatic)

    equal(sorted(rank for rank, _, _ in outcomes), list(range(6)), "ranks")
    for node, (rank, total, nodes) in zip(placement, outcomes):
        equal((total, nodes[rank]), (63, node.id), "all_reduce and own node")
        equal(len([1 for a, b in zip(nodes, nodes[1:]) if a != b]), 2, "changes of node in rank order")


def many_threads(me, threads):
    session, errors = me.session(), []

    def work(number):
        try:
            group = me.group(session, name=f"{me.name}-{number}")
            for turn in range(20):
                check(group.all_reduce(given("int32", "sum", me.rank, 100 + number, salt=turn)),
                      reduced("int32", "sum", me.size, 100 + number, salt=turn), f"thread {number}")
        except Exception as error:
            errors.append(repr(error))

    all_threads = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    return errors


def test_threads_of_one_process_each_have_their_own_group(cluster):
    equal(run(on(cluster, [1, 2, 3]), many_threads, 8), [[], [], []], "errors")


def test_the_nodes_agree_on_who_is_a_member(cluster):
    ids = {node.id for node in cluster}

    equal(len(ids), 3, "number of identities")
    for node in cluster:
        equal(node.peers_up(), ids - {node.id}, f"peers of {node}")


main(globals())
