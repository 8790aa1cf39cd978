"""A program as users write it, for mypy --strict: nothing here runs."""
import array
import concurrent.futures
from typing import Any

import nexar
import numpy as np


def work(group: nexar.Group) -> int:
    x = np.zeros(4)
    group.all_reduce(x)
    group.all_reduce(array.array("d", [1.0]), op="max", timeout=1.5)
    request: nexar.Request = group.all_gather_start(x, match_id=7)
    request.wait(timeout=1)
    later: concurrent.futures.Future[Any] = request.concurrent_future()
    concurrent.futures.wait([later])
    source, tag, elements = group.recv(x, tag=3)
    source, tag, _ = group.probe()
    with group.mprobe(source, tag, timeout=1) as message:
        source, tag, elements = message.recv(x)
    source, tag, elements = group.sendrecv(x[:2], 1, x[2:], send_tag=7)
    group.sendv([x[:1], x[3:]], 1)
    source, tag, elements = group.recvv([x[:1], x[3:]], tag=9)
    try:
        group.barrier()
    except nexar.TimedOut as late:
        return late.rank or 0
    return source + tag + elements


def children(group: nexar.Group) -> int:
    twin: nexar.Group = group.dup(timeout=2)
    half = group.split(group.rank % 2, key=-group.rank, collective_timeout=nexar.NO_TIMEOUT)
    begun: nexar.Request = twin.split_start(None)
    listed: nexar.Group = twin.create([1, 0], tag=3, timeout=2)
    listed.free()
    begun.wait()
    return 0 if half is None else half.size


def persistent(session: nexar.Session, group: nexar.Group) -> list[int]:
    x = np.zeros(4)
    step: nexar.Persistent = group.all_reduce_init(x, op="avg")
    both = [group.send_init(x, 1, tag=2), group.recv_init(x)]
    step.start()
    step.wait()
    nexar.start_all([*both, None])
    with session.ops():
        begun = [group.barrier_start(), group.scan_start(x)]
    source, tag, elements = group.sendrecv_replace(x, 1, 0)
    while (i := nexar.wait_any(begun)) is not None:
        begun[i].wait()
    step.free()
    with group.scan_init(x) as other:
        other.start()
    return nexar.wait_some([*begun, *both], timeout=1.0) + nexar.test_some([None, step])


async def waits(group: nexar.Group) -> None:
    await group.barrier_start()


with nexar.Session() as session, session.group() as everybody:
    work(everybody)
