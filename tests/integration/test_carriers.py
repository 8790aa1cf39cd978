"""Bulk data over TCP, and over QUIC where TCP does not pass:

    node 1: rank 0 ── switch ── node 2: rank 1
"""
import json
import os
import subprocess
import sys
import time

from harness import *
from harness.middlebox import Middlebox
from harness.system import enter, run_in
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


def connections_at(node, port):
    """Established ones: the ports at their other ends."""
    ends = run_in(node.network.namespace(node.host), "ss", "-Htn", "state", "established", f"( sport = :{port} or dport = :{port} )")
    return {tuple(sorted(line.split()[2:4])) for line in ends.splitlines()}


def middle_sum(me):
    """By the control loops' own bulk endpoints: 48 KiB to 256 KiB."""
    group = me.group()
    for count in (12_288, 16_384, 65_536):
        check(group.all_reduce(given("float32", "sum", me.rank, count)), reduced("float32", "sum", me.size, count), "all_reduce")


def test_idle_connections_that_break_are_made_anew(cluster):
    """[B8] [B11] Of the shard, and of the control loop, which nothing wakes but the end itself."""
    await_carrier(cluster, "tcp")
    run(list(cluster), middle_sum)
    for port in (BULK_PORT, BULK_PORT + 1):
        eventually(lambda port=port: connections_at(cluster[1], port), "a connection")
        time.sleep(7)  # sleep: until the timers of the connections have ended, which would wake the loop
        before = connections_at(cluster[1], port)
        run_in(cluster.network.namespace(1), "ss", "-K", "sport", "=", f":{port}", "or", "dport", "=", f":{port}")
        eventually(lambda port=port: connections_at(cluster[1], port) - before, f"another connection at {port}")
    run(list(cluster), middle_sum)


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


# ---- Each way in which TCP may go wrong, in each direction, under load

DIRECTIONS = ("forth", "back")  # from the node that dials, and to it


def acceptor(cluster):
    return max(cluster, key=lambda node: node.id)


def destroy(cluster):
    """The TCP connections, at both ends."""
    for number in (1, 2):
        run_in(cluster.network.namespace(number), "ss", "-K", "sport", "=", f":{BULK_PORT}", "or", "dport", "=", f":{BULK_PORT}")


def await_why(cluster, start):
    node = dialler(cluster)
    eventually(lambda: bulk(node)["carrier_why"].startswith(start) and bulk(node)["carrier_why"].endswith(f":{BULK_PORT}"),
               f"the reason, which begins with '{start}'")


def fresh(cluster):
    """Daemons that no broken connection has made slow to dial TCP again."""
    restart(cluster, one=ON, two=ON)
    await_carrier(cluster, "tcp")


def between(cluster, how, direction="forth", most=0):
    return Middlebox(cluster.network, acceptor(cluster).host, BULK_PORT, how, direction, most)


def test_a_peer_that_accepts_and_never_reads_is_left_to_quic(cluster):
    """[B8]"""
    await_carrier(cluster, "tcp")

    def act():
        with between(cluster, "swallow") as box:
            destroy(cluster)
            await_carrier(cluster, "quic")
            await_why(cluster, "tcp not answered at ")
            assert box.done > 0
        await_carrier(cluster, "tcp")
    under_load(cluster, act)


def test_tcp_that_stops_reading_in_the_middle_is_left_to_quic(cluster):
    """[B8] [P13]"""
    for direction in DIRECTIONS:
        await_carrier(cluster, "tcp")

        def act():
            with between(cluster, "stall", direction, 30_000_000) as box:
                destroy(cluster)
                eventually(lambda: box.done > 0, "a connection that stalls")
                await_carrier(cluster, "quic")
                await_why(cluster, "tcp stalled at ")
            await_carrier(cluster, "tcp")
        under_load(cluster, act)


def test_half_closed_connections_are_lost_ones(cluster):
    """[B8] [B10]"""
    for direction in DIRECTIONS:
        fresh(cluster)

        def act():
            with between(cluster, "half", direction, 20_000_000) as box:
                destroy(cluster)
                eventually(lambda: box.done >= 3, "three that were half closed")
            await_carrier(cluster, "tcp")
        under_load(cluster, act)


def test_connections_that_are_cut_at_any_byte_change_no_result(cluster):
    """[B8] [B4] From the first byte of a handshake on."""
    for most in (6000, 30_000_000):
        fresh(cluster)

        def act():
            with between(cluster, "cut", most=most) as box:
                destroy(cluster)
                eventually(lambda: box.done >= 4, "four that were cut")
            await_carrier(cluster, "tcp")
        under_load(cluster, act)


def test_a_slow_path_keeps_its_carrier(cluster):
    """[P13] [B8] What is slow is not stuck."""
    for host in (1, 2):
        await_carrier(cluster, "tcp")

        def act():
            before = {node.number: node.log().count("bulk_down") for node in cluster}
            cluster.network.shape(host, 30_000_000)
            crossed = cluster.network.crossed(host)[1]
            eventually(lambda: cluster.network.crossed(host)[1] > crossed + 20_000_000, "20 MB over 30 Mbit/s", 60)
            equal({node.number: node.log().count("bulk_down") for node in cluster}, before, "connections lost")
            run_in(cluster.network.namespace(host), "tc", "qdisc", "del", "dev", "eth0", "root")
        under_load(cluster, act)
        await_carrier(cluster, "tcp")


def over_tcp_as_the_doctor_says(node):
    done = subprocess.run([os.environ["NEXAR_TEST_NEXARCTL"], "--socket", str(node.admin), "doctor", "--json"], capture_output=True,
                          text=True, timeout=30, check=False,
                          preexec_fn=lambda: enter(node.network.namespace(node.host)))
    check, = [one for one in json.loads(done.stdout)["checks"]
              if one["check"].startswith("bulk data over TCP, peer ") and f":{BULK_PORT} " in one["found"]]
    return check


def test_the_doctor_names_the_tcp_port_that_does_not_pass_and_dials_it(cluster):
    """[B8]"""
    await_carrier(cluster, "tcp")
    for node in cluster:
        equal(over_tcp_as_the_doctor_says(node)["result"], "ok", "TCP that carries")
    cluster.network.filter(acceptor(cluster).host, f"tcp dport {BULK_PORT} reject with tcp reset")
    destroy(cluster)
    await_carrier(cluster, "quic")
    await_why(cluster, "tcp refused at ")
    # Only the one that dials knows why; from the other one the way is free.
    for node, words in ((dialler(cluster), "is refused; tcp refused at "), (acceptor(cluster), "answers; the other node dials")):
        check = over_tcp_as_the_doctor_says(node)
        equal(check["result"], "warn", "TCP that does not pass")
        contains(check["found"], f":{BULK_PORT} does not carry; dialled from here it {words}")
        contains(check["advice"], f"TCP port {BULK_PORT}", "firewalls")


def restart(cluster, **environments):
    """Each node with its own environment: one=..., two=..."""
    for node, environment in zip(cluster, environments.values()):
        node.end()
        node.start(**environment)
    cluster.wait_connected()


def test_bulk_is_plain_only_where_both_nodes_say_so(cluster):
    """[B7]"""
    plain, off = ON | {"NEXAR_ENCRYPT_BULK_TRANSPORT": "false"}, {"NEXAR_ENABLE_TCP_BULK_SIDECAR": "false"}
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
