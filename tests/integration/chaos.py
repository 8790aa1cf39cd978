#!/usr/bin/python3
"""Random work under random failures, by hand for as long as you like: chaos.py SEED SECONDS [words of scenarios].

    NEXAR_BUILD_DIR=build/dev tests/integration/chaos.py 7 600

Each round is a job of random shape on a cluster of random size and settings, in which every result is compared with a
reference, and one scenario of failure. One line a round. After each, the daemons must hold what they held before. A
round that goes wrong is printed with its seed, SEED.ROUND (CHAOS_ROUND=n begins there), leaves the daemons' logs in
$CHAOS_KEEP if that is set, and the next begins on a new cluster.
"""
import collections
import mmap
import os
import pathlib
import random
import shutil
import signal
import sys
import time
import traceback

from chaos_work import KINDS, Spec, member
from harness import *
from harness.system import need_namespaces

T, I, DEADLINE = 1.5, 0.2, 20
Q, V = 0.25, 1.0
SLACK = 4  # for busy machines
SILENT = T + I + Q + 3 * V + SLACK
SETTINGS = {"NEXAR_HEARTBEAT_INTERVAL_SECS": str(I), "NEXAR_HEARTBEAT_TIMEOUT_SECS": str(T),
            "NEXAR_COLLECTIVE_TIMEOUT_SECS": str(DEADLINE)}


class Violation(AssertionError):
    pass


def lets_pass(seconds):
    """Time in which anything may happen."""
    time.sleep(seconds)  # sleep: the seed chooses the moments; each round is right whatever happens meanwhile


def expect(condition, what):
    if not condition:
        raise Violation(what)


class Round:
    """A job of random shape on a cluster."""

    def __init__(self, cluster, seed, **options):
        self.cluster, self.rng, self.seed = cluster, random.Random(seed), seed
        rng = self.rng
        nodes = list(cluster)
        per = [rng.randint(1, 3) for _ in nodes]
        while sum(per) > 8:
            per[rng.randrange(len(per))] = 1
        places = [node for node, n in zip(nodes, per) for _ in range(n)]
        rng.shuffle(places)
        self.places = places
        everybody = list(range(len(places)))
        self.specs = []
        for number in range(rng.randint(1, 3)):
            members = everybody[:] if number == 0 else rng.sample(everybody, rng.randint(1, len(everybody)))
            rng.shuffle(members)
            name = f"g{number}-{seed}"
            self.specs.append(Spec(name, name, tuple(members), rng.choice((256, 4096, 1 << 17, 1 << 20, 8 << 20)),
                                   options.pop("kinds", KINDS)))
        self.stop = mmap.mmap(-1, 4096)
        self.options = {"seed": seed, "open_timeout": 15, "unresponsive": 10, **options}
        self.since = None
        self.job = None

    def begin(self):
        self.job = Job(self.places, member, self.specs, self.stop, self.options, name=f"chaos{self.seed}")
        return self

    def ready(self, *but):
        for process, rank in self.job.ranks.items():
            if process not in but:
                rank.await_mark(60)
        lets_pass(self.rng.random() * 0.5)
        return self

    def inject(self, action):
        self.since = time.monotonic()
        action()

    def outcomes(self, dead=(), seconds=40):
        """{group name: {process: Report}} of the processes that live."""
        alive = [p for p in range(len(self.places)) if p not in dead]
        found = dict(zip(alive, self.job.outcomes(*alive, seconds=seconds)))
        for p, outcome in found.items():
            expect(isinstance(outcome, dict), f"process {p} on {self.places[p]}: {outcome}")
        return {spec.name: {p: found[p][spec.name] for p in spec.members if p in found} for spec in self.specs}

    def finish(self, **named):
        self.stop[0] = 1
        return self.outcomes(**named)

    def all_well(self, reports=None, but=()):
        for name, group in (reports or self.finish()).items():
            for p, report in group.items():
                if p in but:
                    continue
                expect(report.end == "stopped" and not report.failures,
                       f"{name}: process {p} (rank {report.rank} on {self.places[p]}) {report.end}: {report.failures}")

    def nodes_of(self, spec):
        return {self.places[p].number for p in spec.members}

    def lowest(self, spec, node):
        return min(rank for rank, p in enumerate(spec.members) if self.places[p] is node)

    def same(self, spec, group, causes, processes=None, within=SILENT, first_only=False):
        """All reports of these processes are failures with one of the causes, the same on all; in time."""
        seen = set()
        latest = 0
        for p, report in group.items():
            if processes is not None and p not in processes:
                continue
            expect(report.end == "failed", f"{spec.name}: process {p} on {self.places[p]} {report.end}; all: "
                   f"{ {q: (r.end, [f.cause for f in r.failures]) for q, r in group.items()} }")
            for failure in report.failures:
                seen.add(failure.cause)
            latest = max(latest, report.failures[0].at - self.since)
        reports = {q: (str(self.places[q]), r.rank, [(f.cause, f.op, f.text) for f in r.failures])
                for q, r in group.items()}
        expect(len(seen) <= 1, f"{spec.name}: different errors: {seen}; {reports}")
        if seen and causes is not None:
            expect(next(iter(seen)) in causes, f"{spec.name}: {seen} is not one of {causes}; layout "
                   f"{[self.places[p].number for p in spec.members]}")
        expect(latest < within, f"{spec.name}: it took {latest:.2f} s, allowed {within}")
        return latest


