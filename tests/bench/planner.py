#!/usr/bin/env python3
"""Compares the planner's choice with each single choice that it has, on clusters in network namespaces.

    tests/bench/planner.py [--build DIR] [--topologies 2x1,3x2] [--bytes LIST] [--rounds N] [--seconds S] [--tune] [--json FILE]

A single choice is a cluster of its own whose configuration leaves one algorithm of all_reduce and one class. All clusters
run at the same time and take turns; each result is checked. The ratio is the time of the choice that the planner makes, forced,
over that of the best: the planner's own cluster, in its column, does the same and shows how much such times differ. "by size" is
the ratio of what plan function 2 chooses. --tune: the planner's cluster is tuned first, by nexarctl tune on each of its hosts;
otherwise it goes by --model, or by size. --again N: where the ratio is above 1.10, the choice and the best are measured anew, N
rounds of these two only. The best of six choices of the same speed is the luckiest of them, in the rounds that chose it; in
others it is not. That clears cells and condemns none: to count cells, run it twice and compare the choices of the one run with
the best of the other (--json, --best-of FILE)."""
import argparse
import contextlib
import json
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile

from builds import FOLDER, Build
from hosts import CLEAN, Cluster, Failed
from measure import read_times

SIZES = (8, 512, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
ONE_CHOICE_FROM = 8 << 20  # several segments: only the bulk ring is left
SMALL_MAX = 256 << 10      # small_message_bytes: what is longer is bulk, also where that is not wanted
NEVER_BULK = ("small_start_ns = 1000\nsmall_ps_per_byte = 1\nbulk_start_ns = 1000000000\nbulk_ps_per_byte = 1\n"
              "memory_ps_per_byte = 1\nshared_ps_per_byte = 1\n")
PARAMETERS = ("small_start_ns", "small_ps_per_byte", "bulk_start_ns", "bulk_ps_per_byte", "memory_ps_per_byte",
              "shared_ps_per_byte")
FAMILIES = {"recursive doubling": "doubling", "ring": "ring", "halving and doubling": "halving"}
LONGEST_SECONDS = 120
ACCEPTED = 1.10  # of the best single choice's time


def singles(hosts):
    """{name: (variables of the daemons, model)}"""
    out = {}
    for family in ("doubling", "ring") + (("halving",) if hosts > 2 else ()):
        out[f"{family} small"] = {"NEXAR_ALGORITHMS": family}, NEVER_BULK
        out[f"{family} bulk"] = {"NEXAR_ALGORITHMS": family, "NEXAR_SMALL_MSG_BYTES": "0"}, None
    return out


def tune(cluster):
    """What nexarctl tune reports at host 1, after it has ended on all hosts."""
    with tempfile.NamedTemporaryFile("w", suffix=".secret") as secret:
        secret.write(secrets.token_hex(16))
        secret.flush()
        running = []
        for index, host in enumerate(cluster.hosts):
            command = [cluster.build.nexarctl, "--socket", cluster._path(host, "admin.sock"), "tune", "--nodes",
                       str(len(cluster.hosts)), "--node-index", str(index), "--secret-file", secret.name, "--json"]
            if cluster._processors:
                command = ["taskset", "-c", str(cluster._processors[index % len(cluster._processors)]), *command]
            running.append(subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                            env={**CLEAN, "NEXAR_SOCKET": str(cluster._path(host, "nexard.sock"))}))
        outputs = [process.communicate(timeout=LONGEST_SECONDS) for process in running]
    for process, (output, complaint) in zip(running, outputs):
        if process.returncode != 0:
            raise Failed(f"tune: {complaint or output}")
    return json.loads(outputs[0][0])


