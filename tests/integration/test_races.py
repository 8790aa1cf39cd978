"""Threads that cancel, and deadlines that pass, while collectives of every kind complete on real daemons: each has one end, a
right one; its memory is the test's own from then on; and the next one works. At random moments; every event by itself is in the
simulator (tests/sim/matrix.hpp). Messages: test_oracle.py. NEXAR_RACES_SEED and NEXAR_RACES_ROUNDS: others, and more.

    node 1: ranks 0, 1 ──┐
    node 2: ranks 2, 3 ──┴── switch
"""
import os
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import *
from nexar._rows import ROWS
from oracle.calls import Collective
from oracle.memory import Memory
from oracle.program import Group, Program, Step

lib = cabi.lib
SEED, ROUNDS, KINDS = int(os.environ.get("NEXAR_RACES_SEED", "1")), int(os.environ.get("NEXAR_RACES_ROUNDS", "12")), tuple(ROWS)
COUNTS = (3, 700, 60_000)


def step_of(number, size):
    """The same on all ranks."""
    rng = random.Random(f"races {SEED} {number}")
    kind, count = KINDS[number % len(KINDS)], rng.choice(COUNTS)
    row = ROWS[kind]
    counts = tuple(rng.randrange(count) for _ in range(size)) if row.memory == "in_out_counts" else ()
    blocks = tuple(tuple(rng.randrange(count) for _ in range(size)) for _ in range(size)) if row.memory == "in_out_own_counts" else ()
    step = Step(number, Group(0, tuple(range(size))), kind, "int64", "sum", 0 if row.memory == "nothing" else count, counts, blocks,
                rng.randrange(size) if row.rooted else 0)
    who, how = rng.randrange(size), rng.choice(("cancel", "cancel", "deadline", "both", "nothing"))
    return step, who, how, rng.random() ** 2 * 0.004


class Canceller(threading.Thread):
    """Cancels what it is given, at its moment, while the rank waits for it or has its end already."""

    def __init__(self):
        super().__init__(daemon=True)
        self.next, self.ready, self.done = None, threading.Semaphore(0), threading.Semaphore(0)
        self.start()

    def run(self):
        while True:
            self.ready.acquire()
            number, delay = self.next
            time.sleep(delay)  # sleep: the seed chooses the moment; right at each
            lib.nexar_request_cancel(number)  # BAD_HANDLE: it was freed before
            self.done.release()

    def race(self, number, delay):
        self.next = number, delay
        self.ready.release()


def races(me):
    """{status: how often}, of each rank's operations; AssertionError: an end that may not be."""
    session = me.session()
    group, store, canceller, ends, blocks = me.group(session), Memory(session), Canceller(), {}, []
    program = Program(SEED, "plain", (), (), ())
    for number in range(ROUNDS * len(KINDS)):
        step, who, how, delay = step_of(number, me.size)
        local = random.Random(f"{SEED} {number} {me.rank}")
        item = Collective(program, step, me.rank, store, local)
        late = how in ("deadline", "both") and (who + (how == "both")) % me.size == me.rank
        cancels = how in ("cancel", "both") and who == me.rank
        status, request = item.start(group, item.options(max(1, int(delay * 1000)) if late else cabi.DEFAULT))
        cabi.check(status)
        if cancels:
            canceller.race(request, delay)
        status, end = cabi.end(request)
        if cancels:
            canceller.done.acquire()
        error = cabi.last_error() if status else None
        name = cabi.name_of(status)
        allowed = {"OK", *(("ABORTED",) if how != "nothing" else ()), *(("CANCELLED",) if cancels else ()), *(("TIMED_OUT",) if late else ())}
        assert name in allowed, f"{step}, {how} of {who}, rank {me.rank}: {name} {error and error.text}"
        if name == "ABORTED" and how == "cancel":
            assert error.rank == who, f"{step}: rank {error.rank} is named, not {who}"
        assert end.sequence == number, f"{step} has the number {end.sequence}"
        wrong, _ = item.ended(status == 0)
        assert not wrong, f"{step}, {name}: {wrong}"
        blocks.append(item.blocks)
        ends[name] = ends.get(name, 0) + 1
    cabi.check(lib.nexar_barrier(group._handle, None))
    late = [wrong for some in blocks for block in some if (wrong := block.wrong())]
    assert not late, late[0]
    return ends


def test_cancels_and_deadlines_race_with_completions(cluster):
    outcomes = Job([cluster[1], cluster[1], cluster[2], cluster[2]], races).outcomes(seconds=30 * BUSY)
    total = {}
    for rank, ends in enumerate(outcomes):
        assert isinstance(ends, dict), f"rank {rank}, seed {SEED}: {ends}"
        for name, times in ends.items():
            total[name] = total.get(name, 0) + times
    print(f"        ends: {total}", flush=True)
    for name in ("OK", "ABORTED", "CANCELLED", "TIMED_OUT"):
        assert total.get(name), f"no operation ended with {name}: {total}"
    for node in cluster:
        eventually(lambda node=node: node.status()["ops_in_flight"] == 0, "no operation to be left")


main(globals(), nodes=2)
