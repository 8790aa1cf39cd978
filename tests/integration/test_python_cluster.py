"""nexar.testing.cluster: private daemons of an ordinary user, on the loopback device of the host itself."""
import glob
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from harness import *
import nexar.testing

NOBODY = 65534
SCRIPT = """
import os, sys, numpy as np, nexar.testing
def work(group, factor):
    mine = np.arange(5.0) * factor + group.rank * 100
    return group.all_reduce(mine).tolist(), len({group.node(r) for r in range(group.size)}), os.getpid()
with nexar.testing.cluster(nodes=2, ranks=4) as cluster:
    got = cluster.run(work, 3)
    print(os.getuid(), sorted({str(each[:2]) for each in got}), len({each[2] for each in got}), os.path.dirname(cluster.nodes[0].folder))
"""


def of_user(folder):
    """A copy of package, library and daemon that every user may read."""
    place = pathlib.Path(folder)
    place.chmod(0o755)
    subprocess.run(["cp", "-rL", os.path.dirname(nexar.__file__), place / "nexar"], check=True)
    for variable, name in (("NEXAR_LIBRARY", "libnexar_c.so.0.2"), ("NEXAR_TEST_NEXARD", "nexard")):
        subprocess.run(["cp", "-L", os.environ[variable], place / name], check=True)
    subprocess.run(["chmod", "-R", "a+rX", place], check=True)
    return {"PYTHONPATH": str(place), "NEXAR_LIBRARY": str(place / "libnexar_c.so.0.2"), "NEXAR_NEXARD": str(place / "nexard"),
            "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}


def test_an_ordinary_user_gets_a_cluster_and_nothing_is_left_of_it(cluster):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        environment = of_user(folder)
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120,
                              cwd="/", **user)
        equal(done.returncode, 0, done.stderr)
        uid, rest = done.stdout.split(" ", 1)
        equal(int(uid), NOBODY if user else os.getuid(), "the user")
        want = [float(4 * 3 * i + 600) for i in range(5)]
        contains(rest, f"['({want}, 2)'] 4 ")
        equal(glob.glob(rest.split()[-1] + "*"), [], "what is left in the temporary folder")
        equal(subprocess.run(["pgrep", "-f", folder], capture_output=True, text=True).stdout, "", "what still runs")


WHERE = "import nexar.testing; print(nexar.testing._program(None))"


