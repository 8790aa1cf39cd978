"""NEXAR_TEST_DELAYS=SEED: random sleeps where a test could rely on an order that nothing ensures: in the ranks at their
beginning, around marks, after a release, before calls of the library, and before their end; in the test before a release, a kill,
and the look at outcomes. NEXAR_TEST_STOPS=1: daemons stand still now and then, too, for much less than HEARTBEAT_TIMEOUT.
"""
import contextlib
import inspect
import os
import random
import signal
import time

import nexar
from nexar._library import lib

from .system import die_with_parent

SEED = os.environ.get("NEXAR_TEST_DELAYS")
STOPS = SEED is not None and os.environ.get("NEXAR_TEST_STOPS") == "1"
BUDGET = 2  # seconds of each process in its calls, so that a test of many calls ends
OF_CALLS, OF_STEPS = (0.12, 0.02), (0.3, 0.06)  # how often a short one, a long one
# They answer by themselves.
QUICK = ("last_error", "status_name", "dtype", "version", "request_test", "perror", "error_", "group_rank", "group_size", "group_epoch",
         "op_", "session_stats", "shard")

_random, _left = random.Random(f"{SEED} test"), [BUDGET]


def _pause(short, long):
    """Seconds that it slept: mostly 0, sometimes up to 0.05, rarely 0.3."""
    chance = _random.random()
    seconds = 0.3 if chance < long else _random.uniform(0, 0.05) if chance < long + short else 0
    if seconds:
        time.sleep(seconds)  # sleep: the seed chooses the moment; right at each
    return seconds


def step():
    """Between two steps of a rank, or of the test."""
    if SEED is not None:
        _pause(*OF_STEPS)


def call():
    """Before a call of the library."""
    if _left[0] > 0:
        _left[0] -= _pause(*OF_CALLS)


class _Delayed:
    """A C function; its argument types are the function's own."""

    def __init__(self, function):
        object.__setattr__(self, "_function", function)

    def __call__(self, *arguments):
        call()
        return self._function(*arguments)

    def __getattr__(self, name):
        return getattr(self._function, name)

    def __setattr__(self, name, value):
        setattr(self._function, name, value)


def _delayed_method(function):
    def delayed(*arguments, **named):
        call()
        return function(*arguments, **named)
    delayed.__name__ = function.__name__
    return delayed


def in_rank(job, rank):
    """Begins a rank's process. The methods are delayed beside the C functions: the quick way calls these by their addresses."""
    global _random
    if SEED is None:
        return
    _random = random.Random(f"{SEED} {job} {rank}")
    for name, function in list(vars(lib).items()):
        if name.startswith("nexar_") and not name.startswith(tuple(f"nexar_{word}" for word in QUICK)):
            setattr(lib, name, _Delayed(function))
    for name, function in inspect.getmembers(nexar.Group, inspect.isfunction):
        if not name.startswith("_") and not inspect.iscoroutinefunction(function):
            setattr(nexar.Group, name, _delayed_method(function))
    step()


class Stopper:
    """A process that stops a daemon now and then, for a moment."""

    def __init__(self, daemon):
        self._pid = None
        if not STOPS:
            return
        seed, fd = _random.random(), os.pidfd_open(daemon)
        self._pid = os.fork()
        if self._pid == 0:
            with contextlib.suppress(ProcessLookupError):
                die_with_parent()
                os.closerange(3, fd)  # the ends of pipes that the test closes
                os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))
                self._stop(random.Random(seed), fd)
            os._exit(0)
        os.close(fd)

    @staticmethod
    def _stop(rng, fd):
        while True:
            time.sleep(rng.uniform(0.3, 3))  # sleep: until the next stop
            signal.pidfd_send_signal(fd, signal.SIGSTOP)
            time.sleep(rng.uniform(0.02, 0.1))  # sleep: the length of the stop
            signal.pidfd_send_signal(fd, signal.SIGCONT)

    def end(self):
        """It sends nothing from now on."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None