# ---- Scenarios: each returns a word or two for the log ----

def nothing(r):
    r.begin().ready()
    lets_pass(r.rng.random() * 3)
    r.all_well()


def short_stop_of_a_rank(r):
    r.begin().ready()
    for _ in range(r.rng.randint(1, 4)):
        rank = r.job[r.rng.randrange(len(r.places))]
        rank.kill(signal.SIGSTOP)
        lets_pass(r.rng.random() * 1.0)
        rank.kill(signal.SIGCONT)
        lets_pass(r.rng.random() * 0.3)
    r.all_well()


def short_stop_of_a_daemon(r):
    r.begin().ready()
    for _ in range(r.rng.randint(1, 4)):
        node = r.rng.choice(list(r.cluster))
        node.pause()
        lets_pass(r.rng.random() * 0.6)
        node.resume()
        lets_pass(0.3 + r.rng.random() * 0.5)
    r.all_well()


def short_cut(r):
    r.begin().ready()
    for _ in range(r.rng.randint(1, 4)):
        a, b = r.rng.sample([node.number for node in r.cluster], 2)
        r.rng.choice((r.cluster.network.cut, r.cluster.network.deafen, lambda a, b: r.cluster.network.unplug(a)))(a, b)
        lets_pass(r.rng.random() * 0.6)
        r.cluster.network.heal()
        lets_pass(1.5)
    r.all_well()


def killed_rank(r):
    r.begin().ready()
    victim = r.rng.randrange(len(r.places))
    r.inject(lambda: r.job[victim].kill())
    lets_pass(0.4)
    worst = 0
    r.stop[0] = 1  # the groups without the victim end well
    for name, group in r.outcomes(dead={victim}).items():
        spec = next(s for s in r.specs if s.name == name)
        if victim in spec.members:
            rank = spec.members.index(victim)
            worst = max(worst, r.same(spec, group, {("PEER_LOST", rank, None, r.places[victim].id)}, within=SLACK))
        else:
            r.all_well({name: group})
    r.job[victim].join()
    return f"{worst:.2f} s"


def lost_node(r, node, local, within=SILENT, local_within=SILENT):
    """Every group with ranks on the node has lost it; `local`: the names of errors that its own ranks may have."""
    worst = 0
    lets_pass(0.4)  # votes in flight
    r.stop[0] = 1
    for name, group in r.outcomes().items():
        spec = next(s for s in r.specs if s.name == name)
        mine = {p for p in spec.members if r.places[p] is node}
        others = set(spec.members) - mine
        if mine:
            if others:
                cause = ("PEER_LOST", r.lowest(spec, node), None, node.id)
                worst = max(worst, r.same(spec, group, {cause}, others, within))
            for p in mine:
                failures = group[p].failures
                expect(failures and {f.name for f in failures} <= set(local),
                       f"{name}: process {p} beside the daemon of {node} {group[p].end}: {failures}")
                took = failures[0].at - r.since
                expect(took < local_within, f"{name}: process {p} beside {node} had its error after {took:.2f} s")
        else:
            r.all_well({name: group})
    return f"{worst:.2f} s"


