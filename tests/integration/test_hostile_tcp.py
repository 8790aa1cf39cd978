"""Bytes that want to do harm, to the TCP port for bulk data, while honest ranks work beside them [B4] [B5]:

    a node: ranks 0, 2 ─────┐
    the target: ranks 1, 3 ─┼── switch      its port is attacked, from the third host, whose daemon has ended
    the attacker ───────────┘

Whatever comes, the daemons live, no honest result is wrong or missing or late, bulk data goes over TCP afterwards, nothing is
left behind, and the log does not grow with the attack.
"""
import contextlib
import os
import pathlib
import resource
import socket
import ssl
import subprocess
import time

from harness import *
from harness.honest import works
from harness.hostile import HostileMember
from harness.states import descriptors_of
from harness.system import enter, run_in

BULK_PORT = PORT + 1
ATTACH_SECONDS = 5  # [B5]
LOG_LINES_MAX = 120  # of an attack, in all logs: some are of the honest job
FEATURE_TCP = 1


def attacker(cluster):
    """The node whose place and key are left for the attacker."""
    if not hasattr(cluster, "attacker"):
        cluster.attacker = max(cluster, key=lambda node: node.id)  # it leads no group
        cluster.attacker.kill()
        del cluster.nodes[cluster.attacker.number]
    return cluster.attacker


def target(cluster):
    attacker(cluster)
    return max(cluster, key=lambda node: node.number)


def over_tcp(cluster):
    one, two = cluster
    return all(bulk["up"] and bulk["carrier"] == "tcp" for node, other in ((one, two), (two, one))
               for peer in node.status()["peers"] if peer["node"] == other.id for bulk in peer["bulk"])


@contextlib.contextmanager
def unharmed(cluster, seconds=1.5, lines=LOG_LINES_MAX):
    """Around an attack on the target: what is promised at the top of this file."""
    node = target(cluster)
    eventually(lambda: over_tcp(cluster), "bulk data over TCP")
    before = descriptors_of(node), len(node.log().splitlines())
    job = Job([*cluster, *cluster], works, seconds, 500_000)
    job.await_marks()
    yield node
    for outcome in job.outcomes():
        assert not isinstance(outcome, Failure), f"an honest rank failed: {outcome}"
        assert outcome < 2 + BUSY, f"an honest operation took {outcome:.1f} s beside the attack"
    eventually(lambda: node.status()["sessions"] == 0, "all sessions to end", 10)
    eventually(lambda: descriptors_of(node) <= before[0] + 2, f"{before[0]} descriptors again", ATTACH_SECONDS + 10)
    for each in cluster:
        eventually(each.idle, f"{each} to be idle", 10)
    eventually(lambda: over_tcp(cluster), "bulk data over TCP")
    grown = len(node.log().splitlines()) - before[1]
    assert grown < lines, f"the log has {grown} lines more: {node.log().splitlines()[before[1]:][:20]}"


@contextlib.contextmanager
def from_outside(cluster):
    """This thread is on the attacker's host meanwhile."""
    with open("/proc/self/ns/net") as own:
        enter(cluster.network.namespace(attacker(cluster).host))
        try:
            yield
        finally:
            enter(own.fileno())


def connect(cluster, start=b"", seconds=5):
    s = socket.create_connection((cluster.network.address(target(cluster).host), BULK_PORT), seconds)
    with contextlib.suppress(OSError):
        s.sendall(start)
    return s


