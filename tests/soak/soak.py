#!/usr/bin/python3
"""Very many small operations, and mixed ones among them, on two nodes: none wrong, none that hangs, and nothing that grows.

    NEXAR_BUILD_DIR=build/whole tests/soak/soak.py [--operations N (default 1000000)] [--ranks N (default 2)] [--setting KEY=VALUE]...

Every result is compared. After a tenth of the operations, which is the warm-up, and at the end: resident memory of each daemon
and rank, which may grow by less than 1 MiB, and descriptors, which must be as many. At the end the daemons must hold nothing.
The figures of every tenth are shown: what grew is the process's own memory (anonymous), or pages of programs and libraries that
it has read for the first time. The mixed operations are some random ones of each kind, over and over (tests/oracle); a warm-up has
each of them once. --setting: of the daemons, as tcp_bulk=true.
"""
import argparse
import gc
import itertools
import multiprocessing
import os
import pathlib
import random
import sys
import time
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "integration")]

from harness import nexar, np  # noqa: E402
from harness.system import die_with_parent  # noqa: E402
import nexar.testing  # noqa: E402
from oracle.calls import Collective, local_of  # noqa: E402
from oracle.draw import drawn_collective  # noqa: E402
from oracle.memory import Memory  # noqa: E402
from oracle.program import ROWS, Group, Program  # noqa: E402

GROWTH_MAX = 1 << 20
MIXED_EVERY, MIXED = 250, 200  # operations between two mixed ones; different ones
MARK_SECONDS = 7200  # for a tenth of the operations
fork = multiprocessing.get_context("fork")


