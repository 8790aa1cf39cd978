"""Measures builds and competitors on clusters: rounds in alternation, and what the times say."""
import contextlib
import itertools
import json
import re
import statistics
import time
from collections import namedtuple

from hosts import Cluster, Failed

Topology = namedtuple("Topology", "hosts ranks")  # ranks: on each host
Setting = namedtuple("Setting", "topology link")  # link: a rate such as "1gbit", None: as fast as the machine
Times = namedtuple("Times", "microseconds messages application daemons")  # the last two: processor seconds, all turns
MEMORY = ("alloc", "ordinary")
OPERATIONS = ("all_reduce", "latency", "stream")
ON_REQUEST = ("idle", "cold")  # what tests/bench/measured.hpp measures besides
# Messages are between two ranks: other topologies would say the same again.
MESSAGES_ON = (Topology(1, 2), Topology(2, 1))
LONGEST_SECONDS = 300  # for one round
WIDE_PERCENT = 15  # of the median, from the first to the third quartile: measured again, or marked
UNITS = {"mbit": 10**6, "gbit": 10**9}


def bits_per_second(link):
    number, unit = re.fullmatch(r"([0-9]+)(mbit|gbit)", link).groups()
    return int(number) * UNITS[unit]


class Nexar:
    """A build as a competitor: it has the cluster's daemons."""

    kind, memory, operations = "nexar", MEMORY, (*OPERATIONS, *ON_REQUEST)

    def __init__(self, name, build, client, plain=False):
        """plain: bulk data between hosts without TLS."""
        self.name, self.build, self.client, self.plain = name, build, client, plain

    @property
    def settings(self):
        return {"NEXAR_ENCRYPT_BULK_TRANSPORT": "false"} if self.plain else {}

    def suits(self, topology):
        return not self.plain or topology.hosts > 1

    def run(self, cluster, ranks, arguments, seconds):
        return cluster.run([self.client, *arguments], ranks, seconds)


def operations_on(topology):
    return (*OPERATIONS, *ON_REQUEST) if topology in MESSAGES_ON else ("all_reduce", *ON_REQUEST)


class Plan:
    """What is measured, in how many seconds altogether: a round that does not fit in any more is left out."""

    def __init__(self, topologies, sizes, rounds, seconds, competitors, pinned=False, links=(None,), operations=OPERATIONS):
        self.sizes, self.rounds, self.seconds, self.competitors = sizes, rounds, seconds, competitors
        self.pinned, self.operations = pinned, operations
        self.settings = [Setting(topology, link) for link in links for topology in topologies
                         if link is None or topology.hosts > 1]
        # Half of the time is for what takes longer than its share: large vectors, at least two of each.
        self.cell_seconds = seconds / 2 / max(1, self._cells(self.settings) * rounds)

    def cells(self, competitor, topology):
        """What one round of a competitor measures there: (operation, memory, bytes)."""
        if not competitor.suits(topology):
            return []
        operations = [each for each in operations_on(topology) if each in self.operations and each in competitor.operations]
        return list(itertools.product(operations, competitor.memory, self.sizes))

    def _cells(self, settings):
        return sum(len(self.cells(competitor, topology)) for topology, _ in settings for competitor in self.competitors)

    def share_until(self, number):
        """How much of the time may have passed after so many settings."""
        return self.seconds * self._cells(self.settings[:number]) / max(1, self._cells(self.settings))


def read_times(text):
    """What a program of measured.hpp printed: {(operation, memory, bytes): Times}."""
    lines = map(json.loads, text.splitlines())
    return {(x["operation"], x["memory"], x["bytes"]):
            Times(x["microseconds"], x["messages"], x["application_seconds"], x["daemon_seconds"]) for x in lines}


def bytes_moved(key, times):
    """What an application sees moved in the counted turns: a latency's message goes there and back."""
    operation, _, size = key
    return size * times.messages * len(times.microseconds) * (2 if operation == "latency" else 1)


def least_on_wire(done):
    """What the last host must have received for the counted turns, if the bytes went over its cable."""
    return sum(size * times.messages * len(times.microseconds) for (_, _, size), times in done.items())


