"""Processes die in every position that is hard to die in. Two ranks on each of three nodes, unless noted otherwise:

    node 1: ranks 0, 3 ──┐
    node 2: ranks 1, 4 ──┼── switch
    node 3: ranks 2, 5 ──┘
"""
import os
import signal
import socket
import struct
import threading
import time

from harness import *
from harness.states import (arrived, asleep_in_threads, forming, in_collective, receiving,
                            waiting_receives)
from harness.system import exit_normally
from harness.values import check, given, reduced

# From the death to the error on all survivors: two one-way delays.
SOON = BUSY


def two_each(cluster):
    return [cluster[n] for n in (1, 2, 3, 1, 2, 3)]


def one_sum(me, group=None, **options):
    check((group or me.group()).all_reduce(given("int64", "sum", me.rank, 1000), **options),
          reduced("int64", "sum", me.size, 1000), "all_reduce")


def still_works(cluster):
    """A new group over all nodes gives right results, and the daemons have forgotten the dead."""
    run(two_each(cluster), one_sum)
    for node in cluster.alive():
        eventually(lambda node=node: node.status()["sessions"] == 0, f"{node} to have no session")


def killed(job, rank, number=signal.SIGKILL):
    now = time.monotonic()
    job[rank].kill(number)
    return now


def waits(me, absent, late=(), size=1000):
    """All but `absent` wait for a collective; afterwards the group is asked again. `late` come after the death."""
    group = me.group()
    group.barrier()
    me.mark()
    if me.rank in absent:
        me.stay()
    if me.rank in late:
        me.wait_for_go()
    first = me.fails(group.all_reduce, given("float32", "sum", me.rank, size))
    return [first, me.fails(group.barrier), me.fails(group.broadcast, np.zeros(3), 0),
            me.fails(group.send, np.zeros(3), (me.rank + 1) % me.size)]


def test_a_killed_rank_is_named_by_every_pending_and_later_call_of_all_survivors(cluster):
    """[F13]"""
    for size in (3, 1_000_000):  # by the small path, and by the ring
        job = Job(two_each(cluster), waits, {4}, {5}, size)
        job.await_marks()
        eventually(lambda: in_collective(job, 0, 1, 2, 3), "the others to sleep in their wait")

        since = killed(job, 4)
        early = job.outcomes(0, 1, 2, 3)
        job.go(5)
        late = job.outcomes(5)

        same_failure([o[0] for o in early], "PEER_LOST", rank=4, node=cluster[2].id, since=since, within=SOON)
        for outcome in early + late:
            same_failure(outcome, "PEER_LOST", rank=4, node=cluster[2].id)
    still_works(cluster)


def hands_over(me, victim):
    """Rank 0 is late; the victim dies when it has handed over its part, in its wait."""
    group = me.group()
    group.barrier()
    x = given("float32", "sum", me.rank, 300_000)
    if me.rank != 0:
        request = group.all_reduce_start(x)
        me.mark()
    else:
        me.wait_for_go()
        request = group.all_reduce_start(x)
    check(request.wait(), reduced("float32", "sum", me.size, 300_000), "all_reduce with the part of the dead")
    return me.fails(group.barrier)


def test_what_a_rank_handed_over_counts_although_it_was_killed_in_its_wait(cluster):
    for victim in (3, 4):  # beside the late rank, and elsewhere
        job = Job(two_each(cluster), hands_over, victim)
        for rank in range(1, 6):
            job[rank].await_mark()
        eventually(lambda: in_collective(job, *range(1, 6)), "all but rank 0 to sleep in their wait")

        killed(job, victim)
        its_node = job[victim].node
        # Its other rank may have got the failure, and gone, by the time of the look.
        eventually(lambda: its_node.status()["sessions"] <= 1, f"{its_node} to notice the death")
        job.go(0)

        same_failure(job.outcomes(*(rank for rank in range(6) if rank != victim)), "PEER_LOST", rank=victim,
                     node=cluster[victim % 3 + 1].id)
    still_works(cluster)


def calls_something_else(me):
    """Rank 1 dies with a collective posted. Rank 0 learns it from a message, and does not make that collective."""
    group, x = me.group(), given("int64", "sum", me.rank, 1000)
    group.barrier()
    if me.rank == 1:
        request = group.all_reduce_start(x)
        me.mark()
        request.wait()
    me.mark()
    first = me.fails(group.recv, x, 1) if me.rank == 0 else me.fails(group.all_reduce, x)
    return [first, me.fails(group.barrier), me.fails(group.broadcast, np.zeros(3), 0), me.fails(group.barrier)]


