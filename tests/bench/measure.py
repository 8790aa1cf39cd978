"""Measures builds on clusters: rounds in alternation, and what the times say."""
import contextlib
import json
import statistics
import time
from collections import namedtuple

from hosts import Cluster

Topology = namedtuple("Topology", "hosts ranks")  # ranks: on each host
MEMORY = ("alloc", "ordinary")
# Messages are between two ranks: other topologies would say the same again.
MESSAGES_ON = (Topology(1, 2), Topology(2, 1))
LONGEST_SECONDS = 300  # for one round


def operations_on(topology):
    return ("all_reduce", "latency", "stream") if topology in MESSAGES_ON else ("all_reduce",)


def cells_of(topologies, sizes):
    """How many measurements one round over the topologies is."""
    return sum(len(operations_on(topology)) * len(MEMORY) * len(sizes) for topology in topologies)


class Plan:
    """What is measured, in how many seconds altogether: a round that does not fit in any more is left out."""

    def __init__(self, topologies, sizes, rounds, seconds, builds, pinned):
        self.pinned = pinned
        self.topologies, self.sizes, self.rounds, self.seconds = topologies, sizes, rounds, seconds
        # Half of the time is for what takes longer than its share: large vectors, at least two of each.
        self.cell_seconds = seconds / 2 / (cells_of(topologies, sizes) * rounds * builds)

    def share_until(self, number):
        """How much of the time may have passed after so many topologies."""
        topologies = self.topologies
        return self.seconds * cells_of(topologies[:number], self.sizes) / cells_of(topologies, self.sizes)


def one_round(cluster, client, topology, plan):
    """{(operation, memory, bytes): (times in microseconds, messages)}."""
    command = [client, "--operations", ",".join(operations_on(topology)), "--memory", ",".join(MEMORY),
               "--bytes", ",".join(map(str, plan.sizes)), "--seconds", f"{plan.cell_seconds:.4f}"]
    lines = map(json.loads, cluster.run(command, topology.ranks, LONGEST_SECONDS).splitlines())
    return {(x["operation"], x["memory"], x["bytes"]): (x["microseconds"], x["messages"]) for x in lines}


def rounds_on(topology, builds, clients, plan, until):
    """Rounds of every build in turn; the order within a pair alternates. [[round of build 0, ...], ...]."""
    done = [[] for _ in builds]
    with contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(Cluster(build, topology.hosts, plan.pinned)) for build in builds]
        longest = 0
        for number in range(plan.rounds):
            if number and time.monotonic() + longest > until:
                break
            begin = time.monotonic()
            order = range(len(builds)) if number % 2 == 0 else reversed(range(len(builds)))
            for i in order:
                done[i].append(one_round(clusters[i], clients[i], topology, plan))
            longest = max(longest, time.monotonic() - begin)
    return done


def summary(topology, key, rounds):
    """One build's measurement, all rounds together."""
    operation, memory, size = key
    times = sorted(time for done in rounds for time in done[key][0])
    messages = rounds[0][key][1]
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return {"topology": f"{topology.hosts}x{topology.ranks}", "operation": operation, "memory": memory, "bytes": size,
            "median_us": round(median, 3), "q1_us": round(low, 3), "q3_us": round(high, 3), "least_us": times[0],
            "samples": len(times), "rounds": len(rounds), "messages": messages,
            "megabytes_per_second": None if operation == "latency" else round(size * messages / median, 2)}


def ratio(key, first, second):
    """The second build's time over the first's: the median over pairs of rounds, and the least and greatest."""
    of = [statistics.median(b[key][0]) / statistics.median(a[key][0]) for a, b in zip(first, second)]
    return {"ratio": round(statistics.median(of), 4), "ratio_least": round(min(of), 4),
            "ratio_greatest": round(max(of), 4)}


def measure(builds, clients, plan, report):
    """report(rows of one topology) as they come; returns all: each row is the list of the builds' summaries."""
    begin, rows = time.monotonic(), []
    for number, topology in enumerate(plan.topologies, 1):
        rounds = rounds_on(topology, builds, clients, plan, begin + plan.share_until(number))
        here = []
        for key in rounds[0][0]:
            row = [summary(topology, key, of_build) for of_build in rounds]
            if len(row) == 2:
                row[1].update(ratio(key, *rounds))
            here.append(row)
        report(here)
        rows += here
    return rows