def killed_daemon(r):
    r.begin().ready()
    node = r.rng.choice(list(r.cluster))
    node.id
    r.inject(node.kill)
    if r.rng.random() < 0.5:
        node.start(wait=False, **ENVIRONMENT)
    return lost_node(r, node, ("DAEMON_LOST",), local_within=SLACK)


def stopped_daemon(r):
    r.options["unresponsive"] = 1.0
    r.begin().ready()
    node = r.rng.choice(list(r.cluster))
    node.id
    r.inject(node.pause)
    word = lost_node(r, node, ("DAEMON_UNRESPONSIVE",))
    node.resume()
    return word


def stopped_daemon_goes_on(r):
    r.options["unresponsive"] = 60
    r.begin().ready()
    node = r.rng.choice(list(r.cluster))
    node.id
    r.inject(node.pause)
    lets_pass(T + I + Q + 0.5 + r.rng.random() * 4)
    node.resume()
    lets_pass(1.5)  # the failure arrives; a vote that was in flight may still have succeeded
    worst = 0
    r.stop[0] = 1
    for name, group in r.outcomes().items():
        spec = next(s for s in r.specs if s.name == name)
        mine = {p for p in spec.members if r.places[p] is node}
        if mine and set(spec.members) - mine:
            cause = ("PEER_LOST", r.lowest(spec, node), None, node.id)
            worst = max(worst, r.same(spec, group, {cause}, within=SILENT + 8))
        else:
            r.all_well({name: group})
    return f"{worst:.2f} s"


def terminated_daemon(r):
    r.begin().ready()
    node = r.rng.choice(list(r.cluster))
    node.id
    r.since = time.monotonic()
    status = node.end(signal.SIGTERM)
    expect(status == 0, f"{node} ended with {status}")
    expect(time.monotonic() - r.since < 3 + SLACK, f"{node} took {time.monotonic() - r.since} s to end")
    r.stop[0] = 1
    worst = 0
    for name, group in r.outcomes().items():
        spec = next(s for s in r.specs if s.name == name)
        mine = {p for p in spec.members if r.places[p] is node}
        others = set(spec.members) - mine
        if not mine:
            r.all_well({name: group})
            continue
        causes = {("PEER_LOST", rank, None, node.id) for rank, p in enumerate(spec.members) if p in mine}
        worst = max(worst, r.same(spec, group, causes, others))
        for p in mine:
            failures = group[p].failures
            expect(failures and {f.name for f in failures} <= {"DAEMON_LOST"},
                   f"{name}: process {p}: {group[p].end} {failures}")
    return f"{worst:.2f} s"


def long_cut(r):
    r.begin().ready()
    a, b = sorted(r.rng.sample([node.number for node in r.cluster], 2))
    how = r.rng.choice(("cut", "deaf a", "deaf b"))
    net, (na, nb) = r.cluster.network, (r.cluster[a], r.cluster[b])
    na.id, nb.id
    r.inject({"cut": lambda: net.cut(a, b), "deaf a": lambda: net.deafen(a, b),
              "deaf b": lambda: net.deafen(b, a)}[how])
    lets_pass(T + I + Q + 0.5 + r.rng.random())
    r.stop[0] = 1
    worst = 0
    for name, group in r.outcomes().items():
        spec = next(s for s in r.specs if s.name == name)
        nodes = r.nodes_of(spec)
        if not {a, b} <= nodes:
            r.all_well({name: group})
            continue
        low = tuple(sorted((r.lowest(spec, na), r.lowest(spec, nb))))
        if len(nodes) == 2:  # nobody else can say; each may name the other, or both the same
            for node in (na, nb):
                mine = {p for p in spec.members if r.places[p] is node}
                names = {("PEER_LOST", r.lowest(spec, n), None, n.id) for n in (na, nb)}
                if how == "cut":
                    other = nb if node is na else na
                    names = {("PEER_LOST", r.lowest(spec, other), None, other.id)}
                worst = max(worst, r.same(spec, group, names, mine))
        else:
            worst = max(worst, r.same(spec, group, {("LINK_LOST", *low, n.id) for n in (na, nb)}))
    return f"{how} {a}-{b} {worst:.2f} s"


