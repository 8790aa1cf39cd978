"""The benchmarks' cluster comes up with 1 to 4 hosts, and what the client times is right: it checks every result, and
here every measurement that was asked for must be there. No times are judged. usage: bench_test.py BUILD OPS_BENCH"""
import argparse
import itertools
import json
import pathlib
import sys
import tempfile

import peers
import quic_limit
from bench import competitors_from, links_from, operations_from, topologies_from
from builds import Build
from hosts import Cluster, Failed
from measure import (Nexar, Plan, Setting, Times, Topology, bits_per_second, figures, least_on_wire, read_times,
                     rounds_that_count, rows_of, share_of, wide_cells)
from plot import file_name, pictures_of

BYTES = ("8", "65536", "1048576")
MEMORY = ("alloc", "ordinary")
KEY = ("all_reduce", "ordinary", 1000)
NARROW, WIDE = [99.0, 100.0, 100.0, 101.0], [10.0, 100.0, 300.0, 900.0]


def measured(cluster, client, ranks, operations):
    command = [client, "--operations", ",".join(operations), "--memory", ",".join(MEMORY), "--bytes", ",".join(BYTES),
               "--seconds", "0", "--repetitions", "3"]
    return [json.loads(line) for line in cluster.run(command, ranks, 60).splitlines()]


def check_job(cluster, client, ranks, operations):
    rows = measured(cluster, client, ranks, operations)
    have = [(row["operation"], row["memory"], str(row["bytes"])) for row in rows]
    assert have == list(itertools.product(operations, MEMORY, BYTES)), have
    assert all(len(row["microseconds"]) >= 2 and row["messages"] >= 1 for row in rows), rows
    for what in ("application_seconds", "daemon_seconds"):
        assert all(row[what] >= 0 for row in rows) and any(row[what] > 0 for row in rows), rows


def times(microseconds, messages=1, application=0.0, daemons=0.0):
    return Times(microseconds, messages, application, daemons)


def refuses(parser, text):
    try:
        parser(text)
    except argparse.ArgumentTypeError:
        return True
    return False


def check_options():
    assert topologies_from("1x2,3x4") == [Topology(1, 2), Topology(3, 4)] and refuses(topologies_from, "2")
    assert links_from("none,1gbit,100mbit") == [None, "1gbit", "100mbit"]
    assert all(refuses(links_from, text) for text in ("1gbps", "", "gbit", "1gbit,,")), "links"
    assert (bits_per_second("1gbit"), bits_per_second("100mbit")) == (10**9, 10**8)
    assert operations_from("stream,latency") == ("stream", "latency") and refuses(operations_from, "all_reduce,juggle")
    assert [each.name for each in competitors_from("open-mpi,gloo")] == ["Open MPI", "Gloo"]
    assert competitors_from("all") == list(peers.COMPETITORS) and refuses(competitors_from, "pigeons")


def check_plan():
    build, limit = Nexar("nexar", None, None), peers.Competitor("wire", "limit", "", "", None, operations=("all_reduce",),
                                                                suits=lambda topology: topology.hosts == 2)
    plan = Plan([Topology(1, 2), Topology(2, 1)], [8, 64], 3, 60, [build, limit], links=(None, "1gbit"))
    assert plan.settings == [Setting(Topology(1, 2), None), Setting(Topology(2, 1), None), Setting(Topology(2, 1), "1gbit")]
    assert len(plan.cells(build, Topology(2, 1))) == 12 and len(plan.cells(build, Topology(3, 1))) == 4
    assert plan.cells(limit, Topology(1, 2)) == [] and len(plan.cells(limit, Topology(2, 1))) == 2
    plain = Nexar("plain", None, None, plain=True)
    assert plan.cells(plain, Topology(1, 2)) == [] and plan.cells(plain, Topology(2, 1)) == plan.cells(build, Topology(2, 1))
    assert plain.settings == {"NEXAR_ENCRYPT_BULK_TRANSPORT": "false"} and build.settings == {}
    assert abs(plan.cell_seconds - 60 / 2 / (3 * (12 + 14 + 14))) < 1e-9 and plan.share_until(3) == 60


