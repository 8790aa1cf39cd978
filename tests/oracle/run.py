#!/usr/bin/python3
"""Random programs on real daemons, each compared with a reference.

    NEXAR_BUILD_DIR=build/whole tests/oracle/run.py [--seed FIRST] [--programs N] [--seconds S] [--kind plain|ends|death|leave]
                                                    [--without STEP,STEP] [--repeat N] [--sabotage wrong|late] [--show]

Programs of seeds FIRST, FIRST + 1, ... one of each kind, until N have run or S seconds have passed. A failure prints
the program, its seed, and the command that runs it again, without the steps that it does not need. ORACLE_LOGS=1: also the
daemons' logs.
"""
import argparse
import collections
import os
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "integration")]

import harness  # noqa: E402, F401
from oracle.draw import draw  # noqa: E402
from oracle.program import KINDS  # noqa: E402
from oracle.runner import Runner, Wrong  # noqa: E402


def arguments(given):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=sys.maxsize)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--without", default="", help="numbers of steps, with commas")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--failures", type=int, default=10, help="after so many it stops")
    parser.add_argument("--sabotage", choices=("wrong", "late"))
    parser.add_argument("--show", action="store_true")
    chosen = parser.parse_args(given)
    if chosen.seconds is None and chosen.programs == sys.maxsize:
        chosen.programs = 1
    return chosen


def programs(chosen):
    end = time.monotonic() + (chosen.seconds or 1e9)
    for number in range(chosen.programs):
        kind = chosen.kind or KINDS[number % len(KINDS)]
        seed = chosen.seed + (number if chosen.kind else number // len(KINDS))
        for _ in range(chosen.repeat):
            if time.monotonic() > end:
                return
            yield seed, kind


def explained(runner, seed, kind, without, wrong):
    left_out = without or runner.shrunk(seed, kind)
    dropped = f" --without {','.join(map(str, sorted(left_out)))}" if left_out else ""
    return (f"FAILED {kind} program of seed {seed}:\n{wrong}\n{draw(seed, kind).without(left_out)}\n"
            f"again: tests/oracle/run.py --kind {kind} --seed {seed}{dropped} --repeat 100")


def main(given=None):
    """How many programs were wrong."""
    chosen = arguments(given)
    without = tuple(int(number) for number in chosen.without.split(",") if number)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    runner, done, failures = Runner(os.environ["NEXAR_TEST_NEXARD"], chosen.sabotage), collections.Counter(), 0
    begin = time.monotonic()
    try:
        for seed, kind in programs(chosen):
            if chosen.show:
                print(draw(seed, kind).without(without), flush=True)
            try:
                runner.perform(seed, kind, without)
                done[kind] += 1
            except Wrong as wrong:
                failures += 1
                print(explained(runner, seed, kind, without, wrong) if not chosen.sabotage else wrong, flush=True)
                if failures == chosen.failures or chosen.sabotage:
                    break
    finally:
        runner.close()
    print(f"programs that ended as they must: {dict(done)}; {failures} did not; {time.monotonic() - begin:.0f} s", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
