"""What tools/bench runs: builds, measures, prints a table, and writes JSON."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time

import quic_limit
from builds import FOLDER, Build
from bystander import bystander
from hosts import Failed
from measure import ON_REQUEST, OPERATIONS, WIDE_PERCENT, Nexar, Plan, Topology, bits_per_second, measure
from peers import COMPETITORS, advice, chosen
from plot import plot
from urgency import urgency

ROOT = FOLDER.parents[1]
SIZES = (8, 64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
QUICK_SIZES = (8, 4 << 10, 1 << 20)
TOPOLOGIES = "1x2,1x4,2x1,2x2,2x4,3x2"
QUICK_TOPOLOGIES = "1x2,2x1"
# Programs of one process, and their arguments: (usual, quick).
MICRO = {"link_bench": ([], []), "reduce_bench": (["4096"], ["256"])}
MICRO_SECONDS = 120
QUIC_ROUNDS = (3, 1)  # of 1 GiB: usual, quick


def topologies_from(text):
    found = [re.fullmatch(r"([1-8])x([1-9][0-9]?)", word) for word in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"'{text}': want HOSTSxRANKS-PER-HOST, 1..8 and 1..99, such as 1x2,3x2")
    return [Topology(int(match[1]), int(match[2])) for match in found]


def sizes_from(text):
    if not all(re.fullmatch(r"[1-9][0-9]*", word) and int(word) % 8 == 0 for word in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}': want multiples of 8, such as 8,4096")
    return [int(word) for word in text.split(",")]


def operations_from(text):
    if not set(text.split(",")) <= {*OPERATIONS, *ON_REQUEST}:
        raise argparse.ArgumentTypeError(f"'{text}': want some of {','.join((*OPERATIONS, *ON_REQUEST))}")
    return tuple(text.split(","))


def links_from(text):
    try:
        return [None if word == "none" else word for word in text.split(",") if word == "none" or bits_per_second(word)]
    except AttributeError:
        raise argparse.ArgumentTypeError(f"'{text}': want rates such as 1gbit,100mbit; none: not shaped") from None


def competitors_from(text):
    found = chosen(text)
    if found is None:
        names = ", ".join(each.name.lower().replace(" ", "-") for each in COMPETITORS)
        raise argparse.ArgumentTypeError(f"'{text}': want some of {names}, or peers, limits, all")
    return found


def parse():
    parser = argparse.ArgumentParser(prog="tools/bench", description="Builds the release preset with the benchmarks "
                                     "and runs them: the parts' own (one process each), and all_reduce and messages "
                                     "on clusters of network namespaces. Every result on a cluster is checked. Without "
                                     "options: at most about 8 minutes, and the build.")
    parser.add_argument("--quick", action="store_true", help="at most about a minute: two topologies, three sizes")
    parser.add_argument("--build", metavar="DIR[,DIR2]", help="measure these builds (build folders, or source trees "
                        "with a build/release) instead of building; two are measured in alternation")
    parser.add_argument("--topologies", type=topologies_from, metavar="LIST", help=f"default {TOPOLOGIES}")
    parser.add_argument("--sizes", type=sizes_from, metavar="LIST", help="bytes per vector or message")
    parser.add_argument("--rounds", type=int, help="jobs per build and topology (default 3; with --quick 2)")
    parser.add_argument("--minutes", type=float, help="for the clusters; fewer rounds when they do not fit")
    parser.add_argument("--no-micro", action="store_true", help="leave out the parts' own benchmarks")
    parser.add_argument("--pin", action="store_true", help="each host has one processor, in turn: fewer surprises where "
                        "hosts share a few")
    parser.add_argument("--plain", action="store_true", help="each build also with encrypt_bulk = false on all hosts, in "
                        "alternation")
    parser.add_argument("--bystander", action="store_true", help="only this: one user's operations beside another "
                        "user's attack, and beside a process that takes as much of a processor (as root; about 4 minutes)")
    parser.add_argument("--urgency", action="store_true", help="only this: an all_reduce of 8 bytes by priority, idle, beside "
                        "bulk of the same user and beside 62 sleeping ranks; and ten groups beside one that does not receive")
    parser.add_argument("--peers", type=competitors_from, nargs="?", const="all", default=[], metavar="LIST",
                        help="in alternation with nexar also these, or all that can be compiled here: " +
                        ", ".join(each.name for each in COMPETITORS) + ". What is missing is named, with the command that "
                        "installs it")
    parser.add_argument("--link", dest="links", type=links_from, default=[None], metavar="LIST",
                        help="each host sends and receives so much at most, such as 1gbit or 100mbit (none: as fast as "
                        "the machine)")
    parser.add_argument("--operations", type=operations_from, default=OPERATIONS, metavar="LIST",
                        help=f"default {','.join(OPERATIONS)}; {','.join(ON_REQUEST)}: "
                        "all_reduce after 10 ms of sleep, and after a computation that fills the caches")
    parser.add_argument("--plot", metavar="DIR", type=pathlib.Path, help="write pictures there (Debian: "
                        "python3-matplotlib): time over bytes")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="write everything there, too")
    options = parser.parse_args()
    quick = options.quick
    options.topologies = options.topologies or topologies_from(QUICK_TOPOLOGIES if quick else TOPOLOGIES)
    options.sizes = options.sizes or (QUICK_SIZES if quick else SIZES)
    options.rounds = options.rounds or (2 if quick else 3)
    options.minutes = options.minutes or (0.5 if quick else 6)
    return options


def build_here():
    for command in (["cmake", "--preset", "release"], ["cmake", "--build", "--preset", "bench"]):
        print("==", *command, file=sys.stderr, flush=True)
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-3000:]}\nbench: '{' '.join(command)}' failed (tools/setup gets what it needs)")
    return ROOT / "build/release"


def run_micro(build, quick, pin):
    """Each program's output; a build without it is left out."""
    results = {}
    for name, arguments in MICRO.items():
        program = build.folder / "tests/bench" / name
        if not program.exists():
            continue
        done = subprocess.run([program, *arguments[quick]], capture_output=True, text=True, timeout=MICRO_SECONDS)
        if done.returncode != 0:
            raise Failed(f"{name} ended with {done.returncode}: {done.stderr.strip()}")
        results[name] = done.stdout.splitlines()
        print(f"== {name}", *results[name], sep="\n", flush=True)
    if quic := quic_limit.measure(build.folder / "tests/bench", QUIC_ROUNDS[quick], pin):
        results["quic_bench"] = quic_limit.table(quic)
        print("== quic_bench", *results["quic_bench"], sep="\n", flush=True)
    return results


