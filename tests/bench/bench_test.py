"""The benchmarks' cluster comes up with 1 to 4 hosts, and what the client times is right: it checks every result, and
here every measurement that was asked for must be there. No times are judged. usage: bench_test.py BUILD OPS_BENCH"""
import itertools
import json
import sys

from builds import Build
from hosts import Cluster, Failed

BYTES = ("8", "65536", "1048576")
MEMORY = ("alloc", "ordinary")


def measured(cluster, client, ranks, operations):
    command = [client, "--operations", ",".join(operations), "--memory", ",".join(MEMORY), "--bytes", ",".join(BYTES),
               "--seconds", "0", "--repetitions", "3"]
    return [json.loads(line) for line in cluster.run(command, ranks, 60).splitlines()]


def check_job(cluster, client, ranks, operations):
    rows = measured(cluster, client, ranks, operations)
    have = [(row["operation"], row["memory"], str(row["bytes"])) for row in rows]
    assert have == list(itertools.product(operations, MEMORY, BYTES)), have
    assert all(len(row["microseconds"]) >= 2 and row["messages"] >= 1 for row in rows), rows


def main(build, client):
    for hosts, ranks, operations in ((1, 2, ("all_reduce", "latency", "stream")), (2, 1, ("all_reduce", "stream")),
                                     (3, 2, ("all_reduce", "latency")), (4, 1, ("all_reduce",))):
        with Cluster(Build(build), hosts, pinned=hosts == 3) as cluster:
            check_job(cluster, client, ranks, operations)
            try:
                cluster.run([client, "--operations", "juggle"], ranks, 60)
                raise AssertionError("a rank that failed was not noticed")
            except Failed:
                pass
        print(f"ok  {hosts} hosts, {ranks} ranks on each: {', '.join(operations)}", flush=True)


main(*sys.argv[1:])