def check_lines():
    line = {"operation": "stream", "memory": "alloc", "bytes": 8, "messages": 64, "application_seconds": 0.5,
            "daemon_seconds": 0.25, "microseconds": [1.5, 2.5]}
    assert read_times(json.dumps(line) + "\n") == {("stream", "alloc", 8): Times([1.5, 2.5], 64, 0.5, 0.25)}
    assert read_times("") == {}
    assert least_on_wire({("stream", "alloc", 8): times([1.0, 2.0], 64), KEY: times([1.0] * 3)}) == 8 * 64 * 2 + 3000


def check_processor_seconds():
    """Per GB of what the application sees moved; a latency's message goes there and back."""
    for operation, messages, factor in (("all_reduce", 1, 1), ("stream", 4, 4), ("latency", 1, 2)):
        key = (operation, "ordinary", 1000)
        cell = figures(key, [{key: times(NARROW, messages, 2e-6, 1e-6)}] * 2)
        gigabytes = 1000 * factor * 8 / 1e9
        assert cell["application_seconds_per_gb"] == round(4e-6 / gigabytes, 4), cell
        assert cell["daemon_seconds_per_gb"] == round(2e-6 / gigabytes, 4) and cell["samples"] == 8, cell


def check_wide():
    """A wide cell gets its second measurement; both together, marked, when that is wide as well."""
    narrow, wide = [{KEY: times(NARROW)}], [{KEY: times(WIDE)}]
    assert wide_cells(narrow) == [] and wide_cells(wide) == [KEY]
    assert rounds_that_count(KEY, wide, narrow) is narrow and rounds_that_count(KEY, wide, wide) == wide + wide
    assert rounds_that_count(KEY, narrow, []) is narrow and rounds_that_count(KEY, wide, None) is wide
    both = {"a": [{KEY: times([100.0]), (*KEY[:2], 8): times([300.0])}], "b": [{KEY: times([400.0])}]}
    assert share_of({"a": [], "b": []}, both) == 0 and share_of({"a": [KEY], "b": []}, both) == 1 / 3
    assert share_of({"a": [], "b": [KEY]}, both) == 0.5
    setting = Setting(Topology(2, 1), "1gbit")
    for again, marked, repeated, samples in (({}, True, False, 4), ({"a": narrow}, False, True, 4),
                                             ({"a": wide}, True, True, 8)):
        (cell,), = rows_of(setting, ["a"], {"a": wide}, again)
        assert (cell["wide"], cell["repeated"], cell["samples"]) == (marked, repeated, samples), cell
        assert (cell["topology"], cell["link"], cell["competitor"]) == ("2x1", "1gbit", "a"), cell


def check_quic_limit():
    """The programs' lines, and the ratio of the medians beside those of the rounds."""
    text = ("payload up to 1452\n    8.4 Gbit/s   CPU s/GB send 0.469 receive 0.400   payload 1452 lost 0 sends 1 receives 2\n"
            "median 8.4 best 8.4 Gbit/s   best CPU s/GB send 0.469 receive 0.400\npayload up to 65507\n")
    assert quic_limit.runs_in(text) == {1452: [(8.4, 0.469, 0.4)], 65507: []}, quic_limit.runs_in(text)
    own, limit = [(8.0, 0.4, 0.3), (9.0, 0.4, 0.3), (4.0, 0.8, 0.3)], [(10.0, 0.4, 0.3), (10.0, 0.2, 0.3), (8.0, 0.4, 0.3)]
    assert list(quic_limit.ratios([own, limit])) == [(0.8, 0.5, 0.8, 0.9), (1.0, 1.0, 2.0, 2.0), (1.0, 1.0, 1.0, 1.0)]
    lines = quic_limit.table({"quic_bench": {1452: own}, "raw_ngtcp2": {1452: limit}})
    assert len(lines) == 4 and "0.80 (0.50 0.80 0.90)" in lines[3] and "10.000" in lines[2], lines
    assert len(quic_limit.table({"quic_bench": {1452: own}})) == 2 and quic_limit.measure(pathlib.Path("/nonexistent"), 1) == {}


