"""nexarctl against a live cluster, a wedged daemon, and none:

    node 1: ranks 0, 3 ──┐
    node 2: ranks 1, 4 ──┼── switch
    node 3: ranks 2, 5 ──┘
"""
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from harness import *
from harness.system import die_with_parent, enter, held_thread

OK, FAILED, USAGE, NO_DAEMON, NO_ANSWER = 0, 1, 2, 3, 4


def ctl(node, *words, expect=OK, seconds=20, **environment):
    """(standard output, standard error) of a nexarctl on a node."""
    def prepare():
        enter(node.network.namespace(node.host))
        die_with_parent()

    done = subprocess.run([os.environ["NEXAR_TEST_NEXARCTL"], "--socket", node.admin, *map(str, words)], text=True,
                          capture_output=True, timeout=seconds, preexec_fn=prepare, stdin=subprocess.DEVNULL,
                          env={**os.environ, "NEXAR_SOCKET": str(node.socket), **environment})
    if expect is not None:
        equal(done.returncode, expect, f"exit status of nexarctl {' '.join(map(str, words))} ({done.stderr})")
    return done.stdout, done.stderr


def ctl_json(node, *words):
    return json.loads(ctl(node, *words, "--json")[0])


def waits_for_rank_4(me):
    session = me.session()
    group = me.group(session)
    group.barrier()
    request = group.all_reduce_start(np.zeros(1000, np.float32), op="max") if me.rank != 4 else None
    receive = group.recv_start(np.zeros(1), 1, 77) if me.rank == 0 else None
    me.mark()
    me.wait_for_go()
    (request or group.all_reduce_start(np.zeros(1000, np.float32), op="max")).wait()
    if receive:
        receive.cancel()


def two_each(cluster):
    return [cluster[n] for n in (1, 2, 3, 1, 2, 3)]


def test_status_shows_this_node_and_its_peers(cluster):
    for node in cluster:
        status = ctl_json(node, "status")
        equal((status["node"], status["pid"], status["state"]), (node.id, node.pid, "running"), "status")
        equal({peer["node"] for peer in status["peers"] if peer["state"] == "up"}, node.peers_up(), "peers")
        assert all(0 < peer["rtt_ms"] < 1000 for peer in status["peers"]), status["peers"]
        text, _ = ctl(node, "status")
        contains(text, node.id[:8], *(peer[:8] for peer in node.peers_up()), "up", "PEER", "RTT")


def test_groups_and_ops_show_who_is_there_and_who_has_not_arrived(cluster):
    job = Job(two_each(cluster), waits_for_rank_4, name="shown")
    job.await_marks()

    for node in cluster:
        group, = [group for group in ctl_json(node, "groups")["groups"] if group["name"] == "shown"]
        equal((group["size"], group["nodes"], group["failed"]), (6, 3, None), "group")
        equal([(rank["rank"], rank["node"], rank["pid"]) for rank in group["ranks"]],
              [(rank, two_each(cluster)[rank].id, job[rank].pid) for rank in range(6)], "ranks")
        contains(ctl(node, "groups")[0], "shown", "6")
    for node in (cluster[1], cluster[2]):
        op, = eventually(lambda node=node: [op for op in ctl_json(node, "ops")["ops"]
                                            if op["group"] == "shown" and op["arrived_count"] == 5 and op["missing"]],
                         f"{node} to know that one rank is missing")
        equal(op["op"], "all_reduce f32 max count 1000", "descriptor")
        equal([(rank["rank"], rank["node"], rank["pid"]) for rank in op["missing"]],
              [(4, cluster[2].id, job[4].pid)], "missing")
        equal(sorted(op["arrived"]), [0, 1, 2, 3, 5], "arrived")
        contains(ctl(node, "ops")[0], "all_reduce f32 max", "shown", job[4].pid)
    eventually(lambda: "77" in json.dumps(ctl_json(cluster[1], "ops")["messages"]), "the receive to be shown")
    job.go()
    job.outcomes()


MIB = 1 << 20
SMALL = 1000


def traffic(node, peer):
    """What a node says of its exchange with another, by class."""
    row, = [row for row in ctl_json(node, "status")["peers"] if row["node"] == peer.id]
    return row["traffic"]


