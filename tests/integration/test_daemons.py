"""Daemons are killed, stopped, asked to leave, and started again. Two ranks on each node:

    node 1: ranks 0, 3 ──┐
    node 2: ranks 1, 4 ──┼── switch         node 2 is the one that goes
    node 3: ranks 2, 5 ──┘
"""
import select
import signal
import socket
import threading
import time

from harness import *
from harness.states import arrived, asleep_in_threads, in_collective, receiving
from harness.values import check, given, reduced

SILENT = HEARTBEAT_TIMEOUT + HEARTBEAT_INTERVAL + 0.25 + BUSY  # T, I, the question
KILLED = HEARTBEAT_INTERVAL + 0.6 + 0.25 + BUSY                # next heartbeat, W, the question
UNRESPONSIVE = 1 + 2 * 0.5 + BUSY                              # one second without a tick, and two more ticks
AT_ONCE = BUSY
LOCAL, REMOTE = (1, 4), (0, 2, 3, 5)


def two_each(cluster):
    return [cluster[n] for n in (1, 2, 3, 1, 2, 3)]


def one_sum(me, group=None):
    check((group or me.group()).all_reduce(given("int64", "sum", me.rank, 1000)),
          reduced("int64", "sum", me.size, 1000), "all_reduce")


def comes_back(cluster, number=2):
    """The node returns by itself under its old name, and new groups work."""
    node = cluster[number]
    before = node.id
    if not node.alive():
        node.start()
    cluster.wait_connected()
    equal(node.status()["node"], before, "identity after the restart")
    run(two_each(cluster), one_sum)


def waits(me, unresponsive, working):
    """Ranks 1 and 4 wait for the others, and these for rank 1 or 4; or all work. The session is used afterwards."""
    session = me.session(daemon_unresponsive=unresponsive)
    group = me.group(session)
    one_sum(me, group)
    me.mark()
    if working:
        first = me.fails(works, me, group)
    elif me.rank in LOCAL:
        first = me.fails(group.recv, np.zeros(1), 0)
    else:
        first = me.fails(group.barrier)
    return [first, me.fails(group.barrier), me.fails(group.send, np.zeros(3), 0),
            me.fails(me.group, session, name="another", timeout=1) if me.rank in LOCAL else first]


def works(me, group):
    x, want = given("float32", "sum", me.rank, 100_000), reduced("float32", "sum", me.size, 100_000)
    out = np.empty_like(x)
    while True:
        check(group.all_reduce(x, out), want, "all_reduce")


def await_work(job, working):
    """Until every rank of `waits` does what the job is about."""
    job.await_marks()
    if working:
        eventually(lambda: all(rank in arrived(job[rank].node, job.name) for rank in job.ranks), "all ranks to work")
    else:
        eventually(lambda: receiving(job, *LOCAL) and in_collective(job, *REMOTE), "all ranks to wait")


def check_ends(cluster, job, since, local_code, local_within, remote_within, rank=1):
    local, remote = job.outcomes(*LOCAL), job.outcomes(*REMOTE)
    if rank is None:  # both ranks of the node leave, and either may be reported first
        rank = remote[0][0].rank
        assert rank in LOCAL, f"rank {rank} is not on node 2: {remote}"
    same_failure([o[0] for o in remote], "PEER_LOST", rank=rank, node=cluster[2].id, since=since, within=remote_within)
    for outcome in remote:
        same_failure(outcome, "PEER_LOST", rank=rank, node=cluster[2].id)
    for outcome in local:
        equal({failure.name for failure in outcome}, {local_code}, f"errors on node 2: {outcome}")
    took = max(outcome[0].at for outcome in local) - since
    assert took < local_within, f"the ranks beside the daemon were released after {took:.2f} s"


def test_a_killed_daemon_releases_its_ranks_at_once_and_is_named_elsewhere(cluster):
    for working in (False, True):
        job = Job(two_each(cluster), waits, 10, working)
        await_work(job, working)

        since = time.monotonic()
        cluster[2].kill()

        check_ends(cluster, job, since, "DAEMON_LOST", AT_ONCE, KILLED)
        comes_back(cluster)


def test_a_stopped_daemon_is_found_out_by_its_ranks_and_by_the_others(cluster):
    for working in (False, True):
        job = Job(two_each(cluster), waits, 1, working)
        await_work(job, working)

        since = time.monotonic()
        cluster[2].pause()

        check_ends(cluster, job, since, "DAEMON_UNRESPONSIVE", UNRESPONSIVE, SILENT)
        cluster[2].resume()
        comes_back(cluster)


