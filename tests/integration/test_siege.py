"""Hostile users and a hostile member at the same time, by seed, while another user's groups work and new ones are opened:

    node 1, node 2: honest daemons; a user's ranks, and another user who attacks        node 3: its place is the liar's

No daemon dies or grows, no honest result is wrong, missing or late, and afterwards nothing is left behind.

For longer, by hand: NEXAR_SIEGE_SEED=n NEXAR_SIEGE_SECONDS=s test_siege.py. What a bystander's operations take: tools/bench
--bystander.
"""
import contextlib
import os
import pathlib
import random
import signal
import time

from harness import *
from harness.hostile import Ended
from harness.states import descriptors_of
from harness.values import check, given, reduced
from test_hostile_member import a_liar, lie_at_random, teach

os.environ["NEXAR_MEMFDS_IN_PLACE"] = "false"

SEED, SECONDS = int(os.environ.get("NEXAR_SIEGE_SEED", "1")), float(os.environ.get("NEXAR_SIEGE_SECONDS", "60"))
MODES = ("descriptors", "scribble", "bulk", "entries", "flip", "punch", "holes", "mappings", "doorbells", "files",
         "handshakes")
ATTACK_SECONDS = 3
OTHER = 2002  # the uid of honest ranks; attackers have this test's
TURN_SECONDS_MAX, OPEN_SECONDS_MAX = 2 + BUSY, 6 + BUSY
GROWTH_MIB_MAX = 100
COUNTS = (1, 1000, 50_000, 300_000)


def become_other():
    os.setgroups([])
    os.setgid(OTHER)
    os.setuid(OTHER)


def turn_of(me, group, turn, go_on):
    """(seconds, whether to go on): a sum of numbers that differ by rank, position and turn, compared exactly."""
    begin, count = time.monotonic(), COUNTS[turn % len(COUNTS)]
    check(group.all_reduce(given("float32", "sum", me.rank, count, salt=turn)),
          reduced("float32", "sum", me.size, count, salt=turn), f"turn {turn}")
    flag = group.all_reduce(np.array([go_on]).astype("int32"), op="max")[0]
    return time.monotonic() - begin, bool(flag)


def works(me):
    """In one group until it is released; (turns, the longest)."""
    become_other()
    group, turns, longest, go_on = me.group(), 0, 0, True
    me.mark()
    while go_on:
        seconds, go_on = turn_of(me, group, turns, me.rank == 0 and not me.is_released())
        turns, longest = turns + 1, max(longest, seconds)
    return turns, longest


def opens(me):
    """Group after group until it is released; (groups, the longest that one took with its work)."""
    become_other()
    session, groups, longest, go_on = me.session(), 0, 0, True
    me.mark()
    while go_on:
        begin = time.monotonic()
        with me.group(session, name=f"{me.name}-{groups}", timeout=OPEN_SECONDS_MAX) as group:
            _, go_on = turn_of(me, group, groups, me.rank == 0 and not me.is_released())
            group.barrier()
        groups, longest = groups + 1, max(longest, time.monotonic() - begin)
    return groups, longest


def own_mib(node):
    """The daemon's own memory: what clients share with it is not in it."""
    return int(pathlib.Path(f"/proc/{node.pid}/status").read_text().split("RssAnon:")[1].split()[0]) / 1024


@contextlib.contextmanager
def unharmed(nodes):
    before = {node: (own_mib(node), descriptors_of(node)) for node in nodes}
    jobs = [(Job([nodes[0], nodes[1], nodes[1], nodes[0]], works), TURN_SECONDS_MAX), (Job(nodes, opens), OPEN_SECONDS_MAX)]
    for job, _ in jobs:
        job.await_marks()
    yield
    for job, seconds_max in jobs:
        job.go(0)
        outcomes = job.outcomes(seconds=30)
        for outcome in outcomes:
            assert not isinstance(outcome, Failure), f"an honest rank: {outcome}"
        turns, longest = outcomes[0][0], max(outcome[1] for outcome in outcomes)
        print(f"        {turns} {'turns' if seconds_max == TURN_SECONDS_MAX else 'groups'}, the longest {longest:.2f} s")
        assert turns > SECONDS / 10 and longest < seconds_max, f"{turns} turns, the longest {longest:.1f} s"
    for node, (mib, descriptors) in before.items():
        eventually(lambda: node.status()["sessions"] == 0, f"all sessions of {node} to end", 20)
        eventually(lambda: descriptors_of(node) <= descriptors + 4, f"{descriptors} descriptors of {node} again", 20)
        eventually(node.idle, f"{node} to be idle", 20)
        print(f"        {node}: {mib:.0f} MiB of its own before, {own_mib(node):.0f} MiB after")
        assert own_mib(node) < mib + GROWTH_MIB_MAX, f"{node} grew from {mib:.0f} to {own_mib(node):.0f} MiB"


class Siege:
    """Attackers of random kinds, up to three at once: left alone, stopped for a while, or killed."""

    def __init__(self, nodes, rng):
        self._nodes, self._rng, self._running = nodes, rng, []
        self.begun, self.sessions = dict.fromkeys(MODES, 0), 0

    def go_on(self):
        rng = self._rng
        self._running = [attacker for attacker in self._running if not self._over(attacker)]
        while len(self._running) < 3:
            mode = rng.choice(MODES)
            self.begun[mode] += 1
            self._running.append(program(rng.choice(self._nodes), "NEXAR_TEST_HOSTILE_CLIENT", mode,
                                         ATTACK_SECONDS, rng.randrange(1 << 30)))
        victim = rng.choice(self._running)
        victim.send_signal(rng.choice((0, signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL)))

    def _over(self, attacker):
        if attacker.poll() is None:
            return False
        output, _ = attacker.communicate()
        assert attacker.returncode in (0, -signal.SIGKILL), f"{attacker.args}: {attacker.returncode}, {output}"
        if attacker.returncode == 0:
            self.sessions += int(output.strip().splitlines()[-1].split()[0])
        return True

    def end(self):
        for attacker in self._running:
            attacker.kill()
            attacker.communicate(timeout=10)


def test_users_and_a_member_harm_nobody_together(cluster):
    for folder in (cluster.folder, *(node.folder for node in cluster)):
        os.chmod(folder, 0o755)
    rng, turn = random.Random(SEED), 0
    print(f"        seed {SEED}, {SECONDS:.0f} s", flush=True)
    with a_liar(cluster) as (liar, *nodes), unharmed(nodes):
        teach(liar, *nodes)
        os.environ["NEXAR_TEST_OTHER_SOCKET"] = str(nodes[1].socket)
        siege, end = Siege(nodes, rng), time.monotonic() + SECONDS
        while time.monotonic() < end:
            siege.go_on()
            liar.do(f"seed {rng.randrange(1 << 30)}")
            with contextlib.suppress(Ended):
                lie_at_random(liar, nodes[0], rng.choice(nodes), turn)
            turn += 1
            for node in nodes:
                assert node.alive(), f"{node} ended with {node.process.returncode}"
                assert own_mib(node) < 4 * GROWTH_MIB_MAX, f"{node} has {own_mib(node):.0f} MiB of its own"
        siege.end()
    assert siege.sessions > 0, "no attacker had a session"
    print(f"        {turn} turns of lies, attackers: {', '.join(f'{mode} {n}' for mode, n in siege.begun.items())}")


if os.geteuid() != 0:
    skip("it runs processes of two users: as root only")
main(globals())
