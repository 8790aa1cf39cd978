"""Cables are cut between daemons that live on. Two ranks on each node:

    node 1: ranks 0, 3 ──┐
    node 2: ranks 1, 4 ──┼── switch
    node 3: ranks 2, 5 ──┘
"""
import time

from harness import *
from harness.states import arrived, failed, waiting_receives
from harness.values import check, given, reduced

# Timeout, interval, the question, one arbiter that cannot answer.
SOON = HEARTBEAT_TIMEOUT + HEARTBEAT_INTERVAL + 0.25 + 1 + BUSY


def two_each(cluster):
    return [cluster[n] for n in (1, 2, 3, 1, 2, 3)]


def one_sum(me, group=None):
    check((group or me.group()).all_reduce(given("int64", "sum", me.rank, 1000)),
          reduced("int64", "sum", me.size, 1000), "all_reduce")


def suffers(me, how):
    """Works, waits in a barrier for the last rank, or does nothing until the link is cut; then asks again."""
    group = me.group()
    one_sum(me, group)
    me.mark()
    if how == "works" or how == "works small":
        first = me.fails(works, me, group, 200_000 if how == "works" else 100)
    elif how == "waits":
        first = me.fails(group.recv, np.zeros(1), (me.rank + 1) % me.size)
    else:
        me.wait_for_go()
        first = me.fails(group.barrier)
    return [first, me.fails(group.barrier), me.fails(group.recv, np.zeros(1))]


def works(me, group, count):
    x, want = given("float32", "sum", me.rank, count), reduced("float32", "sum", me.size, count)
    out = np.empty_like(x)
    while True:
        check(group.all_reduce(x, out), want, "all_reduce")


def await_start(job, how):
    """Until every rank does what the job is about."""
    job.await_marks()
    for node in {rank.node for rank in job.ranks.values()}:
        own = [rank for rank in job.ranks if job[rank].node is node]
        if how == "waits":
            eventually(lambda: waiting_receives(node, job.name) == len(own), f"all ranks of {node} to wait")
        elif how != "idle":
            eventually(lambda: arrived(node, job.name) >= set(own), f"all ranks of {node} to work")


def after_cut(cluster, how, cut, placement=None):
    """(outcomes, time of the cut) of a job whose link was cut."""
    job = Job(placement or two_each(cluster), suffers, how)
    await_start(job, how)
    since = time.monotonic()
    cut()
    if how == "idle":
        eventually(lambda: all(failed(node, job.name) for node in cluster), "the group to fail on every node")
        job.go()
    return job.outcomes(), since


def check_all(outcomes, *cause, since, how, **named):
    same_failure([outcome[0] for outcome in outcomes], *cause, **named, since=since,
                 within=SOON + (SOON if how == "idle" else 0))
    for outcome in outcomes:
        same_failure(outcome, *cause, **named)


def names_an_end(cluster, outcomes, *ends):
    """The node of a lost link is one of its ends (that it is the same on all is checked elsewhere)."""
    assert outcomes[0][0].node in [cluster[end].id for end in ends], f"{outcomes[0][0]} names neither of {ends}"


def heals(cluster):
    cluster.network.heal()
    cluster.wait_connected()
    run(two_each(cluster), one_sum)


def test_when_two_nodes_cannot_reach_each_other_everybody_gets_the_same_lost_link(cluster):
    for how in ("waits", "works", "works small", "idle"):
        outcomes, since = after_cut(cluster, how, lambda: cluster.network.cut(1, 2))

        check_all(outcomes, "LINK_LOST", rank=0, other_rank=1, since=since, how=how,
                  node=outcomes[0][0].node)
        names_an_end(cluster, outcomes, 1, 2)
        heals(cluster)


