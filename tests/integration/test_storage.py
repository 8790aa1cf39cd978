"""What is durable, with a disk that fails or hangs at any call. Each host can reach each other:

    node 1: issuer, its disk is faulty ──┐
    node 2: member                     ──┼── switch ── single nodes with faulty disks
"""
import signal
import time

from harness import *
from harness.faulty_disk import FaultyDisk
from harness.values import check, given, reduced

NO_SPACE = "No space left on device"
SLOW_FSYNC = 3.0


def single(cluster, host):
    node = cluster.node(host=host)
    return node, FaultyDisk(node)


def forget(cluster, *nodes):
    for node in nodes:
        node.end(signal.SIGKILL)
        del cluster.nodes[node.number]


def crash(node, disk, **environment):
    """Ends the daemon as a crash does, and starts it on the same disk."""
    node.end(signal.SIGKILL)
    disk.heal()
    node.start(**disk.environment, **environment)


def fails_clearly(node, command, **arguments):
    """Whether the command fails; then it says what was wrong, and the daemon runs."""
    try:
        node.ask(command, seconds=20, **arguments)
        return False
    except Refused as refused:
        contains(refused.args[1], NO_SPACE, str(node.state))
    assert node.alive(), f"{node} ended"
    return True


def is_in_no_cluster(node):
    equal(node.status()["state"], "no cluster", f"state of {node}")


def test_an_init_that_fails_at_any_call_leaves_the_node_as_it_was(cluster):
    """[H14] [K7] Before and after a restart; then it can be repeated."""
    node, disk = single(cluster, 31)
    node.start(**disk.environment)
    call = 1
    while True:
        disk.fail(call)
        if not fails_clearly(node, "cluster_init", name="mine"):
            break
        equal(disk.failed, 1, f"failed calls when number {call} fails")
        is_in_no_cluster(node)
        crash(node, disk)
        is_in_no_cluster(node)
        call += 1
    equal(disk.failed, 0, "failed calls of the one that succeeded")
    assert call > 30, f"only {call} calls"
    before = node.status()["node"]
    crash(node, disk)
    equal(node.status()["node"], before, "NodeId after a restart")
    equal(node.ask("cluster_show")["issuer"], True, "issuer")
    forget(cluster, node)


def test_an_init_whose_undoing_fails_as_well_is_whole_or_not_there_after_a_restart(cluster):
    """[H14] [K7] All calls from some call on fail."""
    outcomes = set()
    node, disk = single(cluster, 32)
    node.start(**disk.environment)
    for call in (1, 2, 3, 4, 5, 9, 13, 17, 21, 25, 29, 30, 31, 32):
        disk.fail(call, count=1000)
        assert fails_clearly(node, "cluster_init", name="mine"), f"call {call}"
        crash(node, disk)
        state = node.status()["state"]
        outcomes.add(state)
        if state == "running":
            equal(node.ask("cluster_show")["issuer"], True, "issuer")
            node.end(signal.SIGKILL)
            for file in node.state.iterdir():
                file.unlink()
            node.start(**disk.environment)
    assert outcomes <= {"no cluster", "running"}, outcomes
    forget(cluster, node)


def test_a_join_that_fails_at_any_call_leaves_the_node_as_it_was(cluster):
    """[H14] [K7] The use of the token is spent: it never counts twice."""
    node, disk = single(cluster, 33)
    token = cluster.token(uses=100)
    node.start(**disk.environment)
    call = 1
    while True:
        disk.fail(call)
        if not fails_clearly(node, "cluster_join", token=token):
            break
        is_in_no_cluster(node)
        crash(node, disk)
        is_in_no_cluster(node)
        call += 1
    assert call > 18, f"only {call} calls"
    crash(node, disk)
    eventually(lambda: len(node.peers_up()) == 2, "the joined node to see both others")
    equal(node.ask("cluster_show")["issuer"], False, "issuer")
    forget(cluster, node)
    cluster.wait_connected()


