"""Priorities of operations, as a program asks for them (docs/protocol/priorities.md). Two ranks on each node:

    node 1: ranks 0, 2 ──┬── switch
    node 2: ranks 1, 3 ──┘
"""
import ctypes

from harness import *
from harness.states import arrived
from harness.values import check, element, given, reduced

lib = cabi.lib
I64, SUM = nexar.DTYPES["int64"], nexar.OPS["sum"]
ASKED = (None, *nexar.Priority)


def two_each(cluster):
    return [cluster[n] for n in (1, 2, 1, 2)]


def every_priority(me):
    """Each rank asks for another one, in turns; messages and results are what they are without."""
    group = me.group()
    other = me.rank ^ 1
    for turn in range(2 * len(ASKED)):
        asked = ASKED[(turn + me.rank) % len(ASKED)]
        for count in (1, 5000, 300_000):
            check(group.all_reduce(given("int64", "sum", group.rank, count), priority=asked),
                  reduced("int64", "sum", group.size, count), f"all_reduce of {count} with priority {asked}")
            sends = [group.send_start(element("int64", "sum", me.rank, count, salt=31 * turn + n), other, 4, priority=ASKED[n])
                     for n in range(len(ASKED))]
            for n in range(len(ASKED)):  # in the order of the sends, whatever each asked for
                x = np.zeros(count, np.int64)
                group.recv(x, other, 4, priority=asked)
                check(x, element("int64", "sum", other, count, salt=31 * turn + n), f"message {n}")
            for send in sends:
                send.wait(30)
        group.barrier(priority=asked)


def test_ranks_may_ask_for_different_priorities_and_all_results_and_messages_are_right(cluster):
    """[K21] [K25] each rank asks for another one, of collectives and messages of all sizes."""
    run(two_each(cluster), every_priority)


def wrong_ones(me):
    """{(call, priority): (status, text)}"""
    group = me.group()
    x = np.zeros(8, np.int64)
    at, number = x.ctypes.data, ctypes.c_uint64()
    calls = {"all_reduce": lambda options: lib.nexar_all_reduce(group._handle, at, at, 8, I64, SUM, options),
             "barrier": lambda options: lib.nexar_barrier(group._handle, options),
             "send": lambda options: lib.nexar_send(group._handle, at, 8, I64, me.rank, 1, options),
             "recv_start": lambda options: lib.nexar_recv_start(group._handle, at, 8, I64, me.rank, 1, options, ctypes.byref(number))}
    found = {}
    for name, call in calls.items():
        for priority in (-2, 3, 255):
            status = call(ctypes.byref(cabi.op_options(priority=priority)))
            found[name, priority] = cabi.name_of(status), cabi.last_error().text.decode()
    check(group.all_reduce(given("int64", "sum", group.rank, 10), priority=nexar.Priority.BULK),
          reduced("int64", "sum", group.size, 10), "all_reduce")
    return found


def test_a_priority_that_there_is_not_is_refused_by_every_call(cluster):
    """[K21] and the group can be used afterwards."""
    for found in run(two_each(cluster), wrong_ones):
        for (call, priority), (status, text) in found.items():
            equal(status, "INVALID_ARGUMENT", f"{call} with priority {priority}")
            contains(text, f"priority is {priority}", "NEXAR_PRIORITY_CRITICAL (0)")


def waits_for_the_last(me, asked):
    group = me.group()
    if me.rank == 1:
        me.wait_for_go()
    group.all_reduce(given("int64", "sum", group.rank, 10), priority=asked)


def test_nexarctl_ops_shows_with_which_priority_a_node_works(cluster):
    """[K21] the most urgent one of its ranks, as soon as all of them have called."""
    for asked, shown in ((None, "realtime"), (nexar.Priority.CRITICAL, "critical"), (nexar.Priority.BULK, "bulk")):
        job = Job(two_each(cluster), waits_for_the_last, asked)
        eventually(lambda: {0, 2} <= arrived(cluster[1], job.name), "both ranks of node 1 to call")
        ops = [op for op in cluster[1].ask("ops")["ops"] if op["group"] == job.name]
        equal([op["priority"] for op in ops], [shown], "priority at node 1")
        ops = [op for op in cluster[2].ask("ops")["ops"] if op["group"] == job.name]
        equal([op["priority"] for op in ops], [""] * len(ops), "priority at node 2, where rank 1 has not called")
        job.go(1)
        job.outcomes()


main(globals())
