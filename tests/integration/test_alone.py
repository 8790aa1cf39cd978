"""[U20] A daemon that is in no cluster serves the groups of its host's processes, and goes on doing so while it enters one."""
import json
import os
import signal
import subprocess

from harness import *
from harness.system import die_with_parent, enter

RANKS = 3


def fresh(cluster, **environment):
    """A node whose daemon has no identity."""
    return cluster.node().start(**environment)


def ctl(node, *words, expect=0, **environment):
    """(standard output, standard error) of a nexarctl on a node."""
    def prepare():
        enter(node.network.namespace(node.host))
        die_with_parent()

    done = subprocess.run([os.environ["NEXAR_TEST_NEXARCTL"], "--socket", node.admin, *map(str, words)], text=True,
                          capture_output=True, timeout=40, preexec_fn=prepare, stdin=subprocess.DEVNULL,
                          env={**os.environ, "NEXAR_SOCKET": str(node.socket), **environment})
    if expect is not None:
        equal(done.returncode, expect, f"exit status of nexarctl {' '.join(map(str, words))} ({done.stderr})")
    return done.stdout, done.stderr


def retire(cluster, node):
    node.end(signal.SIGKILL)
    del cluster.nodes[node.number]


def works(group, me):
    """Every kind of transfer that a group of one host has: small and large collectives, messages, other memory."""
    for count in (1, 1000, 300_000):
        values = np.full(count, me.rank + 1.0)
        group.all_reduce(values)
        assert (values == 6).all(), values
    value = np.zeros(100_000, np.int64)
    if me.rank == 0:
        group.send(np.full(100_000, 7), 1, 5)
    elif me.rank == 1:
        group.recv(value, 0, 5)
        assert (value == 7).all()
    group.barrier()


def job_of(me, secret):
    session = me.session()
    group = session.group(me.name, size=me.size, rank=me.rank, timeout=10, job_secret=me.secret if secret else "")
    works(group, me)
    return group.rank


def test_groups_with_and_without_a_secret_work_before_any_cluster(cluster):
    node = fresh(cluster)
    for secret in (True, False):
        if not secret:
            os.environ.pop("NEXAR_JOB_SECRET", None)
        equal(run([node] * RANKS, job_of, secret), list(range(RANKS)), f"ranks, with a secret: {secret}")
    status = node.ask("status")
    equal((status["state"], status["cluster"], status["peers"], len(status["node"])), ("no cluster", None, [], 64), "status")
    contains(ctl(node, "status")[0], "none, groups of this host only", "cluster init")
    retire(cluster, node)


def test_run_works_before_any_cluster_and_says_what_several_nodes_need(cluster):
    node = fresh(cluster)
    output, _ = ctl(node, "run", "-n", RANKS, "--", os.environ["NEXAR_TEST_RANK_CLIENT"], 1000, 5)
    equal(sorted(output.splitlines()), [f"[{rank}] rank {rank}: 5 right" for rank in range(RANKS)], "output")
    secret = cluster.folder / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    secret.chmod(0o600)
    several = ("run", "-n", 1, "--nodes", 2, "--node-index", 0, "--secret-file", secret, "--", "/bin/true")
    contains(ctl(node, *several, expect=1)[1], "in no cluster", "nexarctl cluster init", "nexarctl cluster join", "nothing was")
    ctl(node, "cluster", "init")
    ctl(node, *several)
    retire(cluster, node)


def opens_for_two_nodes(me):
    return me.fails(me.group, timeout=1)


def test_a_group_of_several_nodes_fails_with_what_to_run(cluster):
    node = fresh(cluster)
    failure, = Job([node, node], opens_for_two_nodes, name="wide", without={1}).outcomes()
    equal((failure.name, failure.rank), ("GROUP_INCOMPLETE", 1), "error")
    contains(failure.text, "in no cluster", "nexarctl cluster init", "nexarctl cluster join")
    retire(cluster, node)


def test_a_group_that_waits_shows_what_is_missing_and_forms_after_a_join(cluster):
    """Its first rank opened it before its node was in the cluster; the second comes on another node of it."""
    node = fresh(cluster)
    first = Job([node, cluster[1]], job_of_two, name="wide", without={1})
    first.await_marks()
    forming, = eventually(lambda: node.ask("groups")["forming"], "the group to be known", 10)
    contains(" ".join(forming["hints"]), "in no cluster", "nexarctl cluster init")
    node.ask("cluster_join", seconds=30, token=cluster.token())
    second = Job([node, cluster[1]], job_of_two, name="wide", without={0})
    equal(first.outcomes() + second.outcomes(), [3, 3], "sums")
    retire(cluster, node)


