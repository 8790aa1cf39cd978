"""A private cluster for tests: daemons of the ordinary user, in a temporary folder, on addresses of the loopback device.

    import nexar.testing

    def work(group, factor):
        return group.all_reduce(group.rank * factor)

    with nexar.testing.cluster(nodes=2, ranks=4) as cluster:
        assert cluster.run(work, 10) == [60, 60, 60, 60]

Everything is gone at the end: processes, sockets and files; also if the test process is killed, but for the files.
"""
from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import nexar

START_SECONDS = 30
END_SECONDS = 5  # for a process that has returned its value
_PORTS = range(10_000, 30_000)  # a daemon of the host may have 7654 on all addresses; the kernel gives others to connections
_ATTEMPTS = 5  # at addresses that nobody else uses
_NODES_MAX, _RANKS_MAX = 200, 4096
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class RankFailed(Exception):
    """A rank's function raised, its process ended, its value cannot be pickled, or it took too long. rank: which, the lowest of
    them; of ranks that took too long, one that others wait for in a collective, where there is one."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(rank, text)
        self.rank, self.text = rank, text

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.text}"


class _NotThere(RuntimeError):
    """The daemon ended at its start."""


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Node:
    """A daemon. address: of the loopback device, with its port; socket, admin_socket, log_file: paths."""

    def __init__(self, number: int, folder: pathlib.Path, address: str) -> None:
        self.number, self.address, self.folder = number, address, folder / f"node{number}"
        self.folder.mkdir()
        self.socket, self.admin_socket, self.log_file = (str(self.folder / name) for name in ("socket", "admin", "log"))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, program: str, **settings: str) -> None:
        """settings: NEXAR_... variables of the daemon."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("NEXAR_")}
        command = [program, "--config", "/dev/null", "--socket", self.socket, "--admin-socket", self.admin_socket,
                   "--state-dir", str(self.folder / "state"), "--listen", f"{self.address}"]
        with open(self.log_file, "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                             env={**inherited, **settings}, preexec_fn=_end_with_parent)
        _eventually(self._answers, f"nexard at {self.address} did not answer")

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise _NotThere(f"nexard at {self.address} ended: {self.log()}")
        with contextlib.suppress(OSError):
            self.ask("config")
            return True
        return False

    def ask(self, command: str, **arguments: Any) -> Any:
        """A request on the admin socket, as nexarctl makes them (docs/operations.md)."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(START_SECONDS)
            connection.connect(self.admin_socket)
            connection.sendall(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
            answer = json.loads(connection.makefile().readline())
        if not answer["ok"]:
            raise RuntimeError(f"{command}: {answer['error']}")
        return answer["result"]

    def log(self) -> str:
        """What it has logged until now."""
        return pathlib.Path(self.log_file).read_text(errors="replace")

    def kill(self) -> None:
        """As a power cut: the ranks on it lose their session, the others get PEER_LOST."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """As `systemctl stop`: with SIGTERM, and after 5 s with SIGKILL. Nothing happens if it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()


class Cluster:
    """nodes: its daemons. ranks: how many processes run() starts, in blocks on the nodes: the first ones on node 0."""

    def __init__(self, nodes: list[Node], ranks: int) -> None:
        self.nodes, self.ranks = nodes, ranks
        self._secret, self._jobs = secrets.token_hex(16), 0

    def node_of(self, rank: int) -> Node:
        """The one that the rank runs on. ValueError, TypeError: there is no such rank."""
        rank = _number_of("rank", rank, 0, self.ranks - 1, f"an integer, 0 to {self.ranks - 1}")
        return self.nodes[rank * len(self.nodes) // self.ranks]

    def environment(self, rank: int, group: str = "test") -> dict[str, str]:
        """The variables of a process that is this rank: for programs that the test starts itself."""
        return {"NEXAR_SOCKET": self.node_of(rank).socket, "NEXAR_RANK": str(rank), "NEXAR_WORLD_SIZE": str(self.ranks),
                "NEXAR_GROUP": group, "NEXAR_JOB_SECRET": self._secret}

    def run(self, function: Callable[..., Any], *arguments: Any, timeout: float = 60) -> list[Any]:
        """What function(group, *arguments) returned, by rank, each in a process of its own that is forked from this one.

        RankFailed if one fails; after `timeout` seconds those that have not ended are killed."""
        self._jobs += 1
        fork = multiprocessing.get_context("fork")
        pipes, processes = [], []
        for rank in range(self.ranks):
            ours, theirs = fork.Pipe()
            environment = self.environment(rank, f"test {self._jobs}")
            processes.append(fork.Process(target=_run_rank, args=(theirs, environment, function, arguments)))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        try:
            until = time.monotonic() + timeout
            outcomes = [_outcome(pipe, until) for pipe in pipes]
            if any(kind == "late" for kind, _ in outcomes):
                self._find_awaited(outcomes)
            for pipe, (kind, _) in zip(pipes, outcomes):
                if kind == "value":
                    pipe.send(None)
            for process, (kind, _) in zip(processes, outcomes):
                process.join(END_SECONDS if kind == "value" else 0)
            return _values(outcomes)
        finally:
            for process in processes:
                process.kill()
                process.join()


    def _find_awaited(self, outcomes: list[Outcome]) -> None:
        """Of the ranks that are late, those that did not come to a collective of the job, as the daemons see it: the others only wait."""
        for node in self.nodes:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # it may not run any more
                for op in node.ask("ops")["ops"]:
                    awaited = {each["rank"] for each in op["missing"]} if op["group"] == f"test {self._jobs}" else set()
                    for rank in awaited.intersection(rank for rank, (kind, _) in enumerate(outcomes) if kind == "late"):
                        waiting = f"rank{'s' * (op['arrived_count'] > 1)} {', '.join(map(str, op['arrived']))} wait for it in {op['op'].split()[0]}"
                        outcomes[rank] = "awaited", f"{outcomes[rank][1]}: {waiting}"


Outcome = tuple[str, Any]  # ("value", it), or "failed", "late" or "awaited", and why


def _run_rank(pipe: Any, environment: dict[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    _end_with_parent()
    os.environ.update(environment)
    try:
        with nexar.Session() as session, session.group() as group:
            value = function(group, *arguments)
            group.barrier()  # so that no rank leaves while another one needs it
        outcome: Outcome = "value", value
    except BaseException:
        outcome = "failed", traceback.format_exc()
    try:
        pipe.send(outcome)
    except Exception as error:  # whatever the value's own methods raise
        pipe.send(("failed", f"its value cannot be pickled: {type(error).__name__}: {error}"))
    with contextlib.suppress(EOFError):
        pipe.recv()  # the others may still need this process: it ends when all have


def _outcome(pipe: Any, until: float) -> Outcome:
    if not multiprocessing.connection.wait([pipe], max(0.0, until - time.monotonic())):
        return "late", "it took too long, and was killed"
    try:
        kind, value = pipe.recv()
        return kind, value
    except EOFError:
        return "failed", "its process ended"


def _values(outcomes: list[Outcome]) -> list[Any]:
    """A rank that waited for another one is not the first to name."""
    for bad in ("failed", "awaited", "late"):
        failed = [(rank, text) for rank, (kind, text) in enumerate(outcomes) if kind == bad]
        causes = [each for each in failed if "GroupError" not in each[1].splitlines()[-1]] or failed
        if causes:
            raise RankFailed(*causes[0])
    return [value for _, value in outcomes]


def _eventually(condition: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(otherwise)
        time.sleep(0.02)  # sleep: between two looks


def _program(given: str | None) -> str:
    named = given or os.environ.get("NEXAR_NEXARD")
    prefix = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../..")
    library = os.path.dirname(_path_of_library())
    tried = [named] if named else [*(os.path.normpath(f"{folder}/nexard") for folder in (
        f"{prefix}/sbin", f"{prefix}/bin", f"{library}/../sbin", f"{library}/../../sbin")),
        shutil.which("nexard") or "nexard in PATH", "/usr/sbin/nexard", "/usr/local/sbin/nexard"]
    for name in tried:
        if os.access(name, os.X_OK) and not os.path.isdir(name):
            return name
    raise FileNotFoundError(f"nexard is not there: give its path as nexard=, or in NEXAR_NEXARD; tried: {', '.join(tried)}")


class _Place(ctypes.Structure):
    """Dl_info of dladdr(3)."""
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def _path_of_library() -> str:
    """Of the libnexar_c that is loaded: the loader may have found it."""
    place = _Place()
    _libc.dladdr(ctypes.cast(nexar._library.lib.nexar_version, ctypes.c_void_p), ctypes.byref(place))
    return os.path.abspath(os.fsdecode(place.file or b""))


def _form(nodes: list[Node], program: str, settings: dict[str, str]) -> None:
    nodes[0].start(program, NEXAR_INIT_CLUSTER="1", **settings)
    if len(nodes) == 1:
        return
    token = nodes[0].ask("token_create", uses=len(nodes) - 1, lifetime_s=600)["token"]
    for node in nodes[1:]:
        node.start(program, NEXAR_CLUSTER_TOKEN=token, **settings)
    names = {node.ask("status")["node"] for node in nodes}

    def connected() -> bool:
        states = [node.ask("status") for node in nodes]
        return all({peer["node"] for peer in state["peers"] if peer["state"] == "up"} | {state["node"]} >= names
                   for state in states)

    _eventually(connected, "the nodes did not connect")


def _check_settings(program: str, settings: dict[str, str]) -> None:
    """ValueError: the daemon has no such variable, or refuses its value."""
    known = re.findall(r"NEXAR_\w+", subprocess.run([program, "--help"], capture_output=True, text=True, timeout=START_SECONDS).stdout)
    for name in settings:
        if name not in known:
            raise ValueError(f"{name} is no setting of nexard; allowed: {', '.join(sorted(set(known)))}")
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("NEXAR_")}, **settings}
    checked = subprocess.run([program, "--config", "/dev/null", "--check-config"], env=environment, capture_output=True, text=True,
                             timeout=START_SECONDS)
    if checked.returncode != 0:
        raise ValueError(checked.stderr.strip())


def _number_of(what: str, value: Any, low: int, high: int, allowed: str) -> int:
    number = nexar._library.integer(value, what, allowed)
    if isinstance(value, bool):
        raise TypeError(f"{what} is {value}; allowed: {allowed}")
    if not low <= number <= high:
        raise ValueError(f"{what} is {number}; allowed: {allowed}")
    return number


@contextlib.contextmanager
def cluster(nodes: int = 1, ranks: int = 1, *, nexard: str | None = None, **given: Any) -> Iterator[Cluster]:
    """Starts `nodes` daemons and connects them; at the end removes all. given: variables of the daemons (nexard --help), as
    NEXAR_HEARTBEAT_TIMEOUT_SECS=1. nexard: the program; None: $NEXAR_NEXARD, or where it is installed: beside the package
    or the loaded library, in PATH, in /usr.

    ValueError: no nodes, or fewer ranks than nodes (TypeError: they are no integers); a variable that nexard lacks, or whose value it refuses. FileNotFoundError: no
    nexard. RuntimeError: a daemon ended at its start. TimeoutError: they did not connect."""
    nodes = _number_of("nodes", nodes, 1, _NODES_MAX, f"an integer, 1 to {_NODES_MAX}")
    ranks = _number_of("ranks", ranks, nodes, _RANKS_MAX, f"an integer, {nodes} (one for each node) to {_RANKS_MAX}")
    program = _program(nexard)
    settings = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    if settings:
        _check_settings(program, settings)
    for attempt in range(_ATTEMPTS):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="nexar-"))
        network = f"127.{random.SystemRandom().randrange(1, 255)}.{random.SystemRandom().randrange(256)}"
        port = random.SystemRandom().choice(_PORTS)
        members = [Node(number, folder, f"{network}.{number + 1}:{port}") for number in range(nodes)]
        try:
            try:
                _form(members, program, settings)
            except _NotThere:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            yield Cluster(members, ranks)
            return
        finally:
            for node in members:
                node.stop()
            shutil.rmtree(folder, ignore_errors=True)