def unplugged(r):
    r.begin().ready()
    node = r.rng.choice(list(r.cluster))
    node.id
    r.inject(lambda: r.cluster.network.unplug(node.number))
    lets_pass(T + I + Q + 0.5 + r.rng.random() * 2)
    r.stop[0] = 1
    worst = 0
    for name, group in r.outcomes().items():
        spec = next(s for s in r.specs if s.name == name)
        mine = {p for p in spec.members if r.places[p] is node}
        others = set(spec.members) - mine
        if not mine or not others:
            r.all_well({name: group})
            continue
        worst = max(worst, r.same(spec, group, {("PEER_LOST", r.lowest(spec, node), None, node.id)}, others))
        worst = max(worst, r.same(spec, group, None, mine))
    return f"{worst:.2f} s"


def long_stop_of_a_rank(r):
    """Beyond the collective timeout: operations fail on all, the group can still be used."""
    r.options.update(survive=True)
    spec = r.specs[0]
    collectives = tuple(kind for kind in KINDS if kind != "messages")
    r.specs = [Spec(s.name, s.seed, s.members, min(s.largest, 1 << 17), collectives) for s in r.specs]
    r.begin().ready()
    victim = r.rng.randrange(len(r.places))
    r.inject(lambda: r.job[victim].kill(signal.SIGSTOP))
    lets_pass(r.deadline + 1.0 + r.rng.random())
    r.job[victim].kill(signal.SIGCONT)
    lets_pass(0.5)
    failed = 0
    for name, group in r.finish().items():
        turns = collections.defaultdict(set)
        for p, report in group.items():
            expect(report.end == "stopped" and not report.failures,
                   f"{name}: process {p} {report.end}: {report.failures}")
            failed += len(report.operation_failures)
            for turn, failure in report.operation_failures:
                turns[turn].add(failure.name)
        expect(all(names <= {"ABORTED", "TIMED_OUT"} for names in turns.values()), f"{name}: {dict(turns)}")
    return f"{failed} ops"


def somebody_leaves(r):
    """Normally or not, with operations in flight; the others name it when they need it."""
    spec = r.rng.choice(r.specs)
    rank = r.rng.randrange(len(spec.members))
    how = r.rng.choice(("finish", "free", "close", "kill"))
    leaver = spec.members[rank]
    if how == "close" and any(leaver in other.members for other in r.specs if other is not spec):
        how = "free"  # the threads of its other groups use the session's memory
    r.options["leave"] = {(spec.name, rank): (r.rng.randint(1, 40), how)}
    r.begin().ready(leaver)
    r.since = time.monotonic()
    r.stop[0] = 0
    gone = {leaver} if how == "kill" else set()
    # Groups without the leaver, or that it has not left, must not fail; so all ranks are asked to stop after a while.
    lets_pass(1.0)
    r.stop[0] = 1
    reports = r.outcomes(dead=gone)
    for name, group in reports.items():
        other = next(s for s in r.specs if s.name == name)
        if leaver not in other.members or (name != spec.name and how in ("finish", "free")):
            r.all_well({name: group})
            continue
        lost = other.members.index(leaver)
        for p, report in group.items():
            for turn, failure in report.operation_failures:
                expect(p == leaver or failure.cause[:2] in {("ABORTED", lost), ("PEER_LOST", lost)},
                       f"{name}: rank {lost} left by {how}; process {p}, operation {turn}: {failure.cause}: {failure.text}; "
                       f"all: {group}")
        if all(report.end == "stopped" or p == leaver for p, report in group.items()):
            continue  # it was over before
        survivors = {p: report for p, report in group.items() if p != leaver and report.end != "stopped"}
        r.same(other, survivors, {("PEER_LOST", lost, None, r.places[leaver].id)}, within=60)
    if gone:
        r.job[leaver].join()
    return f"{how}"


