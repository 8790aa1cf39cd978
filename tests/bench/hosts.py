"""A cluster of one build's daemons, each on a host of its own (a network namespace), and jobs on it, also such that
know nothing of daemons.

The namespaces are those of the integration tests (tests/integration/harness/network.py).
"""
import collections
import contextlib
import itertools
import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import types

# Without the package's own __init__, which loads numpy and one build's library.
_harness = types.ModuleType("harness")
_harness.__path__ = [str(pathlib.Path(__file__).resolve().parents[1] / "integration/harness")]
sys.modules.setdefault("harness", _harness)
from harness.network import Network  # noqa: E402
from harness.system import die_with_parent, enter, need_namespaces  # noqa: E402

PORT = 7654
START_SECONDS = 30
END_SECONDS = 10
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("NEXAR_")}


Process = collections.namedtuple("Process", "host command environment")


class Failed(Exception):
    """A daemon or a rank did not do what was asked; the text says which."""


class Used(collections.namedtuple("Used", "user kernel", defaults=(0.0, 0.0))):
    """Processor seconds."""

    @classmethod
    def by(cls, pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return cls(*(int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:13]))

    def __add__(self, other):
        return Used(self.user + other.user, self.kernel + other.kernel)

    def __sub__(self, other):
        return Used(self.user - other.user, self.kernel - other.kernel)

    def percent_of(self, seconds):
        """(user, kernel) of one processor."""
        return tuple(max(0.0, part / seconds * 100) for part in self)


