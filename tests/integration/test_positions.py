"""kill -9 and SIGSTOP of processes and daemons, each in each of four positions: under a sleeping wait, under a full
submission ring, in a half-done handshake, with eight threads waiting in one process. test_deaths.py and test_daemons.py
have those in which a process is killed, and a daemon under a sleeping wait; here are the others.

    node 1: ranks 0, 3 ──┐
    node 2: ranks 1, 4 ──┼── switch
    node 3: ranks 2, 5 ──┘
"""
import signal
import socket
import struct
import threading
import time

from harness import *
from harness.local import refusal
from harness.states import arrived, asleep, datagrams_sent, sockets_of, waiting_receives
from harness.values import check, given, reduced

UNRESPONSIVE = 3.0                          # of the sessions here
FOUND_OUT = UNRESPONSIVE + 2 * 0.5 + BUSY   # and two more ticks before the library believes it
RING = 1.0                                  # how long the library tries to put something into a full ring


def two_each(cluster):
    return [cluster[n] for n in (1, 2, 3, 1, 2, 3)]


def one_sum(me, group=None):
    check((group or me.group()).all_reduce(given("int64", "sum", me.rank, 1000)),
          reduced("int64", "sum", me.size, 1000), "all_reduce")


def still_works(cluster):
    for node in cluster:
        if not node.alive():
            node.start()
        node.resume()
    cluster.wait_connected()
    run(two_each(cluster), one_sum)
    for node in cluster:
        eventually(lambda node=node: node.status()["sessions"] == 0, f"{node} to have no session")