def test_a_link_cut_in_one_direction_is_the_same_lost_link_on_everybody(cluster):
    for deaf, speaker in ((1, 2), (2, 1), (2, 3)):
        for how in ("waits", "works"):
            outcomes, since = after_cut(cluster, how, lambda: cluster.network.deafen(deaf, speaker))

            check_all(outcomes, "LINK_LOST", rank=min(deaf, speaker) - 1, other_rank=max(deaf, speaker) - 1,
                      since=since, how=how, node=outcomes[0][0].node)
            names_an_end(cluster, outcomes, deaf, speaker)
            heals(cluster)


def test_an_unplugged_node_is_lost_to_all_others(cluster):
    for number, how in ((3, "waits"), (1, "waits"), (2, "works"), (3, "idle")):
        outcomes, since = after_cut(cluster, how, lambda: cluster.network.unplug(number))

        alone = (number - 1, number + 2)
        others = [outcome for rank, outcome in enumerate(outcomes) if rank not in alone]
        check_all(others, "PEER_LOST", rank=number - 1, node=cluster[number].id, since=since, how=how)
        # A node that is cut off from two nodes at once names one of them, the same on both its ranks.
        names = [outcomes[rank][0] for rank in alone]
        lost = names[0].rank
        assert lost in {0, 1, 2} - {number - 1}, f"rank {lost} is not on the other side: {names}"
        check_all([outcomes[rank] for rank in alone], "PEER_LOST", rank=lost, node=cluster[lost + 1].id, since=since,
                  how=how)
        heals(cluster)


def test_two_nodes_alone_in_a_group_each_name_the_other(cluster):
    placement = [cluster[1], cluster[2]]
    outcomes, since = after_cut(cluster, "waits", lambda: cluster.network.cut(1, 2), placement)

    for rank, outcome in enumerate(outcomes):
        other = 1 - rank
        check_all([outcome], "PEER_LOST", rank=other, node=cluster[other + 1].id, since=since, how="waits")
    heals(cluster)


def keeps_working(me):
    """Until the test says go to rank 0, and for ten turns more."""
    group, left = me.group(), 10
    me.mark()
    while left > 0:
        released = group.all_reduce(np.array([me.rank == 0 and me.is_released()]).astype("int32"), op="max")[0]
        one_sum(me, group)
        left -= released


def ends_well(job):
    job.go(0)
    equal(job.outcomes(), [None] * len(job.ranks), "how the ranks ended")


def test_a_group_beside_the_cut_goes_on(cluster):
    job = Job([cluster[1], cluster[3], cluster[1], cluster[3]], keeps_working)
    job.await_marks()
    cluster.network.cut(1, 2)
    miss_each_other(cluster)

    ends_well(job)
    heals(cluster)


def miss_each_other(cluster):
    eventually(lambda: cluster[2].id not in cluster[1].peers_up() and cluster[1].id not in cluster[2].peers_up(),
               "both ends to miss each other")


def short_cuts(cluster):
    """Cuts a cable three times for 0.3 s; the longest that it took, since a busy machine comes back late to mend it."""
    longest = 0
    for _ in range(3):
        begin = time.monotonic()
        cluster.network.cut(1, 2)
        time.sleep(max(0, begin + 0.3 - time.monotonic()))  # sleep: the length of the cut
        cluster.network.stop_filtering()
        longest = max(longest, time.monotonic() - begin)
        time.sleep(0.4)  # sleep: the group works on in between
    return longest


def test_a_short_cut_is_survived(cluster):
    """Shorter than the timeout: no node is suspected, and lost packets are sent again."""
    def survived():
        job = Job(two_each(cluster), keeps_working)
        job.await_marks()
        if short_cuts(cluster) > HEARTBEAT_TIMEOUT - 2 * HEARTBEAT_INTERVAL:
            job.go(0)
            job.outcomes()  # too long to say anything
            cluster.wait_connected()
            return False
        ends_well(job)
        return True

    eventually(survived, "cuts that are short on this machine", 60)


