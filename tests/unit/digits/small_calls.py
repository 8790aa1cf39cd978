#!/usr/bin/env python3
"""What small calls cost above the library, which here is fake_nexar.c: it takes nothing. Prints a table of microseconds;
count_small_calls.py holds each row to a number of instructions.

    nice -n -20 small_calls.py FAKE_LIBRARY BINDINGS_FOLDER [ROUNDS]
"""
import array
import statistics
import sys
import time

from over_fake import *

try:
    import torch
except ImportError:
    torch = None

CALLS = 100  # of one round
EIGHT = range(8)


def blocking(group, x, out, one, room):
    """name: (operations, call)"""
    long = np.zeros(1, np.uint64)
    return {
        "all_reduce(x)": (1, lambda: group.all_reduce(x)),
        "all_reduce(values=x, out=y, op='max')": (1, lambda: group.all_reduce(values=x, out=out, op="max")),
        "all_reduce(x, timeout=, match_id=, priority=, flags=)": (1, lambda: group.all_reduce(
            x, timeout=1.5, match_id=5, priority=nexar.Priority.CRITICAL, flags=1)),
        "barrier(timeout=3)": (1, lambda: group.barrier(timeout=3)),
        "broadcast(x, root=1, timeout=3)": (1, lambda: group.broadcast(x, root=1, timeout=3)),
        "all_gather(x)": (1, lambda: group.all_gather(long)),
        "all_gatherv(x, counts)": (1, lambda: group.all_gatherv(x, [1, 1, 1])),
        "all_to_allv(x, counts, counts)": (1, lambda: group.all_to_allv(x, [0, 1, 0], [0, 1, 0])),
        "send(x, to, tag)": (1, lambda: group.send(one, 2, 1 << 40)),
        "send(x, to, tag, timeout=2)": (1, lambda: group.send(one, 2, tag=1 << 40, timeout=2)),
        "recv(y)": (1, lambda: group.recv(room)), "recv(y, timeout=2, priority=0)": (1, lambda: group.recv(room, timeout=2, priority=0)),
        "sendrecv(x, to, y)": (1, lambda: group.sendrecv(one, 2, room, send_tag=1 << 40)),
        "sendrecv_replace(x, to)": (1, lambda: group.sendrecv_replace(one, 2, send_tag=1 << 40)),
        "probe()": (1, group.probe), "probe(timeout=0)": (1, lambda: group.probe(timeout=0)),
        "mprobe(), recv": (2, lambda: group.mprobe().recv(room))}


class Tensor:
    """DLPack at no cost of its own, as far as Python goes: a bound method of C."""

    def __init__(self, values):
        self.values, self.__dlpack__, self.__dlpack_device__ = values, values.__dlpack__, values.__dlpack_device__


def memories(group, one, room):
    """What is no numpy array."""
    some, more = array.array("d", [1.0]), array.array("d", [1.0])
    ints, ints_room, view = array.array("i", [42]), array.array("i", [0, 0]), memoryview(np.zeros(1))
    pairs = np.zeros(1, [("value", "f4"), ("index", "i4")])
    tensor, tensor_room = Tensor(np.zeros(1)), Tensor(np.zeros(2, np.int32))
    long, byte = array.array("Q", [1]), bytearray(8)
    return {
        "all_reduce(bytearray)": (1, lambda: group.all_reduce(byte)), "all_reduce(memoryview)": (1, lambda: group.all_reduce(view)),
        "all_reduce(array.array)": (1, lambda: group.all_reduce(some)),
        "all_reduce(array.array, out)": (1, lambda: group.all_reduce(some, more)),
        "all_reduce(pairs, op='minloc')": (1, lambda: group.all_reduce(pairs, op="minloc")),
        "all_reduce(tensor)": (1, lambda: group.all_reduce(tensor)),
        "all_gather(array.array)": (1, lambda: group.all_gather(long)),
        "all_reduce_start(array.array).wait()": (1, lambda: group.all_reduce_start(some).wait()),
        # Two calls, and the exporter is asked twice.
        "all_reduce_start(tensor).wait()": (2, lambda: group.all_reduce_start(tensor).wait()),
        "send(array.array, to, tag)": (1, lambda: group.send(ints, 2, 1 << 40)),
        "recv(array.array)": (1, lambda: group.recv(ints_room)), "recv(tensor)": (1, lambda: group.recv(tensor_room)),
        "recv_start(array.array).wait()": (1, lambda: group.recv_start(ints_room).wait()),
        "sendrecv(array.array, to, tensor)": (1, lambda: group.sendrecv(ints, 2, tensor_room, send_tag=1 << 40)),
        "sendrecv_replace(array.array, to)": (1, lambda: group.sendrecv_replace(ints, 2, send_tag=1 << 40)),
        "sendv([x, y], to, tag)": (1, lambda: group.sendv([room, one], 2, 1 << 40)),
        "sendv_start([x, y], to, tag).wait()": (1, lambda: group.sendv_start([room, one], 2, 1 << 40).wait()),
        "recvv([x, y])": (1, lambda: group.recvv([one, room])),
        "recvv_start([x, y]).wait()": (1, lambda: group.recvv_start([one, room]).wait())}