class Cluster:
    """with Cluster(build, hosts=2) as cluster: cluster.run([...], ranks=2)

    `pinned`: what runs on a host has one processor, the hosts in turn. Where hosts share few processors, which of
    the threads share one decides much of a small operation, and the kernel draws it anew each time.
    """

    def __init__(self, build, hosts, pinned=False, settings=None, model=None):
        """settings: variables of all daemons; model: the content of their file plan_model."""
        need_namespaces()
        self.build, self.hosts = build, range(1, hosts + 1)
        self._settings, self._model = settings or {}, model
        self._processors = sorted(os.sched_getaffinity(0)) if pinned else []
        self._daemons, self._jobs = {}, itertools.count(1)
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="nexar-bench."))
        self._network = Network()

    def __enter__(self):
        try:
            self._start(1, NEXAR_INIT_CLUSTER="1")
            self._await(lambda: self._peers_up(1) is not None, "host 1's daemon to answer")
            if len(self.hosts) > 1:
                token = self._ctl(1, "token", "create", "--uses", str(len(self.hosts) - 1)).strip()
                for host in self.hosts[1:]:
                    self._start(host, NEXAR_CLUSTER_TOKEN=token)
            self._await(self._connected, "every daemon to be connected to every other")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for daemon in self._daemons.values():
            daemon.terminate()
        for daemon in self._daemons.values():
            _end(daemon)
        self._network.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, host, name):
        return self._folder / str(host) / name

    def _spawn(self, host, command, environment, uid=None, stdin=subprocess.DEVNULL, **streams):
        namespace = self._network.namespace(host)

        def prepare():
            enter(namespace)
            if self._processors:
                os.sched_setaffinity(0, {self._processors[(host - 1) % len(self._processors)]})
            if uid is not None:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            die_with_parent()
        return subprocess.Popen([str(word) for word in command], env={**CLEAN, **environment}, preexec_fn=prepare,
                                stdin=stdin, **streams)

    def _open_to_all(self):
        """Other users may come to the sockets."""
        for folder in (self._folder, *(self._path(host, "") for host in self.hosts)):
            os.chmod(folder, 0o755)

    def _start(self, host, **environment):
        self._path(host, "").mkdir()
        command = [self.build.nexard, "--config", "/dev/null", "--socket", self._path(host, "nexard.sock"),
                   "--admin-socket", self._path(host, "admin.sock"), "--state-dir", self._path(host, "state"),
                   "--listen", f"{self._network.address(host)}:{PORT}"]
        if self._model:
            self._path(host, "state").mkdir(mode=0o700)
            (self._path(host, "state") / "plan_model").write_text(self._model)
        with open(self._path(host, "log"), "w") as log:
            self._daemons[host] = self._spawn(host, command, {**self._settings, **environment}, stdout=log, stderr=log)

    def _ctl(self, host, *arguments):
        done = subprocess.run([self.build.nexarctl, "--socket", self._path(host, "admin.sock"), *arguments], env=CLEAN,
                              capture_output=True, text=True, timeout=END_SECONDS, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Failed(f"nexarctl {' '.join(arguments)} at host {host}: {done.stderr.strip()}")
        return done.stdout

    def _peers_up(self, host):
        """How many peers the host's daemon is connected to; None while it does not answer."""
        if self._daemons[host].poll() is not None:
            log = self._path(host, "log").read_text(errors="replace").splitlines()
            raise Failed("\n".join([f"host {host}'s daemon has ended:", *log[-20:]]))
        try:
            peers = json.loads(self._ctl(host, "status", "--json"))["peers"]
        except (Failed, subprocess.TimeoutExpired):
            return None
        return sum(peer["state"] == "up" for peer in peers)

    def _connected(self):
        return all(self._peers_up(host) == len(self.hosts) - 1 for host in self.hosts)

    @staticmethod
    def _await(condition, what):
        end = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > end:
                raise Failed(f"waited {START_SECONDS} s for {what}")
            time.sleep(0.05)  # sleep: between two looks

    def status(self, host):
        return json.loads(self._ctl(host, "status", "--json"))

    def place(self, host):
        """The host as the tests' liar wants it (tests/integration/harness/hostile.py): by its own name, and its daemon."""
        daemon = self._daemons[host]
        return types.SimpleNamespace(
            number=host, host=host, network=self._network, state=self._path(host, "state"), id=self.status(host)["node"],
            endpoint=f"{self._network.address(host)}:{PORT}", alive=lambda: daemon.poll() is None, kill=lambda: _kill(daemon))

    def daemon_pid(self, host):
        return self._daemons[host].pid

    def used_by_daemon(self, host):
        return Used.by(self._daemons[host].pid)

    @contextlib.contextmanager
    def beside(self, commands, uid):
        """Processes of this user at host 1 that have printed a line; until the end of the with statement."""
        self._open_to_all()
        with contextlib.ExitStack() as started:
            processes = []
            for command in commands:
                processes.append(self._spawn(1, command, {"NEXAR_SOCKET": str(self._path(1, "nexard.sock"))}, uid=uid,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                started.callback(_end_beside, processes[-1])
            for process in processes:
                if process.stdout.readline().strip() != b"begun":
                    raise Failed(f"{process.args[1]} did not begin")
            yield processes
            for process in processes:
                if process.poll() is not None:
                    raise Failed(f"{process.args[1]} ended with {process.returncode} before its time")

    def run(self, command, ranks, seconds, capture=True, uid=None, hosts=None):
        """A job of so many ranks on each host, neighbours on one host; what rank 0 printed. Fails when a rank does."""
        if uid is not None:
            self._open_to_all()
        hosts = hosts or self.hosts
        size, group = len(hosts) * ranks, f"bench{next(self._jobs)}"
        common = {"NEXAR_WORLD_SIZE": str(size), "NEXAR_GROUP": group, "NEXAR_JOB_SECRET": secrets.token_hex(24),
                  "NEXAR_LIBRARY": str(self.build.library),
                  "BENCH_DAEMONS": ",".join(str(daemon.pid) for daemon in self._daemons.values())}
        own = [{"NEXAR_RANK": str(rank), "NEXAR_SOCKET": str(self._path(hosts[rank // ranks], "nexard.sock"))}
               for rank in range(size)]
        return self.launch([Process(hosts[rank // ranks], command, {**common, **own[rank]}) for rank in range(size)],
                           seconds, capture, uid)

    def launch(self, processes, seconds, capture=True, uid=None):
        """All of them at once, until they have ended; what they printed. Fails when one does, or is late."""
        with tempfile.TemporaryFile("w+") as output, contextlib.ExitStack() as started:
            running = []
            for host, command, environment in processes:
                running.append(self._spawn(host, command, environment, uid=uid, stdout=output if capture else None))
                started.callback(_kill, running[-1])
            self._await_all(running, seconds)
            output.seek(0)
            return output.read()

    @property
    def network(self):
        return self._network

    @staticmethod
    def _await_all(processes, seconds):
        end = time.monotonic() + seconds
        for rank, process in enumerate(processes):
            try:
                status = process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failed(f"rank {rank} was still running after {seconds:.0f} s") from None
            if status != 0:
                raise Failed(f"rank {rank} ended with {status}")


def _end_beside(process):
    process.stdin.close()
    process.stdout.close()
    process.terminate()
    _end(process)


def _end(process):
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        _kill(process)


def _kill(process):
    if process.poll() is None:
        process.kill()
        process.wait()