def installed(folder, lib):
    """As `cmake --install` puts library and daemon into a folder of one's own, with the package elsewhere, as pip puts it."""
    prefix = pathlib.Path(folder, "prefix")
    for at, variable in ((f"{lib}/libnexar_c.so.0.2", "NEXAR_LIBRARY"), ("sbin/nexard", "NEXAR_TEST_NEXARD")):
        (prefix / at).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.path.realpath(os.environ[variable]), prefix / at)
    return prefix, {"PYTHONPATH": str(pathlib.Path(nexar.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/nowhere",
                    "LD_LIBRARY_PATH": str(prefix / lib)}


def test_the_daemon_is_found_beside_the_library(_cluster):
    for lib in ("lib", "lib/some-linux-gnu"):
        with tempfile.TemporaryDirectory() as folder:
            prefix, environment = installed(folder, lib)
            done = subprocess.run([sys.executable, "-c", WHERE], env=environment, capture_output=True, text=True, timeout=60)
            equal(done.stdout.strip(), str(prefix / "sbin/nexard"), done.stderr)


def test_a_daemon_that_is_not_found_is_an_error_that_lists_what_was_tried(_cluster):
    with tempfile.TemporaryDirectory() as folder:
        prefix, environment = installed(folder, "lib")
        (prefix / "sbin/nexard").unlink()
        for nexard in ("", "/nowhere/nexard"):
            done = subprocess.run([sys.executable, "-c", WHERE], env={**environment, "NEXAR_NEXARD": nexard}, capture_output=True, text=True,
                                  timeout=60)
            contains(done.stderr, "FileNotFoundError", nexard or str(prefix / "sbin/nexard"), "NEXAR_NEXARD")
    try:
        with nexar.testing.cluster(nexard="/nowhere/nexard"):
            raise AssertionError("it should have been refused")
    except FileNotFoundError as error:
        contains(str(error), "/nowhere/nexard")


def fails_on_2(group):
    if group.rank == 2:
        raise ValueError("row 7 is empty")
    group.barrier()


def never_ends(group):
    if group.rank == 0:
        os.kill(os.getpid(), 19)  # SIGSTOP
    group.barrier(timeout=nexar.NO_TIMEOUT)


def test_a_rank_that_fails_or_stops_is_named(cluster):
    with nexar.testing.cluster(nodes=1, ranks=3, nexard=os.environ["NEXAR_TEST_NEXARD"]) as private:
        for function, rank, text in ((fails_on_2, 2, "ValueError: row 7 is empty"), (never_ends, 0, "took too long")):
            try:
                private.run(function, timeout=3)
                raise AssertionError("it should have failed")
            except nexar.testing.RankFailed as failed:
                equal(failed.rank, rank, str(failed))
                contains(str(failed), text)
        equal(private.run(lambda group: group.all_reduce(1)), [3, 3, 3], "the next job")


def comes_late(group):
    if group.rank == 2:
        time.sleep(60)  # sleep: until it is killed
    group.barrier()


def test_the_rank_is_named_that_the_others_wait_for(_cluster):
    with nexar.testing.cluster(nodes=2, ranks=3, nexard=os.environ["NEXAR_TEST_NEXARD"]) as private:
        try:
            private.run(comes_late, timeout=3)
            raise AssertionError("it should have failed")
        except nexar.testing.RankFailed as failed:
            equal(failed.rank, 2, str(failed))
            contains(str(failed), "took too long", "ranks 0, 1 wait for it in barrier")


def test_a_value_that_cannot_be_pickled_is_an_error_that_says_so(_cluster):
    with nexar.testing.cluster(nodes=1, ranks=2, nexard=os.environ["NEXAR_TEST_NEXARD"]) as private:
        try:
            raise AssertionError(f"it gave {private.run(lambda group: (lambda: 1) if group.rank else 0)}")
        except nexar.testing.RankFailed as failed:
            equal(failed.rank, 1, str(failed))
            contains(str(failed), "pickle", "lambda")


def test_wrong_settings_are_refused(_cluster):
    for settings, words in (({"heartbeat_timeout": "1"}, ("heartbeat_timeout", "NEXAR_HEARTBEAT_TIMEOUT_SECS")),
                            ({"NEXAR_HEARTBEAT_TIMEOUT": "1"}, ("NEXAR_HEARTBEAT_TIMEOUT", "NEXAR_HEARTBEAT_TIMEOUT_SECS")),
                            ({"node": 3}, ("node",)), ({"NEXAR_HEARTBEAT_TIMEOUT_SECS": "x"}, ("'x'", "0.05 to 86400"))):
        try:
            with nexar.testing.cluster(nexard=os.environ["NEXAR_TEST_NEXARD"], **settings):
                raise AssertionError(f"{settings} should have been refused")
        except ValueError as error:
            contains(str(error), *words)
    given = {"NEXAR_HEARTBEAT_TIMEOUT_SECS": 3, "NEXAR_DRAIN_TIMEOUT_SECS": 1.5}
    with nexar.testing.cluster(nexard=os.environ["NEXAR_TEST_NEXARD"], **given) as private:
        have = private.nodes[0].ask("config")["values"]
        equal((float(have["heartbeat_timeout"]), float(have["drain_timeout"])), (3.0, 1.5), "settings")


def test_how_many_nodes_and_ranks_there_are_is_a_number_that_can_be(cluster):
    for wrong in (1.5, 2.0, True, "2", None, 0, -1, np.array([2, 3])):
        for name, others in (("nodes", {"ranks": 4}), ("ranks", {"nodes": 1})):
            try:
                with nexar.testing.cluster(**{name: wrong}, **others):
                    raise AssertionError(f"{name}={wrong} gave a cluster")
            except (TypeError, ValueError) as error:
                equal(type(error), ValueError if type(wrong) is int else TypeError, str(error))
                contains(str(error), f"{name} is {wrong!r}; allowed: an integer, 1")
    for nodes, ranks, text in ((201, 300, "nodes is 201; allowed: an integer, 1 to 200"), (3, 2, "ranks is 2; allowed: an integer, 3 (one for each node)")):
        try:
            with nexar.testing.cluster(nodes, ranks):
                raise AssertionError(f"{nodes} nodes, {ranks} ranks gave a cluster")
        except ValueError as error:
            contains(str(error), text)
    with nexar.testing.cluster(np.int64(1), 2, nexard=os.environ["NEXAR_TEST_NEXARD"]) as private:
        equal(private.node_of(1).number, 0, "node of rank 1")
        for wrong in (2, -1, 0.5):
            try:
                raise AssertionError(f"rank {wrong} is on {private.node_of(wrong)}")
            except (TypeError, ValueError) as error:
                contains(str(error), f"rank is {wrong}; allowed: an integer, 0 to 1")


main(globals(), nodes=1)