def anything(r):
    """Two or three failures, at any time, also while the groups form: nobody hangs, nothing is wrong."""
    r.options.update(survive=False, unresponsive=2, open_timeout=6,
                     delays={p: r.rng.random() * 0.2 for p in range(len(r.places))})
    r.begin()
    dead, actions = set(), []
    for _ in range(r.rng.randint(1, 3)):
        lets_pass(r.rng.random() * 0.5)
        what = r.rng.choice(("rank", "daemon", "restart", "cut", "deafen", "unplug", "heal", "stop", "pause"))
        node, other = r.rng.sample(list(r.cluster), 2)
        actions.append(what)
        if what == "rank":
            victim = r.rng.randrange(len(r.places))
            if victim not in dead:
                dead.add(victim)
                r.job[victim].kill()
        elif what in ("daemon", "restart"):
            node.kill()
            if what == "restart":
                node.start(wait=False, **ENVIRONMENT)
        elif what in ("cut", "deafen"):
            getattr(r.cluster.network, what)(node.number, other.number)
        elif what == "unplug":
            r.cluster.network.unplug(node.number)
        elif what == "heal":
            r.cluster.network.heal()
        elif what == "stop":
            victim = r.job[r.rng.randrange(len(r.places))]
            if victim.rank not in dead:
                victim.kill(signal.SIGSTOP)
                lets_pass(r.rng.random())
                victim.kill(signal.SIGCONT)
        elif node.alive():
            node.pause()
            lets_pass(r.rng.random() * 3)
            node.resume()
    lets_pass(r.rng.random() * 2)
    r.stop[0] = 1
    # What ends by itself ends; the forming groups have 6 s, operations their deadline.
    reports = r.outcomes(dead=dead, seconds=DEADLINE + 2 * SILENT)
    ends = collections.Counter()
    for name, group in reports.items():
        for p, report in group.items():
            ends[report.failures[0].name if report.failures else report.end] += 1
    for victim in dead:
        r.job[victim].join()
    return f"{'+'.join(actions)} {dict(ends)}"


SCENARIOS = (nothing, short_stop_of_a_rank, short_stop_of_a_daemon, short_cut, killed_rank, killed_daemon,
             stopped_daemon, stopped_daemon_goes_on, terminated_daemon, long_cut, unplugged, somebody_leaves, anything)


# ---- After each round ----

def resources(node):
    folder = f"/proc/{node.pid}/fd"
    fds = []
    for fd in os.listdir(folder):
        try:
            fds.append(os.readlink(f"{folder}/{fd}"))
        except OSError:
            pass
    rss = next(int(line.split()[1]) for line in open(f"/proc/{node.pid}/status") if line.startswith("VmRSS"))
    return len(fds), sum("memfd" in fd for fd in fds), rss, len(os.listdir(f"/proc/{node.pid}/task"))


def settled(cluster):
    for node in cluster:
        def left():
            status = node.status()
            what = {key: status[key] for key in ("sessions", "groups", "ops_in_flight", "session_memory_bytes")}
            return any(what.values()) and (what, node.ask("groups")["groups"])
        try:
            eventually(lambda: not left(), "", 15)
        except AssertionError:
            raise Violation(f"{node} keeps {left()}") from None
        try:  # its own alive word; the others' a moment after their clients returned them [S19]
            eventually(lambda: resources(node)[1] <= 1, "", 15)
        except AssertionError:
            raise Violation(f"{node} holds {resources(node)[1]} memfds") from None
        count, _, rss, threads = resources(node)
        yield node, (count, rss, threads)


def bad_words(cluster):
    for node in cluster:
        at = READ.get(node.log_file, 0)
        with open(node.log_file, errors="replace") as f:
            f.seek(at)
            for line in f:
                if any(word in line for word in ("check failed", "assert", "[critical]", "what():", "terminate called",
                                                 "Sanitizer", "runtime error")):
                    raise Violation(f"{node} logs: {line}")
            READ[node.log_file] = f.tell()


