"""Children of groups over real daemons: split, dup, children of children, what they refuse, and how they end. Three nodes:

    node 1 ──┐
    node 2 ──┼── switch
    node 3 ──┘
"""
import ctypes
import os
import signal

from harness import *
from harness.values import check, given, reduced

lib = cabi.lib
ChildOptions = nexar._library.ChildOptions
for _name, _more in {"group_split": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p),
                                     ctypes.POINTER(ChildOptions)],
                     "group_dup": [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ChildOptions)]}.items():
    getattr(lib, f"nexar_{_name}").argtypes = _more


def on(cluster, numbers):
    return [cluster[n] for n in numbers]


def everything_on(group, salt):
    """A few operations with data that differ between ranks, positions and groups."""
    size, rank = group.size, group.rank
    check(group.all_reduce(given("int64", "sum", rank, 3000, salt)), reduced("int64", "sum", size, 3000, salt), "sum")
    mine = np.arange(5, dtype=np.int64) + 100 * rank + 10_000 * salt
    check(group.all_gather(mine), np.stack([np.arange(5) + 100 * r + 10_000 * salt for r in range(size)]), "all_gather")
    check(group.broadcast(mine.copy(), size - 1), np.arange(5) + 100 * (size - 1) + 10_000 * salt, "broadcast")
    group.barrier()
    if size > 1:
        asked = np.zeros(3, np.int64)
        receiving = group.recv_start(asked, (rank - 1) % size, 4)
        group.send(np.arange(3, dtype=np.int64) + 7 * rank + salt, (rank + 1) % size, 4)
        equal(receiving.wait(10), ((rank - 1) % size, 4, 3))
        check(asked, np.arange(3) + 7 * ((rank - 1) % size) + salt, "message")


# ---- What they give ----

def splits(me):
    group = me.group()
    size = group.size
    # Two colours, descending order, and rank 2 has none.
    colour = None if me.rank == 2 else me.rank % 2
    child = group.split(colour, -me.rank)
    members = [r for r in reversed(range(size)) if r != 2 and r % 2 == me.rank % 2]
    if colour is None:
        assert child is None
        group.barrier()
    else:
        equal((child.rank, child.size, child.epoch), (members.index(me.rank), len(members), 1))
        equal([child.node(r) for r in range(child.size)], [group.node(r) for r in members])
        everything_on(child, 1 + me.rank % 2)
        equal(child.translate(range(child.size), group), members)
        equal(group.translate(range(size), child), [members.index(r) if r in members else None for r in range(size)])
        info, of_parent = child.info(), group.info()
        equal((info.parent, info.parent_id, info.name), (me.name, of_parent.id, f"{me.name}/0.{colour}"))
        equal((info.rank, info.size, info.epoch, info.collective_timeout),
              (child.rank, child.size, 1, of_parent.collective_timeout))
        equal((of_parent.parent, of_parent.name, of_parent.size), (None, me.name, size))
        equal((info.on_failure, info.plan, of_parent.on_failure), (0, of_parent.plan, 0))
        assert info.id != of_parent.id and info.nodes <= of_parent.nodes
        group.barrier()
    twin = group.dup()
    equal((twin.rank, twin.size), (me.rank, size))
    # On three groups at once, in another order on each rank.
    groups = [group, twin] + ([child] if child else [])
    mine = [np.full(1000, 10 ** n + me.rank, np.int64) for n in range(len(groups))]
    order = sorted(range(len(groups)), key=lambda n: (n + me.rank) % 3)
    started = {n: groups[n].all_reduce_start(mine[n]) for n in order}
    ranks = [range(size), range(size), members]
    for n in range(len(groups)):
        check(started[n].wait(15), np.full(1000, sum(10 ** n + r for r in ranks[n])), f"group {n}")
    group.free()
    everything_on(twin, 5)
    if child:
        everything_on(child, 6)
        grandchild = child.split(0, me.rank)
        equal(grandchild.rank, sorted(members).index(me.rank))
        everything_on(grandchild, 7)
        equal(grandchild.translate(range(grandchild.size), child), [child.size - 1 - r for r in range(child.size)])
        child.free()
        everything_on(grandchild, 8)
    return True


def test_children_are_whole_groups_on_any_placement(cluster):
    """[Y1] [Y6] Split, dup and nested split, used beside each other, and after their parents."""
    for places in ([1, 1, 1, 1], [1, 2, 3, 1, 2], [1, 1, 2, 2, 3, 3, 1]):
        equal(Job(on(cluster, places), splits).outcomes(), [True] * len(places), f"{places}")


