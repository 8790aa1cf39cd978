"""Leaf certificates that last 20 seconds: renewed in time, and what happens when nobody can renew them.

    node 1: issuer  ──┐
    node 2: member  ──┼── switch
    node 3: member  ──┘
"""
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from harness import *
from harness.carriers import MOVES
from harness.faulty_disk import FaultyDisk
from harness.values import check, given, reduced

LIFETIME = 20


def certificate(node):
    return node.status()["certificate"]


def expires(node):
    return certificate(node)["expires"]


def events(node, name, since=0):
    # Time, level, event, fields: the name may also stand in the text of another event.
    return [line for line in node.log()[since:].splitlines() if line.split()[2:3] == [name]]


def works_until(me, end):
    """Sums, small and large, until the wall clock says `end`; how many."""
    group, rounds = me.group(), 0
    inputs = [(given("float32", "sum", me.rank, n), reduced("float32", "sum", me.size, n)) for n in (10, 300_000)]
    outputs = [np.empty_like(x) for x, _ in inputs]
    while True:
        for (x, want), out in zip(inputs, outputs):
            check(group.all_reduce(x, out), want, "all_reduce")
        rounds += 1
        stop = np.array([float(time.time() >= end)], np.float32)
        if group.all_reduce(stop, op="max")[0]:  # all stop in the same round
            return rounds


def test_leaves_are_renewed_while_a_group_works_and_nobody_is_lost(cluster):
    """[A9] [A10] [A11]"""
    before = {node: (node.id, expires(node), (node.state / "node.crt").read_text()) for node in cluster}
    old = cluster.folder / "old"
    shutil.copytree(cluster[2].state, old)
    first_end = max(end for _, end, _ in before.values())
    assert 0 < first_end - time.time() <= LIFETIME, before
    job = Job(list(cluster), works_until, first_end + 3)

    while time.time() < first_end + 2:
        for node in cluster:
            equal(len(node.peers_up()), 2, f"peers of {node}")
            assert certificate(node)["state"] in ("valid", "renewing"), certificate(node)
        time.sleep(0.2)  # sleep: between two looks

    rounds = job.outcomes(seconds=60)
    assert min(rounds) > 20, rounds
    for node, (name, end, text) in before.items():
        equal(node.status()["node"], name, "NodeId")
        assert expires(node) > end and (node.state / "node.crt").read_text() != text, f"{node} has its old certificate"
        assert events(node, "certificate_renewed"), f"{node} did not say so"
        # When connections are replaced, the end of the old one may arrive before the word that the new one stands.
        replaced = ("the other one stays", "another connection of the same two nodes")
        lost = [line for line in events(node, "peer_down")
                if "proof=true" in line or not any(words in line for words in replaced)]
        equal(lost, [], f"what {node} lost")
    contains(cluster[1].log(), "certificate_signed")
    equal([line for node in cluster for line in node.log().splitlines() if "has ended" in line], [], "connections that met their end")
    most = 1000 if MOVES else 16
    assert all(4 <= len(events(node, "bulk_up")) <= most for node in cluster), "bulk connections were not replaced, or for ever"

    output = cluster[2].member_client("hello", old, cluster[1].endpoint, "honest")
    contains(output, "closed", "expired")
    # The client receives its refusal before the daemon has logged it.
    eventually(lambda: "expired" in "".join(events(cluster[1], "connection_refused")), "the event about it")
    print(f"        {rounds[0]} rounds; the old certificate: {output.strip()}")


