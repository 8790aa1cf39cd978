"""A node whose TCP port for bulk data does harm to who dials it [B1] [B2] [B4] [B8]:

    dialler: ranks 0, 2 ── switch ── [hostile acceptor] acceptor: ranks 1, 3         a third node's daemon has ended

The acceptor has the node's certificate and key where it says so; control stays the honest daemon's. Whatever it does, the dialler
ends that connection in its time, its memory and log do not grow, QUIC carries the bulk data beside it and no result is wrong or late;
once the acceptor has gone, TCP carries again.
"""
import contextlib
import os
import pathlib
import socket
import ssl
import struct
import subprocess

from harness import *
from harness.honest import works
from harness.middlebox import Redirected
from harness.system import run_in

BULK_PORT = PORT + 1
ENDS_SECONDS = 10  # a dial that is not answered is given up before
LOG_LINES_MAX = 120
ANSWER, CLASS_BULK, UNKNOWN = 17, 3, 99


def record(kind, payload, length=None):
    """docs/protocol/tcp.md"""
    return struct.pack("<BBHI", kind, 0, 0, len(payload) if length is None else length) + payload


def closes(sock, certificates):
    sock.close()


def resets(sock, certificates):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def is_mute(sock, certificates):
    drain(sock)


def sends_garbage(sock, certificates):
    sock.sendall(np.random.default_rng(1).bytes(1 << 20))
    drain(sock)


def answers_in_http(sock, certificates):
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    drain(sock)


def handshakes_without_end(sock, certificates):
    """A message of a handshake that says it has 16 MiB, again and again."""
    sock.sendall(b"\x16\x03\x03\x40\x00\x02\xff\xff\xff" + bytes(16380))
    while True:
        sock.sendall(b"\x16\x03\x03\x40\x00" + bytes(16384))


def has_a_foreign_certificate(sock, certificates):
    drain(secured(sock, certificates["foreign"]))


def is_another_node(sock, certificates):
    drain(secured(sock, certificates["other"]))


def speaks_an_old_version(sock, certificates):
    drain(secured(sock, certificates["own"], version=ssl.TLSVersion.TLSv1_2))


def speaks_another_protocol(sock, certificates):
    drain(secured(sock, certificates["own"], alpn="h2"))


def never_answers(sock, certificates):
    drain(secured(sock, certificates["own"]))


def answers_with_a_wrong_proof(sock, certificates):
    stream = secured(sock, certificates["own"])
    stream.recv(4096)
    stream.sendall(record(ANSWER, np.random.default_rng(2).bytes(112)))
    drain(stream)


def reflects(sock, certificates):
    stream = secured(sock, certificates["own"])
    while part := stream.recv(65536):
        stream.sendall(part)


def sends_data_early(sock, certificates):
    stream = secured(sock, certificates["own"])
    stream.sendall(record(CLASS_BULK, bytes(4096)))
    drain(stream)


def announces_too_much(sock, certificates):
    stream = secured(sock, certificates["own"])
    stream.sendall(record(ANSWER, bytes(4096), length=0xffffffff))
    drain(stream)


def writes_without_end(sock, certificates):
    stream = secured(sock, certificates["own"])
    while True:
        stream.sendall(record(UNKNOWN, bytes(112)))


def secured(sock, certificate, version=ssl.TLSVersion.TLSv1_3, alpn="nexar-bulk/2"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = version
    context.num_tickets = 0
    context.set_alpn_protocols([alpn])
    context.load_cert_chain(*certificate)
    return context.wrap_socket(sock, server_side=True)


def drain(sock):
    """Until the dialler has ended it."""
    while sock.recv(65536):
        pass


class HostileAcceptor(Redirected):
    """Does one act to each connection, in turn; done: how many the dialler has ended, in time."""

    def __init__(self, network, host, acts, certificates):
        self._acts, self._certificates = acts, certificates
        super().__init__(network, host, BULK_PORT)

    def _serve(self, ready):
        listener = socket.create_server((self._address, self._through), backlog=64)
        os.write(ready, b"y")
        turn = 0
        while True:
            dialler, _ = listener.accept()
            dialler.settimeout(ENDS_SECONDS + BUSY)
            with dialler, contextlib.suppress(OSError):  # TimeoutError is one: then it has not ended
                self._act(self._acts[turn % len(self._acts)], dialler)
            turn += 1

    def _act(self, act, dialler):
        try:
            act(dialler, self._certificates)
        except TimeoutError:
            raise
        except OSError:
            pass  # by the dialler, or of TLS
        self._count()


def third(cluster):
    """The node whose daemon has ended, and whose key is the acceptor's."""
    if not hasattr(cluster, "third"):
        cluster.third = max(cluster, key=lambda node: node.number)
        cluster.third.kill()
        del cluster.nodes[cluster.third.number]
    return cluster.third


def certificates_of(cluster, acceptor):
    folder = cluster.folder / "foreign"
    if not folder.exists():
        folder.mkdir()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        "/CN=foreign", "-keyout", folder / "node.key", "-out", folder / "node.crt"], check=True, capture_output=True)
    return {name: (where / "node.crt", where / "node.key")
            for name, where in (("foreign", folder), ("other", third(cluster).state), ("own", acceptor.state))}


