"""What priorities do for one user: an all_reduce of 8 bytes over two hosts, from the last rank's call to the last rank's
return, beside bulk of the same user; and what ten groups lose beside one that does not receive (docs/protocol/priorities.md).
"""
import contextlib
import json
import statistics

from hosts import Cluster

HOSTS, RANKS = 2, 1
COUNT = 2000  # all_reduces of a round
TURNS = 150  # of ten groups
ROUNDS = 3
SLEEPERS = 62
LONGEST_SECONDS = 120
RATIO_MAX = 5  # p99 over p99 of the idle machine, critical
PRIORITIES = {"default": -1, "critical": 0}


def p99_of(times):
    return statistics.quantiles(times, n=100, method="inclusive")[98]


def times_of(cluster, *arguments):
    return json.loads(cluster.run([str(word) for word in arguments], RANKS, LONGEST_SECONDS))["microseconds"]


def beside(cluster, client, what):
    sleepers = [[client, "sleep"]] * SLEEPERS
    return cluster.beside(sleepers, None) if what == "sleepers" else contextlib.nullcontext()


def latencies(cluster, client):
    """{(what, priority): times}, in alternation."""
    found = {(what, name): [] for what in ("idle", "bulk", "sleepers") for name in PRIORITIES}
    for _ in range(ROUNDS):
        for (what, name), times in found.items():
            with beside(cluster, client, what):
                times += times_of(cluster, client, PRIORITIES[name], COUNT, "bulk" if what == "bulk" else "idle")
    return found


def rows_of(found):
    for (what, name), times in found.items():
        yield {"beside": what, "priority": name, "median_us": round(statistics.median(times), 1),
               "p99_us": round(p99_of(times), 1), "samples": len(times),
               "p99_over_idle": round(p99_of(times) / p99_of(found["idle", name]), 2)}


def groups(cluster, client):
    """Median microseconds of a turn of ten groups: free, and beside one that withholds its receives."""
    found = {"free": [], "withheld": []}
    for _ in range(ROUNDS):
        for what, times in found.items():
            times += times_of(cluster, client, "groups", TURNS, what)
    return {what: statistics.median(times) for what, times in found.items()}


def urgency(build, client):
    """Prints a table; the result for --json."""
    with Cluster(build, HOSTS) as cluster:
        rows = list(rows_of(latencies(cluster, client)))
        print(f"\nall_reduce of 8 bytes, one rank on each of two hosts, microseconds (wanted: p99 of critical at most "
              f"{RATIO_MAX} times that of idle)\n  {'beside':9} {'priority':9} {'median':>9} {'p99':>9} {'over idle':>10}")
        for row in rows:
            print("  {beside:9} {priority:9} {median_us:9.1f} {p99_us:9.1f} {p99_over_idle:10.2f}".format(**row), flush=True)
        turns = groups(cluster, client)
        speed = turns["free"] / turns["withheld"]
        print(f"  ten groups, an all_reduce of 1 MiB each: {turns['free']:.0f} us; beside one that does not receive: "
              f"{turns['withheld']:.0f} us, {speed:.0%} of the speed (wanted: 90 %)", flush=True)
    return {"latency": rows, "groups_us": turns, "groups_speed": round(speed, 3)}
