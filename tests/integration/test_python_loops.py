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


main(globals(), nodes=2)