def test_tokens_are_what_a_restart_says_whichever_call_fails(cluster):
    """[H15] [K4] [K6] [A5] Creation, revocation and use."""
    issuer, disk = single(cluster, 34)
    issuer.start(NEXAR_INIT_CLUSTER="1", **disk.environment)
    listed = lambda: issuer.ask("token_list")["tokens"]  # noqa: E731
    tokens = [issuer.ask("token_create", uses=20, lifetime_s=3600) for _ in range(2)]

    def use():
        joiner = cluster.node(host=35)
        joiner.start(wait=False, NEXAR_CLUSTER_TOKEN=tokens[0]["token"])
        joiner.expected_dead = True
        eventually(lambda: not joiner.alive() or "node_started" in joiner.log(), "the join to end", 20)
        failed = not joiner.alive()
        if failed:
            contains(joiner.log(), NO_SPACE)
        forget(cluster, joiner)
        return failed

    for what in (lambda: fails_clearly(issuer, "token_create", uses=1, lifetime_s=3600),
                 lambda: fails_clearly(issuer, "token_revoke", id=tokens[1]["id"]), use):
        for call in range(1, 5):
            before = listed()
            disk.fail(call)
            assert what(), f"call {call} should have failed"
            equal(disk.failed, 1, "failed calls")
            after = listed()
            if call < 4:  # the last call is the directory's sync: the file is replaced already
                equal(after, before, f"tokens after call {call} failed")
            crash(issuer, disk)
            equal(listed(), after, f"tokens after a restart, call {call}")
    forget(cluster, issuer)


def works_until_released(me):
    """Sums until the test releases rank 0; the longest round in seconds, and how many there were."""
    group, rounds, longest = me.group(), 0, 0.0
    x, want = given("float32", "sum", me.rank, 1000), reduced("float32", "sum", me.size, 1000)
    out = np.empty_like(x)
    me.mark()
    while True:
        begin = time.monotonic()
        check(group.all_reduce(x, out), want, "all_reduce")
        stop = np.array([float(me.rank == 0 and me.is_released())], np.float32)
        stopping = group.all_reduce(stop, op="max")[0]
        longest, rounds = max(longest, time.monotonic() - begin), rounds + 1
        if stopping:
            return longest, rounds


def test_a_disk_that_takes_seconds_for_a_sync_disturbs_no_running_group(cluster):
    """[H11] [K1] [K8] [K9] Tokens, a join through it, a new peer and a renewal's file all wait; nothing else does."""
    issuer, disk = cluster[1], FaultyDisk(cluster[1])
    crash(issuer, disk)
    cluster.wait_connected()
    job = Job([issuer, cluster[2]], works_until_released)
    job.await_marks()
    token = issuer.ask("token_create", uses=5, lifetime_s=600)

    disk.delay(SLOW_FSYNC)
    calls = disk.calls
    joiner = cluster.node(host=36).start(wait=False, NEXAR_CLUSTER_TOKEN=token["token"])
    eventually(lambda: disk.calls > calls, "the use of the token to be on its way to the disk")
    # Answered while the disk is busy, and by what the disk has.
    uses = {entry["id"]: entry["uses_left"] for entry in issuer.ask("token_list")["tokens"]}
    equal(uses[token["id"]], 5, "uses left while the use is being saved")
    equal(issuer.status()["state"], "running", "state")
    eventually(lambda: "node_started" in joiner.log(), "the joiner to be admitted", 60)
    eventually(lambda: joiner.id in issuer.peers_up(), "the joiner to be a peer", 60)
    equal(issuer.ask("token_create", seconds=60, uses=1, lifetime_s=600)["uses"], 1, "uses of a token made meanwhile")
    eventually(lambda: joiner.endpoint in (issuer.state / "roster").read_text(), "the roster to be saved", 60)

    job.go(0)
    outcomes = job.outcomes(seconds=60)
    for longest, rounds in outcomes:
        assert rounds > 20 and longest < SLOW_FSYNC, outcomes
    for node in (issuer, cluster[2]):
        assert " group_failed " not in node.log(), f"{node} has lost a group"
    disk.delay(0)
    forget(cluster, joiner)
    crash(issuer, disk)
    cluster.wait_connected()


main(globals(), nodes=2)
