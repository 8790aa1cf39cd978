"""What one user's small operation takes beside another user who queues large ones, and beside one who keeps the same
processors busy without the daemon."""
import json
import os
import statistics

from hosts import Cluster, Failed

GREEDY, BYSTANDER = 2001, 2002  # uids
SMALL, LARGE, QUEUED = 1 << 20, 128 << 20, 256
TIMES = 400
RANKS = 2  # of the small operation: workers add what they have
LONGEST_SECONDS = 120
RATIO_MAX = 3  # that is promised (docs/protocol/tenants.md)


def times_of(cluster, client):
    command = [client, "--operations", "all_reduce", "--memory", "alloc", "--bytes", str(SMALL), "--seconds", "20",
               "--repetitions", str(TIMES)]
    row, = map(json.loads, cluster.run(command, RANKS, LONGEST_SECONDS, uid=BYSTANDER).splitlines())
    return row["microseconds"]


def beside(cluster, client, greedy):
    """The bystander's times beside a process of the other user; None: alone."""
    if greedy is None:
        return times_of(cluster, client)
    with cluster.beside(greedy, GREEDY) as other:
        if other.stdout.readline().strip() != b"begun":
            raise Failed(f"{greedy[1]} did not begin")
        return times_of(cluster, client)


def bystander(build, client, greedy):
    """Prints medians; the result for --json."""
    if os.geteuid() != 0:
        raise Failed("--bystander needs root: it runs processes of two users")
    with Cluster(build, 1) as cluster:
        workers = cluster.status(1)["workers"]
        others = {"alone": None, "beside copies": [greedy, "copies", workers, LARGE],
                  "beside operations": [greedy, "operations", QUEUED, LARGE]}
        times = {name: beside(cluster, client, other) for name, other in others.items()}
    medians = {name: statistics.median(of) for name, of in times.items()}
    ratio = medians["beside operations"] / medians["beside copies"]
    print(f"\nall_reduce of {SMALL >> 20} MiB by {RANKS} ranks of one user; the other has {QUEUED} of {LARGE >> 20} MiB queued, or copies "
          f"in {workers} threads without the daemon")
    for name, of in times.items():
        tenth = statistics.quantiles(of, n=10)
        print(f"  {name:18} {medians[name]:10.1f} us   ({tenth[0]:.1f} .. {tenth[-1]:.1f}, {len(of)} times)")
    print(f"  ratio {ratio:.2f} (promised: at most {RATIO_MAX})", flush=True)
    return {"microseconds": medians, "ratio": ratio, "ratio_max": RATIO_MAX}