class Runner:
    """One setting's clusters: one per build; competitors without daemons use the first one's hosts."""

    def __init__(self, setting, plan, stack):
        self._setting, self._plan = setting, plan
        self.competitors = [each for each in plan.competitors if plan.cells(each, setting.topology)]
        self._clusters, self.jobs = {}, []
        for each in self.competitors:
            if each.kind == "nexar":
                self._clusters[each.name] = cluster = stack.enter_context(
                    Cluster(each.build, setting.topology.hosts, plan.pinned, each.settings))
                for host in cluster.hosts if setting.link else ():
                    cluster.network.shape(host, bits_per_second(setting.link), both=setting.topology.hosts > 2)
        self._first = next(iter(self._clusters.values()))

    def cells(self, competitor):
        return self._plan.cells(competitor, self._setting.topology)

    def job(self, competitor, cells):
        """One job of a competitor. On several hosts its bytes must have come over the last host's cable."""
        cluster = self._clusters.get(competitor.name, self._first)
        last = cluster.hosts[-1]
        arguments = ["--only", ",".join(":".join(map(str, cell)) for cell in cells),
                     "--seconds", f"{self._plan.cell_seconds:.4f}"]
        before, _ = cluster.network.crossed(last)
        done = read_times(competitor.run(cluster, self._setting.topology.ranks, arguments, LONGEST_SECONDS))
        received, least = cluster.network.crossed(last)[0] - before, least_on_wire(done)
        if len(cluster.hosts) > 1 and received < least:
            raise Failed(f"{competitor.name}: {received} bytes came over the cable, at least {least} should have")
        self.jobs.append({"competitor": competitor.name, "cells": len(cells), "least_bytes": least,
                          "received_bytes": received})
        return done

    def rounds(self, wanted, until):
        """Rounds of all in turn, each second one in the reverse order. wanted, {competitor's name: cells}; the result:
        {name: [round, ...]}, empty when not even one fits in."""
        done, longest = {name: [] for name in wanted}, 0
        turns = [each for each in self.competitors if wanted.get(each.name)]
        for number in range(self._plan.rounds):
            if number and time.monotonic() + longest > until:
                break
            begin = time.monotonic()
            for each in turns if number % 2 == 0 else reversed(turns):
                done[each.name].append(self.job(each, wanted[each.name]))
            longest = max(longest, time.monotonic() - begin)
        return done


def figures(key, rounds):
    """One competitor's measurement, these rounds together."""
    operation, memory, size = key
    times = sorted(time for done in rounds for time in done[key].microseconds)
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    messages, gigabytes = rounds[0][key].messages, sum(bytes_moved(key, done[key]) for done in rounds) / 1e9
    return {"operation": operation, "memory": memory, "bytes": size, "median_us": round(median, 3), "q1_us": round(low, 3),
            "q3_us": round(high, 3), "least_us": times[0], "iqr_percent": round((high - low) / median * 100, 1),
            "samples": len(times), "rounds": len(rounds), "messages": messages,
            "megabytes_per_second": None if operation == "latency" else round(size * messages / median, 2),
            "application_seconds_per_gb": round(sum(done[key].application for done in rounds) / gigabytes, 4),
            "daemon_seconds_per_gb": round(sum(done[key].daemons for done in rounds) / gigabytes, 4)}


def is_wide(cell):
    return cell["iqr_percent"] > WIDE_PERCENT


def wide_cells(rounds):
    return [key for key in rounds[0] if is_wide(figures(key, rounds))]


def share_of(wide, first):
    """How much of the first measurements' time these cells will take again: by number or by their times, the larger."""
    def sums(cells):
        return sum(map(len, cells.values())), sum(sum(done[key].microseconds) for name in cells for key in cells[name]
                                                  for done in first[name])
    return max(part / all_of for part, all_of in zip(sums(wide), sums({name: first[name][0] for name in first})))


def rounds_that_count(key, first, again):
    """The second measurement instead of a wide first one; both, when the second is wide as well."""
    if not again or key not in again[0]:
        return first
    return first + again if is_wide(figures(key, again)) else again


def ratio(key, first, second):
    """The second's time over the first's: the median over pairs of rounds, and the least and greatest."""
    of = [statistics.median(b[key].microseconds) / statistics.median(a[key].microseconds) for a, b in zip(first, second)]
    return {"ratio": round(statistics.median(of), 4), "ratio_least": round(min(of), 4),
            "ratio_greatest": round(max(of), 4)}


def rows_of(setting, names, first, again):
    """A row per measurement: a cell per competitor that has it; the ratio is to the row's first cell. The arguments
    after the names are {name: rounds}."""
    rows = []
    for key in dict.fromkeys(key for name in names for key in first[name][0]):
        row, base = [], None
        for name in (name for name in names if key in first[name][0]):
            rounds = rounds_that_count(key, first[name], again.get(name))
            cell = {"topology": f"{setting.topology.hosts}x{setting.topology.ranks}", "link": setting.link,
                    "competitor": name, **figures(key, rounds), "repeated": rounds is not first[name]}
            cell["wide"] = is_wide(cell)
            if base:
                cell.update(ratio(key, base, rounds))
            base = base or rounds
            row.append(cell)
        rows.append(row)
    return rows


def measure_setting(setting, plan, until):
    """(its rows, its jobs)."""
    with contextlib.ExitStack() as stack:
        runner = Runner(setting, plan, stack)
        names, begin = [each.name for each in runner.competitors], time.monotonic()
        first = runner.rounds({each.name: runner.cells(each) for each in runner.competitors}, until)
        wide = {name: wide_cells(first[name]) for name in names}
        took = time.monotonic() - begin
        again = runner.rounds(wide, until) if time.monotonic() + took * share_of(wide, first) < until else {}
        return rows_of(setting, names, first, again), runner.jobs


def measure(plan, report):
    """report(rows of one setting) as they come; all rows, and the jobs that they come from."""
    begin, rows, jobs = time.monotonic(), [], []
    for number, setting in enumerate(plan.settings, 1):
        here, ran = measure_setting(setting, plan, begin + plan.share_until(number))
        report(here)
        rows += here
        jobs += [{"topology": f"{setting.topology.hosts}x{setting.topology.ranks}", "link": setting.link, **job} for job in ran]
    return rows, jobs