def plans(me):
    group = me.group()
    return group.info().plan, group.dup().info().plan


def test_the_plan_table_of_a_group_is_known(cluster):
    """The same on all ranks, and as the node that leads the opening is configured."""
    found = Job(on(cluster, [1, 2, 3, 3]), plans).outcomes()
    equal(len({plan for both in found for plan in both}), 1, "plan tables")
    plan, config = found[0][0], cluster[1].ask("config")["values"]
    equal((plan.segment_bytes, plan.small_bytes_max), (int(config["pipeline_segment_bytes"]), int(config["small_message_bytes"])), "as configured")
    assert plan.version >= 2 and plan.lanes >= 1 and plan.shards >= 1 and 0 < plan.chunk_bytes <= plan.segment_bytes, plan
    assert 0 < plan.doubling_bytes_max <= plan.small_bytes_max, plan


def names(me):
    """The name of a child is in errors and in nexarctl."""
    group = me.group()
    group.barrier()
    child = group.split(7, 0)
    text = me.fails(child.send, np.zeros(1), 99).error
    shown = [(each["name"].removeprefix(me.name), each["parent"] and each["parent"]["name"])
             for each in me.node.ask("groups")["groups"] if each["name"].startswith(me.name)]
    me.mark()
    me.wait_for_go()
    return text.group, me.name, sorted(shown)


def test_a_child_has_a_name_and_is_shown(cluster):
    job = Job(on(cluster, [1, 2]), names)
    job.await_marks()
    job.go(0, 1)
    for group, name, shown in job.outcomes():
        equal(group, name + "/1.7")
        equal(shown, [("", None), ("/1.7", name)])


# ---- Through the C ABI ----

def child_options(**given_options):
    return nexar._library.options(ChildOptions, lib.nexar_child_options_init, **given_options)


def wrong_calls(me):
    session = me.session()
    group = me.group(session)
    handle, child, number = group._handle, ctypes.c_void_p(), cabi.requests(0)
    split, dup = lib.nexar_group_split, lib.nexar_group_dup

    def named(status):
        error = cabi.last_error()
        return f"{cabi.name_of(status)} {error.op.decode()}: {error.text.decode()}"

    refused = {
        "child": named(split(handle, 0, 0, None, None)),
        "dup's child": named(dup(handle, None, None)),
        "request": named(lib.nexar_group_split_start(handle, 0, 0, None, None)),
        "dup's request": named(lib.nexar_group_dup_start(handle, None, None)),
        "parent": named(split(None, 0, 0, child, None)),
        "struct_size": named(split(handle, 0, 0, child, ChildOptions())),
        "reserved": named(split(handle, 0, 0, child, child_options(reserved=3))),
        "timeout": named(split(handle, 0, 0, child, child_options(timeout_ms=0))),
        "timeout -7": named(dup(handle, child, child_options(timeout_ms=-7))),
        "collective": named(split(handle, 0, 0, child, child_options(collective_timeout_ms=0))),
        "barrier": named(dup(handle, child, child_options(barrier_timeout_ms=-3))),
        "rpc": named(lib.nexar_group_dup_start(handle, child_options(rpc_timeout_ms=0), number)),
    }
    ranks, info = (ctypes.c_uint32 * 2)(1, 0), nexar._library.GroupInfo()
    other = session.group(me.name + " alone", size=1, rank=0)
    apart = me.session().group(me.name + " elsewhere", size=1, rank=0)
    translate = lib.nexar_group_translate
    refused |= {
        "info": named(lib.nexar_group_info_get(handle, None)),
        "info's size": named(lib.nexar_group_info_get(handle, info)),
        "ranks": named(translate(handle, None, 2, handle, ranks)),
        "out": named(translate(handle, ranks, 2, handle, None)),
        "count": named(translate(handle, ranks, 4097, handle, ranks)),
        "no rank": named(translate(handle, (ctypes.c_uint32 * 1)(group.size), 1, handle, ranks)),
        "no relative": named(translate(handle, ranks, 2, other._handle, ranks)),
        "another session": named(translate(handle, ranks, 2, apart._handle, ranks)),
    }
    equal(list(ranks), [1, 0])
    many = (ctypes.c_uint32 * 300)(*[n % group.size for n in range(300)])
    cabi.check(translate(handle, many, 300, handle, many))
    equal(list(many), [n % group.size for n in range(300)])
    # None of them took a place in the order.
    last = cabi.completion()
    number = cabi.started("group_split", group, nexar._library.COLOUR_UNDEFINED, 0, options=child_options(user_data=77))
    status, last = cabi.end(number)
    equal((status, last.sequence, last.group, last.user_data), (0, 0, None, 77))
    number = cabi.started("group_dup", group)
    status, last = cabi.end(number)
    equal((status, last.sequence, last.epoch), (0, 1, 1))
    size = ctypes.c_uint32()
    cabi.check(lib.nexar_group_size(last.group, size))
    equal(size.value, group.size)
    cabi.check(lib.nexar_group_free(last.group))
    refused["freed child"] = named(split(last.group, 0, 0, child, None))
    # A later collective's number is in the completion, whatever its kind.
    x = np.zeros(group.size, np.int64)
    out = np.zeros(group.size, np.int64)
    number = cabi.started("all_to_all", group, x.ctypes.data, out.ctypes.data, 1, nexar.DTYPES["int64"])
    equal(cabi.end(number)[1].sequence, 2)
    group.free()
    refused["closed parent"] = named(dup(handle, child, None))
    return refused


