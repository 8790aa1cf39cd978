"""Performs programs on real daemons: a cluster and 12 processes, which stay for many programs."""
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import time

import nexar.testing

from harness.system import die_with_parent

from . import allowed
from .draw import draw
from .program import NODES, RANKS_MAX
from .rank import serve

PROGRAM_SECONDS = 120  # for the slowest machine; what takes longer hangs
CLOSE_SECONDS = 30
PROGRAMS_EACH = 60  # on one cluster, whose settings are drawn as well
SHRINK_SECONDS, SHRINK_TRIES = 60, 3
_fork = multiprocessing.get_context("fork")


class Wrong(Exception):
    """What is wrong with a program, in words."""


def settings(seed):
    """Of the daemons, for a program of this seed."""
    rng = random.Random(f"cluster {seed // PROGRAMS_EACH}")
    return {"NEXAR_BULK_SHARDS": str(rng.choice((1, 1, 2, 3))), "NEXAR_WORKERS": str(rng.choice((0, 1, 2, 3))),
            "NEXAR_YIELD_MICROSECONDS": str(rng.choice((0, 50, 200))),
            "NEXAR_PIPELINE_SEGMENT_BYTES": str(rng.choice((65536, 262144, 1 << 20, 4 << 20))),
            "NEXAR_SMALL_MSG_BYTES": str(rng.choice((0, 256, 4096, 131072))),
            "NEXAR_MEMFDS_IN_PLACE": rng.choice(("true", "true", "false")), "NEXAR_LOG_LEVEL": "debug"}


class Worker:
    """A process that is rank `number`, or has it and others."""

    def __init__(self, number, sockets):
        self.pipe, theirs = _fork.Pipe()
        self.process = _fork.Process(target=_worker, args=(self.pipe, theirs, number, sockets), daemon=True)
        self.process.start()
        theirs.close()

    def end(self):
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _worker(ours, theirs, own, sockets):
    die_with_parent()
    ours.close()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    serve(theirs, own, sockets)


class Runner:
    """One cluster at a time, started when it is needed, and again after anything went wrong."""

    def __init__(self, nexard, sabotage=None):
        self.nexard, self.sabotage, self.jobs = nexard, sabotage, 0
        self.cluster, self.context, self.workers, self.of = None, None, {}, None

    def prepare(self, seed):
        if self.cluster is None or self.of != settings(seed):
            self.close()
            self.of = settings(seed)
            self.context = nexar.testing.cluster(NODES, NODES, nexard=self.nexard, **self.of)
            self.cluster = self.context.__enter__()
        for rank in range(RANKS_MAX):
            if rank not in self.workers:
                self.workers[rank] = Worker(rank, [node.socket for node in self.cluster.nodes])

    def close(self):
        for worker in self.workers.values():
            worker.end()
        self.workers = {}
        if self.context:
            self.context.__exit__(None, None, None)
        self.cluster = self.context = None

    def perform(self, seed, kind, left_out=()):
        """Raises Wrong, and then the next program gets a new cluster."""
        self.prepare(seed)
        self.jobs += 1
        program = draw(seed, kind).without(left_out)
        for process in set(program.hosts):
            self.workers[process].pipe.send((seed, kind, left_out, f"oracle {os.getpid()} {self.jobs}", self.sabotage))
        try:
            self.stop_one(program)
            self.judge(program)
        except Wrong as wrong:
            logs = "".join(f"--- node {node.number}\n{node.log()[-3000:]}\n" for node in self.cluster.nodes)
            self.close()
            raise Wrong(f"{wrong}\n{logs if os.environ.get('ORACLE_LOGS') else ''}") from None

    def stop_one(self, program):
        """In some programs a rank stands still for a moment, where nothing has a deadline."""
        rng = random.Random(f"stop {program.kind} {program.seed}")
        if program.kind == "ends" or rng.random() < 0.85:
            return
        pid = self.workers[rng.choice(program.hosts)].process.pid
        time.sleep(rng.random() * 0.02)  # sleep: the seed chooses the moment; right at each
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)  # sleep: so long it stands
        os.kill(pid, signal.SIGCONT)

    def judge(self, program):
        victim = program.death.rank if program.death else None
        processes = set(program.hosts) - {victim}
        reports = {rank: each for answer in self.answers(processes, PROGRAM_SECONDS) for rank, each in answer.items()}
        words = [word for _, violations in reports.values() for word in violations]
        words += allowed.judge(program, {rank: outcomes for rank, (outcomes, _) in reports.items()})
        for process in processes:
            self.workers[process].pipe.send("close")
        words += [word for answer in self.answers(processes, CLOSE_SECONDS) for word in answer]
        if victim is not None:
            worker = self.workers.pop(victim)
            worker.process.join(CLOSE_SECONDS)
            if worker.process.exitcode != -signal.SIGKILL:
                words.append(f"the victim ended with {worker.process.exitcode}")
            worker.end()
        words += self.leftovers()
        if words:
            raise Wrong("\n".join(words))

    def answers(self, processes, seconds):
        """What each of them sends."""
        until, found, waiting = time.monotonic() + seconds, [], {self.workers[each].pipe: each for each in processes}
        while waiting:
            ready = multiprocessing.connection.wait(list(waiting), max(0, until - time.monotonic()))
            if not ready:
                raise Wrong(f"processes {sorted(waiting.values())} hang; in flight: {self.in_flight()}")
            for pipe in ready:
                process = waiting.pop(pipe)
                try:
                    what, answer = pipe.recv()
                except EOFError:
                    raise Wrong(f"process {process} ended: {self.workers[process].process.exitcode}") from None
                if what == "broken":
                    raise Wrong(f"process {process}: {answer}")
                found.append(answer)
        return found

    def in_flight(self):
        return [(node.number, node.ask("ops"), node.ask("groups")) for node in self.cluster.nodes]

    def leftovers(self):
        """Groups and operations that daemons still have when all ranks have closed theirs; for a moment they may."""
        until = time.monotonic() + CLOSE_SECONDS
        while True:
            left = {}
            for node in self.cluster.nodes:
                status = node.ask("status")
                if status["groups"] or status["ops_in_flight"]:
                    left[node.number] = node.ask("groups")["groups"], node.ask("ops")
            if not left or time.monotonic() > until:
                return [f"daemons still have {left}"] if left else []
            time.sleep(0.002)  # sleep: between two looks

    def shrunk(self, seed, kind):
        """Numbers of steps that the failure does not need: halves, quarters, ... then single ones, as long as it recurs."""
        steps, out = [step.number for step in draw(seed, kind).steps], []
        until, part = time.monotonic() + SHRINK_SECONDS, max(1, len(steps) // 2)
        while True:
            for begin in range(0, len(steps), part):
                some = [number for number in steps[begin:begin + part] if number not in out]
                if time.monotonic() > until:
                    return tuple(out)
                if some and self.recurs(seed, kind, tuple(out + some)):
                    out += some
            if part == 1:
                return tuple(out)
            part //= 2

    def recurs(self, seed, kind, left_out):
        for _ in range(SHRINK_TRIES):
            try:
                self.perform(seed, kind, left_out)
            except Wrong:
                return True
        return False
