"""A member that lies: it has the certificate of a node whose daemon has ended, and sends what the test asks for.

The messages are those of proto/wire.capnp, as dictionaries: {"groupQuery": {"group": {...}}}. 64-bit numbers come as
text, as in every JSON of Cap'n Proto; bytes are lists of numbers, and `bytes` will do for sending.
"""
import hashlib
import json
import os
import re
import struct
import subprocess
import threading
import time

from .proofs import group_key, tag
from .system import die_with_parent, enter

ANSWER_SECONDS = 30


class Ended(Exception):
    """The daemon closed the connection that was to be used."""


def kinds():
    """({kinds of messages}, {kinds of frames}) that there are, from the schema and from the rules of frames."""
    lines = subprocess.run([os.environ["NEXAR_TEST_HOSTILE_MEMBER"], "--types"], check=True, capture_output=True,
                           text=True, timeout=30).stdout.split("\n")
    return ({line[8:] for line in lines if line.startswith("message ")},
            {int(line[6:]) for line in lines if line.startswith("frame ")})


def local_group_key(name, node, uid):
    """Of a group without a secret: nothing in it is unknown to other nodes."""
    return hashlib.sha256(b"nexar-local-v2" + bytes.fromhex(node) + struct.pack("<II", uid, 0) + bytes(8) + name.encode()).digest()


def members(*ranks, nonces=None):
    """The schema's table of members from (NodeId, incarnation or None, request number, pid), in rank order. nonces: by
    NodeId, those that are not zero."""
    nodes = list(dict.fromkeys((node, own) for node, own, _, _ in ranks))
    return {"nodes": [bytes.fromhex(node) for node, _ in nodes],
            "incarnations": [{"counter": own[0], "nonce": own[1]} if own else {} for _, own in nodes],
            "features": [0] * len(nodes), "nonces": [bytes((nonces or {}).get(node, bytes(16))) for node, _ in nodes],
            "list": [{"number": number, "rank": rank, "pid": pid, "node": nodes.index((node, own)),
                      "origin": nodes.index((node, own))} for rank, (node, own, number, pid) in enumerate(ranks)]}


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, int) and abs(value) >> 53:
        return str(value)  # the codec reads numbers as doubles
    return list(value) if isinstance(value, bytes) else value


