"""Real nexard processes: each with its own state directory, sockets and network namespace."""
import contextlib
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

from . import carriers
from .delays import Stopper
from .network import Network
from .system import die_with_parent, enter

PORT = 7654
START_SECONDS = 20
# How much later a thing may be noticed on a busy machine. Every bound from above has this much room.
BUSY = 4.0
# Short, so that the tests are; the failure tests state their deadlines in terms of these.
HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT = 0.2, 1.0
COLLECTIVE_TIMEOUT = 15.0  # not short: a test may wait for a state while an operation is pending, on a busy machine
SETTINGS = {
    "NEXAR_HEARTBEAT_INTERVAL_SECS": str(HEARTBEAT_INTERVAL),
    "NEXAR_HEARTBEAT_TIMEOUT_SECS": str(HEARTBEAT_TIMEOUT),
    "NEXAR_COLLECTIVE_TIMEOUT_SECS": str(COLLECTIVE_TIMEOUT),
    "NEXAR_DRAIN_TIMEOUT_SECS": "3",
    "NEXAR_LOG_LEVEL": "debug",
}


class Refused(Exception):
    """The daemon answered a request on the admin socket with an error: args are (name, text)."""


def eventually(condition, what, seconds=START_SECONDS):
    """Waits until condition() is true and returns what it returned; fails, saying what was waited for."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.02)  # sleep: between two looks


def in_place():
    """Whether daemons use memory that their clients make; tests of hostile users say no."""
    return {"NEXAR_MEMFDS_IN_PLACE": os.environ["NEXAR_MEMFDS_IN_PLACE"]}


class Node:
    """One host and its daemon, which may be stopped and started again."""

    def __init__(self, network, number, folder, host=None):
        self.network, self.number, self.host = network, number, host or number
        self.folder = pathlib.Path(folder) / f"node{number}"
        self.folder.mkdir()
        self.state, self.socket, self.admin = (self.folder / name for name in ("state", "nexard.sock", "admin.sock"))
        self.log_file = self.folder / "log"
        self.process, self.expected_dead, self._id, self._stopper = None, True, None, None

    @property
    def endpoint(self):
        return f"{self.network.address(self.host)}:{PORT}"

    def start(self, wait=True, **environment):
        """Starts the daemon; `wait`: until it answers on its admin socket."""
        namespace = self.network.namespace(self.host)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("NEXAR_")}
        command = [os.environ["NEXAR_TEST_NEXARD"], "--config", "/dev/null", "--socket", self.socket,
                   "--admin-socket", self.admin, "--state-dir", self.state, "--listen", self.endpoint]

        def prepare():
            enter(namespace)
            die_with_parent()

        with open(self.log_file, "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env={**inherited, **SETTINGS, **carriers.SETTINGS, **in_place(),
                                                 **environment},
                                            preexec_fn=prepare)
        self.expected_dead = False
        self._stop_at_random()
        if wait:
            eventually(self._answers, f"{self} to answer after its start")
        return self

    def _stop_at_random(self, on=True):
        if self._stopper:
            self._stopper.end()
        self._stopper = Stopper(self.pid) if on else None

    def member_client(self, *arguments):
        """What a client says that speaks to other daemons from this node's place."""
        def prepare():
            enter(self.network.namespace(self.host))
            die_with_parent()

        done = subprocess.run([os.environ["NEXAR_TEST_MEMBER_CLIENT"], *map(str, arguments)], text=True,
                              capture_output=True, timeout=30, preexec_fn=prepare, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise AssertionError(f"member_client ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def _answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self} ended at its start with {self.process.returncode}")
        with contextlib.suppress(OSError):
            return self.ask("config")

    @property
    def pid(self):
        return self.process.pid

    @property
    def id(self):
        """The NodeId, 64 hex digits; known from the first status on, also when the daemon is dead."""
        return self._id or self.status()["node"]

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.end(signal.SIGKILL)

    def end(self, number=signal.SIGTERM, seconds=10):
        """Ends the daemon and returns its exit status."""
        if not self.alive():
            return self.process.returncode if self.process else None
        self.expected_dead = True
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def pause(self):
        self._stop_at_random(False)
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._stop_at_random(False)
        self.process.send_signal(signal.SIGCONT)
        self._stop_at_random()

    def ask(self, command, seconds=20, **arguments):
        """One request on the admin socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(seconds)
            s.connect(str(self.admin))
            s.sendall(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                part = s.recv(65536)
                if not part:
                    raise ConnectionError(f"{self} hung up on '{command}'")
                answer += part
        answer = json.loads(answer)
        if not answer["ok"]:
            raise Refused(answer["error"]["name"], answer["error"]["text"])
        return answer["result"]

    def status(self):
        status = self.ask("status")
        self._id = status["node"]
        return status

    def incarnations_up(self):
        """The peers that it is connected to: {NodeId: its incarnation}."""
        return {peer["node"]: peer["incarnation"] for peer in self.status()["peers"] if peer["state"] == "up"}

    def peers_up(self):
        return set(self.incarnations_up())

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def idle(self):
        """Hardly any processor time in a third of a second."""
        begin, used = time.monotonic(), self.cpu_seconds()
        time.sleep(0.3)  # sleep: the time over which it is measured
        return (self.cpu_seconds() - used) / (time.monotonic() - begin) < 0.1

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def __str__(self):
        return f"node {self.number}"


class Cluster:
    """Nodes numbered from 1, connected; cluster[2] is node 2."""

    def __init__(self, nodes=3, **environment):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nexar-test."))
        self.network, self.nodes, self._environment, self._numbers = Network(), {}, environment, itertools.count(1)
        try:
            self.form(nodes)
        except BaseException:
            self.print_logs()
            self.close()
            raise

    def __getitem__(self, number):
        return self.nodes[number]

    def __iter__(self):
        return iter(self.nodes.values())

    def node(self, host=None):
        """A node that is not started yet. Its number was never used before."""
        number = next(self._numbers)
        self.nodes[number] = Node(self.network, number, self.folder, host)
        return self.nodes[number]

    def form(self, count):
        if count == 0:
            return
        first = self.node().start(NEXAR_INIT_CLUSTER="1", **self._environment)
        if count > 1:
            token = self.token(uses=count - 1)
            for _ in range(count - 1):
                self.node().start(NEXAR_CLUSTER_TOKEN=token, **self._environment)
        self.wait_connected()
        return first

    def token(self, issuer=1, uses=1, lifetime=600):
        return self[issuer].ask("token_create", uses=uses, lifetime_s=lifetime)["token"]

    def alive(self):
        return [node for node in self if node.alive()]

    def wait_connected(self, seconds=START_SECONDS):
        """Until every living node is connected to every other."""
        def connected():
            members = [node for node in self.alive() if not node.expected_dead]
            try:
                present = [(status["node"], status["incarnation"]) for status in (node.status() for node in members)]
                return all(node.incarnations_up().items() | {own} >= set(present) for node, own in zip(members, present))
            except (OSError, KeyError, Refused):
                return False
        eventually(connected, "all nodes to be connected", seconds)

    def crashed(self):
        """Words about daemons that are dead and should not be."""
        return [f"{node} ended with {node.process.returncode}" for node in self
                if node.process and not node.expected_dead and not node.alive()]

    def mend(self):
        """After a test: cables in, everybody running and connected."""
        self.network.heal()
        for node in self:
            if node.alive():
                node.resume()
            elif node.state.exists():
                node.start(**self._environment)
        self.wait_connected()

    def print_logs(self, lines=60):
        for node in self:
            tail = node.log().splitlines()[-lines:]
            print(f"--- {node}, its last {len(tail)} lines:", *tail, sep="\n", flush=True)

    def close(self):
        for node in self:
            if node.alive():
                with contextlib.suppress(ProcessLookupError):
                    node.process.kill()
                node.process.wait(10)
        carriers.count_moves(self)
        self.network.close()
        subprocess.run(["rm", "-rf", self.folder], check=False)