def test_a_rank_that_got_a_failure_gets_it_from_every_later_call_and_so_do_the_others(cluster):
    for placement in ([1, 2, 3], [1, 1, 2], [1, 2, 1], [1, 1, 1]):
        job = Job([cluster[number] for number in placement], calls_something_else)
        job.await_marks()
        eventually(lambda: in_collective(job, 1, 2) and receiving(job, 0), "all three to sleep in their wait")

        since = killed(job, 1)

        for outcome in job.outcomes(0, 2):
            same_failure(outcome, "PEER_LOST", rank=1, node=cluster[placement[1]].id, since=since, within=SOON,
                         one_text=False)
    still_works(cluster)


def works_for_ever(me, count):
    group, turns = me.group(), 0
    x, want = given("float32", "sum", me.rank, count), reduced("float32", "sum", me.size, count)
    out = np.empty_like(x)
    try:
        while True:
            group.all_reduce(x, out)
            check(out, want, f"turn {turns}")
            turns += 1
            if turns == 10:
                me.mark()
    except nexar.Error as error:
        return turns, me.failure(error)


def test_a_rank_killed_at_work_is_named_and_no_wrong_result_was_given(cluster):
    for victim, count in ((5, 10), (0, 200_000), (1, 3000)):
        job = Job(two_each(cluster), works_for_ever, count)
        job.await_marks()

        since = killed(job, victim)

        outcomes = job.outcomes(*(rank for rank in range(6) if rank != victim))
        same_failure([failure for _, failure in outcomes], "PEER_LOST", rank=victim, node=cluster[victim % 3 + 1].id,
                     since=since, within=SOON)
    still_works(cluster)


def fills_its_table(me):
    session = me.session(slots=16)
    group = me.group(session)
    group.barrier()
    if me.rank != 0:
        me.mark()
        return me.fails(group.recv, np.zeros(1), 0)
    pending = []
    try:
        while len(pending) < 100:
            pending.append(group.recv_start(np.zeros(1), 1, 5))
    except nexar.Error as error:
        full = me.failure(error)
    me.mark((len(pending), full))
    me.stay()


def test_a_rank_killed_with_a_full_table_is_named(cluster):
    job = Job(two_each(cluster), fills_its_table)
    started, full = job.await_marks()[0]
    equal((full.name, full.rank), ("TABLE_FULL", None), "how the last request failed")
    assert 12 <= started <= 16, f"{started} requests were taken, with 16 slots, some of which the library needs itself"

    since = killed(job, 0)

    same_failure(job.outcomes(1, 2, 3, 4, 5), "PEER_LOST", rank=0, node=cluster[1].id, since=since, within=SOON,
                 one_text=False)
    still_works(cluster)


def fills_its_ring(me):
    """The daemon is stopped meanwhile, so that nothing is taken from the submission ring."""
    session = me.session(slots=16)
    group, room = me.group(session), session.alloc(16)  # ordinary memory would need the daemon
    group.barrier()
    me.mark()
    me.wait_for_go()
    if me.rank != 0:
        return me.fails(group.barrier)
    pending = [group.recv_start(room[n:n + 1], 1, 5) for n in range(12)]
    for turn in range(64):
        for request in pending:
            try:
                request.cancel()
            except nexar.Error as error:
                me.mark(me.failure(error).name)
                me.stay()
    me.mark("all cancels were taken")
    me.stay()


def test_a_rank_killed_with_a_full_submission_ring_is_named(cluster):
    job = Job([cluster[1], cluster[2]], fills_its_ring)
    job.await_marks()
    cluster[1].pause()
    job.go(0)
    job[0].await_mark()
    job.go(1)

    killed(job, 0)
    job[0].join()
    cluster[1].resume()

    same_failure(job.outcomes(1), "PEER_LOST", rank=0, node=cluster[1].id)
    cluster.wait_connected()
    still_works(cluster)


HELLO = struct.pack("<II6I", 0x4C52584E, 1, 2, 2, 0, 0, 0, 0)


def half_a_handshake(me, packets):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(str(me.node.socket))
        for _ in range(packets):
            s.send(HELLO)
            s.recv(256)
        me.mark()
        me.stay()


def test_death_in_a_half_done_handshake_leaves_nothing_behind(cluster):
    for packets in (0, 1):
        jobs = [Job([cluster[1]], half_a_handshake, packets) for _ in range(5)]
        for job in jobs:
            job.await_marks()
            job[0].kill()
    still_works(cluster)


