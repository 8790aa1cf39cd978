#!/usr/bin/env python3
"""What an all_reduce of one user takes beside floods of four others on the same two hosts, whose operations go by the same loops.

    tests/bench/neighbours.py [--build DIR[,DIR]] [--seconds S] [--rounds N]      # as root

Each flooding user has `depth` all_reduces of so many bytes in flight, over both hosts, again and again: four users, or one with one
operation at a time, which the loop drives itself while nobody else is there."""
import argparse
import json
import statistics
import sys
import threading
import time

FLOODS = {  # users, bytes, depth
    "none": None,
    "16 of 256 KiB": (4, 256 << 10, 16),
    "8 of 1 MiB": (4, 1 << 20, 8),
    "1 of 1 MiB": (1, 1 << 20, 1),
    "1 of 4 MiB": (1, 4 << 20, 1),
}
FIRST_USER, MEASURED_USER = 3000, 4000
SIZES = (8, 64 << 10)
LONGEST_SECONDS = 60


def rank(mode, seconds, size, depth):
    """One rank of a flood, or of what is measured beside it; rank 0 prints."""
    import numpy as np

    import nexar

    with nexar.Session() as session, session.group() as group:
        arrays, times, done = [session.alloc(size, np.uint8) for _ in range(depth)], [], 0
        end, more = time.monotonic() + seconds, True
        while more:
            for array in arrays:  # one of each, checked; its values change from byte to byte
                array[:] = np.arange(size) % 101 + group.rank
            for request in [group.all_reduce_start(array) for array in arrays]:
                request.wait()
            right = np.arange(size) % 101 * 2 + 1  # of two ranks
            if not all((array == right).all() for array in arrays):
                sys.exit("neighbours: a sum is wrong")
            for _ in range(1 if depth > 1 else 50):
                begin = time.monotonic()
                for request in [group.all_reduce_start(array) for array in arrays]:
                    request.wait()
                times.append(time.monotonic() - begin)
                done += depth
            more = bool(group.all_reduce(np.array([time.monotonic() < end], np.int32), op="min")[0])
        p99 = statistics.quantiles(times, n=100, method="inclusive")[98]
        if group.rank == 0:
            print(json.dumps({"median_us": statistics.median(times) * 1e6, "p99_us": p99 * 1e6, "done": done}), flush=True)


def run(cluster, package, mode, seconds, size, depth, user):
    words = [mode, seconds, size, depth]
    command = ["/usr/bin/env", f"PYTHONPATH={package}", "/usr/bin/python3", "-B", __file__, *map(str, words)]
    return json.loads(cluster.run(command, 1, LONGEST_SECONDS, uid=user))


def measure(cluster, package, flood, seconds):
    """{size: figures}, and how many operations all floods had."""
    found, floods, done = {}, [], []
    if flood:
        for i in range(flood[0]):
            words = (cluster, package, "flood", seconds * len(SIZES) + 3, *flood[1:], FIRST_USER + i)
            floods.append(threading.Thread(target=lambda words=words: done.append(run(*words)["done"])))
            floods[-1].start()
        time.sleep(1.5)  # sleep: the floods are to be at work
    for size in SIZES:
        found[size] = run(cluster, package, "measure", seconds, size, 1, MEASURED_USER)
    for thread in floods:
        thread.join()
    if len(done) != len(floods):
        sys.exit("neighbours: a flood has failed, as its ranks say above")
    return found, sum(done)


def main():
    from builds import FOLDER, Build
    from hosts import Cluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(FOLDER.parents[1]))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    builds = [Build(word) for word in options.build.split(",")]
    rows = {}
    for _ in range(options.rounds):
        for number, build in enumerate(builds):
            with Cluster(build, 2) as cluster:
                for name, flood in FLOODS.items():
                    package = build.folder / "bindings/python"
                    rows.setdefault((name, number), []).append(measure(cluster, package, flood, options.seconds))
    print("medians over rounds, microseconds\n  " + " ".join(f"{word:>14}" for word in (
        "flood", "build", "8 B", "p99", "64 KiB", "p99", "flood's ops")))
    for (name, number), results in rows.items():
        figures = [statistics.median(found[size][key] for found, _ in results) for size in SIZES for key in ("median_us", "p99_us")]
        words = (name, "AB"[number], *(f"{figure:.0f}" for figure in figures), statistics.median(done for _, done in results))
        print("  " + " ".join(f"{word:>14}" for word in words))


if len(sys.argv) == 5 and sys.argv[1] in ("flood", "measure"):
    rank(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
else:
    main()
