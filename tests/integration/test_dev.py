"""nexarctl dev: a job on daemons of its own, in a temporary folder; nothing of them is left at the end."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from harness import *
from harness.system import die_with_parent

CTL, NEXARD = os.environ["NEXAR_TEST_NEXARCTL"], os.environ["NEXAR_TEST_NEXARD"]
SUM = """
import os, sys
import numpy as np
import nexar
with nexar.Session() as session, session.group() as group:
    mine = np.arange(1000, dtype=np.int64) * (group.rank + 1)
    assert (group.all_reduce(mine) == np.arange(1000) * 10).all()
    print("socket", os.environ["NEXAR_SOCKET"], "ranks", os.environ["NEXAR_LOCAL_RANK"], os.environ["NEXAR_LOCAL_WORLD_SIZE"])
    sys.exit(int(sys.argv[1]) if group.rank == 2 else 0)
"""
PYTHON = ("--env", f"PYTHONPATH={os.environ['NEXAR_TEST_PYTHON']}", "--env", f"NEXAR_LIBRARY={os.environ['NEXAR_LIBRARY']}")


class Place:
    """A temporary folder that an ordinary user has, too."""

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.folder.chmod(0o777)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def start(self, *words, uid=None, nexard=NEXARD):
        def prepare():
            die_with_parent()
            if uid:
                os.setresuid(uid, uid, uid)

        environment = {**os.environ, "TMPDIR": str(self.folder), "NEXAR_NEXARD": nexard, "NEXAR_HEARTBEAT_INTERVAL_SECS": "nonsense"}
        return subprocess.Popen([CTL, "dev", *words], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, preexec_fn=prepare, env=environment)

    def run(self, *words, **how):
        """(exit code, output, errors)"""
        process = self.start(*words, **how)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def processes(self):
        """Those whose command line has this folder."""
        lines = (pathlib.Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit())
        return [line for line in map(read, lines) if str(self.folder).encode() in line]

    def check_clean(self):
        equal(self.processes(), [], "daemons")
        equal(os.listdir(self.folder), [], "files")


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_ranks_of_a_job_are_in_blocks_on_the_nodes_and_reach_each_other(cluster):
    with Place() as place:
        code, out, err = place.run("-n", "4", "--nodes", "2", *PYTHON, "--", sys.executable, "-c", SUM, "0")
        equal(code, 0, f"exit code ({err})")
        found = sorted(re.findall(r"\[(\d)\] socket \S*/node(\d)/socket ranks (\d) (\d)", out))
        equal(found, [("0", "0", "0", "2"), ("1", "0", "1", "2"), ("2", "1", "0", "2"), ("3", "1", "1", "2")], "ranks")
        place.check_clean()


def test_the_exit_code_is_the_failing_ranks_and_nothing_is_left(cluster):
    with Place() as place:
        equal(place.run("-n", "4", *PYTHON, "--", sys.executable, "-c", SUM, "7")[0], 7, "exit code")
        place.check_clean()


def test_an_ordinary_user_needs_no_rights(cluster):
    if os.getuid() != 0:
        return  # this one is ordinary
    with Place() as place:
        code, out, err = place.run("-n", "2", "--nodes", "2", "--", "sh", "-c", "echo uid $(id -u) $(stat -c %u $NEXAR_SOCKET)",
                                   uid=65534)
        equal((code, sorted(out.splitlines())), (0, ["[0] uid 65534 65534", "[1] uid 65534 65534"]), f"ranks ({err})")
        place.check_clean()


def test_a_signal_ends_the_ranks_and_then_the_daemons(cluster):
    with Place() as place:
        process = place.start("-n", "2", "--", "sh", "-c", "echo here; exec sleep 1000")
        equal({process.stdout.readline(), process.stdout.readline()}, {"[0] here\n", "[1] here\n"}, "output")
        process.send_signal(signal.SIGINT)
        equal(process.wait(60), 128 + signal.SIGINT, "exit code")
        place.check_clean()


def test_without_a_command_the_daemons_stay_until_a_signal(cluster):
    with Place() as place:
        process = place.start("--nodes", "3")
        admins = [re.fullmatch(r"NEXAR_SOCKET=(\S+) NEXAR_ADMIN_SOCKET=(\S+)\n", process.stdout.readline())[2] for _ in range(3)]
        for admin in admins:
            status = subprocess.run([CTL, "--socket", admin, "status", "--json"], text=True, capture_output=True, timeout=60)
            equal([peer["state"] for peer in json.loads(status.stdout)["peers"]], ["up", "up"], "peers")
        process.terminate()
        equal(process.wait(60), 0, "exit code")
        place.check_clean()


def test_daemons_end_with_a_launcher_that_is_killed(cluster):
    with Place() as place:
        process = place.start("--nodes", "2")
        process.stdout.readline()
        equal(len(place.processes()), 2, "daemons")
        process.kill()
        process.wait()
        eventually(lambda: place.processes() == [], "the daemons end")


def test_a_signal_while_the_daemons_start_leaves_nothing(cluster):
    with Place() as place:
        slow = place.folder / "slow"
        slow.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import time; time.sleep(1000)' {place.folder}\n")
        slow.chmod(0o755)
        process = place.start("--nodes", "2", nexard=str(slow))
        eventually(lambda: place.processes() != [], "the first daemon starts")
        process.terminate()
        equal(process.wait(60), 128 + signal.SIGTERM, "exit code")
        slow.unlink()
        place.check_clean()


def test_what_is_wrong_is_named(cluster):
    with Place() as place:
        for words, code, text in (
                (["-n", "1", "--nodes", "2", "--", "true"], 2, "-n 1 is less than --nodes 2"),
                (["-n", "3"], 2, "-n 3 without a command: put -- and the command after it, or leave it out"),
                (["--env", "A", "--", "true"], 2, "--env 'A' is not NAME=VALUE"),
                (["--nodes", "0"], 2, "--nodes"),
                (["-n", "1", "--", "/no/such/program"], 127, "/no/such/program"),
                (["--nexard", "/no/such/nexard"], 2, "dev: --nexard /no/such/nexard: No such file or directory; allowed: the path"),
                (["--nexard", "/etc"], 2, "dev: --nexard /etc: Is a directory"),
                (["--nexard", "/etc/passwd"], 2, "dev: --nexard /etc/passwd: Permission denied"),
                *((["--env", f"{name}=5", "--", "true"], 2, f"dev: --env {name}: dev sets this variable itself, from -n, --nodes")
                  for name in ("NEXAR_RANK", "NEXAR_WORLD_SIZE", "NEXAR_SOCKET", "NEXAR_JOB_SECRET", "LOCAL_RANK")),
                (["--nexard", "/bin/false"], 1, "the daemon of node 0 ended at its start")):
            got, _, err = place.run(*words)
            equal(got, code, f"exit code of dev {words} ({err})")
            contains(err, text)
            place.check_clean()
        process = place.start(nexard="/no/such/nexard")
        contains(process.communicate(timeout=60)[1], "dev: NEXAR_NEXARD=/no/such/nexard: No such file or directory")
        equal(process.returncode, 2, "exit code")
        equal(place.run("-n", "1", "--env", "NEXAR_GROUP=mine", "--", "sh", "-c", "test $NEXAR_GROUP = mine")[0], 0, "a group's name")


main(globals(), nodes=1)