def keep(cluster, round_seed):
    if "CHAOS_KEEP" in os.environ:
        folder = pathlib.Path(os.environ["CHAOS_KEEP"]) / round_seed
        folder.mkdir(parents=True, exist_ok=True)
        for node in cluster:
            shutil.copy(node.log_file, folder / f"node{node.number}.log")


READ, ENVIRONMENT = {}, {}


def main(seed, seconds, words):
    need_namespaces()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    rng = random.Random(f"cluster {seed}")
    ENVIRONMENT.update(SETTINGS, NEXAR_BULK_SHARDS=str(rng.choice((1, 1, 2, 3))),
                       NEXAR_WORKERS=str(rng.choice((0, 1, 2, 3))),
                       NEXAR_YIELD_MICROSECONDS=str(rng.choice((0, 50, 200))),
                       NEXAR_PIPELINE_SEGMENT_BYTES=str(rng.choice((65536, 262144, 1 << 20, 4 << 20))),
                       NEXAR_SMALL_MSG_BYTES=str(rng.choice((0, 256, 4096, 131072))))
    count = rng.choice((2, 3, 3, 4))
    deadline = DEADLINE
    cluster = Cluster(count, **ENVIRONMENT)
    scenarios = [s for s in SCENARIOS if not words or any(w in s.__name__ for w in words)]
    if words and "long_stop" in " ".join(words):
        scenarios = [long_stop_of_a_rank]
    end, number, status, baseline = time.monotonic() + seconds, 0, 0, {}
    print(f"seed {seed}: {count} nodes, {ENVIRONMENT}, pids {[n.pid for n in cluster]} in {cluster.folder}", flush=True)
    tally = collections.Counter()
    try:
        while time.monotonic() < end:
            number += 1
            if os.environ.get("CHAOS_ROUND") and number < int(os.environ["CHAOS_ROUND"]):
                continue
            round_seed = f"{seed}.{number}"
            r = Round(cluster, round_seed)
            r.deadline = deadline
            scenario = random.Random(f"scenario {round_seed}").choice(scenarios)
            begin = time.monotonic()
            try:
                word = scenario(r) or ""
                crashed = cluster.crashed()
                expect(not crashed, "; ".join(crashed))
                Job.dispose_all()
                cluster.network.heal()
                for node in cluster:
                    if node.alive():
                        node.resume()
                    else:
                        node.start(**ENVIRONMENT)
                cluster.wait_connected()
                bad_words(cluster)
                figures = []
                for node, (fds, rss, threads) in settled(cluster):
                    first = baseline.setdefault(node.pid, (fds, rss))
                    figures.append(f"{fds}/{rss // 1024}")
                    expect(fds <= first[0] + 6, f"{node} has {fds} descriptors, had {first[0]} after its first round")
                tally[scenario.__name__] += 1
                layout = [[r.places[p].number for p in spec.members] for spec in r.specs]
                print(f"{round_seed} {scenario.__name__} {word} {time.monotonic() - begin:.1f} s; {len(r.places)} "
                      f"ranks, {layout}; fds/MiB {' '.join(figures)}", flush=True)
            except BaseException as error:
                if isinstance(error, SystemExit):
                    raise
                status = 1
                print(f"VIOLATION {round_seed} {scenario.__name__} after {time.monotonic() - begin:.1f} s\n"
                      f"layout {[p.number for p in r.places]} groups "
                      f"{[(s.name, s.members, s.largest) for s in r.specs]}\n"
                      f"{traceback.format_exc()}", flush=True)
                keep(cluster, round_seed)
                Job.dispose_all()
                cluster.close()
                READ.clear()
                baseline.clear()
                cluster = Cluster(count, **ENVIRONMENT)
    finally:
        Job.dispose_all()
        cluster.close()
        print(f"seed {seed}: {sum(tally.values())} rounds well of {number}: {dict(tally)}", flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