def asks_again_and_again(me, how):
    """Never sleeps in the library."""
    session = me.session(daemon_unresponsive=1)
    request = me.group(session).recv_start(np.zeros(1), 0)
    me.mark()
    until = time.monotonic() + 2 * UNRESPONSIVE
    while time.monotonic() < until:
        if how == "test" and request.test():
            return me.fails(request.wait)
        if how == "poll" and (status := polled(session)) != 0:
            return me.failure(cabi.error_of(status))
        time.sleep(0.01)  # sleep: between two questions
    return "it was never released"


def polled(session):
    return cabi.poll(session)[0]


def test_a_stopped_daemon_is_found_out_by_who_only_tests_and_polls(cluster):
    for how in ("test", "poll"):
        job = Job([cluster[2]], asks_again_and_again, how)
        job.await_marks()

        since = time.monotonic()
        cluster[2].pause()

        failures = job.outcomes()
        cluster[2].resume()
        equal([getattr(failure, "name", failure) for failure in failures], ["DAEMON_UNRESPONSIVE"], "errors")
        assert failures[0].at - since < UNRESPONSIVE, f"it took {failures[0].at - since:.2f} s"
        comes_back(cluster)


def gives_up_a_receive(me):
    """Rank 1 gives its daemon up while it receives, and uses the memory again; then rank 0 sends."""
    session = me.session(daemon_unresponsive=1 if me.rank == 1 else nexar.NO_TIMEOUT)
    group = me.group(session)
    memory = session.alloc(4096, np.uint8)
    request = group.recv_start(memory, 0) if me.rank == 1 else None
    group.barrier()
    me.mark()
    me.wait_for_go()
    if me.rank == 0:
        return me.fails(group.send, np.full(4096, 9, np.uint8), 1, timeout=SILENT)
    failure = me.fails(request.wait)
    memory[:] = 1
    me.mark()
    me.wait_for_go()
    return failure, set(memory.tolist())


def test_a_daemon_that_was_given_up_and_goes_on_carries_nothing_out(cluster):
    for sender in (2, 1):
        job = Job([cluster[sender], cluster[2]], gives_up_a_receive)
        job.await_marks()
        cluster[2].pause()
        job.go(1)
        job[1].await_mark()
        cluster[2].resume()
        cluster.wait_connected()

        job.go(0)
        lost = job.outcomes(0)[0]
        job.go(1)
        failure, bytes_now = job.outcomes(1)[0]

        equal((failure.name, bytes_now), ("DAEMON_UNRESPONSIVE", {1}), "rank 1's error, and its memory after that")
        equal((lost.name, lost.rank), ("PEER_LOST", 1), f"its sender's error: {lost}")
        comes_back(cluster)


def test_a_daemon_that_was_stopped_and_goes_on_passes_the_others_decision_to_its_ranks(cluster):
    job = Job(two_each(cluster), waits, 60, False)
    await_work(job, False)
    cluster[2].pause()
    remote = job.outcomes(*REMOTE)

    since = time.monotonic()
    cluster[2].resume()

    local = job.outcomes(*LOCAL)
    same_failure([o[0] for o in remote + local], "PEER_LOST", rank=1, node=cluster[2].id)
    assert max(o[0].at for o in local) - since < SILENT
    comes_back(cluster)


def test_a_daemon_that_is_asked_to_end_says_goodbye(cluster):
    job = Job(two_each(cluster), waits, 10, False)
    await_work(job, False)
    before = len(cluster[2].log())

    begin = time.monotonic()
    status = cluster[2].end(signal.SIGTERM, 3 + 2 * BUSY)
    took = time.monotonic() - begin

    equal(status, 0, "exit status")
    assert took > 2.5, f"it waited {took:.1f} s for operations in flight; drain_timeout is 3 s"
    contains(cluster[2].log()[before:], " drain_timed_out ")
    check_ends(cluster, job, begin + took, "DAEMON_LOST", AT_ONCE, AT_ONCE, rank=None)
    gone, = [peer for peer in cluster[1].ask("status")["peers"] if peer["node"] == cluster[2].id]
    equal(gone["state"], "left", f"what its peers say of it: {gone}")
    comes_back(cluster)


def test_a_goodbye_leaves_no_other_peer_behind(cluster):
    everybody = {node.id for node in cluster.nodes.values()}
    for _ in range(3):
        equal(cluster[2].end(signal.SIGTERM, 3 + 2 * BUSY), 0, "exit status")
        eventually(lambda: peer_state(cluster[1], cluster[2]) == "left", "node 2 is shown as left")
        comes_back(cluster)
    for node in cluster.nodes.values():
        equal({peer["node"] for peer in node.ask("status")["peers"]}, everybody - {node.id}, f"peers of {node.number}")


def peer_state(node, other):
    state, = [peer["state"] for peer in node.ask("status")["peers"] if peer["node"] == other.id]
    return state


def drains(node, since):
    """The node has logged, from there on, that it is stopping."""
    return " stopping " in node.log()[since:]


