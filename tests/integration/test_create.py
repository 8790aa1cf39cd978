"""Groups from a list of ranks over real daemons: only the listed ranks call. Three nodes:

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
CreateOptions = nexar._library.CreateOptions
lib.nexar_group_create.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint64,
                                   ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(CreateOptions)]


def on(cluster, numbers):
    return [cluster[n] for n in numbers]


def everything_on(group, salt):
    """A few operations with data that differ between ranks, positions and groups."""
    size, rank = group.size, group.rank
    check(group.all_reduce(given("int64", "sum", rank, 3000, salt)), reduced("int64", "sum", size, 3000, salt), "sum")
    mine = np.arange(5, dtype=np.int64) + 100 * rank + 10_000 * salt
    check(group.all_gather(mine), np.stack([np.arange(5) + 100 * r + 10_000 * salt for r in range(size)]), "all_gather")
    group.barrier()


# ---- What they give ----

def listed(me, ranks):
    group = me.group()
    if me.rank in ranks:
        made = group.create(ranks, 7)
        equal((made.rank, made.size, made.epoch), (ranks.index(me.rank), len(ranks), 1))
        equal([made.node(r) for r in range(made.size)], [group.node(r) for r in ranks])
        info = made.info()
        equal((info.name, info.parent, info.parent_id), (f"{me.name}/t7", me.name, group.info().id))
        equal(made.translate(range(made.size), group), ranks)
        everything_on(made, 1)
        shown = [each["parent"]["name"] for each in me.node.ask("groups")["groups"] if each["name"] == f"{me.name}/t7"]
        equal(shown, [me.name])
        again = group.create(ranks, 7, collective_timeout=9)
        equal((again.info().collective_timeout, again.info().id == info.id), (9.0, False))
        twice = [group.create_start(ranks, tag) for tag in ((1, 2) if me.rank % 2 else (2, 1))]
        twice = dict(zip((1, 2) if me.rank % 2 else (2, 1), [request.wait(15) for request in twice]))
        everything_on(twice[1], 2)
        everything_on(twice[2], 3)
        everything_on(made.split(0, -made.rank), 4)
        nested = made.create([made.size - 1], 0) if made.rank == made.size - 1 else None
        if nested:
            everything_on(nested, 5)
        me.mark()
    elif me.rank % 2 == 0:
        group.barrier()  # while the others create; those that are left come later
        group.free()
        return True
    else:
        me.mark()
        me.wait_for_go()  # asleep
    group.barrier()
    group.free()
    if me.rank in ranks:
        everything_on(made, 6)
        everything_on(again, 7)
    return True


def test_listed_ranks_make_a_group_and_nobody_else_is_asked(cluster):
    """[Y9] On one node and several, while the others sleep or are inside a barrier of the parent."""
    for places, ranks in (([1, 2, 3, 1, 2], [4, 0, 2]), ([1, 1, 2, 2, 3, 3], [5, 0]), ([1, 1, 1, 2], [2, 0]), ([1], [0])):
        job = Job(on(cluster, places), listed, ranks)
        asleep = [r for r in range(len(places)) if r not in ranks and r % 2]
        for rank in asleep:
            job.ranks[rank].await_mark()
        for rank in ranks:
            job.ranks[rank].await_mark()
        if asleep:
            job.go(*asleep)
        equal(job.outcomes(), [True] * len(places), f"{places}")


# ---- Through the C ABI ----

def create_options(**given_options):
    return nexar._library.options(CreateOptions, lib.nexar_create_options_init, **given_options)


def wrong_calls(me):
    group = me.group()
    handle, made, number = group._handle, ctypes.c_void_p(), cabi.requests(0)
    create, start = lib.nexar_group_create, lib.nexar_group_create_start

    def ranks(*numbers):
        return (ctypes.c_uint32 * len(numbers))(*numbers)

    def named(status):
        error = cabi.last_error()
        return f"{cabi.name_of(status)} {error.op.decode()}: {error.text.decode()}"

    mine, other = me.rank, 1 - me.rank
    refused = {
        "parent": named(create(None, ranks(0), 1, made, None)),
        "ranks": named(create(handle, None, 1, made, None)),
        "none": named(create(handle, ranks(0), 0, made, None)),
        "many": named(create(handle, ranks(0, 1, 2), 3, made, None)),
        "group": named(create(handle, ranks(0, 1), 2, None, None)),
        "request": named(start(handle, ranks(0, 1), 2, None, None)),
        "no rank": named(create(handle, ranks(mine, 9), 2, made, None)),
        "twice": named(create(handle, ranks(mine, mine), 2, made, None)),
        "not listed": named(create(handle, ranks(other), 1, made, None)),
        "struct_size": named(create(handle, ranks(0, 1), 2, made, CreateOptions())),
        "reserved": named(create(handle, ranks(0, 1), 2, made, create_options(reserved=3))),
        "timeout": named(create(handle, ranks(0, 1), 2, made, create_options(timeout_ms=0))),
        "collective": named(start(handle, ranks(0, 1), 2, create_options(collective_timeout_ms=-7), number)),
        "barrier": named(create(handle, ranks(0, 1), 2, made, create_options(barrier_timeout_ms=0))),
        "rpc": named(create(handle, ranks(0, 1), 2, made, create_options(rpc_timeout_ms=0))),
    }
    # None of them left anything behind.
    cabi.check(start(handle, ranks(1, 0), 2, create_options(user_data=77, tag=5 + mine), number))
    refused["busy"] = named(create(handle, ranks(0, 1), 2, made, create_options(tag=5 + mine)))
    group.barrier()  # only now the other one calls with this tag, too
    theirs = type(number)()
    cabi.check(start(handle, ranks(1, 0), 2, create_options(user_data=77, tag=5 + other), theirs))
    for request in (number, theirs):
        status, last = cabi.end(request[0])
        equal((status, last.user_data, last.epoch), (0, 77, 1))
        size = ctypes.c_uint32()
        cabi.check(lib.nexar_group_size(last.group, size))
        equal(size.value, 2)
        cabi.check(lib.nexar_group_free(last.group))
    group.barrier()
    group.free()
    refused["closed parent"] = named(create(handle, ranks(0, 1), 2, made, None))
    return refused


def test_what_a_list_may_not_be_is_refused_by_its_name(cluster):
    for mine, refused in enumerate(Job(on(cluster, [1, 2]), wrong_calls).outcomes()):
        wrong = "INVALID_ARGUMENT group_create: "
        for what, starts in {
                "parent": "BAD_HANDLE group_create: the group is NULL", "ranks": wrong + "ranks is NULL",
                "none": wrong + "count is 0; allowed: 1 to 2", "many": wrong + "count is 3; allowed: 1 to 2",
                "group": wrong + "group is NULL", "request": wrong + "request is NULL",
                "no rank": wrong + "ranks[1] is 9; allowed: 0 to 1", "twice": wrong + f"rank {mine} is in the list twice",
                "not listed": wrong + f"rank {mine}, which calls, is not in the list", "struct_size": wrong,
                "reserved": wrong + "nexar_create_options.reserved is 3", "timeout": wrong + "timeout_ms is 0",
                "collective": wrong + "collective_timeout_ms is -7", "barrier": wrong + "barrier_timeout_ms is 0",
                "rpc": wrong + "rpc_timeout_ms is 0", "busy": "BAD_STATE group_create: rank ",
                "closed parent": "CLOSED group_create: "}.items():
            assert refused[what].startswith(starts), (what, refused[what])


def where(me):
    group = me.group()
    members = [group.member(rank) for rank in range(group.size)]
    me.mark()
    error = me.fails(group.member, group.size)
    half = group.split(me.rank % 2, -me.rank)
    return [tuple(each) for each in members], os.getpid(), error, tuple(half.member(half.rank))


def test_a_rank_is_found_by_node_host_process_and_its_number_on_the_node(cluster):
    places = on(cluster, [1, 2, 1, 1, 2])
    outcomes = Job(places, where).outcomes()
    pids = [pid for _, pid, _, _ in outcomes]
    for rank, (members, _, error, in_half) in enumerate(outcomes):
        for other, (number, node, host, pid, local_rank, local_size) in enumerate(members):
            here = [r for r in range(5) if places[r] is places[other]]
            equal((number, node, pid, local_rank, local_size),
                  (other, places[other].id, pids[other], here.index(other), len(here)), f"rank {other} at {rank}")
            assert host, f"the host of rank {other} at rank {rank}"
        equal((error.name, error.op), ("INVALID_ARGUMENT", "group_member"))
        half = [r for r in range(4, -1, -1) if r % 2 == rank % 2]
        here = [r for r in half if places[r] is places[rank]]
        equal((in_half[0], in_half[3], in_half[4], in_half[5]), (half.index(rank), pids[rank], here.index(rank), len(here)))


def automatic(me, order):
    """All come in another order, and get ranks by host, node and process."""
    for _ in range(order.index(me.rank)):
        me.wait_for_go()
    group = me.group(rank=nexar.RANK_AUTO)
    return group.rank, os.getpid(), me.node.id, group.member(group.rank).host


def test_automatic_ranks_do_not_depend_on_who_comes_first(cluster):
    places = on(cluster, [2, 1, 3, 1, 2])
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        job = Job(places, automatic, order)
        for n, rank in enumerate(order):
            eventually(lambda: sum(len(each["here"]) for node in set(places) for each in node.ask("groups")["forming"]
                                   if each["name"] == job.name) >= n, "the ranks before to wait")
            for _ in range(n):
                job.go(rank)
        outcomes = job.outcomes()
        by_place = sorted(range(5), key=lambda r: (outcomes[r][3], outcomes[r][2], outcomes[r][1]))
        equal([outcomes[r][0] for r in by_place], list(range(5)), f"{order}")


def policies(me):
    session = me.session()
    options = cabi.group_options(size=1, rank=0, name=me.name.encode(), on_failure=2)
    handle = ctypes.c_void_p()
    status = lib.nexar_group_open(cabi.of(session), options, handle)
    return cabi.name_of(status), cabi.last_error().text.decode()


def test_a_policy_that_is_not_there_is_refused_by_its_name(cluster):
    name, text = Job(on(cluster, [1]), policies).outcomes()[0]
    equal(name, "UNSUPPORTED")
    contains(text, "on_failure is 2; allowed: NEXAR_ON_FAILURE_ABORT (0)")


# ---- Ends ----

def differ(me):
    group = me.group()
    error = me.fails(group.create, [0, 1] if me.rank == 0 else [1, 0], timeout=20)
    everything_on(group.create([0, 1], 4), 1)
    return error


def test_lists_that_differ_are_a_mismatch_that_names_both(cluster):
    """[Y13] On two nodes, and on one."""
    for places in ([1, 2], [1, 1]):
        for error in Job(on(cluster, places), differ).outcomes():
            equal((error.name, error.rank, error.other_rank), ("MISMATCH", 1, 0), f"{places}")
            contains(error.text, "of the ranks 0, 1 with tag 0")
            contains(error.text, "of the ranks 1, 0")


def ends(me, how):
    group = me.group()
    if me.rank == 1:
        if how == "late":
            me.wait_for_go()
        elif how == "dies":
            me.mark()
            me.stay()
        elif how == "leaves":
            group.free()
            return None
    error = None
    if me.rank != 1:
        if how == "cancel":
            request = group.create_start([0, 1, 2])
            request.cancel()
            error = me.fails(request.wait)
        else:
            me.mark()
            error = me.fails(group.create, [0, 1, 2], timeout=1 if how == "late" else 20)
            me.mark()
    if how in ("late", "cancel"):
        # Another tag: with the same one this call could complete a call that is not yet cancelled.
        everything_on(group.create([0, 1, 2], 1), 2)
    return error


def test_a_create_ends_by_deadline_cancel_and_the_loss_of_a_listed_rank(cluster):
    """[Y12]"""
    for error in Job(on(cluster, [1, 2, 3]), ends, "cancel").outcomes():
        assert error is None or error.name == "CANCELLED", error
    job = Job(on(cluster, [1, 2, 3]), ends, "late")
    for rank in (0, 2):
        job.ranks[rank].await_mark()
        job.ranks[rank].await_mark()
    job.go(1)
    for rank, error in enumerate(job.outcomes()):
        if rank != 1:
            equal((error.name, error.rank, error.node), ("GROUP_INCOMPLETE", 1, cluster[2].id))
            contains(error.text, "has not called")
            contains(error.text, "of 3 (ranks are the parent's) after 1 s: missing: rank 1.")
    job = Job(on(cluster, [1, 2, 3]), ends, "dies")
    job.await_marks()
    os.kill(job.ranks[1].pid, signal.SIGKILL)
    for error in job.outcomes(0, 2):
        equal((error.name, error.rank), ("PEER_LOST", 1))
    errors = [error for error in Job(on(cluster, [1, 2, 3]), ends, "leaves").outcomes() if error]
    assert all(error.name in ("ABORTED", "PEER_LOST") for error in errors), errors
    # Who has its error leaves, too, and the other one may learn of that first.
    assert 1 in [error.rank for error in errors] and {error.rank for error in errors} <= {0, 1, 2}, errors


# ---- Bounds ----

def many(me, cycles):
    group = me.group()
    for n in range(cycles):
        group.create([1, 0], n % 7).free()
    made = [group.create([0, 1], n) for n in range(300)]
    for n in (0, 150, 299):
        check(made[n].all_reduce(np.full(10, n + me.rank)), np.full(10, n * 2 + 1), f"{n}")
    for each in made:
        each.free()
    group.barrier()
    return len([shown for shown in me.node.ask("groups")["groups"] if shown["name"].startswith(me.name)])


def test_hundreds_are_alive_and_hundreds_come_and_go(cluster):
    """[Y15]"""
    for groups in Job(on(cluster, [1, 2]), many, 500).outcomes(seconds=120):
        assert groups <= 2, groups


main(globals())