def test_what_a_child_may_not_be_is_refused_by_its_name(cluster):
    for refused in Job(on(cluster, [1, 2]), wrong_calls).outcomes():
        for what, starts in {
                "child": "INVALID_ARGUMENT group_split: child is NULL", "dup's child": "INVALID_ARGUMENT group_dup: child is NULL",
                "request": "INVALID_ARGUMENT group_split: request is NULL",
                "dup's request": "INVALID_ARGUMENT group_dup: request is NULL",
                "parent": "BAD_HANDLE group_split: the group is NULL", "struct_size": "INVALID_ARGUMENT group_split: ",
                "reserved": "INVALID_ARGUMENT group_split: nexar_child_options.reserved is 3",
                "timeout": "INVALID_ARGUMENT group_split: timeout_ms is 0",
                "timeout -7": "INVALID_ARGUMENT group_dup: timeout_ms is -7",
                "collective": "INVALID_ARGUMENT group_split: collective_timeout_ms is 0",
                "barrier": "INVALID_ARGUMENT group_dup: barrier_timeout_ms is -3",
                "rpc": "INVALID_ARGUMENT group_dup: rpc_timeout_ms is 0",
                "info": "INVALID_ARGUMENT group_info: info is NULL", "info's size": "INVALID_ARGUMENT group_info: ",
                "ranks": "INVALID_ARGUMENT group_translate: ranks is NULL",
                "out": "INVALID_ARGUMENT group_translate: out is NULL",
                "count": "INVALID_ARGUMENT group_translate: count is 4097",
                "no rank": "INVALID_ARGUMENT group_translate: rank 2 is not in a group of 2",
                "no relative": "INVALID_ARGUMENT group_translate: the groups ",
                "another session": "INVALID_ARGUMENT group_translate: the groups are of two sessions",
                "freed child": "CLOSED group_split: ", "closed parent": "CLOSED group_dup: "}.items():
            assert refused[what].startswith(starts), (what, refused[what])


def differs(me, what):
    group = me.group()
    if what == "operation":
        errors = [me.fails(group.split, 0) if me.rank != 1 else me.fails(group.all_reduce, np.zeros(4))]
    elif what == "dup":
        errors = [me.fails(group.split, 0) if me.rank != 1 else me.fails(group.dup)]
    elif what == "match_id":
        errors = [me.fails(group.split, 0, match_id=me.rank)]
    elif what == "late":
        if me.rank == 1:
            me.wait_for_go()
        errors = [me.fails(group.dup, timeout=0.3)]
        me.mark()
    else:
        errors = [me.fails(group.split, 0, collective_timeout=1 + me.rank)]
    everything_on(group, 3)
    everything_on(group.dup(collective_timeout=7), 4)
    return errors