def test_a_second_signal_ends_the_waiting_for_operations(cluster):
    for second in (signal.SIGINT, signal.SIGTERM):
        job = Job(two_each(cluster), waits, 10, False)
        await_work(job, False)
        before = len(cluster[2].log())
        cluster[2].process.send_signal(signal.SIGTERM)
        eventually(lambda: drains(cluster[2], before), "the daemon to be draining")

        begin = time.monotonic()
        status = cluster[2].end(second)

        equal(status, 0, "exit status")
        log = cluster[2].log()[before:]
        assert " drain_cut_short " in log and " drain_timed_out " not in log, log
        check_ends(cluster, job, begin, "DAEMON_LOST", AT_ONCE, AT_ONCE, rank=None)
        comes_back(cluster)


def test_a_goodbye_is_received_although_the_connection_closes_with_it(cluster):
    """It proves the end; a closed connection alone is only suspicion, which others have to be asked about."""
    read = {number: len(cluster[number].log()) for number in (1, 3)}
    for again in range(3):
        equal(cluster[2].end(signal.SIGTERM), 0, "exit status")
        cluster[2].start()
        cluster.wait_connected()
    for number in (1, 3):
        def ends():
            log = cluster[number].log()[read[number]:].splitlines()
            return [line for line in log if " peer_down " in line and "is stopping (SIGTERM)" in line]
        eventually(lambda: len(ends()) >= 3, f"node {number} to log three ends of node 2")
        for line in ends():
            contains(line, "sent goodbye", "proof=true")  # a later incarnation would be proof, too
    run(two_each(cluster), one_sum)


def waits_for_one_each(me):
    group = me.group()
    one_sum(me, group)
    me.mark()
    other = {0: 4, 2: 1, 3: 1}.get(me.rank)
    return me.fails(group.barrier) if other is None else me.fails(group.recv, np.zeros(1), other)


def test_a_daemon_that_is_asked_to_end_is_one_loss_whichever_of_its_ranks_is_waited_for(cluster):
    """[F17]"""
    job = Job(two_each(cluster), waits_for_one_each)
    job.await_marks()
    eventually(lambda: receiving(job, 0, 2, 3) and in_collective(job, 1, 4, 5), "all ranks to wait")

    equal(cluster[2].end(signal.SIGTERM), 0, "exit status")

    outcomes = job.outcomes(*REMOTE)
    assert outcomes[0].rank in LOCAL, f"rank {outcomes[0].rank} is not on node 2: {outcomes}"
    same_failure(outcomes, "PEER_LOST", rank=outcomes[0].rank, node=cluster[2].id)
    comes_back(cluster)


def late_but_in_time(me):
    group = me.group()
    one_sum(me, group)
    x = given("float32", "sum", me.rank, 100_000)
    request = group.all_reduce_start(x) if me.rank in (1, 4) else None
    me.mark()
    if not request:
        me.wait_for_go()
        request = group.all_reduce_start(x)
    check(request.wait(), reduced("float32", "sum", me.size, 100_000), "all_reduce")

    def barriers():  # one may end before the daemon does
        while True:
            group.barrier()
    return me.fails(barriers)


def test_a_daemon_that_is_asked_to_end_finishes_what_was_begun(cluster):
    job = Job(two_each(cluster), late_but_in_time)
    job.await_marks()
    eventually(lambda: in_collective(job, *LOCAL), "the operation to have begun on node 2")
    node = cluster[2]

    node.expected_dead = True
    before = len(node.log())
    node.process.send_signal(signal.SIGTERM)
    eventually(lambda: drains(node, before), "the daemon to be draining")
    job.go(*REMOTE)

    outcomes = job.outcomes()
    equal(node.process.wait(3 + BUSY), 0, "exit status")
    assert "drain_timed_out" not in node.log()[before:], "it went on waiting after the operation had ended"
    lost = outcomes[0].rank
    assert lost in LOCAL, f"rank {lost} is not on node 2: {outcomes}"
    same_failure([outcomes[rank] for rank in REMOTE], "PEER_LOST", rank=lost, node=node.id)
    comes_back(cluster)


def everything_that_waits(me):
    """Six threads sleep in six ways."""
    session = me.session()
    groups = [me.group(session, name=f"{me.name}-{n}") for n in range(3)]
    calls = [lambda: groups[0].recv(np.zeros(1), 0), lambda: groups[1].barrier(),
             lambda: groups[2].all_reduce(np.zeros(500_000)), lambda: groups[0].recv(np.zeros(1), 0, 3),
             lambda: me.group(session, name="nobody comes", size=9, rank=0), lambda: watches_its_descriptor(session)]
    failures = [None] * len(calls)

    def wait(n):
        failures[n] = me.fails(calls[n])

    threads = [threading.Thread(target=wait, args=(n,)) for n in range(len(calls))]
    if me.rank == 0:
        me.mark()
        me.stay()
    for thread in threads:
        thread.start()
    me.mark()
    for thread in threads:
        thread.join()
    return failures