def waits_in_threads(me, threads, victim):
    """Thread n waits in group n for what never comes: the victim for a message of rank 1, the others for the victim."""
    session, failures = me.session(), [None] * threads
    groups = [me.group(session, name=f"{me.name}-{n}") for n in range(threads)]
    groups[0].barrier()

    def wait(n):
        if n % 2 and me.rank != victim:
            call = groups[n].barrier
        else:
            call = lambda: groups[n].recv(np.zeros(3), 1 if me.rank == victim else victim, n)
        failures[n] = me.fails(call)

    workers = [threading.Thread(target=wait, args=(n,)) for n in range(threads)]
    if me.rank != 1:
        for worker in workers:
            worker.start()
    me.mark()
    if me.rank == 1:
        me.stay()
    for worker in workers:
        worker.join()
    return failures


def all_wait(job, victim):
    """Every thread of waits_in_threads is in its call, and sleeps."""
    waiting = {rank: process for rank, process in job.ranks.items() if rank != 1}
    barriers = all(rank in arrived(process.node, f"{job.name}-{n}") for n in range(1, 8, 2)
                   for rank, process in waiting.items() if rank != victim)
    receives = sum(waiting_receives(node, job.name) for node in {process.node for process in waiting.values()})
    return (barriers and receives == sum(8 if rank == victim else 4 for rank in waiting)
            and all(asleep_in_threads(process.pid, 8) for process in waiting.values()))


def test_eight_threads_that_wait_in_one_process_are_all_released(cluster):
    job = Job([cluster[n] for n in (1, 2, 1, 3)], waits_in_threads, 8, 1)
    job.await_marks()
    eventually(lambda: all_wait(job, 1), "all threads to wait")

    since = killed(job, 1)

    for failures in job.outcomes(0, 2, 3):
        same_failure(failures, "PEER_LOST", rank=1, node=cluster[2].id, since=since, within=SOON, one_text=False)
    still_works(cluster)


def test_a_process_killed_with_eight_threads_waiting_is_named_in_all_its_groups(cluster):
    job = Job([cluster[n] for n in (1, 2, 1, 3)], waits_in_threads, 8, 0)
    job.await_marks()
    eventually(lambda: all_wait(job, 0), "all threads to wait")

    since = killed(job, 0)

    for failures in job.outcomes(2, 3):
        same_failure(failures, "PEER_LOST", rank=0, node=cluster[1].id, since=since, within=SOON, one_text=False)
    job[1].dispose()
    still_works(cluster)


def needs_somebody_else(me):
    """Rank 2 waits for rank 1, which runs; rank 0 dies."""
    group = me.group()
    group.barrier()
    me.mark()
    if me.rank == 2:
        return [me.fails(group.recv, np.zeros(3), 1), me.fails(group.send, np.zeros(3), 1)]
    me.stay()


def test_also_calls_that_do_not_need_the_killed_rank_end(cluster):
    job = Job([cluster[n] for n in (1, 2, 3)], needs_somebody_else)
    job.await_marks()
    eventually(lambda: receiving(job, 2), "rank 2 to wait")

    since = killed(job, 0)

    same_failure(job.outcomes(2)[0], "PEER_LOST", rank=0, node=cluster[1].id, since=since, within=SOON, one_text=False)
    job[1].dispose()
    still_works(cluster)


def with_a_child(me):
    group = me.group()
    group.barrier()
    if me.rank == 0:
        child = os.fork()
        if child == 0:
            me.stay()  # it holds every descriptor of its parent
            os._exit(0)
        me.mark(child)
        me.stay()
    me.mark()
    return me.fails(group.barrier)


def test_a_killed_rank_whose_forked_child_still_runs_is_named(cluster):
    job = Job(two_each(cluster), with_a_child)
    child = job.await_marks()[0]
    try:
        since = killed(job, 0)
        same_failure(job.outcomes(1, 2, 3, 4, 5), "PEER_LOST", rank=0, node=cluster[1].id, since=since, within=SOON)
        os.kill(child, 0)  # it does live
    finally:
        os.kill(child, signal.SIGKILL)
    still_works(cluster)


def forks_while_working(me):
    """The parent's child opens a session of its own; the parent's group is not its."""
    group = me.group()
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        failure = me.fails(group.barrier)
        own = nexar.Session(me.node.socket).group(name="child", size=1, rank=0)
        total = own.all_reduce(np.array([7]))
        os.write(into, f"{failure.name} {total[0]}".encode())
        os._exit(0)
    one_sum(me, group)
    os.waitpid(child, 0)
    one_sum(me, group)
    return os.read(out, 100).decode()


