"""NEXAR_TEST_CARRIER: over which carrier the daemons of a test move bulk data, whatever their default is.

    quic    QUIC only
    tcp     TCP only: the ports for bulk data pass nothing over UDP
    switch  both, and a hand that makes every bulk connection move between them again and again while the test runs: TCP to one
            host is refused for a while, or swallowed, or its connections are destroyed

What a test gives its daemons itself goes before. NEXAR_TEST_CARRIER_SEED=n moves at other moments.
"""
import contextlib
import os
import random
import signal
import subprocess
import time

from .system import die_with_parent, enter, run_in, skip

MODE = os.environ.get("NEXAR_TEST_CARRIER")
SEED = os.environ.get("NEXAR_TEST_CARRIER_SEED", "1")
MOVES = MODE == "switch"
BULK_PORTS = "7655-7662"
if MODE not in (None, "quic", "tcp", "switch"):
    raise ValueError(f"NEXAR_TEST_CARRIER={MODE}: quic, tcp or switch")
SETTINGS = {} if MODE is None else {"NEXAR_ENABLE_TCP_BULK_SIDECAR": "false" if MODE == "quic" else "true"}
EMPTY = "table inet carrier; delete table inet carrier"
FILLED = "; table inet carrier {{ chain in {{ type filter hook input priority -1; {}; }}; }}"


def _filter(namespace, *rules):
    """With these rules and no others, at once."""
    run_in(namespace, "nft", EMPTY + (FILLED.format("; ".join(rules)) if rules else ""))


def prepare(namespace):
    """A new host."""
    try:
        if MODE == "tcp":
            _filter(namespace, f"udp dport {{ {BULK_PORTS} }} drop")
        elif MOVES:
            _filter(namespace)
    except (RuntimeError, FileNotFoundError) as error:
        skip(f"nftables do not work here ({error})")


class Hand:
    """Of one network. It is made anew for each host that comes."""

    def __init__(self):
        self._pid, self._turns = None, 0

    def watch(self, namespaces):
        if not MOVES:
            return
        self.end()
        self._turns += 1
        self._pid = os.fork()
        if self._pid == 0:
            with contextlib.suppress(BaseException):
                die_with_parent()
                keep = sorted(namespaces)
                for first, last in zip([2, *keep], [*keep, os.sysconf("SC_OPEN_MAX")]):
                    os.closerange(first + 1, last)  # the ends of pipes that the test closes
                self._move(random.Random(f"{SEED} {self._turns}"), keep)
            os._exit(0)

    @staticmethod
    def _move(rng, namespaces):
        ports = f"{{ {BULK_PORTS} }}"
        while True:
            time.sleep(rng.uniform(0.1, 1))  # sleep: until the next move
            namespace = rng.choice(namespaces)
            way = rng.choice(("destroy", "reject with tcp reset", "reject with tcp reset", "drop"))
            if way == "destroy":
                _destroy(namespace)
                continue
            _filter(namespace, *(f"tcp {port} {ports} {way}" for port in ("dport", "sport")))
            time.sleep(rng.uniform(0.05, 0.6))  # sleep: the length of the interruption
            _filter(namespace)

    def end(self):
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None


def _destroy(namespace):
    first, last = BULK_PORTS.split("-")
    for side in ("sport", "dport"):
        subprocess.run(["ss", "-K", "-t", side, ">=", f":{first}", "and", side, "<=", f":{last}"], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=lambda: enter(namespace))


seen_moves = 0


def count_moves(nodes):
    """How often a daemon's bulk connection has come up over another carrier than before, as the logs say."""
    global seen_moves
    for node in nodes:
        before = {}
        for line in node.log().splitlines():
            if "bulk_up" not in line:
                continue
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            seen_moves += before.setdefault(words["peer"], words["carrier"]) != words["carrier"]
            before[words["peer"]] = words["carrier"]
