"""What becomes of messages between survivors when their bulk connection is cut off after their group has ended [G8] [F21].

    node 1: rank 0 ──┐
    node 2: rank 1 ──┼── switch        1 and 2 no longer reach each other's bulk port; their control connection works
    node 3: rank 2 ──┘        rank 2, or its node, dies before that is found
"""
import time

from harness import *
from harness.values import check, given

LONGEST = 2 * HEARTBEAT_TIMEOUT + 2 * HEARTBEAT_INTERVAL + BUSY  # [F21]
LOOP_PORT, SHARD_PORT = PORT + 2, PORT + 1  # one bulk shard
LOOP_COUNT, SHARD_COUNT = 65_536, 500_000   # f32 each of 256 KiB, and 2 MB


def exchanges(me, count):
    """Messages both ways without a deadline, until they fail: the failures of the last two."""
    group = me.group()
    me.mark()
    if me.rank == 2:
        me.stay()
    x, out, tag = given("float32", "sum", me.rank, count), np.empty(count, np.float32), 0
    while True:
        requests = [group.recv_start(out, 1 - me.rank, tag, timeout=float("inf")),
                    group.send_start(x, 1 - me.rank, tag, timeout=float("inf"))]
        failures = []
        for request in requests:
            try:
                request.wait()
            except nexar.Error as error:
                failures.append(me.failure(error))
        if failures:
            return failures
        check(out, given("float32", "sum", 1 - me.rank, count), "message")
        tag += 1


def run_case(cluster, port, count, die):
    job = Job(list(cluster), exchanges, count)
    job.await_marks()
    since = time.monotonic()
    cluster.network.block(1, 2, port)
    cluster.network.block(2, 1, port)
    die(cluster, job)
    for failures in job.outcomes(0, 1, seconds=LONGEST + 2):
        for failure in failures:
            assert failure.name in ("PEER_LOST", "LINK_LOST"), failure
            assert failure.at - since <= LONGEST, f"{failure.name} after {failure.at - since:.1f} s"


def test_loop_messages_and_a_rank_that_dies(cluster):
    run_case(cluster, LOOP_PORT, LOOP_COUNT, lambda cluster, job: job[2].kill())


def test_shard_messages_and_a_node_that_dies(cluster):
    run_case(cluster, SHARD_PORT, SHARD_COUNT, lambda cluster, job: cluster[3].kill())


def test_loop_messages_and_nobody_dies(cluster):
    run_case(cluster, LOOP_PORT, LOOP_COUNT, lambda cluster, job: None)


main(globals(), nodes=3)