def test_a_forked_child_owns_nothing_of_its_parent_and_may_start_anew(cluster):
    equal(run(two_each(cluster), forks_while_working), ["CLOSED 7"] * 6, "what the children saw")


def is_stopped(me):
    group = me.group(collective_timeout=1)
    one_sum(me, group, timeout=10)
    me.mark()
    if me.rank == 4:
        me.wait_for_go()
    failure = me.fails(group.barrier)
    me.mark()
    one_sum(me, group, timeout=10)
    return failure


def test_a_stopped_process_is_named_at_the_deadline_and_may_go_on_later(cluster):
    job = Job(two_each(cluster), is_stopped)
    job.await_marks()

    job[4].kill(signal.SIGSTOP)
    job.go(4)
    early = [rank for rank in range(6) if rank != 4]
    for rank in early:
        job[rank].await_mark()
    job[4].kill(signal.SIGCONT)

    outcomes = job.outcomes()
    for rank in early:
        assert outcomes[rank].name in ("TIMED_OUT", "ABORTED"), f"rank {rank}: {outcomes[rank]}"
        equal((outcomes[rank].rank, outcomes[rank].node), (4, cluster[2].id), f"at fault: {outcomes[rank]}")
        contains(outcomes[rank].text, f"pid {job[4].pid}")
    equal(outcomes[4].name, "ABORTED", f"error of the one that was stopped: {outcomes[4]}")
    still_works(cluster)


def leaves_early(me, leaver, how):
    """After its last collective the leaver goes; the others ask for their results only when it has gone."""
    session = me.session()
    group = me.group(session)
    one_sum(me, group)
    x = given("int64", "sum", me.rank, 3000)
    request = group.all_reduce_start(x)
    if me.rank == leaver:
        check(request.wait(), reduced("int64", "sum", me.size, 3000), "the leaver's last all_reduce")
        if how == "close":
            session.close()
        me.mark()
        if how == "exit":
            exit_normally()  # with its session and group still open
        return None
    me.mark()
    me.wait_for_go()
    check(request.wait(), reduced("int64", "sum", me.size, 3000), "the last all_reduce")
    return me.fails(group.barrier)


def test_a_rank_that_goes_after_its_last_operation_fails_nobody(cluster):
    for how, leaver in (("exit", 0), ("close", 4), ("return", 5)):
        job = Job(two_each(cluster), leaves_early, leaver, how)
        job.await_marks()
        its_node, others = job[leaver].node, [rank for rank in range(6) if rank != leaver]
        eventually(lambda: its_node.status()["sessions"] == 1, f"{its_node} to see it go")

        job.go(*others)

        # What had begun is right everywhere; what needs it now is an error that names it.
        same_failure(job.outcomes(*others), "PEER_LOST", rank=leaver, node=cluster[leaver % 3 + 1].id)
    still_works(cluster)


def two_by_two(me):
    """Two groups in one session; rank 0 of the job is only in the first."""
    session = me.session()
    everybody = me.group(session)
    if me.rank == 0:
        me.mark()
        me.stay()
    others = me.group(session, name=me.name + "-others", size=me.size - 1, rank=me.rank - 1)
    me.mark()
    lost = me.fails(everybody.barrier)
    check(others.all_reduce(given("int64", "sum", me.rank - 1, 100)), reduced("int64", "sum", me.size - 1, 100), "others")
    return lost


def test_a_death_ends_only_the_groups_of_the_dead(cluster):
    job = Job(two_each(cluster), two_by_two)
    job.await_marks()

    since = killed(job, 0)

    same_failure(job.outcomes(1, 2, 3, 4, 5), "PEER_LOST", rank=0, node=cluster[1].id, since=since, within=SOON)
    still_works(cluster)


def opens(me):
    return me.fails(me.group, timeout=3)


def test_a_rank_killed_while_its_group_forms_does_not_count_as_having_come(cluster):
    job = Job([cluster[1], cluster[2]], opens, without={1})
    half = Job([cluster[1], cluster[2], cluster[3]], opens, name="forming", without={2})
    eventually(lambda: forming(cluster[1], "forming") == [0] and forming(cluster[2], "forming") == [1], "two to wait")
    half[0].kill()

    outcome, = half.outcomes(1)
    equal((outcome.name, outcome.op, outcome.rank), ("GROUP_INCOMPLETE", "group_open", 0), "error")
    contains(outcome.text, "rank 0", "rank 2", f"pid {half[1].pid}")
    equal(job.outcomes(0)[0].name, "GROUP_INCOMPLETE", "error of the other group")
    still_works(cluster)


main(globals())
