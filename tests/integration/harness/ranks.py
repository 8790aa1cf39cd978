"""Processes of an application: each is forked from the test (so that numpy is loaded once), opens a session of its
own at its node's daemon, runs a function, and sends back what it returned or how it failed.
"""
import contextlib
import dataclasses
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
import traceback

import nexar

from . import delays
from .system import die_with_parent, enter, exit_normally

RESULT_SECONDS = 30
SECRET = "the secret of all tests"
_jobs = 0


@dataclasses.dataclass(frozen=True)
class Failure:
    """A nexar.Error, as a value. `at`: when it came, by the monotonic clock, which all processes share."""
    name: str
    rank: int | None
    other_rank: int | None
    node: str | None
    op: str
    text: str
    error: nexar.Error = dataclasses.field(compare=False)
    at: float = dataclasses.field(compare=False, default=0)

    @property
    def cause(self):
        """What has to be the same on every survivor."""
        return self.name, self.rank, self.other_rank, self.node


def _send(fd, what):
    data = pickle.dumps(what)
    data = struct.pack("<I", len(data)) + data
    while data:
        data = data[os.write(fd, data):]


def environment_of(node, rank, size, name, secret=SECRET):
    return {"NEXAR_SOCKET": str(node.socket), "NEXAR_RANK": str(rank), "NEXAR_WORLD_SIZE": str(size),
            "NEXAR_GROUP": name, "NEXAR_JOB_SECRET": secret}


