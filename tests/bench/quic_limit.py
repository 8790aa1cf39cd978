#!/usr/bin/env python3
"""nexar's QUIC beside plain ngtcp2: quic_bench and raw_ngtcp2 in alternation, and their ratio, by datagram size.

    tests/bench/quic_limit.py [--build DIR] [--rounds N] [--pin]"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess

from builds import FOLDER
from hosts import Failed

PROGRAMS = ("quic_bench", "raw_ngtcp2")  # the second is the first one's limit
FIGURES = ("Gbit/s", "send CPU s/GB", "receive CPU s/GB")
HEAD = re.compile(r"payload up to (\d+)")
RUN = re.compile(r" +([\d.]+) Gbit/s +CPU s/GB send ([\d.]+) receive ([\d.]+) ")
ROUND_SECONDS = 60


def runs_in(text):
    """{largest datagram: [(figure of FIGURES, ...) of each run]} of a program's output."""
    runs = {}
    for line in text.splitlines():
        if head := HEAD.fullmatch(line):
            of_size = runs.setdefault(int(head[1]), [])
        elif run := RUN.match(line):
            of_size.append(tuple(float(figure) for figure in run.groups()))
    return runs


def run_once(program, pin):
    """One run of 1 GiB for each datagram size."""
    done = subprocess.run([program, "1", "1"], capture_output=True, text=True, timeout=ROUND_SECONDS,
                          env={**os.environ, **({"PIN": "1"} if pin else {})})
    if done.returncode != 0:
        raise Failed(f"{program.name} ended with {done.returncode}: {done.stderr.strip()}")
    return runs_in(done.stdout)


def measure(folder, rounds, pin=False):
    """{program: {largest datagram: its runs}} of those that the build has; each round begins with another one."""
    present = [name for name in PROGRAMS if (folder / name).exists()]
    runs = {name: {} for name in present}
    for i in range(rounds):
        for name in present if i % 2 == 0 else reversed(present):
            for size, found in run_once(folder / name, pin).items():
                runs[name].setdefault(size, []).extend(found)
    return runs


def ratios(pairs):
    """Of each figure: the ratio of the medians, and the least, the median and the greatest of the rounds' own."""
    for own, limit in zip(*(zip(*runs) for runs in pairs)):
        single = sorted(a / b for a, b in zip(own, limit))
        yield statistics.median(own) / statistics.median(limit), single[0], statistics.median(single), single[-1]


def table(runs):
    """The lines of a report."""
    lines = [f"{'datagram':>8} {'medians of':10}  " + "".join(f"{name:>26}" for name in FIGURES)]
    for size in next(iter(runs.values()), {}):
        for name in runs:
            medians = [statistics.median(figures) for figures in zip(*runs[name][size])]
            lines.append(f"{size:8} {name:10}  " + "".join(f"{value:26.3f}" for value in medians))
        if len(runs) == 2:
            cells = [f"{one:.2f} ({low:.2f} {mid:.2f} {high:.2f})" for one, low, mid, high in ratios([runs[name][size] for name in runs])]
            lines.append(f"{size:8} {'ratio':10}  " + "".join(f"{cell:>26}" for cell in cells))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=FOLDER.parents[1] / "build/release", metavar="DIR")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--pin", action="store_true", help="a processor for each end; otherwise the kernel often runs both on one")
    options = parser.parse_args()
    print(*table(measure(options.build / "tests/bench", options.rounds, options.pin)), sep="\n")
    print("of a ratio, in brackets: the least, the median and the greatest of the rounds")


if __name__ == "__main__":
    main()