def job_of_two(me):
    session = me.session()
    me.mark()
    group = me.group(session, timeout=30)
    values = np.array([me.rank + 1])
    group.all_reduce(values)
    return int(values[0])


def goes_on(me):
    group = me.group(me.session())
    rounds = 0
    me.mark()
    while True:
        values = np.array([rounds, int(me.is_released())])
        group.all_reduce(values)
        assert values[0] == rounds * me.size, values
        rounds += 1
        if values[1] == me.size:
            works(group, me)
            return rounds


def hangs_meanwhile(me):
    """An operation in flight, and a process that waits for its group, at the moment of the change."""
    session = me.session()
    group = me.group(session)
    started = group.barrier_start() if me.rank == 0 else None
    me.mark()
    me.wait_for_go()
    (started or group.barrier_start()).wait()
    return me.rank


def enters(cluster, way):
    """Local groups at work and at rest while the node enters a cluster: same processes, groups, node and incarnation."""
    node = fresh(cluster)
    before = node.status()
    busy, resting = Job([node] * RANKS, goes_on), Job([node] * 2, hangs_meanwhile)
    busy.await_marks()
    resting.await_marks()
    groups = {group["id"] for group in node.ask("groups")["groups"]}
    way(node)
    after = node.status()
    equal((after["state"], after["node"], after["incarnation"], after["sessions"]),
          ("running", before["node"], before["incarnation"], RANKS + 2), "status")
    equal({group["id"] for group in node.ask("groups")["groups"]}, groups, "groups")
    for job in (resting, busy):
        job.go()
    equal(resting.outcomes(), [0, 1], "ranks of the group at rest")
    rounds = busy.outcomes()
    equal(len(set(rounds)), 1, f"rounds {rounds}")
    return node


def test_an_init_does_not_disturb_local_groups(cluster):
    """And another node gets in with a token of this one."""
    def init(node):
        ctl(node, "cluster", "init", "--name", "later")

    node = enters(cluster, init)
    guest = fresh(cluster)
    guest.ask("cluster_join", seconds=30, token=node.ask("token_create", uses=1, lifetime_s=60)["token"])
    eventually(lambda: node.peers_up() == {guest.status()["node"]}, "the two to be connected")
    equal(run([node, guest], job_of_two), [3, 3], "sums over two nodes")
    retire(cluster, guest)
    retire(cluster, node)


def test_a_join_does_not_disturb_local_groups(cluster):
    everybody = {cluster[1].id, cluster[2].id}
    node = enters(cluster, lambda node: ctl(node, "cluster", "join", cluster.token()))
    eventually(lambda: node.peers_up() == everybody, "the node to be connected")
    equal(run([cluster[2], node], job_of_two), [3, 3], "sums over two nodes")
    own = node.status()
    node.end()
    node.start()
    again = node.status()
    equal((again["node"], again["incarnation"]), (own["node"], own["incarnation"] + 1), "after a restart")
    retire(cluster, node)


def test_an_init_that_fails_leaves_local_groups_and_can_be_repeated(cluster):
    """The node's port is taken by another daemon of its host."""
    node = fresh(cluster)
    other = cluster.node(host=node.host)
    other.start(NEXAR_INIT_CLUSTER="1")
    job = Job([node] * 2, hangs_meanwhile)
    job.await_marks()
    ctl(node, "cluster", "init", expect=1)
    equal((node.status()["state"], node.status()["sessions"]), ("no cluster", 2), "status")
    job.go()
    equal(job.outcomes(), [0, 1], "ranks")
    other.end()
    ctl(node, "cluster", "init")
    equal(node.status()["state"], "running", "state")
    retire(cluster, other)
    retire(cluster, node)


def test_a_node_that_left_its_cluster_serves_local_groups_as_another_node(cluster):
    node = fresh(cluster)
    node.ask("cluster_join", seconds=30, token=cluster.token())
    first = node.status()["node"]
    ctl(node, "cluster", "leave")
    equal(run([node] * RANKS, job_of, True), list(range(RANKS)), "ranks")
    assert node.status()["node"] != first, "it has its old identity"
    retire(cluster, node)


def test_doctor_says_local_only(cluster):
    node = fresh(cluster)
    checks = {check["check"]: check for check in json.loads(ctl(node, "doctor", "--json", expect=None)[0])["checks"]}
    equal((checks["cluster"]["result"], checks["session socket"]["result"], checks["daemon"]["result"]), ("warn", "ok", "ok"),
          "results")
    contains(checks["cluster"]["found"], "no cluster, local only")
    contains(checks["cluster"]["advice"], "nexarctl cluster init", "nexarctl cluster join -")
    retire(cluster, node)


if __name__ == "__main__":
    main(globals(), nodes=2)
