"""Runs the tests of one file, one after the other, on one cluster that is mended between them."""
import signal
import sys
import time
import traceback

from . import carriers, delays
from .cluster import Cluster
from .expected import run_expected
from .ranks import Failure, Job
from .system import need_namespaces, skip


def equal(have, want, what="value"):
    if have != want:
        raise AssertionError(f"{what}: have {have!r}, want {want!r}")


def contains(text, *parts):
    for part in parts:
        if str(part) not in text:
            raise AssertionError(f"{part!r} is not in {text!r}")


def same_failure(outcomes, name, rank=None, other_rank=None, node=None, since=0, within=None, one_text=True):
    """Every outcome is the same Failure, with exactly these fields, and came in `within` seconds `since` then."""
    for outcome in outcomes:
        if not isinstance(outcome, Failure):
            raise AssertionError(f"want {name}, have the value {outcome!r}; all: {outcomes}")
        equal(outcome.cause, (name, rank, other_rank, node), f"error ({outcome.text})")
        if within is not None and outcome.at - since > within:
            raise AssertionError(f"{name} came after {outcome.at - since:.2f} s, allowed are {within} s: {outcome.text}")
        if not outcome.text:
            raise AssertionError(f"{name} has no text")
    equal(len({outcome.text for outcome in outcomes}) == 1 or not one_text, True, f"all have one text: {outcomes}")


def run_one(test, cluster):
    """The scenario's result in words (of what it returns: why it was skipped); leaves the cluster mended, or closed: then the next one gets a new one."""
    expected = getattr(test, "expected_failure", None)
    if expected:
        print(f"        {test.__name__}: {run_expected(expected, test, cluster)}", flush=True)
        Job.dispose_all()
        cluster.close()  # who knows what the failure left in the daemons
        return f" (fails as expected: {expected})", None
    skipped = test(cluster)
    crashed = cluster.crashed()
    if crashed:
        raise AssertionError("; ".join(crashed))
    Job.dispose_all()
    cluster.mend()
    return f" ({skipped})" if isinstance(skipped, str) else "", cluster


def main(tests, nodes=3, before=lambda: None, **environment):
    """tests: globals() of the file; its functions test_*(cluster) run in order, or those named as arguments."""
    before()
    need_namespaces()
    chosen = [(name, f) for name, f in tests.items() if name.startswith("test_") and callable(f)
              and (not sys.argv[1:] or any(word in name for word in sys.argv[1:]))]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    if delays.SEED is not None:
        print(f"        delays of seed {delays.SEED}{', and stops' if delays.STOPS else ''}", flush=True)
    if carriers.MODE:
        print(f"        bulk data: {carriers.MODE}, seed {carriers.SEED}", flush=True)
    failed, cluster = [], None
    try:
        for name, test in chosen:
            begin = time.monotonic()
            try:
                cluster = cluster or Cluster(nodes, **environment)
                words, cluster = run_one(test, cluster)
                print(f"ok      {name}{words}  {time.monotonic() - begin:.1f} s", flush=True)
            except Exception:
                failed.append(name)
                print(f"FAILED  {name}  {time.monotonic() - begin:.1f} s\n{traceback.format_exc()}", flush=True)
                Job.dispose_all()
                if cluster:
                    cluster.print_logs()
                    print(*cluster.crashed(), sep="\n", flush=True)
                    cluster.close()
                cluster = None
    finally:
        Job.dispose_all()
        if cluster:
            cluster.close()
    if carriers.MODE:
        print(f"        {carriers.seen_moves} moves between carriers", flush=True)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} passed" + "".join(f"\nfailed: {name}" for name in failed))
    sys.exit(1 if failed else 0)
