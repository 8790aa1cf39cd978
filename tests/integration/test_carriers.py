"""Bulk data over TCP, and over QUIC where TCP does not pass:

    node 1: rank 0 ── switch ── node 2: rank 1
"""
import sys

from harness import *
from harness.system import run_in
from harness.values import check, given, reduced

BULK_PORT = 7655
ON = {"NEXAR_ENABLE_TCP_BULK_SIDECAR": "true"}


def bulk(node):
    """Of the only peer, on the only shard."""
    return node.status()["peers"][0]["bulk"][0]


def await_carrier(cluster, carrier):
    eventually(lambda: all(bulk(node)["up"] and bulk(node)["carrier"] == carrier for node in cluster),
               f"bulk data over {carrier}")


def dialler(cluster):
    """The lower NodeId dials, and knows why TCP does not carry."""
    return min(cluster, key=lambda node: node.id)


def filter_tcp(cluster, rule):
    for number in (1, 2):
        cluster.network.filter(number, f"tcp dport {BULK_PORT} {rule}")
        cluster.network.filter(number, f"tcp sport {BULK_PORT} {rule}")


def works_until_released(me):
    """Large sums, each compared; how many."""
    group, rounds = me.group(), 0
    x, want = given("float32", "sum", me.rank, 2_000_000), reduced("float32", "sum", me.size, 2_000_000)
    out = np.empty_like(x)
    me.mark()
    while True:
        check(group.all_reduce(x, out), want, "all_reduce")
        rounds += 1
        if group.all_reduce(np.array([me.rank == 0 and me.is_released()]).astype("int32"), op="max")[0]:
            return rounds


def under_load(cluster, act):
    job = Job(list(cluster), works_until_released)
    job.await_marks()
    act()
    job.go(0)
    assert all(rounds > 0 for rounds in job.outcomes())


def test_bulk_goes_over_tcp_where_both_have_it_on_and_encrypted(cluster):
    """[B1] [B6]"""
    await_carrier(cluster, "tcp")
    assert all(bulk(node)["encrypted"] for node in cluster)
    run(list(cluster), one_sum)
    await_carrier(cluster, "tcp")


def one_sum(me):
    check(me.group().all_reduce(given("float32", "sum", me.rank, 1_000_000)), reduced("float32", "sum", me.size, 1_000_000),
          "all_reduce")


def test_where_tcp_is_rejected_quic_carries_and_says_why_until_it_passes_again(cluster):
    """[B8]"""
    await_carrier(cluster, "tcp")

    def act():
        filter_tcp(cluster, "reject with tcp reset")
        await_carrier(cluster, "quic")
        node = dialler(cluster)
        # That it broke, then that it is refused.
        eventually(lambda: bulk(node)["carrier_why"].startswith("tcp ")
                   and bulk(node)["carrier_why"].endswith(f":{BULK_PORT}"), "the reason")
        cluster.network.heal()
        await_carrier(cluster, "tcp")
        assert bulk(node)["carrier_why"] == ""
    under_load(cluster, act)


def test_where_tcp_is_swallowed_in_the_middle_quic_carries_on(cluster):
    """[B8] [P13]"""
    await_carrier(cluster, "tcp")

    def act():
        filter_tcp(cluster, "drop")
        await_carrier(cluster, "quic")
        cluster.network.heal()
        await_carrier(cluster, "tcp")
    under_load(cluster, act)


def test_a_tcp_connection_that_is_destroyed_under_load_is_made_anew(cluster):
    """[B8] [B10]"""
    await_carrier(cluster, "tcp")

    def act():
        for number in (1, 2, 1, 2):
            run_in(cluster.network.namespace(number), "ss", "-K", "sport", "=", f":{BULK_PORT}", "or", "dport", "=",
                   f":{BULK_PORT}")
            await_carrier(cluster, "tcp")
    under_load(cluster, act)


def test_tcp_that_is_swallowed_in_one_direction_carries_nothing_and_quic_does(cluster):
    """[B8] [P13]"""
    for deaf in (1, 2):
        await_carrier(cluster, "tcp")

        def act():
            for port in ("dport", "sport"):
                cluster.network.filter(deaf, f"tcp {port} {BULK_PORT} drop")
            await_carrier(cluster, "quic")
            cluster.network.heal()
            await_carrier(cluster, "tcp")
        under_load(cluster, act)


def restart(cluster, **environments):
    """Each node with its own environment: one=..., two=..."""
    for node, environment in zip(cluster, environments.values()):
        node.end()
        node.start(**environment)
    cluster.wait_connected()


def test_bulk_is_plain_only_where_both_nodes_say_so(cluster):
    """[B7]"""
    plain, off = ON | {"NEXAR_ENCRYPT_BULK_TRANSPORT": "false"}, {}
    for one, two, carrier, encrypted in ((plain, plain, "tcp", False), (plain, ON, "tcp", True), (ON, plain, "tcp", True),
                                         (off, ON, "quic", True), (plain, off, "quic", True), (ON, ON, "tcp", True)):
        restart(cluster, one=one, two=two)
        await_carrier(cluster, carrier)
        equal([bulk(node)["encrypted"] for node in cluster], [encrypted] * 2, "whether bulk data is encrypted")
        equal([node.status()["bulk_may_be_plain"] for node in cluster], [one is plain, two is plain], "the warning")
        run(list(cluster), one_sum)
        await_carrier(cluster, carrier)


def test_unidentified_connections_to_the_port_cost_a_job_nothing(cluster):
    """[B4] [B5]"""
    await_carrier(cluster, "tcp")

    def act():
        for number in (1, 2):
            for start in (b"", b"\x16\x03\x01\x40\x00" + b"x" * 40, b"NXRPLAI2" + b"\0" * 64, b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096):
                run_in(cluster.network.namespace(3 - number), sys.executable, "-c", UNIDENTIFIED,
                       cluster.network.address(number), str(BULK_PORT), start.hex())
    under_load(cluster, act)
    await_carrier(cluster, "tcp")


UNIDENTIFIED = """
import socket, sys
host, port, start = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
sockets = []
for _ in range(40):
    s = socket.create_connection((host, port), 5)
    s.settimeout(5)
    sockets.append(s)
    try:
        s.sendall(start)
    except OSError:
        pass
if start:
    try:
        sockets[-1].shutdown(socket.SHUT_WR)
        while sockets[-1].recv(4096):
            pass
    except TimeoutError:
        raise
    except OSError:
        pass
"""


main(globals(), nodes=2, **ON)
