"""Deterministic reductions, f32 partials and sharded optimisers, on three healthy nodes.

    node 1 ──┐
    node 2 ──┼── switch
    node 3 ──┘
"""
import os

from harness import *
from harness.values import check, narrow, storage, typed

COUNTS = {"float32": (7, 1_200_003), "float64": (7,), "float16": (7, 5000), "bfloat16": (1, 5000)}  # once two segments
PLACEMENTS = ([1] * 4, [1, 1, 1, 2, 2], [1, 2, 3, 1, 2])


def on(cluster, numbers):
    return [cluster[n] for n in numbers]


def values(rank, count, dtype):
    """Of all magnitudes, so that every order of adding them has other bits."""
    random = np.random.default_rng(1000 * rank + count)
    return narrow(random.standard_normal(count) * np.exp2(random.integers(-6, 7, count)), dtype)


def wide(array, dtype):
    """What a partial is."""
    if dtype == "bfloat16":
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64 if dtype == "float64" else np.float32)


def tree(partials):
    """A range is split at the largest power of two below its length."""
    if len(partials) == 1:
        return partials[0]
    half = 1 << (len(partials) - 1).bit_length() - 1
    return tree(partials[:half]) + tree(partials[half:])


def reduced(size, count, dtype, divisor=1):
    total = tree([wide(values(rank, count, dtype), dtype) for rank in range(size)])
    return narrow(total / total.dtype.type(divisor), dtype)


def reduces(me, dtype, **given):
    """In the group that asks for it, in a child of that, and by calls that ask for it themselves."""
    session = me.session()
    asking = me.group(session, name="asking", flags=nexar.FLAG_DETERMINISTIC)
    plain = me.group(session, name="plain")
    flag = {"flags": nexar.FLAG_DETERMINISTIC | nexar.FLAG_F32_PARTIALS}
    for count in COUNTS[dtype]:
        mine, want = values(me.rank, count, dtype), reduced(me.size, count, dtype)
        whole = typed(np.zeros(count, storage(dtype)), dtype)
        asking.all_reduce(mine, whole)
        check(whole, want, f"all_reduce {dtype} x {count}")
        if count < 10_000:
            plain.all_reduce(mine, whole, op="avg", **flag)
            check(whole, reduced(me.size, count, dtype, me.size), f"average of {dtype} x {count}")
        counts = [nexar.shard(count, me.size, rank)[1] for rank in range(me.size)]
        begin, length = nexar.shard(count, me.size, me.rank)
        part = typed(np.zeros(length, storage(dtype)), dtype)
        asking.reduce_scatterv(mine, counts, part)
        check(part, want[begin:begin + length], f"reduce_scatterv {dtype} x {count}")
        with asking.dup() as child:
            whole[:] = mine
            child.reduce(whole, whole, root=me.size - 1)
        if me.rank == me.size - 1:
            check(whole, want, f"reduce {dtype} x {count}")


def test_deterministic_reductions_are_the_tree_of_numpy_on_every_placement(cluster):
    """[Z1]"""
    for placement in PLACEMENTS:
        for dtype in COUNTS:
            run(on(cluster, placement), reduces, dtype, seconds=60)


def adds_ones(me):
    """256 + 1 is 256 in bfloat16."""
    group = me.group(flags=nexar.FLAG_F32_PARTIALS)
    mine = narrow(np.full(300, 256.0 if me.rank == 0 else 1.0), "bfloat16")
    out = typed(np.zeros(300, np.uint16), "bfloat16")
    group.all_reduce(mine, out)
    check(out, narrow(np.full(300, 258.0), "bfloat16"), "256 + 1 + 1")


def test_f32_partials_keep_what_a_host_would_round_away(cluster):
    """[Z4]"""
    run(on(cluster, [1, 2, 3]), adds_ones)


def asks_alone(me):
    group = me.group()
    try:
        group.all_reduce(np.ones(1000, np.float32), flags=nexar.FLAG_DETERMINISTIC if me.rank == 0 else 0)
    except nexar.Error as error:
        text = str(error)
    group.all_reduce(np.ones(1000, np.int32), flags=nexar.FLAG_DETERMINISTIC if me.rank == 0 else 0)  # means nothing
    return text


def test_a_flag_of_one_rank_alone_is_a_mismatch_that_names_both(cluster):
    """[Z3]"""
    for placement in ([1, 1], [1, 2]):
        for text in run(on(cluster, placement), asks_alone):
            contains(text, "MISMATCH", "rank 0 (", "rank 1 (", "count 1000, deterministic")


def optimises(me, count):
    """Momentum of this rank's share only; as if every rank had updated everything."""
    group = me.group()
    counts = [nexar.shard(count, me.size, rank)[1] for rank in range(me.size)]
    begin, length = nexar.shard(count, me.size, me.rank)
    own = slice(begin, begin + length)
    parameters, whole = np.arange(count, dtype=np.float64), np.arange(count, dtype=np.float64)
    velocity, velocities = np.zeros(length), np.zeros(count)
    for step in range(5):
        gradients = [100.0 * rank + np.arange(count) + step for rank in range(me.size)]
        gradient = gradients[me.rank].copy()
        group.reduce_scatterv(gradient, counts, gradient[own])
        velocity = velocity / 2 - gradient[own] / 4
        parameters[own] += velocity
        group.all_gatherv(parameters[own], counts, parameters)
        velocities = velocities / 2 - sum(gradients) / 4
        whole += velocities
        equal(parameters.tolist(), whole.tolist(), f"{me.size} ranks x {count}, step {step}")


def test_a_sharded_optimiser_is_the_whole_one(cluster):
    for placement, count in (([1, 2, 3], 6), ([1, 2, 3], 7), ([1, 1, 2, 3], 5), ([1, 2, 1, 2], 3)):
        run(on(cluster, placement), optimises, count)
    equal([nexar.shard(7, 3, rank) for rank in range(3)], [(0, 3), (3, 2), (5, 2)], "shares of 7 elements")


def reads_environment(me):
    os.environ["NEXAR_DETERMINISTIC"] = "1"
    out = np.zeros(5000, np.float32)
    me.group().all_reduce(values(me.rank, 5000, "float32"), out)
    check(out, reduced(me.size, 5000, "float32"), "all_reduce of a group that the environment makes deterministic")


def test_the_environment_makes_a_program_deterministic(cluster):
    """[Z1]"""
    run(on(cluster, [1, 2, 1, 2, 3]), reads_environment)


main(globals())