def moves_large_then_small(me):
    session = me.session()
    group = me.group(session)
    large = session.alloc(4 * MIB, "uint8")
    group.all_reduce(large)
    me.mark()
    me.wait_for_go()
    group.all_reduce(np.ones(SMALL, np.uint8))
    me.mark()
    me.wait_for_go()
    group.all_reduce(large)


def both_ends_agree(one, other, *classes):
    """What one end has sent in these classes, the other has received."""
    here, there = traffic(one, other), traffic(other, one)
    return all(here[name][way] == there[name][back] for name in classes
               for way, back in (("sent", "received"), ("received", "sent")))


def test_both_ends_count_the_same_also_while_a_shard_stands(cluster):
    """[U10] [C7] Known amounts between two nodes, and one of the shards held: its node answers at once, with true numbers."""
    one, two = cluster[1], cluster[2]
    before = traffic(one, two)
    job = Job([one, two], moves_large_then_small)
    job.await_marks()
    eventually(lambda: both_ends_agree(one, two, "bulk", "rpc", "small"), "both ends to have counted alike")
    moved = traffic(one, two)
    for way in ("sent", "received"):
        payload = moved["bulk"][way]["payload_bytes"] - before["bulk"][way]["payload_bytes"]
        assert payload >= 4 * MIB // 2, f"{payload} bytes {way} of an all_reduce of 4 MiB"
        assert moved["bulk"][way]["bytes"] > moved["bulk"][way]["payload_bytes"], moved
        assert moved["control"][way]["frames"] > before["control"][way]["frames"], moved

    with held_thread(two.pid, "bulk-0"):
        job.go()
        job.await_marks()
        equal(both_ends_agree(one, two, "bulk"), True, "both ends agree on what the held shard has done")
        equal(traffic(two, one)["bulk"]["received"], moved["bulk"]["sent"], "bulk while the shard stands")
        eventually(lambda: both_ends_agree(one, two, "small"), "what the control loop moves meanwhile")
        small = traffic(two, one)["small"]["received"]["payload_bytes"] - moved["small"]["sent"]["payload_bytes"]
        assert small >= SMALL // 2, f"{small} bytes received of an all_reduce of {SMALL}"
    job.go()
    job.outcomes()
    eventually(lambda: both_ends_agree(one, two, "bulk", "rpc", "small"), "both ends to have counted alike in the end")
    grown = traffic(two, one)["bulk"]["received"]["payload_bytes"] - moved["bulk"]["sent"]["payload_bytes"]
    assert grown >= 4 * MIB // 2, f"{grown} bytes came after the shard went on"


def test_groups_and_ops_are_empty_without_jobs(cluster):
    for word in ("groups", "ops"):  # of the test before this one
        eventually(lambda word=word: not ctl_json(cluster[1], word)[word], f"the {word} to have gone")
    for word in ("groups", "ops"):
        assert ctl(cluster[1], word)[0].strip(), f"nexarctl {word} says nothing at all"


def opens_alone(me):
    session = me.session()
    me.mark()
    try:
        me.group(session, timeout=60)
    except Exception as error:
        return str(error)


def test_groups_that_are_forming_show_who_came_and_what_keeps_them_from_it(cluster):
    """[U8]"""
    nodes = [cluster[1], cluster[2], cluster[3]]
    half = Job(nodes, opens_alone, name="half", without={1})
    half.await_marks()
    for node in (cluster[1], cluster[3]):
        one, = eventually(lambda node=node: [one for one in ctl_json(node, "groups")["forming"]
                                             if one["name"] == "half" and one["came_count"] == 2],
                          f"{node} to know that two came", 10)
        equal((one["missing"], one["missing_count"], one["reported"]), ([1], 1, True), "missing")
        equal([(rank["rank"], rank["node"], rank["pid"]) for rank in one["came"]],
              [(rank, nodes[rank].id, half[rank].pid) for rank in (0, 2)], "came")
        equal(one["hints"], [], "hints")
        for words in (("groups",), ("ops",), ("ops", "half")):
            contains(ctl(node, *words)[0], "half  forming for", "2 of 3 ranks came, missing: rank 1", "gives up in")
    keys = {one["key"] for node in (cluster[1], cluster[3]) for one in ctl_json(node, "groups")["forming"]}
    equal(len(keys), 1, "keys on the two nodes")

    alone = Job(nodes, opens_alone, name="half", without={0, 2}, secret="another secret, of 16 bytes at least")
    alone.await_marks()
    for node in (cluster[1], cluster[2]):
        eventually(lambda node=node: "another job secret" in " ".join(
            hint for one in ctl_json(node, "groups")["forming"] for hint in one["hints"]), f"a hint on {node}", 10)
    contains(ctl(cluster[2], "groups")[0], "no rank of another node has come")
    assert {one["key"] for one in ctl_json(cluster[2], "groups")["forming"]}.isdisjoint(keys), "equal keys of two secrets"


