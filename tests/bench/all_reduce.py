#!/usr/bin/env python3
"""all_reduce of f32 by size: median and least time over repetitions, on whatever group the environment names.

    tests/bench/cluster --nodes 2 --ranks 1 -- /usr/bin/python3 tests/bench/all_reduce.py

A barrier precedes each repetition, so a time is one rank's call, waiting for the others included. GB/s is vector bytes
per time ("algorithm bandwidth"). Compare two builds in alternation: one run says little on a shared machine."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bindings/python"))
import numpy as np

import nexar

SIZES = [8, 4096, 65536, 1 << 20, 16 << 20, 64 << 20]


def measure(group, values, repetitions):
    times = []
    for _ in range(repetitions + 2):
        group.barrier()
        begin = time.perf_counter()
        group.all_reduce(values)
        times.append(time.perf_counter() - begin)
    return sorted(times[2:])  # the first two warm up


def main():
    with nexar.Session() as session, session.group() as group:
        if group.rank == 0:
            print(f"{'bytes':>10} {'median us':>11} {'least us':>11} {'GB/s':>7}   {group.size} ranks")
        for size in SIZES:
            values = session.alloc(size // 4, np.float32)
            values[:] = group.rank + 1
            times = measure(group, values, 200 if size <= 65536 else 20 if size <= 1 << 20 else 7)
            median = times[len(times) // 2]
            if group.rank == 0:
                print(f"{size:>10} {median * 1e6:>11.1f} {times[0] * 1e6:>11.1f} {size / median / 1e9:>7.2f}", flush=True)


main()
