"""A bulk connection that only one of its ends finds dead, or can make, is made anew from there, whichever of them is to dial [P12] [P13] [B8].

    node 1: rank 0 ── switch ── node 2: rank 1        the lower NodeId dials
"""
import time

from harness import *
from harness.system import run_in
from harness.values import check, given, reduced

LATE = 4 * HEARTBEAT_TIMEOUT  # longer than 2 heartbeat timeouts [F21]
SHARD_PORT, LOOP_PORT = PORT + 1, PORT + 2
ON_LOOP, ON_SHARD = 16_384, 262_144  # f32: 64 KiB, 1 MiB
MESSAGES = 40  # that make the congestion window wide


def dialler_of(cluster):
    return min((0, 1), key=lambda rank: cluster[rank + 1].id)


def await_tcp(cluster):
    eventually(lambda: all(bulk["up"] and bulk["carrier"] == "tcp" for node in cluster for bulk in node.status()["peers"][0]["bulk"]),
               "bulk data over TCP")


def bulk_of(node):
    return [bulk for peer in node.status()["peers"] for bulk in peer["bulk"]]


def flows(node, port):
    """The ports of both ends of established TCP connections."""
    ends = run_in(node.network.namespace(node.host), "ss", "-Htn", "state", "established", f"( sport = :{port} or dport = :{port} )")
    return {tuple(end.rsplit(":", 1)[1] for end in line.split()[2:4]) for line in ends.splitlines()}


def forget(cluster):
    """As a firewall, or NAT, that has forgotten an idle flow: what belongs to the connections that stand is lost, new ones pass."""
    for port in (SHARD_PORT, LOOP_PORT):
        for here, there in flows(cluster[1], port):
            for host in (1, 2):
                cluster.network.filter(host, f"tcp sport {here} tcp dport {there} drop")
                cluster.network.filter(host, f"tcp sport {there} tcp dport {here} drop")


def sums(me, late, count):
    group = me.group()
    me.mark()
    me.wait_for_go()
    if me.rank == late:
        time.sleep(LATE)  # sleep: until the other rank has waited for so long
    check(group.all_reduce(given("float32", "sum", me.rank, count)), reduced("float32", "sum", me.size, count), "all_reduce")


def run_forgotten(cluster, late_is_dialler, count):
    await_tcp(cluster)
    dialler = dialler_of(cluster)
    job = Job(list(cluster), sums, dialler if late_is_dialler else 1 - dialler, count)
    job.await_marks()
    forget(cluster)
    job.go()
    for outcome in job.outcomes(seconds=LATE + 10):
        assert not isinstance(outcome, Failure), outcome


def test_the_dialler_finds_a_forgotten_flow(cluster):
    run_forgotten(cluster, False, ON_SHARD)


def test_the_acceptor_finds_a_forgotten_flow(cluster):
    run_forgotten(cluster, True, ON_SHARD)


def test_the_acceptor_finds_a_forgotten_flow_of_the_loop(cluster):
    run_forgotten(cluster, True, ON_LOOP)


def messages(me, sender):
    group = me.group()
    values = given("float32", "sum", sender, ON_LOOP)
    for tag in range(MESSAGES + 1):
        if tag == MESSAGES:
            me.mark()
            me.wait_for_go()
        if me.rank == sender:
            group.send(values, 1 - sender, tag)
        else:
            out = np.empty(ON_LOOP, np.float32)
            group.recv(out, sender, tag)
            check(out, values, "message")
    if me.rank != sender:
        me.wait_for_go()  # it waits for nothing until then


def run_one_way(cluster, sender_dials):
    """What the sender has sent comes, and its acknowledgement does not; QUIC passes."""
    for node in cluster:
        run_in(cluster.network.namespace(node.host), "sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0")
    await_tcp(cluster)
    dialler = dialler_of(cluster)
    sender = dialler if sender_dials else 1 - dialler
    job = Job(list(cluster), messages, sender)
    job.await_marks()
    for side in ("dport", "sport"):
        cluster.network.filter(sender + 1, f"tcp {side} {SHARD_PORT}-{LOOP_PORT} drop")
    job.go()
    sent = job.outcomes(sender, seconds=20)[0]
    job.go(1 - sender)
    assert not isinstance(sent, Failure), sent
    received = job.outcomes(1 - sender, seconds=20)[0]
    assert not isinstance(received, Failure), received


def test_the_dialler_sends_where_no_acknowledgement_comes(cluster):
    run_one_way(cluster, True)


def test_the_acceptor_sends_where_no_acknowledgement_comes(cluster):
    run_one_way(cluster, False)


def test_bulk_comes_back_where_only_the_acceptors_dials_pass(cluster):
    """The dialler restarts; its dials over TCP are refused, and UDP is swallowed."""
    rank = dialler_of(cluster)
    dialler, acceptor = cluster[rank + 1], cluster[2 - rank]
    await_tcp(cluster)
    cluster.network.filter(acceptor.host, f"tcp dport {SHARD_PORT}-{LOOP_PORT} tcp flags & (syn | ack) == syn reject with tcp reset")
    for node in cluster:
        for side in ("dport", "sport"):
            cluster.network.filter(node.host, f"udp {side} {SHARD_PORT}-{LOOP_PORT} drop")
    dialler.kill()
    dialler.start()
    eventually(lambda: (found := bulk_of(dialler)) and all(bulk["up"] and bulk["carrier"] == "tcp" for bulk in found), "bulk data over TCP")
    job = Job(list(cluster), sums, None, ON_SHARD)
    job.await_marks()
    job.go()
    for outcome in job.outcomes(seconds=10):
        assert not isinstance(outcome, Failure), outcome


main(globals(), nodes=2)