def machine():
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return {"cpu": cpu.group(1) if cpu else platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "kernel": platform.release(), "load_before": os.getloadavg()[0]}


def compile_competitors(wanted, folder):
    """Those that could be; the others are named."""
    missing = [each for each in wanted if not each.compile(folder)]
    for each in missing:
        print(f"== {each.name} is not here, and left out")
    if missing:
        print(f"   to measure beside {'it' if len(missing) == 1 else 'them'}, as root: {advice(missing)}", flush=True)
    return [each for each in wanted if each not in missing]


def print_rows(rows):
    """A table of one setting, a line per cell; with two or more in a row, each one's time over the first's."""
    link = rows[0][0]["link"]
    print(f"\n{'topology':8} {'operation':10} {'bytes':>9} {'of':10} {'memory':8} {'median us':>12} {'(q1 .. q3)':>25}   "
          f"{'MB/s':>9} {'n':>4} {'daemon':>8} {'appl.':>8}   ratio (pairs){'   links: ' + link if link else ''}")
    for cell in (cell for row in rows for cell in row):
        span = f"({cell['q1_us']:.1f} .. {cell['q3_us']:.1f})"
        rate = cell["megabytes_per_second"]
        line = "{topology:8} {operation:10} {bytes:9} {competitor:10} {memory:8}".format(**cell)
        line += f" {cell['median_us']:12.1f} {span:>25} {'~' if cell['wide'] else ' '} {'-' if rate is None else f'{rate:.1f}':>9}"
        line += f" {cell['samples']:4} {cell['daemon_seconds_per_gb']:8.3g} {cell['application_seconds_per_gb']:8.3g}"
        if "ratio" in cell:
            line += "   {ratio:.3f} ({ratio_least:.3f} .. {ratio_greatest:.3f})".format(**cell)
        print(line, flush=True)


def write_pictures(rows, competitors, folder):
    files = plot(rows, {each.name for each in competitors if each.kind == "limit"}, folder)
    if files is None:
        print("no pictures: they need matplotlib (apt-get install python3-matplotlib)")
    else:
        print(f"{len(files)} pictures in {folder}")


def measure_clusters(options, builds, clients, folder):
    """What of the result is measured on clusters."""
    peers = compile_competitors(options.peers, folder)
    names, plain = (["nexar"], ["plain"]) if len(builds) == 1 else (["A", "B"], ["A plain", "B plain"])
    nexar = [Nexar(*each) for each in zip(names, builds, clients)]
    if options.plain:
        nexar += [Nexar(*each, plain=True) for each in zip(plain, builds, clients)]
    plan = Plan(options.topologies, options.sizes, options.rounds, options.minutes * 60, [*nexar, *peers], options.pin,
                options.links, options.operations)
    rows, jobs = measure(plan, print_rows)
    if options.plot:
        write_pictures(rows, peers, options.plot)
    return {"clusters": rows, "jobs": jobs, "competitors": [each.describe() for each in options.peers]}


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception: everything is cleaned up
    builds = [Build(folder) for folder in (options.build or str(build_here())).split(",")]
    if len(builds) > 2:
        sys.exit("bench: --build takes one build or two")
    result = {"command": ["tools/bench", *sys.argv[1:]], "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "machine": machine(),
              "builds": [build.describe() for build in builds], "micro": [], "clusters": []}
    begin = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="nexar-bench.") as folder:
            os.chmod(folder, 0o755)
            clients = [build.compile_client(f"{folder}/ops_bench{i}") for i, build in enumerate(builds)]
            if options.bystander:
                result["bystander"] = [
                    bystander(build, clients[i], build.compile_client(f"{folder}/greedy{i}", "greedy.cpp"),
                              build.compile_client(f"{folder}/hostile{i}", "../integration/clients/hostile_client.cpp"))
                    for i, build in enumerate(builds)]
            elif options.urgency:
                result["urgency"] = [urgency(build, build.compile_client(f"{folder}/urgent{i}", "urgent.cpp"))
                                     for i, build in enumerate(builds)]
            elif not options.no_micro:
                result["micro"] = [run_micro(build, options.quick, options.pin) for build in builds]
            if not (options.bystander or options.urgency):
                result.update(measure_clusters(options, builds, clients, folder))
    except Failed as failure:
        sys.exit(f"bench: {failure}")
    result["seconds"] = round(time.monotonic() - begin, 1)
    print(f"\n{result['seconds']} s; times are medians, with the first and third quartile (~: over {WIDE_PERCENT} % of the "
          "median apart,\nif time permitted also when measured again); daemon, appl.: processor seconds per GB within the calls")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
