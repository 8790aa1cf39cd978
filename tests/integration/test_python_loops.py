"""asyncio's loops that end before the operations have that they awaited.

    node 1 ──┐
    node 2 ──┴── switch
"""
import asyncio
import gc

from harness import *


def ends_its_loop(me):
    """asyncio.run() cancels what still awaits, and ends before the operations have."""
    group = me.group(me.session(slots=16))

    async def work():
        waiting = [asyncio.ensure_future(one(tag)) for tag in range(10)]
        await asyncio.sleep(0)  # sleep: they begin
        await group.barrier_start()
        return waiting

    async def one(tag):
        await group.recv_start(np.zeros(1), tag=tag)

    gc.disable()
    for _ in range(2):
        assert all(each.cancelled() for each in asyncio.run(work()))
    held = len(group._connection.requests), len(group._connection.readers)
    twice = group.recv_start(np.zeros(1), tag=98)

    async def one_of_two_gives_up():
        first, second = twice.future(), twice.future()
        first.cancel()
        await asyncio.wait([second], timeout=20)
        return second.done() and type(second.exception()).__name__

    end = asyncio.run(one_of_two_gives_up())
    group.barrier()  # no rank leaves before
    return held, end


def test_what_a_loop_cancelled_as_it_ended_keeps_no_slot(cluster):
    """[U18]"""
    equal(run([cluster[1], cluster[2]], ends_its_loop), [((0, 0), "OperationError")] * 2, "requests and readers that are held, and an end")


async def soon(condition):
    for _ in range(2000):
        if condition():
            return True
        await asyncio.sleep(0.01)  # sleep: between two looks
    return False


def callback_of_one_that_is_not_awaited_any_more(me):
    """Whether it is called in the loop, which has nothing else to await; and what is left of both kinds."""
    group = me.group()
    called = []

    async def gives_up():
        request = group.recv_start(np.zeros(1), tag=97)
        request.add_done_callback(called.append)
        future = request.future()
        await asyncio.sleep(0)  # sleep: the loop reads
        future.cancel()
        return await soon(lambda: called) and [called[0] is request, request.completion.name]

    async def gives_up_and_lets_go():
        request = group.recv_start(np.zeros(1), tag=96)
        request.add_done_callback(lambda _: None)
        request.future().cancel()
        del request
        return await soon(lambda: not group._connection.readers)

    ends = asyncio.run(gives_up())
    called.clear()
    stops = asyncio.run(gives_up_and_lets_go())
    gc.collect()
    group.barrier()
    return ends, stops, len(group._connection.requests)


def test_a_callback_is_called_though_nobody_awaits_the_request_any_more(cluster):
    """[U18]"""
    equal(run([cluster[1], cluster[2]], callback_of_one_that_is_not_awaited_any_more), [([True, "CANCELLED"], True, 0)] * 2,
          "the callback's request, its end, whether the loop stops reading, and requests that are held")


def is_started_again_by_its_callback(me):
    """The future of one that a callback before it starts again has the end of that start: also where the loop's own look finds the first."""
    group, found = me.group(), []
    step = group.barrier_init()

    def again(_):
        found.append(len(found))
        if len(found) == 1:
            step.start()

    async def awaits():
        step.start()
        step.add_done_callback(again)
        future = step.future()
        step.add_done_callback(again)
        polls, nexar._requests.poll = nexar._requests.poll, lambda *_: []  # as if it ended just after the poll
        try:
            return await asyncio.wait_for(future, 20), len(group._connection.readers)
        finally:
            nexar._requests.poll = polls

    ended = asyncio.run(awaits())
    group.barrier()
    return ended, len(group._connection.readers), found


def test_a_future_sees_the_end_of_a_start_by_a_callback_before_it(cluster):
    equal(run([cluster[1], cluster[1]], is_started_again_by_its_callback), [((None, 0), 0, [0, 1])] * 2, "result, readers, and callbacks")


main(globals(), nodes=2)
