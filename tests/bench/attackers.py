"""Who may be beside a bystander: a greedy user, hostile users (tests/integration/clients/hostile_client.cpp), a hostile member."""
import contextlib
import os
import threading

from hosts import Used

UID = 2001
WORKERS_BYTES, QUEUED = 128 << 20, 256
HOSTILE_MODES = ("descriptors", "scribble", "entries", "flip", "punch", "holes", "mappings", "doorbells", "files",
                 "handshakes")
HOSTILE_SECONDS = 60  # more than a measurement takes
PROCESSES = 2
LIES = 60  # in a row


class Processes:
    """Of another user, at host 1."""

    def __init__(self, name, commands):
        self.name, self._commands = name, commands

    @contextlib.contextmanager
    def at_work(self, cluster):
        """Yields a function: what they have Used."""
        with cluster.beside(self._commands, UID) as processes:
            yield lambda: sum((Used.by(process.pid) for process in processes), Used())


class Liar:
    """A member with a valid certificate at the last host, which lies to host 1 about everything."""
    name = "member"

    def __init__(self, program):
        os.environ["NEXAR_TEST_HOSTILE_MEMBER"] = str(program)
        self._place, self._counter = None, 1_000_000

    @contextlib.contextmanager
    def at_work(self, cluster):
        from harness.hostile import HostileMember
        self._place = self._place or cluster.place(cluster.hosts[-1])
        victim, over = cluster.place(1), threading.Event()
        liar = HostileMember(self._place, self._counter)
        liar.enter(victim)
        liar.do(f"seed {self._counter}")
        talker = threading.Thread(target=self._lie, args=(liar, victim, over), daemon=True)
        talker.start()
        try:
            yield lambda: Used.by(liar.process.pid)
        finally:
            over.set()
            talker.join()
            self._counter = liar.incarnation[0]
            liar.close()

    @staticmethod
    def _lie(liar, victim, over):
        from harness.hostile import Ended
        while not over.is_set():
            with contextlib.suppress(Ended):
                liar.do(f"lie {liar.name_of(victim)} * {LIES}")
                continue
            with contextlib.suppress(Ended):  # the daemon hung up
                liar.enter_again(victim, seconds=1)


def greedy(program):
    return Processes("operations", [[program, "operations", QUEUED, WORKERS_BYTES]])


def hostile_user(program, mode):
    return Processes(mode, [[program, mode, HOSTILE_SECONDS, seed] for seed in range(1, PROCESSES + 1)])


def burner(program, user, kernel):
    """Takes so many percent of a processor as user and in the kernel, without the daemon."""
    wanted = {"copies": round(user), "files": round(kernel)}
    return Processes("burner", [[program, kind, percent, 1 << 20] for kind, percent in wanted.items() if percent > 0])
