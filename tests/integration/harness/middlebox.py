"""What stands in the way of TCP: a process on a host to which connections to one port of it are redirected, and which passes
them on, but for what it is to do to them.

    dialler ── switch ── [middlebox ── daemon]      "forth": from the dialler to the daemon, "back": the other way
"""
import contextlib
import mmap
import os
import random
import signal
import socket
import struct
import threading
import time

from .system import die_with_parent, enter, run_in

PIECE = 65536
FOREVER = 10**9


class Redirected:
    """A process to which a host's connections to a port are redirected: what _serve() makes of them."""

    def __init__(self, network, host, port):
        self._namespace, self._port, self._through = network.namespace(host), port, port + 2000
        self._address, self._lock = network.address(host), threading.Lock()
        self._done = mmap.mmap(-1, 8)  # shared with the process: how many connections it has done it to
        self._done[:] = bytes(8)
        ready_out, ready_in = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            with contextlib.suppress(BaseException):
                die_with_parent()
                enter(self._namespace)
                self._serve(ready_in)
            os._exit(1)
        os.close(ready_in)
        if os.read(ready_out, 1) != b"y":
            raise AssertionError("the middlebox did not start")
        os.close(ready_out)
        run_in(self._namespace, "nft", "table ip middlebox { chain in { type nat hook prerouting priority -100; "
                                       f"tcp dport {port} redirect to :{self._through}; }}; }}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        run_in(self._namespace, "nft", "delete table ip middlebox")
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    @property
    def done(self):
        return struct.unpack("<Q", self._done[:])[0]

    # ---- In its process

    def _count(self):
        with self._lock:
            self._done[:] = struct.pack("<Q", self.done + 1)


class Middlebox(Redirected):
    """how: "swallow" accepts and never reads; "stall" reads no more of one direction after some bytes; "half" ends one
    direction; "cut" resets both. After how many bytes, up to `most`, each connection has from the seed."""

    def __init__(self, network, host, port, how, direction="forth", most=0, seed=1):
        self._how, self._direction, self._most = how, direction, most
        self._random = random.Random(f"{seed} {how} {direction}")
        super().__init__(network, host, port)

    def _serve(self, ready):
        listener = socket.create_server((self._address, self._through), backlog=64)
        os.write(ready, b"y")
        held = []
        while True:
            dialler, _ = listener.accept()
            if self._how == "swallow":
                held.append(dialler)
                self._count()
                continue
            daemon = socket.create_connection((self._address, self._port))
            after, cut = self._random.randint(0, self._most), self._how == "cut"
            for direction, source, sink in (("forth", dialler, daemon), ("back", daemon, dialler)):
                limit = after if cut or direction == self._direction else FOREVER**2
                threading.Thread(target=self._pass, args=(source, sink, limit), daemon=True).start()

    def _pass(self, source, sink, limit):
        passed = 0
        with contextlib.suppress(OSError):
            while passed < limit:
                part = source.recv(min(PIECE, limit - passed))
                if not part:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(part)
                passed += len(part)
            self._count()
            if self._how == "half":
                sink.shutdown(socket.SHUT_WR)
            if self._how == "cut":
                for each in (source, sink):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    each.shutdown(socket.SHUT_RD)  # wakes the other direction's thread
                    each.close()
                return
            while True:
                time.sleep(FOREVER)  # sleep: it reads no more
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.close()