def test_plan_needs_no_daemon_and_knows_live_groups(cluster):
    plan = ctl_json(cluster[1], "plan", "--op", "all_reduce", "--bytes", "64M", "--nodes", 3, "--ranks-per-node", 2)
    assert plan, "an empty plan"
    contains(ctl(cluster[1], "plan", "--op", "all_reduce", "--bytes", "64M", "--nodes", 3)[0], "ring")
    for nodes, algorithm in ((2, "recursive doubling"), (3, "ring")):
        equal(ctl_json(cluster[1], "plan", "--op", "all_reduce", "--bytes", "128K", "--nodes", nodes)["algorithm"], algorithm)
    job = Job(two_each(cluster), waits_for_rank_4, name="planned")
    job.await_marks()
    assert ctl_json(cluster[2], "plan", "--op", "all_reduce", "--bytes", "8", "--group", "planned")
    job.go()
    job.outcomes()


def test_tokens_are_made_shown_and_revoked(cluster):
    token = ctl(cluster[1], "token", "create", "--uses", 3, "--lifetime", 100)[0].strip()
    assert token.startswith("nexar1.") and len(token.split()) == 1, token

    listed = [entry for entry in ctl_json(cluster[1], "token", "list")["tokens"] if entry["uses_left"] == 3]
    assert len(listed) == 1 and 0 < listed[0]["expires"] - time.time() <= 100, listed
    assert token not in ctl(cluster[1], "token", "list")[0], "the list shows secrets"
    ctl(cluster[1], "token", "revoke", listed[0]["id"])
    assert listed[0]["id"] not in ctl(cluster[1], "token", "list")[0]
    _, complaint = ctl(cluster[1], "token", "revoke", listed[0]["id"], expect=FAILED)
    contains(complaint, listed[0]["id"])
    _, complaint = ctl(cluster[2], "token", "create", expect=FAILED)
    contains(complaint, "no issuer")


def test_a_node_without_a_cluster_makes_one_or_joins_one(cluster):
    maker, joiner = cluster.node().start(), cluster.node().start()
    _, complaint = ctl(maker, "token", "create", expect=FAILED)
    contains(complaint, "cluster init", "cluster join")

    ctl(maker, "cluster", "init")
    token = ctl(maker, "token", "create")[0].strip()
    ctl(joiner, "cluster", "join", token)

    eventually(lambda: maker.peers_up() == {joiner.status()["node"]}, "the two to be connected")
    equal({member["node"] for member in ctl_json(joiner, "cluster", "show")["members"]}, {maker.id, joiner.id}, "members")
    for again in (("init",), ("join", token)):
        _, complaint = ctl(joiner, "cluster", *again, expect=FAILED)
        contains(complaint, "in a cluster already", "nexarctl cluster leave")
    for node in (maker, joiner):
        node.end(signal.SIGKILL)
        del cluster.nodes[node.number]


def waits_in_a_group(me):
    group = me.group()
    me.mark()
    me.wait_for_go()
    group.barrier()


