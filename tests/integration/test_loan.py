"""The control loop drives a sleeping shard's endpoint for a single operation:

    node 1: rank 0 ── switch ── node 2: rank 1
"""
import os

from harness import *
from harness.values import check, given, reduced

COUNT, ROUNDS, IN_A_ROW = 262_144, 6, 20


def switches_of_shard(node):
    """How often its thread has had a processor and left it."""
    for thread in os.scandir(f"/proc/{node.pid}/task"):
        with open(f"{thread.path}/status") as file:
            words = dict(line.split(":\t", 1) for line in file if ":\t" in line)
        if words["Name"].strip() == "bulk-0":
            return int(words["voluntary_ctxt_switches"]) + int(words["nonvoluntary_ctxt_switches"])
    raise AssertionError("there is no thread bulk-0")


def sums_of_1_mib(me):
    """Without a pause between them; each doubles what the one before it gave."""
    group = me.group()
    want = reduced("int32", "sum", me.size, COUNT) * np.int32(me.size ** (IN_A_ROW - 1))
    for _ in range(ROUNDS):
        x = given("int32", "sum", me.rank, COUNT)
        for _ in range(IN_A_ROW):
            group.all_reduce(x, x)
        check(x, want, "all_reduce")


def test_single_operations_of_1_mib_need_no_shard(cluster):
    """[T8]"""
    eventually(lambda: all(node.status()["peers"][0]["bulk"][0]["carrier"] == "tcp" for node in cluster), "bulk data over TCP")
    before = [switches_of_shard(node) for node in cluster]
    run(list(cluster), sums_of_1_mib)
    for node, count in zip(cluster, before):
        more = switches_of_shard(node) - count
        # A hand-over is two at least.
        assert more < ROUNDS * IN_A_ROW, f"{node}: {more} changes of thread in {ROUNDS * IN_A_ROW} operations"


main(globals(), nodes=2)