def leaves_in_the_midst_of_a_renewal(cluster, node, disk):
    """Its renewed certificate is being saved, on a disk that takes a second for each call."""
    end, calls = eventually(lambda: certificate(node), f"{node} to be a member")["expires"], disk.calls
    disk.delay(1)
    eventually(lambda: certificate(node)["state"] == "renewing" and disk.calls > calls, "the certificate to be on its way", LIFETIME)
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(node.ask, "cluster_leave", seconds=20)
        now = certificate(node)  # none: it has left already
        renewed = now is not None and now["expires"] > end  # whether the write was over before
        disk.delay(0)
        left = leaving.result()
    print(f"        the departure {'followed' if renewed else 'overtook'} the renewal")
    status = node.ask("status")
    equal((status["state"], status["certificate"], status["peers"]), ("no cluster", None, []), "status")
    assert status["node"] != left["node"], "it kept its identity"
    kept = {path.name for path in node.state.iterdir()}
    assert "left.node.key" in kept and not kept & {"node.crt", "node.key", "root.crt"}, kept
    node.end()
    node.start()
    equal(node.ask("status")["state"], "no cluster", "state after a restart")
    for other in (cluster[1], cluster[2]):
        gone, = [peer for peer in other.ask("status")["peers"] if peer["node"] == left["node"]]
        equal(gone["state"], "left", "the node, to others")
    node.end()
    del cluster.nodes[node.number]


def test_a_restart_uses_the_renewed_certificate_and_a_departure_beside_a_renewal_ends_well(cluster):
    leaver = cluster.node()
    disk = FaultyDisk(leaver)
    leaver.start(NEXAR_CLUSTER_TOKEN=cluster.token(), **disk.environment)
    end = expires(cluster[2])
    leaves_in_the_midst_of_a_renewal(cluster, leaver, disk)  # meanwhile node 2 renews its own
    eventually(lambda: expires(cluster[2]) > end, "the next renewal", LIFETIME)
    end = expires(cluster[2])
    cluster[2].kill()
    cluster[2].start()
    assert expires(cluster[2]) >= end
    cluster.wait_connected()


def test_nodes_that_find_no_issuer_say_so_retry_and_part_when_they_expire(cluster):
    lonely, other = cluster[2], cluster[3]
    # Both have to be members still when the first attempt of node 2 fails.
    eventually(lambda: expires(other) > expires(lonely) - 4, "node 3 to be renewed, too", LIFETIME)
    before = {node: len(node.log()) for node in (lonely, other)}
    cluster[1].kill()
    eventually(lambda: certificate(lonely)["state"] == "renewal failed", "a failed renewal", LIFETIME)
    assert certificate(lonely)["renewal_failures"] >= 1
    eventually(lambda: certificate(lonely)["state"] == "expired", "the end of the certificate", LIFETIME)

    assert len(events(lonely, "certificate_renewal_failed")) >= 2, "it did not try again"
    eventually(lambda: events(lonely, "certificate_expired"), "the event about it")
    equal(len(events(lonely, "certificate_expired")), 1, "how often it says that it expired")
    # What was connected with a valid certificate does not stay so.
    eventually(lambda: not lonely.peers_up() and not other.peers_up(), "the two to part")
    eventually(lambda: any("has ended" in line and "closed here" in line for node, since in before.items()
                           for line in events(node, "peer_down", since)), "one of them to close it for that reason")
    for node, since in before.items():
        eventually(lambda node=node, since=since: any("has ended" in line for line in events(node, "peer_down", since)),
                   f"{node} to know why")
    shown = subprocess.run([os.environ["NEXAR_TEST_NEXARCTL"], "--socket", lonely.admin, "status"], text=True,
                           capture_output=True, timeout=20).stdout
    contains(shown, "EXPIRED", "other nodes refuse this one until it joins again")

    # The issuer was away for longer than its own leaf lasts: it signs itself another one. Node 2 cannot come back.
    cluster[1].start(NEXAR_CERTIFICATE_LIFETIME_SECS=str(LIFETIME))
    assert certificate(cluster[1])["state"] == "valid"
    eventually(lambda: "expired" in "".join(events(cluster[1], "connection_refused")), "node 1 to refuse node 2")
    eventually(lambda: any("certificate has expired" in peer["why"] for peer in lonely.ask("status")["peers"]
                           if peer["node"] == cluster[1].id), "node 2 to say why it is refused", 10)
    lonely.kill()
    lonely.start(wait=False)
    lonely.expected_dead = True
    equal(lonely.process.wait(10), 1, "exit status")
    contains(lonely.log(), "before an issuer renewed it; join again with a new token")
    for node in (lonely, other):
        node.end(signal.SIGKILL)
        del cluster.nodes[node.number]


main(globals(), nodes=3, NEXAR_CERTIFICATE_LIFETIME_SECS=str(LIFETIME))