def test_ranks_that_do_not_agree_all_get_the_error_and_the_parent_goes_on(cluster):
    """[Y1] [Y2] Another operation, another match_id, other time-outs, a rank that is late."""
    for what, code in (("operation", "MISMATCH"), ("dup", "MISMATCH"), ("match_id", "MISMATCH"), ("time-outs", "OPTIONS_DIFFER")):
        for errors in Job(on(cluster, [1, 2, 3]), differs, what).outcomes():
            equal([error.name for error in errors], [code], what)
    job = Job(on(cluster, [1, 2, 3]), differs, "late")
    for rank in (0, 2):
        job.ranks[rank].await_mark()
    job.go(1)
    results = job.outcomes()
    equal(sorted(errors[0].name for errors in results)[-1], "TIMED_OUT")
    for errors in results:
        assert errors[0].name in ("TIMED_OUT", "ABORTED"), errors


def dropped(me):
    """A request that nobody looked at frees its child with it."""
    group = me.group()
    number = cabi.started("group_dup", group)
    group.barrier()
    eventually(lambda: lib.nexar_request_free(number) == 0, "the dup to end")
    me.mark()
    me.wait_for_go()
    group.barrier()
    return [shown["name"] for shown in me.node.ask("groups")["groups"] if shown["name"].startswith(me.name)]


def test_the_child_of_a_request_that_nobody_looked_at_is_freed_with_it(cluster):
    job = Job(on(cluster, [1, 2]), dropped)
    job.await_marks()
    job.go(0, 1)
    for shown in job.outcomes():
        equal(len(shown), 1, shown)


# ---- Failure ----

def loses_a_rank(me):
    group = me.group()
    child = group.split(0 if me.rank < 3 else 1, 0)
    alone = group.split(me.rank)
    everything_on(child, 1)
    if me.rank == 1:
        me.mark()
        me.stay()
    if me.rank == 3:
        everything_on(child, 2)
        me.mark()
        error = me.fails(group.dup, timeout=20)
        everything_on(child, 3)
        return error, None
    me.mark()
    on_child = me.fails(child.barrier)
    on_group = me.fails(group.dup, timeout=20)
    everything_on(alone, 4)
    return on_group, on_child


def test_a_rank_that_dies_ends_the_groups_that_it_is_in_and_no_others(cluster):
    """[Y6] A split that waits for it fails everywhere, naming it by its rank there."""
    job = Job(on(cluster, [1, 2, 3, 2]), loses_a_rank)
    job.await_marks()
    os.kill(job.ranks[1].pid, signal.SIGKILL)
    for rank, (on_group, on_child) in zip((0, 2, 3), job.outcomes(0, 2, 3)):
        equal((on_group.name, on_group.rank, on_group.op), ("PEER_LOST", 1, "group_dup"), rank)
        if on_child is not None:
            equal((on_child.name, on_child.rank), ("PEER_LOST", 1), rank)


# ---- Bounds ----

def many(me, cycles):
    session = me.session()
    group = me.group(session)
    group.dup().free()
    for _ in range(cycles):
        group.dup().free()
    group.barrier()
    children = [group.dup() for _ in range(1000)]
    for n in (0, 500, 999):
        check(children[n].all_reduce(np.full(10, n + me.rank)), np.full(10, n * group.size + sum(range(group.size))), f"{n}")
    for child in children:
        child.free()
    group.barrier()
    return len([shown for shown in me.node.ask("groups")["groups"] if shown["name"].startswith(me.name)])


def test_a_thousand_children_are_alive_and_thousands_come_and_go(cluster):
    """[Y7]"""
    for groups in Job(on(cluster, [1, 2]), many, 2000).outcomes(seconds=120):
        assert groups <= 2, groups  # RankGone of the last one may be on its way


def refused_one(me):
    group = me.group()
    children = []
    while True:
        try:
            children.append(group.dup())
        except nexar.Error as error:
            refused = me.failure(error)
            break
    again = me.fails(group.split, 0)
    without = group.split(None)
    for child in children:
        everything_on(child, len(children))
    return refused, again, len(children), without


def test_a_rank_that_may_have_no_more_groups_is_named_to_all(cluster):
    """[Y4] The second node's daemon allows a user five groups."""
    small = cluster.node().start(NEXAR_CLUSTER_TOKEN=cluster.token(), NEXAR_GROUPS_MAX="10", NEXAR_USER_SHARE_PERCENT="50")
    cluster.wait_connected()
    for refused, again, count, without in Job([cluster[1], small, cluster[2]], refused_one).outcomes():
        equal((count, without), (4, None))
        for error in (refused, again):
            equal((error.name, error.rank, error.node), ("TABLE_FULL", 1, small.id))
            contains(error.text, "its user has 5 groups")


main(globals())