def check_rows():
    """A competitor is missing in rows that it has not measured; ratios are to the first one that is there."""
    other = ("all_reduce", "alloc", 1000)
    first = {"nexar": [{other: times(NARROW), KEY: times(NARROW)}],
             "Gloo": [{KEY: times([time * 3 for time in NARROW])}]}
    alone, both = rows_of(Setting(Topology(2, 1), None), ["nexar", "Gloo"], first, {})
    assert [cell["competitor"] for cell in alone] == ["nexar"] and "ratio" not in alone[0]
    assert [cell["competitor"] for cell in both] == ["nexar", "Gloo"] and both[1]["ratio"] == 3.0, both


def check_pictures():
    setting, other = Setting(Topology(2, 1), None), ("latency", "alloc", 8)
    rows = rows_of(setting, ["nexar"], {"nexar": [{(*KEY[:2], 4096): times(NARROW), KEY: times(NARROW),
                                                  (KEY[0], "alloc", 8): times(WIDE), other: times(NARROW)}]}, {})
    pictures = pictures_of(rows)
    assert set(pictures) == {("all_reduce", "2x1", None), ("latency", "2x1", None)}, pictures
    lines = pictures["all_reduce", "2x1", None]
    assert set(lines) == {"nexar", "nexar, nexar_alloc"}, lines
    assert [point.bytes for point in lines["nexar"]] == [1000, 4096] and lines["nexar, nexar_alloc"][0].wide
    assert file_name("stream", "2x1", None) == "stream-2x1.png"
    assert file_name("stream", "2x1", "1gbit") == "stream-2x1-1gbit.png"


def check_missing():
    """What cannot be compiled is named with its packages, and is no failure."""
    absent = peers.Competitor("absent", "peer", "mpi_bench.cpp", "no-such-compiler", peers.direct, packages=("b", "a"))
    assert not absent.compile("/nonexistent") and not absent.describe()["present"]
    assert peers.advice([absent, absent]) == "apt-get install a b"


def check_hosts(build, client):
    """A peer's processes are on their hosts, under the hosts' names; shaped cables carry what they should at most."""
    with Cluster(build, 2) as cluster, tempfile.TemporaryDirectory() as folder:
        job = peers.Job(cluster, 1, folder)
        agent = job.agent()
        show = 'echo "$(cat /proc/sys/kernel/hostname) $(ip -o -4 addr show eth0)"'
        for host in cluster.hosts:
            text = cluster.launch(job.launcher([agent, "-x", job.address(host), show], {}), 30)
            assert f"bench{host} " in text and f"{job.address(host)}/" in text, text
        own = [process.environment for process in peers.direct(job, ["true"])]
        assert [each["BENCH_RANK"] for each in own] == ["0", "1"], own
        assert own[1]["BENCH_ADDRESS"] == "10.77.0.2" and own[0]["BENCH_ADDRESSES"] == "10.77.0.1,10.77.0.2", own
        before = cluster.network.crossed(2)[0]
        for host in cluster.hosts:
            cluster.network.shape(host, bits_per_second("100mbit"), both=True)
        done = read_times(cluster.run([client, "--only", "all_reduce:alloc:1048576", "--repetitions", "2"], 1, 60))
        assert cluster.network.crossed(2)[0] - before >= least_on_wire(done) == 2 << 20
        assert min(done["all_reduce", "alloc", 1 << 20].microseconds) > 2**20 * 8 / 1e8 * 1e6 * 0.9, done


def main(build, client):
    for check in (check_options, check_plan, check_lines, check_processor_seconds, check_wide, check_quic_limit, check_rows,
                  check_pictures, check_missing):
        check()
        print(f"ok  {check.__name__}", flush=True)
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
    check_hosts(Build(build), pathlib.Path(client).resolve())
    print("ok  check_hosts", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