def test_a_node_leaves_and_joins_again_as_another(cluster):
    """[U11]"""
    _, complaint = ctl(cluster[1], "cluster", "leave", expect=FAILED)
    contains(complaint, "this node made the cluster", "--force")
    node = cluster.node()
    token = ctl(cluster[1], "token", "create", "--uses", 3)[0].strip()
    node.start(NEXAR_CLUSTER_TOKEN=token)
    everybody = {cluster[n].id for n in (1, 2, 3)}
    eventually(lambda: node.peers_up() == everybody, "the new node to be connected")
    first = node.status()["node"]

    job = Job([node], waits_in_a_group, name="stays")
    job.await_marks()
    _, complaint = ctl(node, "cluster", "leave", expect=FAILED)
    contains(complaint, "1 session open", "--force")
    equal(node.peers_up(), everybody, "peers after a refusal")
    output, _ = ctl(node, "cluster", "leave", "--force")
    contains(output, "left the cluster", first[:12], "left.*", "cluster join -")
    job.go()
    contains(job.outcomes()[0].name, "DAEMON_LOST")

    equal(node.status()["state"], "no cluster", "state")
    _, complaint = ctl(node, "cluster", "leave", expect=FAILED)
    contains(complaint, "in no cluster")
    for other in (cluster[1], cluster[2], cluster[3]):
        gone, = eventually(lambda other=other: [peer for peer in other.ask("status")["peers"]
                                                if peer["node"] == first and peer["state"] == "left"], f"{other} to know it")
        contains(gone["why"], "has left the cluster")
        assert 3000 < gone["forgotten_in_s"] <= 3600, gone
        contains(ctl(other, "status")[0], "left", "forgotten in")

    node.end()
    node.start(NEXAR_CLUSTER_TOKEN=token)  # [A12] it is in the configuration still
    equal(node.status()["state"], "no cluster", "state after a restart with the token from before")
    eventually(lambda: "stays_out_of_a_cluster" in node.log(), "the word in the log, which a thread writes")
    for words in (("status",), ("doctor",)):
        contains(ctl(node, *words, expect=None)[0], "it left its cluster", "cluster join -")
    ctl(node, "cluster", "join", token)
    eventually(lambda: node.peers_up() == everybody, "the node to be connected again")
    equal(node.ask("status")["why_no_cluster"], None, "why it is in no cluster")
    assert node.status()["node"] not in {first, *everybody}, "it has its old identity"
    equal({peer["node"] for peer in node.ask("status")["peers"]}, everybody, "[P14] peers, without its former self")
    for member in (node, cluster[2]):
        equal({one["node"] for one in ctl_json(member, "cluster", "show")["members"]}, {node.id, *everybody}, "members")
    known, = [peer for peer in cluster[2].ask("status")["peers"] if peer["node"] == first]
    equal(known["state"], "left", "its former self, to others")
    node.end(signal.SIGKILL)
    del cluster.nodes[node.number]


def test_run_starts_ranks_that_meet(cluster):
    output, _ = ctl(cluster[1], "run", "-n", 3, "--", os.environ["NEXAR_TEST_RANK_CLIENT"], 100, 5)
    equal(sorted(output.splitlines()), [f"[{rank}] rank {rank}: 5 right" for rank in range(3)], "output")


def test_run_spans_hosts_with_one_secret(cluster):
    secret = cluster.folder / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    secret.chmod(0o600)
    jobs = []
    for node in cluster:
        namespace = node.network.namespace(node.host)
        jobs.append(subprocess.Popen(
            [os.environ["NEXAR_TEST_NEXARCTL"], "run", "-n", "2", "--nodes", "3", "--node-index", str(node.number - 1),
             "--secret-file", secret, "--", os.environ["NEXAR_TEST_RANK_CLIENT"], "1000", "10"],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "NEXAR_SOCKET": str(node.socket)},
            preexec_fn=lambda namespace=namespace: (enter(namespace), die_with_parent())))
    lines = []
    for job in jobs:
        lines += job.communicate(timeout=30)[0].splitlines()
        equal(job.returncode, 0, "exit status")
    equal(sorted(lines), [f"[{rank}] rank {rank}: 10 right" for rank in range(6)], "output")


def test_run_passes_on_how_a_rank_ended_and_ends_the_others(cluster):
    begin = time.monotonic()
    script = 'if [ "$NEXAR_RANK" = 1 ]; then exit 7; fi; exec sleep 60'
    ctl(cluster[1], "run", "-n", 3, "--grace", 1, "--", "/bin/sh", "-c", script, expect=7)
    assert time.monotonic() - begin < 10
    output, _ = ctl(cluster[1], "run", "-n", 2, "--", "/bin/sh", "-c", "echo $NEXAR_RANK of $NEXAR_WORLD_SIZE")
    equal(sorted(output.splitlines()), ["[0] 0 of 2", "[1] 1 of 2"], "output")