def bulk(node, peer):
    return next(each["bulk"][0] for each in node.status()["peers"] if each["node"] == peer.id)


def carrier(dialler, acceptor):
    return all(bulk(a, b)["up"] and bulk(a, b)["carrier"] for a, b in ((dialler, acceptor), (acceptor, dialler))) and \
        bulk(dialler, acceptor)["carrier"]


def resident_megabytes(node):
    return int(pathlib.Path(f"/proc/{node.pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def logged(node, lines):
    """Its log, but for so many lines."""
    return "\n".join(node.log().splitlines()[lines:])


def suffers(cluster, acts):
    """Each act once at least, under load; acts: with what the dialler says of it."""
    third(cluster)
    for node in cluster:  # none that remembers how TCP went before
        node.end()
        node.start()
    cluster.wait_connected()
    dialler, acceptor = sorted(cluster, key=lambda node: node.id)
    eventually(lambda: carrier(dialler, acceptor) == "tcp", "bulk data over TCP")
    job = Job([dialler, acceptor, dialler, acceptor], works, 20, 500_000)
    job.await_marks()
    resident, lines = resident_megabytes(dialler), len(dialler.log().splitlines())
    with HostileAcceptor(cluster.network, acceptor.host, list(acts), certificates_of(cluster, acceptor)) as hostile:
        run_in(cluster.network.namespace(dialler.host), "ss", "-K", "dport", "=", f":{BULK_PORT}")
        eventually(lambda: carrier(dialler, acceptor) == "quic", "bulk data over QUIC")
        # At least a turn: what cuts TCP off may have met the first act's connection, too. Two are up to 12 pauses of 10 s.
        eventually(lambda: hostile.done >= len(acts) and all(each in logged(dialler, lines) for each in acts.values()),
                   f"{len(acts)} connections to be ended, each with its reason", 180)
        eventually(lambda: bulk(dialler, acceptor)["carrier_why"].startswith("tcp"), "the reason")
        equal(carrier(dialler, acceptor), "quic", "the carrier beside the hostile acceptor")
        grown = resident_megabytes(dialler) - resident
    for outcome in job.outcomes():
        assert not isinstance(outcome, Failure), f"an honest rank failed: {outcome}"
        assert outcome < ENDS_SECONDS + BUSY, f"an honest operation took {outcome:.1f} s beside it"
    assert grown < 30, f"{grown:.0f} MiB more"
    added = logged(dialler, lines).splitlines()
    assert len(added) < LOG_LINES_MAX, f"{len(added)} lines more: {added[:20]}"
    eventually(lambda: carrier(dialler, acceptor) == "tcp", "bulk data over TCP again", 20)


def test_what_is_no_tls_is_ended_and_quic_carries(cluster):
    """[B4] [B8]"""
    suffers(cluster, {closes: "tcp: not connected: ", resets: "Connection reset by peer", sends_garbage: "TLS: wrong version number",
                      answers_in_http: "TLS: wrong version number", handshakes_without_end: "TLS: the peer's handshake is too long",
                      is_mute: "tcp not answered at "})


def test_who_is_not_the_node_that_was_dialled_gets_nothing(cluster):
    """[B1] [B2]"""
    suffers(cluster, {has_a_foreign_certificate: "the peer's certificate is not valid here", is_another_node: f"node {third(cluster).id[:12]} answered",
                      speaks_an_old_version: "alert protocol version", speaks_another_protocol: "no common protocol (ALPN)"})


def test_a_node_that_breaks_the_attach_loses_that_connection_only(cluster):
    """[B2] [B4]"""
    suffers(cluster, {answers_with_a_wrong_proof: "the peer's attach proof is wrong", reflects: "a record that has no place here",
                      sends_data_early: "data before the attach", announces_too_much: "a record that is too long",
                      writes_without_end: "a record of an unknown kind", never_answers: "tcp not answered at "})


main(globals(), NEXAR_ENABLE_TCP_BULK_SIDECAR="true")
