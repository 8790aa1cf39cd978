#!/usr/bin/python3
"""What deterministic reductions and f32 partials cost beside ordinary ones, in alternation, on real daemons in namespaces:

    NEXAR_BUILD_DIR=build/release tests/bench/partials_cost.py [REPETITIONS]

Medians of the ratios of neighbouring calls. Docs: docs/performance/partials.md.
"""
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from harness import *  # noqa: E402, F403
from harness.values import storage, typed  # noqa: E402

REPETITIONS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 25
PLACEMENTS = {"2 hosts x 1": [1, 2], "2 hosts x 2, blocked": [1, 1, 2, 2], "2 hosts x 2, cyclic": [1, 2, 1, 2],
              "one host x 4": [1, 1, 1, 1]}
SIZES = (1024, 4 << 20)
FLAGS = {"deterministic": 1, "f32 partials": 2}


def ratios(me, dtype, nbytes):
    session, flags = me.session(), (0, *FLAGS.values())
    groups = {flag: me.group(session, name=f"flags {flag}", flags=flag) for flag in flags}
    values = typed(np.zeros(nbytes // storage(dtype).itemsize, storage(dtype)), dtype)
    seconds = {flag: [] for flag in flags}
    for _ in range(REPETITIONS + 2):
        for flag in flags:
            groups[flag].barrier()
            begin = time.perf_counter()
            groups[flag].all_reduce(values)
            seconds[flag].append(time.perf_counter() - begin)
    return {flag: [s / plain for s, plain in zip(each[2:], seconds[0][2:])] for flag, each in seconds.items() if flag}


def test_costs(cluster):
    """Not a test: prints a table."""
    print("| all_reduce | type | bytes | " + " | ".join(FLAGS) + " |\n|---|---|---|" + "---|" * len(FLAGS))
    for name, placement in PLACEMENTS.items():
        for dtype in ("float32", "bfloat16"):
            for nbytes in SIZES:
                found = run([cluster[n] for n in placement], ratios, dtype, nbytes, seconds=60)[0]
                print(f"| {name} | {dtype} | {nbytes} | "
                      + " | ".join(f"{statistics.median(found[flag]):.2f}" for flag in FLAGS.values()) + " |", flush=True)


del sys.argv[1:]
main(globals())
