#!/usr/bin/python3
"""Very many groups that come and go, one after the other, on two nodes: each works, and nothing that they took remains.

    NEXAR_BUILD_DIR=build/whole tests/soak/groups.py [--cycles N (default 20000)]

Opened by name, made by dup, by split, and from a list of ranks, in turns; each has a sum of its own, and is freed. The first half is the
warm-up: daemons remember the last few thousand groups that have ended (docs/protocol/group_lifecycle.md [G9] [G12]). From then on
resident memory may grow by less than 1 MiB, and descriptors not at all (soak.py).
"""
import argparse
import gc
import os
import sys
import time

import soak
from soak import die_with_parent, fork, np

import nexar
import nexar.testing

RANKS = 2
WARM_UP_MIN = 10_000  # cycles, of which each daemon remembers less
SECRET = "the secret of the cycles"


def made(session, group, number):
    """A group of all ranks, by its number's way."""
    way = number % 4
    if way == 0:
        return session.group("again and again", group.size, group.rank, job_secret=SECRET)
    if way == 1:
        return group.dup()
    return group.split(number % 7, -group.rank) if way == 2 else group.create(list(range(group.size)), number % 5)


def work(pipe, environment, cycles, marks):
    die_with_parent()
    os.environ.update(environment)
    with nexar.Session() as session, session.group() as group:
        for number in range(cycles + 1):
            if number in marks:
                gc.collect()
                pipe.send(number)
                pipe.recv()
            if number == cycles:
                break
            one, x = made(session, group, number), np.array([number + group.rank, number * group.rank], np.int64)
            one.all_reduce(x)
            if x.tolist() != [group.size * number + group.size * (group.size - 1) // 2, number * group.size * (group.size - 1) // 2]:
                raise AssertionError(f"group {number} on rank {group.rank}: {x}")
            one.free()
    pipe.send("ended")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=2 * WARM_UP_MIN)
    cycles = parser.parse_args().cycles
    if cycles < 2 * WARM_UP_MIN:
        parser.error(f"--cycles: at least {2 * WARM_UP_MIN}, or the warm-up is shorter than what the daemons remember")
    begin, marks = time.monotonic(), tuple(cycles * tenth // 10 for tenth in range(5, 11))
    with nexar.testing.cluster(2, RANKS, nexard=os.environ["NEXAR_TEST_NEXARD"]) as cluster:
        workers = soak.started(cluster, RANKS, work, cycles, marks)
        before = soak.measured(cluster, workers, soak.MARK_SECONDS)
        for mark in marks[1:]:
            after = soak.measured(cluster, workers, soak.MARK_SECONDS)
            soak.show(mark, after, before)
        for _, pipe in workers:
            pipe.recv()
        words = soak.grown(before, after) + soak.left_in(cluster)
    print(f"{cycles} groups on {RANKS} ranks, all right: {time.monotonic() - begin:.0f} s; {words or 'nothing grew'}")
    return 1 if words else 0


if __name__ == "__main__":
    sys.exit(main())