def in_threads(count, call):
    """Starts threads of call(n); a function that waits for them and returns what they returned."""
    results = [None] * count

    def work(n):
        results[n] = call(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()

    def join():
        for thread in threads:
            thread.join()
        return results
    return join


# ---- A process is stopped ----

def is_stopped_in_its_wait(me, count):
    """Rank 4 has handed over its part and sleeps; rank 0 is late."""
    group = me.group(collective_timeout=10)
    one_sum(me, group)
    me.mark()
    if me.rank == 0:
        me.wait_for_go()
    x, want = given("float32", "sum", me.rank, count), reduced("float32", "sum", me.size, count)
    check(group.all_reduce_start(x).wait(20), want, "all_reduce with the part of the stopped one")
    after = time.monotonic()
    me.mark()
    one_sum(me, group)
    return after


def test_a_process_stopped_in_its_sleeping_wait_delays_nobody_and_goes_on(cluster):
    for count in (3, 300_000):
        job = Job(two_each(cluster), is_stopped_in_its_wait, count)
        job.await_marks()
        eventually(lambda: 4 in arrived(cluster[2], job.name) and asleep(job[4].pid), "rank 4 to sleep in its wait")
        job[4].kill(signal.SIGSTOP)
        job.go(0)
        for rank in (0, 1, 2, 3, 5):
            job[rank].await_mark()
        woken = time.monotonic()
        job[4].kill(signal.SIGCONT)

        outcomes = job.outcomes()
        assert max(at for rank, at in enumerate(outcomes) if rank != 4) < woken < outcomes[4], outcomes
    still_works(cluster)


def eight_threads(me):
    """Thread n of rank 0 waits in group n for a message of rank n % 2 + 1, which comes while it is stopped."""
    session = me.session()
    groups = [me.group(session, name=f"{me.name}-{n}") for n in range(8)]
    groups[0].barrier()
    if me.rank == 0:
        arrays = [np.zeros(2000) for _ in range(8)]
        join = in_threads(8, lambda n: groups[n].recv(arrays[n], n % 2 + 1, n)[0:3])
        me.mark()
        got = join()
        for n, x in enumerate(arrays):
            equal((got[n], x[0], x[-1]), ((n % 2 + 1, n, 2000), n + 0.5, n + 0.5), f"message to thread {n}")
        return None
    me.mark()
    me.wait_for_go()
    for n in range(8):
        if n % 2 + 1 == me.rank:
            groups[n].send(np.full(2000, n + 0.5), 0, n)
    return None


def test_a_process_stopped_with_eight_threads_waiting_gets_all_when_it_goes_on(cluster):
    job = Job([cluster[n] for n in (1, 2, 1)], eight_threads)
    job.await_marks()
    eventually(lambda: waiting_receives(cluster[1], job.name) == 8 and asleep(job[0].pid), "eight receives to wait")
    job[0].kill(signal.SIGSTOP)
    job.go(1, 2)
    equal(job.outcomes(1, 2), [None, None], "the senders, who wait for nobody that is stopped")
    job[0].kill(signal.SIGCONT)
    equal(job.outcomes(0), [None], "the receiver")
    still_works(cluster)


def fill_ring(me, session, group):
    """Requests that nobody takes (the daemon is stopped), and so many cancels of them that the ring is full."""
    room = session.alloc(16)  # ordinary memory would need the daemon
    me.mark()
    me.wait_for_go()
    pending = [group.recv_start(room[n:n + 1], 1, 5) for n in range(12)]
    for _ in range(64):
        for request in pending:
            request.cancel()
    return pending


def stops_with_a_full_ring(me):
    session = me.session(slots=16)
    group = me.group(session)
    group.barrier()
    if me.rank != 0:
        me.mark()
        me.wait_for_go()
        one_sum(me, group)
        return None
    pending = fill_ring(me, session, group)
    me.mark()
    names = [me.fails(request.wait, 10).name for request in pending]
    one_sum(me, group)
    return names


def test_a_process_stopped_with_a_full_submission_ring_is_served_when_it_goes_on(cluster):
    # Both on the node whose daemon stands: to others it may be gone by the time that the ring is full.
    job = Job([cluster[1], cluster[1]], stops_with_a_full_ring)
    job.await_marks()
    cluster[1].pause()
    job.go(0)
    job[0].await_mark()
    job[0].kill(signal.SIGSTOP)
    cluster[1].resume()
    # The daemon takes what is in the ring, and its other clients are not delayed.
    cluster.wait_connected()
    run([cluster[1], cluster[1], cluster[3]], one_sum)
    job[0].kill(signal.SIGCONT)
    job.go(1)

    equal(job.outcomes(), [["CANCELLED"] * 12, None], "what became of its requests")
    still_works(cluster)


HELLO = struct.pack("<II6I", 0x4C52584E, 1, 2, 2, 0, 0, 0, 0)


def half_a_handshake(me, packets):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(str(me.node.socket))
        for _ in range(packets):
            s.send(HELLO)
            s.recv(256)
        me.mark()
        me.wait_for_go()
        return s.recv(1024)


def test_a_process_stopped_in_a_half_done_handshake_is_let_go_after_its_time(cluster):
    jobs = [Job([cluster[1]], half_a_handshake, packets) for packets in (0, 1)]
    for job in jobs:
        job.await_marks()
        job[0].kill(signal.SIGSTOP)
    run(two_each(cluster), one_sum)
    eventually(lambda: cluster[1].status()["sessions"] == 2, "two sessions on its node, those that are not ready")
    eventually(lambda: cluster[1].status()["sessions"] == 0, "the handshakes' end after their time")
    for job in jobs:
        job[0].kill(signal.SIGCONT)
        job.go(0)
        equal(refusal(job.outcomes()[0]), "TIMED_OUT", "the end of the handshake")
    still_works(cluster)


# ---- A daemon is stopped, or killed ----

def under_a_full_ring(me):
    """Eight threads wait for requests in a full ring; one more asks for what needs room in it."""
    session = me.session(slots=16, daemon_unresponsive=UNRESPONSIVE)
    group = me.group(session)
    group.barrier()
    if me.rank != 0:
        me.mark()
        return None
    pending = fill_ring(me, session, group)
    join = in_threads(8, lambda n: me.fails(pending[n].wait))
    more = in_threads(1, lambda _: me.fails(me.group, session, name="no room", size=1, rank=0))
    me.mark()
    return join(), more()[0], me.fails(group.barrier)


def with_a_full_ring(cluster):
    job = Job([cluster[1], cluster[2]], under_a_full_ring)
    job.await_marks()
    cluster[1].pause()
    since = time.monotonic()
    job.go(0)
    job[0].await_mark()
    eventually(lambda: asleep(job[0].pid), "all threads to wait")
    return job, since


def test_a_daemon_stopped_under_a_full_ring_and_eight_waiting_threads_is_found_out(cluster):
    job, since = with_a_full_ring(cluster)

    waits, more, later = job.outcomes(0)[0]

    equal({failure.name for failure in waits}, {"DAEMON_UNRESPONSIVE"}, f"how the waits ended: {waits}")
    assert max(failure.at for failure in waits) - since < FOUND_OUT, f"released late: {waits}"
    # Only the daemon's tick decides; until then it waits for room.
    equal(more.name, "DAEMON_UNRESPONSIVE", f"the call that found no room in the ring: {more}")
    assert more.at - since < FOUND_OUT + RING, f"the call that found no room ended late: {more}"
    equal(later.name, "DAEMON_UNRESPONSIVE", "a later call")
    job[1].dispose()
    still_works(cluster)


def test_a_daemon_killed_under_a_full_ring_and_eight_waiting_threads_releases_all_at_once(cluster):
    job, _ = with_a_full_ring(cluster)

    since = time.monotonic()
    cluster[1].kill()

    waits, more, later = job.outcomes(0)[0]
    equal({failure.name for failure in waits}, {"DAEMON_LOST"}, f"how the waits ended: {waits}")
    assert max(failure.at for failure in waits) - since < BUSY, f"released late: {waits}"
    equal(more.name, "DAEMON_LOST", f"the call that found no room: {more}")
    assert more.at - since < BUSY, f"the call that found no room ended late: {more}"
    equal(later.name, "DAEMON_LOST", "a later call")
    job[1].dispose()
    still_works(cluster)


def opens_a_session(me, timeout):
    """Eight threads, each in a handshake of its own."""
    me.mark()
    me.wait_for_go()
    join = in_threads(8, lambda _: me.fails(me.session, connect_timeout=timeout))
    me.mark()
    return join()


def in_handshakes(cluster, timeout):
    job = Job([cluster[3]], opens_a_session, timeout)
    job.await_marks()
    cluster[3].pause()
    pid, since = job[0].pid, time.monotonic()
    before = sockets_of(pid)
    job.go(0)
    job[0].await_mark()
    eventually(lambda: sockets_of(pid) == before + 8 and asleep(pid), "eight threads to wait in their handshakes")
    return job, since


def test_a_daemon_stopped_in_the_middle_of_handshakes_ends_them_in_time(cluster):
    job, since = in_handshakes(cluster, 5)

    failures = job.outcomes()[0]

    equal({failure.name for failure in failures}, {"DAEMON_UNRESPONSIVE"}, f"how the opens ended: {failures}")
    times = [failure.at - since for failure in failures]
    assert 4.9 < min(times) and max(times) < 5 + BUSY, f"they ended after {times} s, not after 5"
    still_works(cluster)


def test_a_daemon_killed_in_the_middle_of_handshakes_ends_them_at_once(cluster):
    job, _ = in_handshakes(cluster, 20)

    since = time.monotonic()
    cluster[3].kill()

    failures = job.outcomes()[0]
    equal({failure.name for failure in failures}, {"DAEMON_LOST"}, f"how the opens ended: {failures}")
    assert max(failure.at for failure in failures) - since < BUSY, f"they ended late: {failures}"
    still_works(cluster)


# ---- The same between nodes: a daemon that is stopped or killed while another one shakes hands with it ----

def joins_meanwhile(cluster, what):
    """A node that joins through node 1, which is stopped, and after a while goes on in some way."""
    token, issuer = cluster.token(), cluster[1]
    issuer.pause()
    joiner = cluster.node().start(wait=False, NEXAR_CLUSTER_TOKEN=token)
    eventually(lambda: datagrams_sent(joiner) > 0, f"{joiner} to ask")
    assert "cluster_joined" not in joiner.log(), "it joined through a daemon that does not run"
    what(issuer)
    eventually(lambda: "cluster_joined" in joiner.log(), f"{joiner} to get in", 25)
    cluster.wait_connected()
    run([*two_each(cluster), joiner], one_sum)
    joiner.end(signal.SIGKILL)
    del cluster.nodes[joiner.number]


def test_a_node_joins_although_its_issuer_is_stopped_or_killed_in_the_middle(cluster):
    def dies_and_comes_back(issuer):
        issuer.kill()
        issuer.start()

    joins_meanwhile(cluster, lambda issuer: issuer.resume())
    joins_meanwhile(cluster, dies_and_comes_back)
    still_works(cluster)


main(globals())