class HostileMember:
    PLAN = {"version": 1, "smallBytesMax": 65536, "doublingBytesMax": 16384, "chunkBytes": 65536,
            "segmentBytes": 1 << 20, "lanes": 1, "bulkShards": 1}

    def __init__(self, node, counter=1_000_000):
        """node: whose place it takes; its daemon has been started once, and has ended or is killed now."""
        self.node, self._counter = node, counter
        self.id = node.id
        if node.alive():
            node.kill()
        self.start()

    def start(self):
        """In a new incarnation."""
        self._counter += 1
        self.lines, self._news, self._names = [], threading.Condition(), {}

        def prepare():
            enter(self.node.network.namespace(self.node.host))
            die_with_parent()

        self.process = subprocess.Popen(
            [os.environ["NEXAR_TEST_HOSTILE_MEMBER"], str(self.node.state), str(self._counter)], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=prepare)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        words = self.await_line("self ").split()
        self.incarnation = int(words[2]), int(words[3])

    def close(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _read(self):
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self.lines.append("the program ended")
            self._news.notify_all()

    def await_any(self, starts, since=0, seconds=ANSWER_SECONDS):
        """(index, line) of the first line from `since` on that starts with one of these."""
        end = time.monotonic() + seconds
        with self._news:
            at = since
            while True:
                for at in range(at, len(self.lines)):
                    if self.lines[at].startswith(tuple(starts)):
                        return at, self.lines[at]
                at = len(self.lines)
                if self.lines and self.lines[-1] == "the program ended":
                    raise AssertionError(f"hostile_member ended: {self.lines[-5:]}")
                if not self._news.wait(max(0, end - time.monotonic())) and time.monotonic() > end:
                    raise AssertionError(f"waited {seconds} s for {starts} of hostile_member: {self.lines[-5:]}")

    def await_line(self, start, since=0, seconds=ANSWER_SECONDS):
        return self.await_any([start], since, seconds)[1]

    def do(self, command):
        """One command of hostile_member.cpp; returns where its lines begin. Raises Ended when the daemon hung up."""
        since = len(self.lines)
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.await_any(["done", "error "], since, 60)[1]
        if "ended" in answer:
            raise Ended(answer)
        if answer != "done":
            raise AssertionError(f"hostile_member, {command[:200]}: {answer}")
        return since

    # ---- Connections

    def connect(self, to, port=None):
        """A QUIC connection to a node with nothing on it; returns its name."""
        name = f"c{sum(len(names) for names in self._names.values())}-{to.number}"
        address = to.endpoint if port is None else f"{to.endpoint.rsplit(':', 1)[0]}:{port}"
        since = self.do(f"connect {name} {address}")
        self._names.setdefault(to.number, []).append(name)
        at, line = self.await_any([f"connected {name} ", f"closed {name} "], since)
        if line.startswith("closed"):
            raise Ended(line)
        return name

    def enter(self, to, **preamble):
        """Becomes a member that the node talks to: preamble (with these fields of hostile_member.cpp), hello, switch."""
        name = self.connect(to)
        since = self.do(" ".join([f"preamble {name} 0", *(f"{field}={value}" for field, value in preamble.items())]))
        self._do_or_say_why(f"hello {name}", name, since)
        for what in ("preamble", "greeted", "switched"):
            line = self.await_any([f"{what} {name}", f"closed {name} "], since)[1]
            if line.startswith("closed"):
                raise Ended(line)
            if what == "preamble":
                to.incarnation = tuple(int(word) for word in line.split()[2:4])
            if what == "greeted":
                self._do_or_say_why(f"switch {name}", name, since)
        return name

    def _do_or_say_why(self, command, name, since):
        """A command on a connection that the daemon may have closed by now: then its reason is raised."""
        try:
            self.do(command)
        except Ended:
            raise Ended(self.await_line(f"closed {name} ", since)) from None

    def name_of(self, to):
        """Of the last connection to a node."""
        return self._names[to.number][-1]

    def enter_again(self, to, seconds=10):
        """After the node hung up. When it holds this incarnation for ended, in the next one: all connections are new."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.enter(to)
            except Ended:
                if time.monotonic() > end:
                    raise
                self.close()
                self.start()

    # ---- Words

    def say(self, to, kind, /, **fields):
        self.do(f"say {self.name_of(to)} {json.dumps(_plain({kind: fields}))}")

    def learn(self, kind, /, **fields):
        self.do(f"learn {json.dumps(_plain({kind: fields}))}")

    def received(self, to, kind, since=0, seconds=ANSWER_SECONDS, where=lambda message: True):
        """The next message of this kind from a node (as it calls this connection): (index, fields)."""
        end = time.monotonic() + seconds
        while True:
            at, line = self.await_any([f"message {self.name_of(to)} "], since, max(0, end - time.monotonic()))
            message = json.loads(line.split(" ", 2)[2])
            if kind in message and where(message[kind]):
                return at, message[kind]
            since = at + 1

    def all_received(self, to, kind, since=0):
        start = f"message {self.name_of(to)} "
        messages = (json.loads(line[len(start):]) for line in self.lines[since:] if line.startswith(start))
        return [message[kind] for message in messages if kind in message]

    # ---- A group that it is really in

    def join_group(self, leader, name, secret, size, rank, features=0):
        """Opens a group as an honest node would, led by another; the leader's prepare, when it is made. A new
        incarnation has no connection to the leader yet."""
        if leader.number not in self._names:
            self.enter(leader)
        self._requests = getattr(self, "_requests", self._counter << 32) + 1
        since = len(self.lines)
        self.say(leader, "groupOpen", id={"origin": bytes.fromhex(self.id), "number": self._requests},
                 key=group_key(name, secret), name=name, size=size, rank=rank, pid=os.getpid(),
                 incarnation={"counter": self.incarnation[0], "nonce": self.incarnation[1]}, features=features,
                 nonce=os.urandom(16))
        _, prepare = self.received(leader, "groupPrepare", since)
        self.say(leader, "groupPrepared", group=prepare["group"], tag=tag(prepare, secret, self.id, self.incarnation))
        self.received(leader, "groupCommit", since, where=lambda message: message["group"] == prepare["group"])
        return prepare


def position_of(line):
    """In "lied NEXT WHAT": (NEXT, WHAT)."""
    found = re.fullmatch(r"lied (\d+) (.*)", line, re.DOTALL)
    return int(found[1]), found[2]