def watches_its_descriptor(session):
    fd = session.fileno()
    while True:
        select.select([fd], [], [], 20)
        cabi.check(polled(session))


def test_a_killed_daemon_releases_every_kind_of_wait(cluster):
    job = Job([cluster[1], cluster[2]], everything_that_waits)
    job.await_marks()
    eventually(lambda: asleep_in_threads(job[1].pid, 6), "six threads to wait")

    since = time.monotonic()
    cluster[2].kill()

    failures = job.outcomes(1)[0]
    equal({failure.name for failure in failures}, {"DAEMON_LOST"}, f"errors: {failures}")
    assert max(failure.at for failure in failures) - since < AT_ONCE
    comes_back(cluster)


def test_a_restart_keeps_the_identity_and_needs_no_token(cluster):
    node = cluster[3]
    before = node.status()

    node.kill()
    node.start()
    cluster.wait_connected()

    after = node.status()
    equal(after["node"], before["node"], "NodeId")
    equal(after["incarnation"], before["incarnation"] + 1, "incarnation")
    run(two_each(cluster), one_sum)


def test_a_daemon_that_is_back_before_it_was_missed_is_another_incarnation(cluster):
    job = Job(two_each(cluster), waits, 10, False)
    job.await_marks()

    since = time.monotonic()
    cluster[2].kill()
    cluster[2].start()

    check_ends(cluster, job, since, "DAEMON_LOST", AT_ONCE, KILLED)
    comes_back(cluster)


def meets_as_soon_as_its_daemon_answers(me):
    until = time.monotonic() + 15
    while True:
        try:
            session = me.session()
            break
        except nexar.Error as error:
            if error.name not in ("NOT_FOUND", "DAEMON_LOST") or time.monotonic() > until:
                raise
            time.sleep(0.002)  # sleep: between two tries
    group = me.group(session)
    one_sum(me, group)
    large_sum(me, group, 100_000)


def large_sum(me, group=None, count=1_000_000):
    check((group or me.group()).all_reduce(given("float32", "sum", me.rank, count)),
          reduced("float32", "sum", me.size, count), "all_reduce")


def test_groups_formed_in_the_moment_of_a_quick_restart_live(cluster):
    """Some nodes may still see the old incarnation then [P3]. Nobody waits for the cluster to be connected in between."""
    for again in range(8):
        cluster[2].kill()
        time.sleep(0.15 * (again % 3))  # sleep: each time another moment of the others' detection
        job = Job(two_each(cluster), meets_as_soon_as_its_daemon_answers)
        cluster[2].start()
        for outcome in job.outcomes():
            assert outcome is None, f"restart {again}: {outcome}"
    cluster.wait_connected()


def test_nodes_with_unlike_numbers_of_bulk_shards_work_together(cluster):
    """[R16]"""
    for counts in (("1", "3", "2"), ("4", "2", "2")):
        for number, count in zip((1, 2, 3), counts):
            cluster[number].kill()
            cluster[number].start(NEXAR_BULK_SHARDS=count, NEXAR_PIPELINE_SEGMENT_BYTES="262144")  # several lanes
        cluster.wait_connected()
        run(two_each(cluster), large_sum)
        run([cluster[2], cluster[3], cluster[3]], large_sum)
    for node in cluster:
        node.kill()
        node.start()
    cluster.wait_connected()


def test_the_whole_cluster_may_be_started_again_in_any_order(cluster):
    ids = [node.id for node in cluster]
    for node in cluster:
        node.kill()

    for number in (3, 2, 1):
        cluster[number].start()
    cluster.wait_connected()

    equal([node.status()["node"] for node in cluster], ids, "identities")
    run(two_each(cluster), one_sum)


def test_no_daemon_is_a_clear_error(cluster):
    cluster[3].kill()
    try:
        nexar.Session(cluster[3].socket)
        raise AssertionError("a session was opened although no daemon runs")
    except nexar.Error as error:
        equal(error.name, "NOT_FOUND", "error")
        contains(error.text, cluster[3].socket)
    cluster[3].start()


def test_a_stale_socket_is_replaced_and_a_second_daemon_refused(cluster):
    node = cluster[3]
    node.kill()
    assert node.socket.exists() and node.admin.exists(), "the killed daemon's sockets should have stayed"

    node.start()
    second = Node(cluster.network, 9, cluster.folder, host=3)
    second.state, second.socket, second.admin = node.state, node.socket, node.admin
    second.start(wait=False)

    assert second.process.wait(10) != 0
    contains(second.log(), " start_failed ", node.state)
    cluster.wait_connected()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(str(node.socket))  # the second one has not taken it away


main(globals())
