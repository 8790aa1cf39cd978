"""Bytes that want to do harm, to every socket, port and mapping, while honest ranks work beside them:

    node 1: ranks 0, 3 ──┐
    node 2: ranks 1, 4 ──┼── switch         node 2 and its clients are attacked
    node 3: ranks 2, 5 ──┘

Whatever comes, the daemons live, no honest result is wrong or missing, and afterwards nothing is left behind: no
session, no descriptor, no work.
"""
import contextlib
import os
import pathlib
import re
import signal
import socket
import struct
import time

from harness import *
from harness.honest import works
from harness.local import refusal
from harness.states import descriptors_of

ATTACK_SECONDS = 1.5


def two_each(cluster):
    return [cluster[n] for n in (1, 2, 3, 1, 2, 3)]


def resident_megabytes(node):
    text = pathlib.Path(f"/proc/{node.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


@contextlib.contextmanager
def unharmed(cluster, seconds=ATTACK_SECONDS, working=True, largest=50_000):
    """Around an attack on node 2: what is promised at the top of this file."""
    node = cluster[2]
    before = descriptors_of(node), resident_megabytes(node)
    job = Job(two_each(cluster), works, seconds, largest) if working else None
    if job:
        job.await_marks()
    yield job
    if job:
        for outcome in job.outcomes():
            assert not isinstance(outcome, Failure), f"an honest rank failed: {outcome}"
            assert outcome < 2 + BUSY, f"an honest operation took {outcome:.1f} s beside the attack"
    eventually(lambda: node.status()["sessions"] == 0, "all sessions to end", 10)
    eventually(lambda: descriptors_of(node) <= before[0] + 2, f"{before[0]} descriptors again", 10)
    assert resident_megabytes(node) < before[1] + 150, f"from {before[1]} to {resident_megabytes(node)} MiB"
    for each in cluster:
        eventually(each.idle, f"{each} to be idle", 10)


def attack(cluster, mode, seed=1):
    return program(cluster[2], "NEXAR_TEST_HOSTILE_CLIENT", mode, ATTACK_SECONDS, seed)


def had_sessions(attackers):
    """What attackers of one user print; one of them may keep the other from having a session."""
    lines = []
    for attacker in attackers:
        output, _ = attacker.communicate(timeout=ATTACK_SECONDS + 20)
        equal(attacker.returncode, 0, f"exit status of the attacker, with output {output!r}")
        lines.append(output.strip().splitlines()[-1])
    assert any(int(line.split()[0]) for line in lines), f"no attacker had a session: {lines}"
    return "; ".join(lines)


def against(mode):
    def test(cluster):
        with unharmed(cluster):
            attackers = [attack(cluster, mode, seed) for seed in (1, 2)]
            print(f"        {mode}: {had_sessions(attackers)}")
    return test


test_descriptors_of_every_kind_harm_nobody = against("descriptors")
test_scribbling_over_the_whole_segment_harms_nobody = against("scribble")
test_senseless_ring_entries_harm_nobody = against("entries")
test_a_descriptor_that_changes_between_check_and_use_harms_nobody = against("flip")
test_holes_punched_into_shared_memory_harm_nobody = against("punch")
test_endless_doorbells_and_a_socket_never_read_harm_nobody = against("doorbells")
test_files_of_every_kind_as_memory_harm_nobody = against("files")
test_handshakes_of_every_kind_harm_nobody = against("handshakes")


def test_harm_while_shards_move_the_attackers_bulk_harms_nobody(cluster):
    """[K35] Its other session is node 3's. A break of the protocol ends the session with its error; nonsense ends its slot with one."""
    node, since = cluster[2], len(cluster[2].log())
    os.environ["NEXAR_TEST_OTHER_SOCKET"] = str(cluster[3].socket)
    with unharmed(cluster, seconds=4, largest=1_000_000):
        attackers = [program(node, "NEXAR_TEST_HOSTILE_CLIENT", "bulk", 3, seed) for seed in (1, 2)]
        del os.environ["NEXAR_TEST_OTHER_SOCKET"]
        moved = []
        for attacker in attackers:
            output, _ = attacker.communicate(timeout=60)
            equal(attacker.returncode, 0, f"exit status of the attacker, with output {output!r}")
            moved.append([int(word) for word in re.findall(r"\d+", output)])
        print(f"        {output.strip().splitlines()}")
    assert max(at_work for at_work, *_ in moved) >= 1, f"no shard was at work: {moved}"
    assert all(well >= 1 for _, well, *_ in moved), f"nothing of an attacker's was moved: {moved}"
    reasons = re.findall(r"session_closed .*?reason=(.*)", node.log()[since:])
    print(f"        {len(reasons)} sessions closed: {sorted(set(reasons))}")
    assert sum("an entry of the submission ring" in reason for reason in reasons) >= 2, node.log()[since:]


def test_a_client_that_is_stopped_in_the_middle_delays_only_itself(cluster):
    with unharmed(cluster, seconds=2) as honest:
        attackers = [attack(cluster, mode) for mode in ("descriptors", "doorbells", "scribble")]
        eventually(lambda: cluster[2].status()["sessions"] > 2, "an attacker's session beside those of the two ranks")
        for each in attackers:
            each.send_signal(signal.SIGSTOP)
        honest.outcomes()
        for each in attackers:
            each.kill()
            each.communicate(timeout=10)


def test_silent_handshakes_are_closed_after_their_time(cluster):
    with unharmed(cluster, working=False):
        silent = []
        for _ in range(40):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.connect(str(cluster[2].socket))
            silent.append(s)
        silent[0].settimeout(10 + BUSY)
        equal(refusal(silent[0].recv(1024)), "TIMED_OUT", "the end of a handshake of which nothing comes")
        for s in silent:
            s.close()


def sends_garbage(me, target, ports, packets):
    """Datagrams: noise, and what looks like the start of a connection."""
    random, s = np.random.default_rng(7), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for i in range(packets):
        size = int(random.integers(0, 1473)) if i % 3 else 1200
        data = bytearray(random.bytes(size))
        if i % 3 == 0:  # a long header, version 1 or unknown, with connection ids
            data[:7] = bytes([0xC0 | data[0] & 0x0F, 0, 0, 0, 1 if i % 2 else data[4], 8 + i % 13, data[6]])
        with contextlib.suppress(OSError):
            s.sendto(data, (target, ports[i % len(ports)]))
    return packets


def test_garbage_to_every_udp_port_harms_nobody(cluster):
    with unharmed(cluster, seconds=2.5):
        for target in (1, 2):
            garbage = Job([cluster[3]], sends_garbage, cluster.network.address(target), (PORT, PORT + 1), 15_000)
            equal(garbage.outcomes(), [15_000], "datagrams sent")


def checksum(data):
    words = struct.unpack(f"!{len(data) // 2}H", data)
    total = sum(words)
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def port_unreachable(victim, peer, port):
    """The ICMP message that would report to `victim` that no process listens at peer:port, for a datagram of its own."""
    udp = struct.pack("!HHHH", port, port, 1208, 0) + b"\x40" * 8
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 1228, 1, 0, 64, 17, 0, *map(socket.inet_aton, (victim, peer)))
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    message = struct.pack("!BBHI", 3, 3, 0, 0) + ip + udp
    return message[:2] + struct.pack("!H", checksum(message)) + message[4:]