def ended(s, seconds):
    """The peer ends it in time; what came is read."""
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def client_hello():
    """The first flight of an honest TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["nexar-bulk/2"])
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def refused(context, cluster, seconds=5):
    """A TLS client with this context gets no connection that lasts: the text of its end."""
    with connect(cluster) as raw:
        raw.settimeout(seconds)
        try:
            with context.wrap_socket(raw, server_hostname="nexar") as s:
                while s.recv(65536):  # a close says why
                    pass
                return "ended"
        except TimeoutError:
            return "open"
        except (ssl.SSLError, OSError) as error:
            return str(error)


def tls(version=ssl.TLSVersion.TLSv1_3, alpn="nexar-bulk/2", certificate=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols([alpn])
    if certificate:
        context.load_cert_chain(*certificate)
    return context


def test_garbage_and_truncated_handshakes_harm_nobody(cluster):
    """[B4] [B5]"""
    hello, rng = client_hello(), np.random.default_rng(7)
    starts = [b"\0", b"\x16", b"\x16\x03\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"NXRPLAI2" + b"\xff" * 200, hello[:7], hello[:len(hello) // 2],
              hello + hello, hello + b"\x17\x03\x03\x40\x00" + b"x" * 400, hello[:5] + bytes(len(hello) - 5)]
    starts += [bytes(rng.bytes(int(rng.integers(1, 5000)))) for _ in range(200)]
    for _ in range(100):
        changed = bytearray(hello)
        changed[int(rng.integers(0, len(hello)))] ^= 1 << int(rng.integers(0, 8))
        starts.append(bytes(changed))
    with unharmed(cluster), from_outside(cluster):
        for start in starts:
            connect(cluster, start).close()


def test_a_foreign_certificate_or_another_protocol_gets_nothing(cluster):
    """[B1]"""
    folder = cluster.folder / "foreign"
    folder.mkdir()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=foreign", "-keyout", folder / "key", "-out", folder / "crt"], check=True, capture_output=True)
    own = attacker(cluster).state
    with unharmed(cluster), from_outside(cluster):
        for context in (tls(), tls(certificate=(folder / "crt", folder / "key")), tls(ssl.TLSVersion.TLSv1_2),
                        tls(alpn="h2", certificate=(own / "node.crt", own / "node.key"))):
            end = refused(context, cluster)
            assert end != "open", context


def test_a_node_without_a_control_connection_has_its_time_and_attaches_nothing(cluster):
    """[B2] [B3] [B5]"""
    own = attacker(cluster).state
    with unharmed(cluster), from_outside(cluster):
        begin = time.monotonic()
        end = refused(tls(certificate=(own / "node.crt", own / "node.key")), cluster, ATTACH_SECONDS + BUSY)
        assert end != "open" and time.monotonic() - begin > ATTACH_SECONDS - 1, end


def test_silent_sockets_keep_nobody_out(cluster):
    """[B5] As many as one host may have, and many more, while the honest connection is destroyed and made again."""
    with unharmed(cluster, seconds=3):
        with from_outside(cluster):
            silent = [connect(cluster, start) for start in (b"", client_hello()) * 150]
        for one, other in zip(cluster, reversed(list(cluster))):
            run_in(cluster.network.namespace(one.host), "ss", "-K", "dst", cluster.network.address(other.host))
        eventually(lambda: over_tcp(cluster), "bulk data over TCP again, beside silent sockets")
        assert sum(ended(s, 0.01) for s in silent) >= len(silent) - 16, "more than 16 sockets of one host are open"
        assert all(ended(s, ATTACH_SECONDS + BUSY) for s in silent), "a silent socket outlives its time"


def test_slow_handshakes_end_in_their_time(cluster):
    """[B5] A byte now and then."""
    hello = client_hello()
    with unharmed(cluster, seconds=3), from_outside(cluster):
        slow, begin, sent = [connect(cluster) for _ in range(16)], time.monotonic(), 0
        while time.monotonic() - begin < ATTACH_SECONDS - 0.5:
            for s in slow:
                with contextlib.suppress(OSError):
                    s.sendall(hello[sent:sent + 1])
            sent += 1
            time.sleep(0.2)  # sleep: the pace of the attacker
        assert sent < len(hello)
        assert all(ended(s, 0.5 + BUSY) for s in slow), "a slow handshake outlives its time"


def liar_on(cluster):
    return HostileMember(attacker(cluster), int(time.time()))


# What a member does on a connection over TCP (clients/tcp_member.hpp), and the codes with which it may end [B4].
ACTS = {"early": {1, 6}, "proof": {6}, "reflected": {6}, "binding": {6}, "node": {6}, "mode": {6}, "shard": {6},
        "then-large": {1}, "then-huge": {1}, "then-empty": {1}, "then-kind": {1}, "then-flags": {1}, "then-hello": {1},
        "then-acknowledges": {1}, "then-garbage": {1}, "then-keys": {0, 1}, "then-half": {0}}


def test_a_member_that_breaks_a_rule_over_tcp_loses_that_connection_only(cluster):
    """[B2] [B4] [B10] With a node's certificate and a real control connection."""
    two = target(cluster)
    liar = liar_on(cluster)
    try:
        control = liar.enter(two, features=FEATURE_TCP)
        address = f"{cluster.network.address(two.host)}:{BULK_PORT}"
        with unharmed(cluster, seconds=4, lines=len(ACTS) * 6 + LOG_LINES_MAX):
            equal(liar_act(liar, control, address, "honest"), "open", "an honest attach")
            for what, codes in ACTS.items():
                end = liar_act(liar, control, address, what).split(" ", 2)
                assert end[0] == "ended" and 0 in codes or end[0] == "closed" and int(end[1]) in codes, f"{what}: {end}"
    finally:
        liar.close()


def liar_act(liar, control, address, what):
    since = liar.do(f"tcp {control} {address} {what}")
    return liar.await_line(f"tcp {what} ", since).split(" ", 2)[2]


def test_a_member_that_writes_without_end_is_held_by_its_own_connection(cluster):
    """[B4] [B9] One write that never ends, of 240 MB: it is refused, or no more is read than a connection may hold."""
    two = target(cluster)
    liar = liar_on(cluster)
    try:
        control = liar.enter(two, features=FEATURE_TCP)
        with unharmed(cluster, seconds=2):
            resident = resident_megabytes(two)
            end = liar_act(liar, control, f"{cluster.network.address(two.host)}:{BULK_PORT}", "then-endless")
            assert end.startswith(("closed 1 ", "ended", "open")), end
            assert resident_megabytes(two) < resident + 60, f"from {resident} to {resident_megabytes(two)} MiB after: {end}"
    finally:
        liar.close()


def resident_megabytes(node):
    return int(pathlib.Path(f"/proc/{node.pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def test_a_daemon_without_descriptors_goes_on_and_serves_newcomers_again(cluster):
    """[B5] [B9] RLIMIT_NOFILE is what it has: newcomers wait, what stands goes on, the log says so once, the loop sleeps."""
    since = len(target(cluster).log())
    with unharmed(cluster, seconds=4) as node:
        soft, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        # Its ranks' sessions have been made.
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (descriptors_of(node), hard))
        try:
            with from_outside(cluster):
                held = [connect(cluster, b"\x16") for _ in range(40)]
            used = node.cpu_seconds()
            time.sleep(1)  # sleep: the time over which it is measured
            assert node.alive()
            print(f"        {node.cpu_seconds() - used:.2f} s of a processor in a second beside an honest job", flush=True)
            equal(node.log()[since:].count("tcp_accept_paused"), 1, "lines about it")
        finally:
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (soft, hard))
        eventually(lambda: "tcp_accept_resumed" in node.log()[since:], "newcomers to be accepted again", 10)
        for s in held:
            s.close()


main(globals(), NEXAR_ENABLE_TCP_BULK_SIDECAR="true")