def works_in_loss(me, turns):
    """Opens its group, and then every kind of operation, small and large, while datagrams are lost."""
    group = me.group(timeout=20, collective_timeout=20)
    size, rank = me.size, me.rank
    for turn in range(turns):
        for count in (0, 7, 1000, 100_003):
            x = given("float32", "sum", rank, count, salt=turn)
            check(group.all_reduce(x), reduced("float32", "sum", size, count, salt=turn), f"all_reduce {turn}")
            want = np.concatenate([given("int64", "sum", other, count, salt=turn) for other in range(size)])
            check(group.all_gather(given("int64", "sum", rank, count, salt=turn), np.empty(count * size, np.int64)),
                  want, f"all_gather {turn}")
            root, got = turn % size, np.empty(count, np.int64)
            got[:] = given("int64", "sum", root, count, salt=turn + 9) if rank == root else 0
            check(group.broadcast(got, root), given("int64", "sum", root, count, salt=turn + 9), f"broadcast {turn}")
        request = group.send_start(np.full(2000, rank + turn), (rank + 1) % size, turn)
        group.recv(got := np.zeros(2000, np.int64), (rank - 1) % size, turn)
        request.wait()
        check(got, np.full(2000, (rank - 1) % size + turn), f"message {turn}")
    return turns


def test_a_network_that_loses_datagrams_costs_time_and_nothing_else(cluster):
    """No node is suspected, no value is wrong, and the group forms in it, too."""
    for number in (1, 2, 3):
        cluster.network.lose(number, 4)
    before = [len(node.log()) for node in cluster]

    def lost_on_every_host():
        equal(run(two_each(cluster), works_in_loss, 4), [4] * 6, "turns")
        return min(cluster.network.lost(number) for number in (1, 2, 3)) > 10

    eventually(lost_on_every_host, "more than 10 lost datagrams on every host", 60)
    for node, since in zip(cluster, before):
        log = node.log()[since:]
        assert "peer_down" not in log and "group_failed" not in log, f"{node} lost somebody: {log}"
    heals(cluster)


def test_all_survivors_learn_of_the_same_death_in_a_network_that_loses_datagrams(cluster):
    for how in ("waits", "works", "works small"):
        job = Job(two_each(cluster), suffers, how)
        await_start(job, how)
        for number in (1, 2, 3):
            cluster.network.lose(number, 10)
        eventually(lambda: min(cluster.network.lost(number) for number in (1, 2, 3)) > 0, "losses on every host")
        since = time.monotonic()
        job[4].kill()

        # A message from the dead rank may end before the failure, with an error of its own.
        for outcome in job.outcomes(0, 1, 2, 3, 5):
            same_failure(outcome, "PEER_LOST", rank=4, node=cluster[2].id, since=since, within=SOON + 1,
                         one_text=how != "waits")
        job[4].dispose()
        heals(cluster)


def opens_and_works(me):
    try:
        group = me.group(timeout=4)
    except nexar.Error as error:
        return "open", me.failure(error)
    return "barrier", me.fails(group.barrier)


def test_a_group_that_forms_across_a_cut_is_an_error(cluster):
    """By the one who collects its ranks, if that one reaches both ends; else by who is missing; else by the first
    operation."""
    cluster.network.cut(1, 2)
    miss_each_other(cluster)

    since = time.monotonic()
    outcomes = Job([cluster[1], cluster[2], cluster[3]], opens_and_works).outcomes()

    print(f"        {[(where, failure.name, round(failure.at - since, 1)) for where, failure in outcomes]}")
    for where, failure in outcomes:
        if failure.name == "LINK_LOST":
            contains(failure.text, cluster[1].id[:8], cluster[2].id[:8])
        else:
            equal((where, failure.name), ("open", "GROUP_INCOMPLETE"), f"error ({failure.text})")
        assert failure.at - since < 4 + SOON, f"it took {failure.at - since:.1f} s"
    heals(cluster)


main(globals())