def program(node, variable, *arguments, rank=0, size=1, group="programs"):
    """Starts the program that an environment variable of this test names, as a rank on a node; output in pipes."""
    def prepare():
        enter(node.network.namespace(node.host))
        die_with_parent()

    started = subprocess.Popen([os.environ[variable], *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, preexec_fn=prepare,
                               env={**os.environ, **environment_of(node, rank, size, group)})
    Job.open_programs.append(started)
    return started


class Me:
    """What the function in the process gets: who it is, and the line to the test."""

    def __init__(self, node, rank, size, name, secret, wire_in, wire_out):
        self.node, self.rank, self.size, self.name, self.secret = node, rank, size, name, secret
        self._in, self._out = wire_in, wire_out

    def session(self, **options):
        return nexar.Session(self.node.socket, **options)

    def group(self, session=None, **options):
        """The job's group."""
        given = {"name": self.name, "size": self.size, "rank": self.rank, "job_secret": self.secret, "timeout": 10,
                 **options}
        return (session or self.session()).group(**given)

    def mark(self, what=None):
        """Reports to the test that this process has come here."""
        delays.step()
        _send(self._out, ("mark", what))
        delays.step()

    def wait_for_go(self, seconds=RESULT_SECONDS):
        if not select.select([self._in], [], [], seconds)[0]:
            raise TimeoutError("the test never released this rank")
        os.read(self._in, 1)
        delays.step()

    @staticmethod
    def stay():
        """Does nothing, until the test ends this process."""
        time.sleep(60)  # sleep: until the test kills this process

    def is_released(self):
        """Whether the test has released this rank, without waiting for it."""
        return bool(select.select([self._in], [], [], 0)[0])

    @staticmethod
    def failure(error):
        return Failure(error.name, error.rank, error.other_rank, error.node, error.op, error.text, error,
                       time.monotonic())

    def fails(self, function, *arguments, **named):
        """The Failure of a call that must fail."""
        try:
            result = function(*arguments, **named)
        except nexar.Error as error:
            return self.failure(error)
        raise AssertionError(f"{function.__name__} should have failed, and returned {result!r}")


class Rank:
    """One such process, seen from the test."""

    def __init__(self, node, function, arguments, rank, size, name, secret):
        self.node, self.rank, self.size, self.name = node, rank, size, name
        in_out, in_in = os.pipe()
        out_out, out_in = os.pipe()
        self._to, self._from, self._buffer, self._ended, self.status = in_in, out_out, b"", None, None
        self._marks = []
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(in_in)
            os.close(out_out)
            self._child(function, arguments, in_out, out_in, secret)
        os.close(in_out)
        os.close(out_in)

    def _child(self, function, arguments, wire_in, wire_out, secret):
        code = 1
        try:
            die_with_parent()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            enter(self.node.network.namespace(self.node.host))
            os.environ.update(environment_of(self.node, self.rank, self.size, self.name, secret))
            me = Me(self.node, self.rank, self.size, self.name, secret, wire_in, wire_out)
            delays.in_rank(self.name, self.rank)
            try:
                outcome = ("value", function(me, *arguments))
            except nexar.Error as error:
                outcome = ("failure", me.failure(error))
            except BaseException as error:
                kind = AssertionError if isinstance(error, AssertionError) else RuntimeError
                outcome = ("broken", traceback.format_exc(), kind)
            _send(wire_out, outcome)
            delays.step()
            code = 0
        finally:
            sys.stdout.flush()
            if code == 0:
                exit_normally()  # not os._exit: the library says goodbye at a normal end, and only then
            os._exit(code)

    def _read(self, until):
        """The next message of the process; None when it has ended without another."""
        while True:
            if len(self._buffer) >= 4:
                size = 4 + struct.unpack_from("<I", self._buffer)[0]
                if len(self._buffer) >= size:
                    message, self._buffer = pickle.loads(self._buffer[4:size]), self._buffer[size:]
                    return message
            if not select.select([self._from], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError(f"{self} reported nothing in time: it hangs")
            part = os.read(self._from, 1 << 20)
            if not part:
                return None
            self._buffer += part

    def await_mark(self, seconds=RESULT_SECONDS):
        message = self._read(time.monotonic() + seconds)
        if message is None:
            raise AssertionError(f"{self} died")
        if message[0] != "mark":
            raise AssertionError(f"{self} ended before its mark: {message[1]}")
        return message[1]

    def go(self):
        delays.step()
        os.write(self._to, b"g")

    def outcome(self, seconds=RESULT_SECONDS):
        """What the function returned, or the Failure that it ended with."""
        delays.step()
        until = time.monotonic() + seconds
        while self._ended is None:
            message = self._read(until)
            if message is None:
                raise AssertionError(f"{self} died (status {self.join()})")
            if message[0] != "mark":
                self._ended = message
        self.join()
        if self._ended[0] == "broken":
            raise self._ended[2](f"{self}: {self._ended[1]}")
        return self._ended[1]

    def kill(self, number=signal.SIGKILL):
        delays.step()
        os.kill(self.pid, number)

    def join(self):
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._to)
            os.close(self._from)
        return self.status

    def dispose(self):
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.join()

    def __str__(self):
        return f"rank {self.rank} on {self.node} (pid {self.pid})"


class Job:
    """One process per entry of `placement` (nodes, in rank order), all running function(me, *arguments)."""
    open_jobs, open_programs = [], []

    def __init__(self, placement, function, *arguments, name=None, secret=SECRET, without=()):
        """without: ranks that somebody else starts."""
        global _jobs
        _jobs += 1
        self.name = name or f"job{_jobs}"
        self.ranks = {}
        Job.open_jobs.append(self)
        for rank, node in enumerate(placement):
            if rank not in without:
                self.ranks[rank] = Rank(node, function, arguments, rank, len(placement), self.name, secret)

    def __getitem__(self, rank):
        return self.ranks[rank]

    def await_marks(self, seconds=RESULT_SECONDS):
        return [rank.await_mark(seconds) for rank in self.ranks.values()]

    def go(self, *ranks):
        for rank in ranks or self.ranks:
            self.ranks[rank].go()

    def outcomes(self, *ranks, seconds=RESULT_SECONDS):
        until = time.monotonic() + seconds
        return [self.ranks[rank].outcome(max(0.1, until - time.monotonic())) for rank in ranks or self.ranks]

    @staticmethod
    def dispose_all():
        for job in Job.open_jobs:
            for rank in job.ranks.values():
                rank.dispose()
        for started in Job.open_programs:
            if started.poll() is None:
                started.kill()
            if not started.stdout.closed:  # its output was not read to the end
                started.communicate()
        Job.open_jobs.clear()
        Job.open_programs.clear()


def run(placement, function, *arguments, seconds=RESULT_SECONDS, **named):
    """The values of a job in which nobody fails."""
    outcomes = Job(placement, function, *arguments, **named).outcomes(seconds=seconds)
    for rank, outcome in enumerate(outcomes):
        if isinstance(outcome, Failure):
            raise AssertionError(f"rank {rank} failed: {outcome}")
    return outcomes