def numbers(group, x):
    """Numbers and lists, which are copied; and what multiplies."""
    return {
        "all_reduce(1.5)": (1, lambda: group.all_reduce(1.5)), "all_reduce(3)": (1, lambda: group.all_reduce(3)),
        "all_reduce([1.5, 2.5])": (1, lambda: group.all_reduce([1.5, 2.5])),
        "all_reduce(np.float64)": (1, lambda: group.all_reduce(x[0])),
        "all_reduce_start([1.5, 2.5]).wait()": (1, lambda: group.all_reduce_start([1.5, 2.5]).wait()),
        "all_reduce(x, op='premul_sum', scalar=0.5)": (1, lambda: group.all_reduce(x, op="premul_sum", scalar=0.5))}


def polls(session, group, x):
    """On Requests that end meanwhile."""
    return {
        "poll() of none": (1, session.poll),
        "all_reduce_start(x), poll": (2, lambda: (group.all_reduce_start(x), session.poll()))}


def of_torch(group):
    """{}: it is not installed."""
    if torch is None:
        return {}
    x, y = torch.zeros(1), torch.zeros(1)
    return {
        "torch: x.__dlpack__()": (0, lambda: x.__dlpack__()), "torch: all_reduce(x)": (1, lambda: group.all_reduce(x)),
        "torch: all_reduce(x, out=y)": (1, lambda: group.all_reduce(x, y)),
        "torch: all_reduce_start(x).wait()": (1, lambda: group.all_reduce_start(x).wait()),
        "torch: broadcast(x)": (1, lambda: group.broadcast(x))}


def begun(group, x, out, one, room):
    def tested():
        request = group.all_reduce_start(x)
        request.test()
        request.wait()

    return {
        "all_reduce_start(x).wait()": (1, lambda: group.all_reduce_start(x).wait()),
        "all_reduce_start(x, out=y, timeout=, priority=).wait(5)": (1, lambda: group.all_reduce_start(x, out, timeout=5, priority=1).wait(5)),
        "all_reduce_start(x), test, wait": (1, tested),
        "all_reduce_start(x), not held": (1, lambda: group.all_reduce_start(x)),
        "broadcast_start(x, root=1).wait()": (1, lambda: group.broadcast_start(x, root=1).wait()),
        "barrier_start().wait()": (1, lambda: group.barrier_start().wait()),
        "all_gatherv_start(x, counts).wait()": (1, lambda: group.all_gatherv_start(x, [1, 1, 1]).wait()),
        "send_start(x, to, tag).wait()": (1, lambda: group.send_start(one, 2, 1 << 40).wait()),
        "recv_start(y).wait()": (1, lambda: group.recv_start(room).wait()),
        "probe_start().wait()": (1, lambda: group.probe_start().wait()),
        "mprobe(), recv_start, wait": (2, lambda: group.mprobe().recv_start(room).wait())}


def several(group, x):
    def eight():
        return [group.all_reduce_start(x) for _ in EIGHT]

    def wait_any():
        requests = eight()
        while nexar.wait_any(requests) is not None:
            pass

    return {
        "8 x all_reduce_start, wait_all": (8, lambda: nexar.wait_all(eight())),
        "8 x all_reduce_start, wait_some": (8, lambda: nexar.wait_some(eight())),
        "all_reduce_start, wait_some": (2, lambda: nexar.wait_some([group.all_reduce_start(x)])),
        "all_reduce_start, wait_any": (2, lambda: nexar.wait_any([group.all_reduce_start(x)])),
        "8 x all_reduce_start, 8 x wait_any": (16, wait_any)}


def calls_of(session, group):
    """name: (calls of the library that wait or begin, the call). "persistent" is held by what is returned."""
    x, out, one, room = np.zeros(1), np.zeros(1), np.array([42], np.int32), np.zeros(2, np.int32)
    step = group.all_reduce_init(x)
    return {**blocking(group, x, out, one, room), "persistent start(), wait()": (1, lambda: (step.start(), step.wait())),
            **begun(group, x, out, one, room), **several(group, x), **memories(group, one, room), **numbers(group, x),
            **polls(session, group, x)}


def rounds_of(call, rounds):
    """Microseconds of a call, in each round."""
    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        took.append((time.perf_counter() - begin) / CALLS * 1e6)
    return took


def main():
    os.environ.update(NEXAR_RANK="1", NEXAR_WORLD_SIZE="3")
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    with nexar.Session() as session, session.group() as group:
        print("| call | median | least |\n|---|---|---|")
        for name, (_, call) in {**calls_of(session, group), **of_torch(group)}.items():
            took = rounds_of(call, rounds)
            print(f"| `{name}` | {statistics.median(took):.2f} | {min(took):.2f} |")


if __name__ == "__main__":
    main()