class Figures(typing.NamedTuple):
    """Bytes: anonymous; of files, as programs and libraries are; and shared, which is the client's, and mapped by the daemon."""
    anonymous: int
    files: int
    shared: int
    descriptors: int

    @property
    def own(self):
        return self.anonymous + self.files

    @classmethod
    def of(cls, pid):
        fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
        return cls(*(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssFile", "RssShmem")),
                   len(os.listdir(f"/proc/{pid}/fd")))


class Small:
    """Of 8 bytes, one kind after the other."""

    def __init__(self, session, group):
        self.group, self.rank, self.size = group, group.rank, group.size
        self.x, self.y, self.all = session.alloc(1, "int64"), np.zeros(1, np.int64), session.alloc(group.size, "int64")
        self.kinds = itertools.cycle((self.all_reduce, self.started, self.all_reduce, self.barrier, self.all_reduce,
                                      self.broadcast, self.message, self.scan, self.all_reduce, self.all_gather))

    def one(self, number):
        return next(self.kinds)(number)

    def total(self, number):
        return self.size * number + self.size * (self.size - 1) // 2

    def all_reduce(self, number):
        self.x[0] = number + self.rank
        self.group.all_reduce(self.x)
        return self.x[0] == self.total(number)

    def started(self, number):
        self.x[0] = number + self.rank
        self.group.all_reduce_start(self.x).wait()
        return self.x[0] == self.total(number)

    def barrier(self, number):
        self.group.barrier()
        return True

    def broadcast(self, number):
        self.y[0] = number if self.rank == number % self.size else -1
        self.group.broadcast(self.y, number % self.size)
        return self.y[0] == number

    def message(self, number):
        self.x[0] = number + self.rank
        sent = self.group.send_start(self.x, (self.rank + 1) % self.size, number)
        self.group.recv(self.y, (self.rank - 1) % self.size, number)
        sent.wait()
        return self.y[0] == number + (self.rank - 1) % self.size

    def scan(self, number):
        self.y[0] = number + self.rank
        self.group.scan(self.y)
        return self.y[0] == (self.rank + 1) * number + self.rank * (self.rank + 1) // 2

    def all_gather(self, number):
        self.y[0] = number - self.rank
        self.group.all_gather(self.y, self.all)
        return (self.all == number - np.arange(self.size)).all()


class Mixed:
    """The same operations of all kinds again and again, each with memory of its own."""

    def __init__(self, session, group):
        self.session, self.group = session, group
        members = Group(0, tuple(range(group.size)))
        self.program = Program(1, "plain", (), (members,), ())
        self.steps = itertools.cycle([drawn_collective(random.Random(f"soak {number}"), number, members,
                                                       list(ROWS)[number % len(ROWS)]) for number in range(MIXED)])

    def one(self):
        step, memory = next(self.steps), Memory(self.session)
        item = Collective(self.program, step, self.group.rank, memory, local_of(self.program, step, self.group.rank))
        status = item.call(self.group, item.options())
        wrong, _ = item.ended(status == 0)
        if status != 0 or wrong:
            raise AssertionError(f"{step}: status {status}: {wrong}")
        item = None
        if bad := memory.free():
            raise AssertionError(f"{step}: {bad}")


def work(pipe, environment, operations, marks):
    die_with_parent()
    os.environ.update(environment)
    with nexar.Session() as session, session.group() as group:
        small, mixed = Small(session, group), Mixed(session, group)
        for number in range(operations + 1):
            if number in marks:
                gc.collect()
                pipe.send(number)
                pipe.recv()
            if number == operations:
                break
            if number % MIXED_EVERY == 0:
                mixed.one()
            if not small.one(number):
                raise AssertionError(f"operation {number} on rank {group.rank}: {small.x} {small.y} {small.all}")
    pipe.send("ended")


def started(cluster, ranks, function, *arguments):
    """[(process, pipe)] of function(pipe, environment, *arguments), by rank."""
    workers = []
    for rank in range(ranks):
        ours, theirs = fork.Pipe()
        worker = fork.Process(target=function, args=(theirs, cluster.environment(rank), *arguments), daemon=True)
        worker.start()
        theirs.close()
        workers.append((worker, ours))
    return workers


def figures(cluster, workers):
    """{name: Figures}"""
    pids = {f"daemon {node.number}": node._process.pid for node in cluster.nodes}
    pids |= {f"rank {rank}": worker.pid for rank, (worker, _) in enumerate(workers)}
    return {name: Figures.of(pid) for name, pid in pids.items()}


def measured(cluster, workers, seconds):
    """Waits until all ranks are at their mark, measures, and lets them go on."""
    for rank, (_, pipe) in enumerate(workers):
        if not pipe.poll(seconds):
            raise AssertionError(f"rank {rank} hangs: {[node.ask('ops') for node in cluster.nodes]}")
        pipe.recv()
    found = figures(cluster, workers)
    for _, pipe in workers:
        pipe.send("go")
    return found


def show(mark, now, before):
    growth = (f"{name} {found.anonymous - before[name].anonymous >> 10:+d} {found.files - before[name].files >> 10:+d} "
              f"{found.shared - before[name].shared >> 10:+d} KiB" for name, found in now.items())
    print(f"after {mark} operations, since the warm-up (own, files, shared): {'; '.join(growth)}", flush=True)


def grown(before, after):
    words = []
    for name, then in before.items():
        now = after[name]
        print(f"{name}: own memory {then.own >> 10} KiB after the warm-up, {now.own - then.own >> 10:+d} KiB since; "
              f"shared {then.shared >> 10} KiB, {now.shared - then.shared >> 10:+d} KiB; "
              f"{then.descriptors} descriptors, {now.descriptors - then.descriptors:+d}", flush=True)
        if now.own - then.own >= GROWTH_MAX or now.shared - then.shared >= GROWTH_MAX or now.descriptors != then.descriptors:
            words.append(f"{name} has grown")
    return words


def left_in(cluster):
    """What daemons without ranks should not have, in words."""
    left = [node.ask("status")[what] for node in cluster.nodes for what in ("groups", "ops_in_flight")]
    return [f"the daemons keep groups and operations: {left}"] if any(left) else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE")
    chosen = parser.parse_args()
    if chosen.operations < 10 * MIXED_EVERY * MIXED:
        parser.error(f"--operations: at least {10 * MIXED_EVERY * MIXED}, or the warm-up has not all of the mixed ones")
    settings = {f"NEXAR_{key.upper()}": value for key, _, value in (each.partition("=") for each in chosen.setting)}
    begin, marks = time.monotonic(), tuple(chosen.operations * tenth // 10 for tenth in range(1, 11))
    with nexar.testing.cluster(2, chosen.ranks, nexard=os.environ["NEXAR_TEST_NEXARD"], **settings) as cluster:
        workers = started(cluster, chosen.ranks, work, chosen.operations, marks)
        before = measured(cluster, workers, MARK_SECONDS)
        for mark in marks[1:]:
            after = measured(cluster, workers, MARK_SECONDS)
            show(mark, after, before)
        ended = [pipe.recv() for _, pipe in workers]
        words = grown(before, after) + left_in(cluster)
    print(f"{chosen.operations} operations and {chosen.operations // MIXED_EVERY} mixed ones on {len(ended)} ranks, "
          f"none wrong, none that hung: {time.monotonic() - begin:.0f} s; {words or 'nothing grew'}")
    return 1 if words else 0


if __name__ == "__main__":
    sys.exit(main())