def chosen(build, model, size, hosts, ranks, doubling=None):
    """The planner's choice, as nexarctl plan shows it for the model and the limit of recursive doubling."""
    job = subprocess.run([build.nexarctl, "plan", "--bytes", str(size), "--nodes", str(hosts), "--ranks-per-node",
                          str(ranks), "--json", *(["--model", model] if model else []), *(["--doubling", str(doubling)] if doubling else [])],
                         env=CLEAN, capture_output=True, text=True, timeout=20, check=True)
    report = json.loads(job.stdout)
    return f"{FAMILIES[report['algorithm']]} {report['class']}"


def median_of(cluster, client, sizes, ranks, seconds):
    """{bytes: microseconds}"""
    text = cluster.run([client, "--operations", "all_reduce", "--memory", "alloc", "--bytes", ",".join(map(str, sizes)),
                        "--seconds", str(seconds)], ranks, LONGEST_SECONDS)
    return {size: statistics.median(found.microseconds) for (_, _, size), found in read_times(text).items()}


def measure_again(clusters, client, row, choice, ranks, options):
    """How the choice compares with the best in rounds that chose neither: median and quartiles of each round's ratio."""
    times = {choice: [], row["best"]: []}
    for number in range(options.again):
        for name in list(times) if number % 2 == 0 else list(reversed(times)):
            times[name].append(median_of(clusters[name], client, [row["bytes"]], ranks, options.seconds)[row["bytes"]])
    pairs = [mine / best for mine, best in zip(times[choice], times[row["best"]])]
    quartiles = statistics.quantiles(pairs, n=4, method="inclusive")
    return {"ratio": round(statistics.median(pairs), 3), "quartiles": [round(quartiles[0], 3), round(quartiles[2], 3)],
            "times_us": times}


def measure_topology(build, client, hosts, ranks, options):
    with contextlib.ExitStack() as stack:
        model = "".join(f"{name} = {value}\n" for name, value in zip(PARAMETERS, options.model.split(","))) if options.model else None
        clusters = {"planner": stack.enter_context(Cluster(build, hosts, options.pin, None, model))}
        for name, (settings, model) in singles(hosts).items():
            clusters[name] = stack.enter_context(Cluster(build, hosts, options.pin, settings, model))
        tuned = tune(clusters["planner"]) if options.tune else None
        times = {name: {} for name in clusters}
        for number in range(options.rounds):
            order = list(clusters) if number % 2 == 0 else list(reversed(clusters))
            for name in order:
                sizes = [size for size in options.bytes if size < ONE_CHOICE_FROM or name in ("planner", "ring bulk")]
                sizes = [size for size in sizes if size <= SMALL_MAX or not name.endswith("small")]
                if not sizes:
                    continue
                for size, median in median_of(clusters[name], client, sizes, ranks, options.seconds).items():
                    times[name].setdefault(size, []).append(median)
        rows = []
        for size in options.bytes:
            medians = {name: statistics.median(found[size]) for name, found in times.items() if size in found}
            best = min((name for name in medians if name != "planner"), key=medians.get)
            model = ",".join(str(tuned["model"][name]) for name in PARAMETERS) if tuned else options.model
            doubling = tuned["model"].get("doubling_bytes_max") if tuned else None
            choice, by_size = chosen(build, model, size, hosts, ranks, doubling), chosen(build, None, size, hosts, ranks)
            rows.append({"topology": f"{hosts}x{ranks}", "bytes": size, "best": best, "medians_us": medians,
                         "chosen": choice, "ratio": round(medians[choice] / medians[best], 3),
                         "by_size": by_size, "ratio_by_size": round(medians[by_size] / medians[best], 3),
                         "planner_ratio": round(medians["planner"] / medians[choice], 3)})
        for row in rows:
            beyond = [row[key] for key, ratio in (("chosen", "ratio"), ("by_size", "ratio_by_size")) if row[ratio] > ACCEPTED]
            for choice in dict.fromkeys(beyond):
                if options.again:
                    row.setdefault("again", {})[choice] = measure_again(clusters, client, row, choice, ranks, options)
        return rows, tuned