def forges_icmp(me, addresses, seconds):
    """Reports to each of them, so long and 500 times at least, that the others are not there."""
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    end, sent = time.monotonic() + seconds, 0
    while time.monotonic() < end or sent < 500:
        for victim in addresses:
            for peer in addresses:
                for port in (PORT, PORT + 1):
                    if victim != peer:
                        s.sendto(port_unreachable(victim, peer, port), (victim, 0))
                        sent += 1
        time.sleep(0.005)  # sleep: the pace of the forger
    return sent


def test_forged_icmp_harms_nobody(cluster):
    """[H4] From a host that is on no path between the others: it costs a probe now and then, and no connection."""
    before = {node: len(node.log()) for node in cluster}
    addresses = [cluster.network.address(node.host) for node in cluster]
    with unharmed(cluster, seconds=3):
        forger = Job([cluster[3]], forges_icmp, addresses[:2], 2.5)
        forger.outcomes()
    for node, length in before.items():
        assert "peer_down" not in node.log()[length:], f"{node} lost a connection: {node.log()[length:]}"


ADMIN_GARBAGE = (b"", b"\n", b"{}\n", b"hello\n", b"\0" * 1000 + b"\n", b'{"command": 7}\n', b'{"command": "status"',
                 b'{"command": "status", "arguments": []}\n', b"[" * 50_000 + b"\n", b"x" * (1 << 20),
                 b'{"command": "nothing"}\n', b'{"command": "token_create", "arguments": {"uses": -1}}\n',
                 b'{"command": "token_create", "arguments": {"uses": 1e99, "lifetime_s": "x"}}\n',
                 b'{"command": "cluster_join", "arguments": {"token": "nexar1.AAAA"}}\n', b"\xff\xfe\n" * 100)


def has_room(node):
    """Whether it answers; while it closes this user's connections it refuses more, by name."""
    try:
        return node.status()
    except Refused as refused:
        assert refused.args[0] == "TABLE_FULL", refused
        return None


def test_garbage_on_the_admin_socket_harms_nobody(cluster):
    with unharmed(cluster, seconds=2):
        held = []
        for turn in range(8):
            for garbage in ADMIN_GARBAGE:
                s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                s.settimeout(2)
                with contextlib.suppress(OSError):
                    s.connect(str(cluster[2].admin))
                    s.sendall(garbage)
                    if turn % 2 and garbage.endswith(b"\n"):
                        answer = s.recv(65536)
                        assert answer == b"" or b'"ok"' in answer, f"{garbage[:40]}: {answer}"
                if turn % 3 == 0:
                    held.append(s)
                else:
                    s.close()
        for s in held:
            s.close()
        eventually(lambda: has_room(cluster[2]), "the admin socket to answer", 10)


def test_a_client_of_the_session_socket_cannot_use_it_as_the_admin_socket(cluster):
    with unharmed(cluster, working=False):
        for kind, path in ((socket.SOCK_STREAM, cluster[2].socket), (socket.SOCK_SEQPACKET, cluster[2].admin)):
            with socket.socket(socket.AF_UNIX, kind) as s:
                try:
                    s.connect(str(path))
                    raise AssertionError(f"{path} takes connections of another type")
                except OSError:
                    pass


def forks_and_dies(me, _):
    """A session, half an operation, and no goodbye; all at once."""
    group = me.group(me.session(slots=16), size=1, rank=0, name=f"{me.name}-{me.rank}")
    for _ in range(10):
        group.recv_start(np.zeros(10), 0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_hundred_sessions_that_die_with_work_in_flight_leave_nothing(cluster):
    with unharmed(cluster, seconds=3):
        for _ in range(5):
            job = Job([cluster[2]] * 20, forks_and_dies, None)
            for rank in job.ranks.values():
                equal(rank.join(), -signal.SIGKILL, "how it ended")


main(globals())