def test_doctor_examines_a_machine_with_and_without_a_daemon(cluster):
    checks = json.loads(ctl(cluster[1], "doctor", "--json", expect=None)[0])
    assert len(checks["checks"]) > 8, checks
    for check in checks["checks"]:
        assert check["result"] in ("ok", "warn", "fail") and check["found"], check
        assert check["result"] == "ok" or check["advice"], f"no advice: {check}"
    text, _ = ctl(cluster[1], "doctor", expect=None)
    contains(text, cluster.network.address(1))

    cluster[3].kill()
    text, _ = ctl(cluster[3], "doctor", expect=FAILED)  # [U13]
    contains(text, "no daemon listens", "systemctl start nexard", "to repair")
    cluster[3].start()


def bulk_checks(node, expect=None):
    checks = json.loads(ctl(node, "doctor", "--json", expect=expect)[0])["checks"]
    return [check for check in checks if check["check"].startswith("bulk data, peer")]


def needs_bulk(me):
    group = me.group()
    me.mark()
    me.wait_for_go()
    return me.fails(group.all_reduce, np.ones(4 << 20, np.uint8))


def test_a_blocked_port_for_bulk_data_is_named_with_its_remedy(cluster):
    """[P13] The control connection is well; the doctor and the error of an operation name the port."""
    one, two, port = cluster[1], cluster[2], PORT + 1
    equal([check["result"] for check in bulk_checks(one)], ["ok"] * 4, "bulk checks: a shard's and the control loop's, of two peers")
    job = Job([one, two], needs_bulk)
    job.await_marks()
    cluster.network.block(2, 1, port)
    # Both at once, as an administrator does: the questions of the one are no answers to those of the other.
    with ThreadPoolExecutor() as both:
        found = list(both.map(lambda node: bulk_checks(node, FAILED), (one, two)))
    for checks, other in zip(found, (two, one)):
        blocked, = [check for check in checks if check["result"] == "fail"]
        protocol = blocked["found"].split()[0]
        assert protocol in ("UDP", "TCP"), blocked
        contains(blocked["found"], f"{protocol} {cluster.network.address(other.host)}:{port}", "nothing comes back")
        contains(blocked["advice"], "firewall", f"{protocol} port {port}", "LINK_LOST")
    equal(one.peers_up(), {two.id, cluster[3].id}, "peers")

    job.go()
    for failure in job.outcomes():
        equal(failure.name, "LINK_LOST", "error")
        contains(failure.text, "bulk data", f":{port}", "firewall", "nexarctl doctor")
    contains(next(p for p in one.ask("status")["peers"] if p["node"] == two.id)["why"], "bulk data", f":{port}")
    cluster.network.heal()
    eventually(lambda: all(check["result"] == "ok" for check in bulk_checks(one)), "the bulk connection to be back")


def test_the_configuration_is_shown_without_secrets(cluster):
    text, _ = ctl(cluster[1], "config")
    contains(text, "heartbeat_timeout", str(int(HEARTBEAT_TIMEOUT)))
    assert "nexar1." not in ctl(cluster[2], "config")[0] + ctl(cluster[2], "config", "--json")[0], "the join token is shown"


COMMANDS = (("status",), ("groups",), ("ops",), ("token", "list"), ("cluster", "show"), ("config",))


def test_no_daemon_is_one_clear_line(cluster):
    cluster[3].kill()
    for words in COMMANDS:
        output, complaint = ctl(cluster[3], *words, expect=NO_DAEMON)
        equal((output, len(complaint.strip().splitlines())), ("", 1), f"output of {words}")
        contains(complaint, cluster[3].admin, "systemctl start nexard")
    cluster[3].start()


def test_a_wedged_daemon_is_reported_as_one(cluster):
    cluster[3].pause()
    begin = time.monotonic()
    _, complaint = ctl(cluster[3], "status", expect=NO_ANSWER)
    assert time.monotonic() - begin < 7
    contains(complaint, "does not answer", cluster[3].admin)
    cluster[3].resume()


def test_wrong_usage_says_what_is_allowed(cluster):
    for words in (("nonsense",), ("token", "create", "--uses", "0"), ("run", "-n", "2"), ("plan", "--op", "nothing")):
        _, complaint = ctl(cluster[1], *words, expect=None)
        assert complaint.strip(), f"no error about {words}"
        assert "terminate called" not in complaint, complaint


main(globals())