def show(rows, tuned):
    if tuned:
        print("raced:", ", ".join(f"{each['bytes']} {each['doubling_ns'] / 1000:.0f}/{each['ring_ns'] / 1000:.0f} us" for each in tuned["raced"]))
        print("tuned:", ", ".join(f"{name} {value}" for name, value in tuned["model"].items()), f"host_ns {tuned['host_ns']}")
    names = [name for name in rows[0]["medians_us"] if name != "planner"]
    print(f"{rows[0]['topology']:>5} {'bytes':>9} " + " ".join(f"{name:>14}" for name in names) +
          f" {'planner':>10}  ratio by size  chosen (best)")
    for row in rows:
        cells = " ".join(f"{row['medians_us'][name]:14.1f}" if name in row["medians_us"] else f"{'-':>14}" for name in names)
        mark = "  <-- above 1.10" if row["ratio"] > ACCEPTED else ""
        print(f"      {row['bytes']:9} {cells} {row['medians_us']['planner']:10.1f} {row['ratio']:6.3f}  {row['ratio_by_size']:6.3f}  "
              f"{row['chosen']} ({row['best']}){mark}", flush=True)
        for choice, again in row.get("again", {}).items():
            print(f"{'':14} again: {choice} {again['ratio']:.3f} of {row['best']} (quartiles of the rounds {again['quartiles'][0]:.2f} .. "
                  f"{again['quartiles'][1]:.2f}){'  <-- above 1.10' if again['ratio'] > ACCEPTED else ''}", flush=True)


def compare(kept, others):
    """Of all cells, without a choice by luck: times of this run, the best ones of another."""
    best = {(row["topology"], row["bytes"]): row["best"] for topology in others for row in topology["rows"]}
    for key in ("chosen", "by_size"):
        ratios = {f"{row['topology']} {row['bytes']}": row["medians_us"][row[key]] / row["medians_us"][best[row["topology"], row["bytes"]]]
                  for topology in kept for row in topology["rows"] if (row["topology"], row["bytes"]) in best}
        if not ratios:
            sys.exit("planner: --best-of: the other run has none of these topologies and sizes")
        beyond = {cell: round(ratio, 2) for cell, ratio in ratios.items() if ratio > ACCEPTED}
        print(f"{key}: {len(ratios) - len(beyond)} of {len(ratios)} within 10 % of the other run's best; beyond: {beyond or 'none'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=FOLDER.parents[1])
    parser.add_argument("--topologies", default="2x1,2x2,2x4,3x1,3x2,3x4")
    parser.add_argument("--bytes", default=",".join(map(str, SIZES)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each size, choice and round")
    parser.add_argument("--best-of", type=pathlib.Path, metavar="FILE", help="an earlier run's --json: how many cells are within "
                        "10 %% of what was the best there")
    parser.add_argument("--again", type=int, default=0, metavar="N", help="rounds in which a choice above 1.10 meets the best once more")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--model", help="of the planner, as nexarctl plan takes it: six numbers")
    parser.add_argument("--pin", action="store_true", help="each host has one processor, in turn")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.again == 1 or options.again < 0:
        parser.error(f"--again {options.again}: want 2 or more, or 0 for none")
    options.bytes = [int(word) for word in options.bytes.split(",")]
    others = json.loads(options.best_of.read_text())["topologies"] if options.best_of else None
    build, kept = Build(options.build), []
    with tempfile.TemporaryDirectory(prefix="nexar-bench.") as folder:
        client = build.compile_client(f"{folder}/ops_bench")
        for topology in options.topologies.split(","):
            hosts, ranks = map(int, topology.split("x"))
            if hosts < 2:
                continue  # within a host there is nothing to choose
            try:
                rows, tuned = measure_topology(build, client, hosts, ranks, options)
            except Failed as failure:
                sys.exit(f"planner: {failure}")
            show(rows, tuned)
            kept.append({"rows": rows, "tuned": tuned})
    if others is not None:
        compare(kept, others)
    if options.json:
        options.json.write_text(json.dumps({"build": build.describe(), "topologies": kept}, indent=1) + "\n")


main()
