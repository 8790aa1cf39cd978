"""What one user's operations take beside an attacker, and beside processes that take the same processor time, as user
and in the kernel, without the daemon: that a machine is busy is its scheduler's affair; what is beyond that is nexar's.
"""
import json
import os
import statistics
import time

from attackers import HOSTILE_MODES, Liar, burner, greedy, hostile_user
from hosts import Cluster, Failed, Used

UID = 2002
SIZES = (8, 1 << 20)
TIMES = 1000  # of each size
UNLIMITED_SECONDS = 1000
HOSTS, RANKS = 2, 2  # ranks: of the bystander, at host 1
ROUNDS = 3
LONGEST_SECONDS = 120
RATIO_MAX = 3  # that is promised (docs/protocol/tenants.md)


class Bystander:
    """On one cluster: what it takes alone, and beside others in turns."""

    def __init__(self, cluster, client):
        self._cluster, self._client = cluster, client
        self.alone, self._daemon = {size: [] for size in SIZES}, Used()

    def _operations(self):
        """{bytes: [microseconds]}"""
        command = [self._client, "--operations", "all_reduce", "--memory", "alloc", "--bytes", ",".join(map(str, SIZES)),
                   "--seconds", str(UNLIMITED_SECONDS), "--repetitions", str(TIMES)]
        lines = self._cluster.run(command, RANKS, LONGEST_SECONDS, uid=UID, hosts=(1,)).splitlines()
        return {row["bytes"]: row["microseconds"] for row in map(json.loads, lines)}

    def _timed(self, used=Used):
        """(times, seconds that it took, what the others and the daemon used meanwhile)."""
        begin, before = time.monotonic(), used() + self._cluster.used_by_daemon(1)
        times = self._operations()
        return times, time.monotonic() - begin, used() + self._cluster.used_by_daemon(1) - before

    def without_others(self):
        times, _, self._daemon = self._timed()
        for size in SIZES:
            self.alone[size] += times[size]

    def beside(self, attacker):
        """(times, percents of a processor that the attack cost: what the daemon uses for the bystander is no part of it)."""
        with attacker.at_work(self._cluster) as used:
            times, seconds, cost = self._timed(used)
        return times, (cost - self._daemon).percent_of(seconds)


def attackers_of(build, greedy_program, hostile_program):
    yield greedy(greedy_program)
    for mode in HOSTILE_MODES:
        yield hostile_user(hostile_program, mode)
    if build.hostile_member.exists():
        yield Liar(build.hostile_member)
    else:
        print(f"  left out: a hostile member ({build.hostile_member} is not built)")


def medians_of(rounds):
    return {size: statistics.median(time for times in rounds for time in times[size]) for size in SIZES}


def row_of(attacker, attacks, burns, percents):
    beside, burnt = medians_of(attacks), medians_of(burns)
    user, kernel = (round(statistics.median(column)) for column in zip(*percents))
    ratio = {size: round(beside[size] / burnt[size], 2) for size in SIZES}
    cells = "".join(f"{beside[size]:12.1f} {burnt[size]:12.1f} {ratio[size]:7.2f}" for size in SIZES)
    print(f"  {attacker.name:12} {user:5} {kernel:7} {cells}", flush=True)
    return {"attacker": attacker.name, "percent_user": user, "percent_kernel": kernel, "microseconds": beside,
            "burner_microseconds": burnt, "ratio": ratio}


def head():
    print(f"\nall_reduce of 8 bytes and of 1 MiB by {RANKS} ranks of a user, medians in microseconds: beside another user or a "
          "member that attacks;\nbeside processes that take the same parts of a processor (%), as user and in the kernel, "
          f"without the daemon; the ratio (promised: at most {RATIO_MAX})")
    print("  {:12} {:>5} {:>7} {}".format("attacker", "user", "kernel", f"{'beside':>12} {'burner':>12} {'ratio':>7}" * len(SIZES)))


def bystander(build, client, greedy_program, hostile_program):
    """Prints a table; the result for --json."""
    if os.geteuid() != 0:
        raise Failed("--bystander needs root: it runs processes of two users")
    with Cluster(build, HOSTS) as cluster:
        one = Bystander(cluster, client)
        head()
        rows = []
        for attacker in attackers_of(build, greedy_program, hostile_program):
            attacks, burns, percents = [], [], []
            for _ in range(ROUNDS):
                one.without_others()
                times, percent = one.beside(attacker)
                attacks.append(times)
                percents.append(percent)
                burns.append(one.beside(burner(greedy_program, *percent))[0])
            rows.append(row_of(attacker, attacks, burns, percents))
        alone = medians_of([one.alone])
    print("  alone: " + ", ".join(f"{alone[size]:.1f} us ({size} bytes)" for size in SIZES), flush=True)
    return {"alone_microseconds": alone, "attackers": rows, "ratio_max": RATIO_MAX}
