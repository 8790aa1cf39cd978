#!/usr/bin/python3
"""What wakes the daemons of an idle cluster, by strace: heartbeats, the watchdog, and with sessions the tick; nothing else.

    NEXAR_BUILD_DIR=build/whole tests/soak/idle.py [--seconds N (default 20)] [--setting KEY=VALUE (of the daemons)]...

Two nodes, first without any session, then with a session and a group on each. Prints, for every thread, how often a second it
woke, and by what. A wake-up is the return of a call that may sleep.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "integration")]

from harness import nexar  # noqa: E402
import nexar.testing  # noqa: E402

SLEEPING = ("epoll_wait", "epoll_pwait", "poll", "ppoll", "futex", "futex_waitv", "clock_nanosleep", "nanosleep", "select")
CALL = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)[ (].*= (-?\w+)")
SETTLED_SECONDS = 5
# Of the control loop, each second: a heartbeat that is due here, one that comes, the acknowledgement of each, and the
# watchdog. With sessions two ticks more. Of every other thread: what keeps its connections open, a few times a minute.
PER_SECOND_MAX, TICKS = 5, 2
OTHERS_MAX = 0.2


def traced(pids, seconds):
    """{pid: {thread: {call: returns a second}}}"""
    with tempfile.TemporaryDirectory(prefix="nexar-idle.") as folder:
        tracers = [subprocess.Popen(["strace", "-f", "-qq", "-o", f"{folder}/{pid}", "-p", str(pid)], stderr=subprocess.DEVNULL)
                   for pid in pids]
        time.sleep(seconds)  # sleep: the time over which it is measured
        for tracer in tracers:
            tracer.terminate()
            tracer.wait()
        return {pid: counted(pathlib.Path(f"{folder}/{pid}").read_text(), seconds) for pid in pids}


def counted(text, seconds):
    calls = collections.defaultdict(collections.Counter)
    for line in text.splitlines():
        found = CALL.match(line)
        if found and found.group(2) in SLEEPING:
            calls[int(found.group(1))][f"{found.group(2)} {'time' if found.group(3) == '0' else 'event'}"] += 1 / seconds
    return calls


def name_of(pid, thread):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/task/{thread}/comm").read_text().strip()
    return "?"


def judge(when, cluster, seconds, ticks):
    words, pids = [], {node._process.pid: node.number for node in cluster.nodes}
    for pid, threads in traced(pids, seconds).items():
        for thread, calls in sorted(threads.items()):
            total, limit = sum(calls.values()), PER_SECOND_MAX + ticks if thread == pid else OTHERS_MAX
            shown = ", ".join(f"{call} {number:.2f}" for call, number in sorted(calls.items()))
            print(f"{when}: daemon {pids[pid]}, {name_of(pid, thread)}: {total:.2f} wake-ups a second ({shown})", flush=True)
            if total > limit:
                words.append(f"{when}: {name_of(pid, thread)} woke {total:.2f} times a second; allowed {limit}")
    return words


def opened(cluster):
    """A session and a rank of one group on each node."""
    groups = [None] * len(cluster.nodes)

    def open_one(rank, node):
        session = nexar.Session(node.socket)
        groups[rank] = session, session.group("idle", len(groups), rank, job_secret="the secret of the idle")

    threads = [threading.Thread(target=open_one, args=each) for each in enumerate(cluster.nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return groups


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE")
    chosen = parser.parse_args()
    seconds = chosen.seconds
    settings = {f"NEXAR_{key.upper()}": value for key, _, value in (each.partition("=") for each in chosen.setting)}
    with nexar.testing.cluster(2, 2, nexard=os.environ["NEXAR_TEST_NEXARD"], **settings) as cluster:
        time.sleep(SETTLED_SECONDS)  # sleep: what a start leaves to be done ends by itself
        words = judge("without sessions", cluster, seconds, 0)
        groups = opened(cluster)
        time.sleep(SETTLED_SECONDS)  # sleep: as above
        words += judge("with sessions", cluster, seconds, TICKS)
        del groups
    print(*words, "idle" if not words else "not idle", sep="\n")
    return 1 if words else 0


if __name__ == "__main__":
    sys.exit(main())
