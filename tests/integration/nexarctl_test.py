"""nexarctl without a cluster: what it says when no daemon runs or a daemon is stuck, what it makes of answers, and
`run` with real processes. The daemon is a socket of this test. usage: nexarctl_test.py NEXARCTL"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

NEXARCTL = sys.argv.pop(1)
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("NEXAR_")}


def ctl(*arguments, timeout=20, stdin=None, **environment):
    return subprocess.run([NEXARCTL, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False,
                          input=stdin, env={**CLEAN, **environment})


def running(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def await_true(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)  # sleep: between two looks
    return condition()


class FakeDaemon:
    """Answers every request with what `reply` makes of it; None: hangs up."""

    def __init__(self, path, reply):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(4)
        self.reply, self.asked = reply, []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self):
        """shutdown() ends the accept() of the thread, and the descriptor stays open until the thread has ended: closed before
        that, its number could be the next test's listener, which the thread would then answer in this one's words."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.listener.close()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                request = json.loads(connection.makefile().readline())
                self.asked.append(request)
                answer = self.reply(request)
                if answer is not None:
                    connection.sendall(answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n")


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.socket = self.folder.name + "/admin.sock"

    def daemon(self, reply):
        daemon = FakeDaemon(self.socket, reply)
        self.addCleanup(daemon.close)
        return daemon


class Daemonless(Case):
    def test_no_daemon_is_one_line_with_the_socket_and_what_to_do(self):
        for command in (["status"], ["groups"], ["ops"], ["token", "list"], ["cluster", "show"], ["config"],
                        ["plan", "--group", "g"]):
            done = ctl("--socket", self.socket, *command)
            self.assertEqual((done.returncode, done.stdout), (3, ""), command)
            self.assertEqual(done.stderr, f"nexarctl: no daemon listens on {self.socket}; start it with: "
                                          "systemctl start nexard (without systemd: nexard); or name its admin socket with "
                                          "--socket\n")

    def test_a_socket_nobody_listens_on_is_no_daemon_either_and_the_variable_names_it(self):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(self.socket)
        self.assertEqual(ctl("status", NEXAR_ADMIN_SOCKET=self.socket).returncode, 3)
        done = ctl("status", "--json", NEXAR_ADMIN_SOCKET=self.socket)
        self.assertEqual(json.loads(done.stdout)["error"]["name"], "NO_DAEMON")

    def test_another_kind_of_socket_is_no_admin_socket(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sessions:
            sessions.bind(self.socket)
            sessions.listen()
            done = ctl("--socket", self.socket, "status")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        for hint in (self.socket, "another kind of socket", "admin_socket"):
            self.assertIn(hint, done.stderr)

    @unittest.skipIf(os.geteuid() != 0, "needs root, to be somebody else")
    def test_a_user_without_permission_learns_who_has_it(self):
        self.daemon(lambda _: None)
        os.chmod(self.socket, 0o660)
        os.chmod(self.folder.name, 0o755)
        program = shutil.copy(NEXARCTL, self.folder.name)  # the checkout may be closed to others
        done = subprocess.run([program, "--socket", self.socket, "status"], capture_output=True, text=True, timeout=20,
                              check=False, user=65534, group=65534, extra_groups=[])
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        for hint in ("sudo", "socket_group", "nexar.toml", f"ls -l {self.socket}"):
            self.assertIn(hint, done.stderr)

    def test_a_daemon_that_does_not_answer_is_given_up_after_five_seconds(self):
        with socket.socket(socket.AF_UNIX) as stuck:
            stuck.bind(self.socket)
            stuck.listen(0)  # its queue holds one; the second one cannot even connect
            started = time.monotonic()
            several = [subprocess.Popen([NEXARCTL, "--socket", self.socket, "status"], stderr=subprocess.PIPE, text=True)
                       for _ in range(3)]
            for one in several:
                _, output = one.communicate(timeout=20)
                self.assertEqual(one.returncode, 4)
                self.assertIn("does not answer within 5 s", output)
            self.assertTrue(4.5 < time.monotonic() - started < 5 + 10, "it took too long")

    def test_strange_answers_are_an_error_and_no_crash(self):
        for answer in (None, b"\n", b"hello\n", b"[1,2]\n", b'{"ok": true', b'{"ok": tr', b"\xff" * 100 + b"\n",
                       {"ok": False}, {"ok": "yes"}):
            if Path(self.socket).exists():
                os.unlink(self.socket)
            daemon = self.daemon(lambda request, answer=answer: answer)
            done = ctl("--socket", self.socket, "status")
            self.assertIn(done.returncode, (1, 4), answer)
            self.assertEqual(done.stdout, "")

    def test_results_of_any_shape_are_shown(self):
        if Path(self.socket).exists():
            os.unlink(self.socket)
        results = [None, 7, "x", [], {}, {"peers": {}}, {"peers": [None, 3, []]}, {"groups": [{"ranks": [1]}]}]
        current = []
        self.daemon(lambda request: {"ok": True, "result": current[0]})
        for result in results:
            current[:] = [result]
            for command in (["status"], ["groups"], ["ops"], ["token", "list"], ["cluster", "show"], ["config"]):
                self.assertEqual(ctl("--socket", self.socket, *command).returncode, 0, (command, result))
                shown = ctl("--socket", self.socket, *command, "--json")
                self.assertEqual(json.loads(shown.stdout), result)


class Asking(Case):
    def test_the_daemons_refusal_is_shown_in_its_words(self):
        self.daemon(lambda request: {"ok": False, "error": {"code": -5, "name": "PERMISSION", "text": "not you"}})
        done = ctl("--socket", self.socket, "cluster", "init")
        self.assertEqual((done.returncode, done.stderr), (1, "nexarctl: not you\n"))

    def test_token_create_prints_the_token_alone(self):
        daemon = self.daemon(lambda request: {"ok": True, "result": {"token": "nexar1.abc"}})
        done = ctl("--socket", self.socket, "token", "create", "--uses", 2, "--lifetime", 60)
        self.assertEqual((done.returncode, done.stdout), (0, "nexar1.abc\n"))
        self.assertIn("nexarctl cluster join - ", done.stderr)
        self.assertEqual(daemon.asked, [{"command": "token_create", "arguments": {"uses": 2, "lifetime_s": 60}}])

    def test_no_hint_puts_a_token_on_a_command_line_which_others_can_read(self):
        self.daemon(lambda request: {"ok": True, "result": {}})
        for asked in (["token", "create"], ["cluster", "init"], ["cluster", "show"], ["status"]):
            done = ctl("--socket", self.socket, *asked)
            output = done.stdout + done.stderr
            self.assertIn("cluster join -", output, asked)
            self.assertNotIn("TOKEN", output, asked)
        output = ctl("cluster", "join").stderr
        self.assertIn("cluster join -", output)
        self.assertNotIn("argument", output)
        self.assertIn("(ps)", ctl("cluster", "join", "--help").stdout)

    def test_a_token_comes_by_argument_standard_input_or_environment(self):
        daemon = self.daemon(lambda request: {"ok": True, "result": {}})
        ctl("--socket", self.socket, "cluster", "join", "t1")
        ctl("--socket", self.socket, "cluster", "join", "-", stdin="t2\n")
        ctl("--socket", self.socket, "cluster", "join", NEXAR_CLUSTER_TOKEN="t3")
        self.assertEqual([a["arguments"]["token"] for a in daemon.asked], ["t1", "t2", "t3"])
        self.assertEqual(ctl("--socket", self.socket, "cluster", "join").returncode, 2)

    def test_tune_of_a_daemon_without_a_cost_model_names_both_versions(self):
        results = {"status": {"version": "9.8.7", "state": "running"}, "tune": {"model": {}}}
        self.daemon(lambda request: {"ok": True, "result": results[request["command"]]})
        for words in (["--forget"], ["--node-index", 0, "--secret-file", "/nowhere"]):
            done = ctl("--socket", self.socket, "tune", *words)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertRegex(done.stderr, "^nexarctl: tune: .* no cost model.* nexard 9[.]8[.]7.* nexarctl [0-9]")

    def test_plan_of_a_group_uses_where_its_ranks_are(self):
        self.daemon(lambda request: {"ok": True, "result": {
            "group": "g", "node_of_rank": [0, 1, 0, 1], "nodes": [{"node": "aa", "host": "alpha"}, {"node": "bb"}],
            "table": {"small_bytes_max": 1024, "doubling_bytes_max": 512, "chunk_bytes": 4096, "segment_bytes": 8192,
                      "lanes": 1}}})
        done = ctl("--socket", self.socket, "plan", "--group", "g", "--bytes", "64K", "--json")
        self.assertEqual(done.returncode, 0, done)
        report = json.loads(done.stdout)
        self.assertEqual((report["ranks"], report["nodes"], report["segments"], report["lanes"]), (4, 2, 8, 1))
        self.assertEqual(report["pairs"][0]["from_name"], "alpha (aa)")

    def test_a_group_is_asked_for_by_name(self):
        daemon = self.daemon(lambda request: {"ok": True, "result": {"groups": []}})
        ctl("--socket", self.socket, "groups", "digits")
        self.assertEqual(daemon.asked[0]["arguments"], {"group": "digits"})


class Local(Case):
    def test_plan_needs_no_daemon(self):
        done = ctl("plan", "--op", "all_reduce", "--bytes", "64M", "--nodes", 2, "--ranks-per-node", 2, "--json")
        report = json.loads(done.stdout)
        self.assertEqual((report["algorithm"], report["total_bytes"]), ("ring", 2 * (64 << 20)))
        for bad in (["--bytes", "64X"], ["--op", "sort"], ["--nodes", "0"], ["--root", "9"], ["--segment", "1"]):
            self.assertEqual(ctl("plan", *bad).returncode, 2, bad)

    def test_doctor_works_without_a_daemon(self):
        done = ctl("--socket", self.socket, "doctor", "--json")
        checks = {c["check"]: c for c in json.loads(done.stdout)["checks"]}
        self.assertEqual((done.returncode, checks["daemon"]["result"]), (1, "fail"))  # [U13]
        self.assertIn("systemctl start nexard", checks["daemon"]["found"])
        self.assertIn("journalctl -u nexard", checks["daemon"]["advice"])
        for name in ("kernel", "futex_waitv", "memfd seals", "UDP send offload (GSO)", "open files", "wall clock"):
            self.assertIn(name, checks)
        self.assertIn("no daemon listens", ctl("--socket", self.socket, "doctor").stdout)

    def test_doctor_asks_the_status_socket_where_the_admin_socket_is_not(self):
        daemon = FakeDaemon(self.folder.name + "/status.sock", lambda _: {"ok": True, "result": {"state": "running"}})
        self.addCleanup(daemon.close)
        checks = {c["check"]: c for c in json.loads(ctl("--socket", self.socket, "doctor", "--json").stdout)["checks"]}
        self.assertEqual((checks["daemon"]["result"], checks["admin socket"]["result"]), ("warn", "warn"))
        for words in ("status.sock", "shown to administrators"):
            self.assertIn(words, checks["daemon"]["found"])

    def test_check_config_names_the_key_the_value_and_the_range(self):
        path = Path(self.folder.name) / "nexar.toml"
        path.write_text("heartbeat_interval = -3\n")
        done = ctl("check-config", path)
        self.assertEqual(done.returncode, 1)
        for words in ("heartbeat_interval", "-3", "0.05 to 86400", "line 1"):
            self.assertIn(words, done.stderr)
        path.write_text("heartbeat_interval = 2\n")
        self.assertEqual(ctl("check-config", path).returncode, 0)
        socket = 'session_sockets = ["/run/nexar/a.sock label=a %s"]\n'
        for text, words in ((socket % "owner=nobody-here", ("session_sockets, /run/nexar/a.sock", "no user 'nobody-here'")),
                            (socket % "group=nobody-here", ("session_sockets, /run/nexar/a.sock", "no group 'nobody-here'")),
                            ('socket_group = "nobody-here"\n', ("socket_group", "no group 'nobody-here'"))):
            path.write_text(text)
            done = ctl("check-config", path)
            self.assertEqual(done.returncode, 1)
            for word in (*words, "allowed: the name"):
                self.assertIn(word, done.stderr)
        for text in (socket % "owner=root group=4294967294", 'socket_group = "4294967294"\n'):
            path.write_text(text)
            self.assertEqual(ctl("check-config", path).returncode, 0, text)
        path.write_text("")
        self.assertEqual(ctl("check-config", path).returncode, 0)
        done = ctl("check-config", "--environment", path, NEXAR_BULK_SHARDS="x")
        self.assertIn("NEXAR_BULK_SHARDS", done.stderr)
        self.assertEqual(ctl("check-config", path, NEXAR_BULK_SHARDS="x").returncode, 0)
        missing = Path(self.folder.name) / "none"
        self.assertEqual(ctl("check-config", missing).returncode, 1)
        done = ctl("check-config", "--optional", missing)
        self.assertEqual((done.returncode, done.stdout), (0, f"{missing}: not there, the defaults hold\n"))
        self.assertEqual(ctl("check-config", self.folder.name).returncode, 1)

    def test_wrong_usage_is_exit_code_2(self):
        for bad in ([], ["nonsense"], ["token"], ["token", "revoke"], ["run"], ["run", "-n", "2"], ["run", "-n", "2", "--"],
                    ["run", "-n", "0", "--", "true"], ["status", "--", "x"], ["run", "-n", "1", "--nodes", "2", "--", "true"],
                    ["run", "-n", "1", "--nodes", "2", "--node-index", "2", "--", "true"],
                    ["run", "-n", "1024", "--nodes", "5", "--", "true"], ["tune", "--secret-file", "x"]):
            done = ctl(*bad)
            self.assertEqual((done.returncode, done.stdout), (2, ""), bad)
            self.assertEqual((done.stderr.count("\n"), done.stderr[:8]), (1, "nexarctl"), done.stderr)

    def test_wrong_usage_names_the_word_and_what_is_allowed(self):
        for bad, words in ((["nonsense"], ("'nonsense'", "allowed: status, groups, ops")),
                           (["token", "make"], ("token: ", "'make'", "create, list, revoke")),
                           (["token"], ("token: ", "create, list, revoke")), ([], ("a command is missing", "status")),
                           (["status", "extra"], ("status: ", "'extra'", "nexarctl status --help")),
                           (["token", "create", "--uses", "0"], ("token create: ", "--uses", "1 to 10000")),
                           (["token", "revoke"], ("token revoke: ", "ID")),
                           (["plan", "--bytes", "10", "--dtype", "f64"], ("10 bytes", "f64: multiples of 8")),
                           (["run", "-n", "2", "./hello"], ("run: put -- before the command", "-- ./hello")),
                           (["run", "-n", "2", "./hello", "-x"], ("put -- before the command", "-- ./hello")),
                           (["run", "-n", "2", "./hello", "-n", "5"], ("put -- before the command", "-- ./hello")),
                           (["run", "-n", "2", "./hello", "--nodes", "x"], ("put -- before the command",)),
                           (["run", "-n", "2", "status"], ("put -- before the command", "-- status")),
                           (["run", "./hello"], ("put -- before the command", "-- ./hello")),
                           (["run", "-n", "2", "--env", "A", "--", "x"], ("'A' is not NAME=VALUE",)),
                           (["run", "-n", "2", "--env", "RANK=1", "--", "x"], ("RANK", "sets this variable itself")),
                           (["run", "-n", "2", "--master", "10.0.0.1", "--", "x"], ("--master", "ADDRESS:PORT")),
                           (["run", "-n", "1", "--nodes", "3", "--secret-file", "/nowhere", "--", "x"],
                            ("--node-index is missing", "0 on the first host, 2 on the last")),
                           (["run", "-np", "2", "--", "x"], ("write -n N for N ranks",)),
                           (["tune", "--nodes", "3"], ("--node-index is missing", "0 on the first host, 2 on the last")),
                           (["plan", "--bytes", "lots"], ("plan: ", "'lots'", "K, M, G or T"))):
            output = ctl(*bad).stderr
            for word in words:
                self.assertIn(word, output, bad)
            error = json.loads(ctl("--json", *bad).stdout)["error"]
            self.assertEqual(error["name"], "INVALID_ARGUMENT")
            self.assertEqual(f"nexarctl: {error['text']}\n", output)

    def test_what_must_be_given_has_no_default_in_the_help(self):
        line = next(line for line in ctl("run", "--help").stdout.splitlines() if "--ranks" in line)
        self.assertIn("REQUIRED", line)
        self.assertNotIn("=", line)


class Listening(Case):
    """With a socket that takes sessions, for a job's ranks that need none."""

    def setUp(self):
        super().setUp()
        self.sessions = self.folder.name + "/nexard.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        listener.bind(self.sessions)
        listener.listen(64)
        before = CLEAN.get("NEXAR_SOCKET")
        CLEAN["NEXAR_SOCKET"] = self.sessions
        self.addCleanup(lambda: CLEAN.update(NEXAR_SOCKET=before) if before else CLEAN.pop("NEXAR_SOCKET"))


class RunWithoutDaemon(Case):
    """[U9]"""

    def test_nothing_is_started_and_the_error_says_what_to_do(self):
        mark = Path(self.folder.name) / "started"
        done = ctl("run", "-n", 2, "--", "touch", mark, NEXAR_SOCKET=self.socket)
        self.assertEqual((done.returncode, done.stdout, mark.exists()), (3, "", False))
        for hint in (self.socket, "nothing was started", "systemctl start nexard", "NEXAR_SOCKET", "nexarctl dev"):
            self.assertIn(hint, done.stderr)
        done = ctl("run", "--json", "-n", 2, "--", "touch", mark, NEXAR_SOCKET=self.socket)
        self.assertEqual(json.loads(done.stdout)["error"]["name"], "NO_DAEMON")

    def test_the_admin_socket_is_not_one_for_sessions(self):
        self.daemon(lambda request: None)
        done = ctl("run", "-n", 1, "--", "true", NEXAR_SOCKET=self.socket)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not a session socket", done.stderr)

    def test_a_daemon_that_accepts_nobody_is_given_up(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stuck, \
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
            stuck.bind(self.socket)
            stuck.listen(0)
            first.connect(self.socket)  # the queue holds one
            done = ctl("run", "-n", 1, "--", "true", NEXAR_SOCKET=self.socket)
        self.assertEqual(done.returncode, 4)
        self.assertIn("accepts no sessions", done.stderr)


class RunForPeople(Listening):
    """[U9]"""

    def test_with_keep_going_the_others_of_a_failed_rank_end_by_themselves(self):
        script = 'if [ $NEXAR_RANK = 1 ]; then exit 7; fi; read line < go; echo "recovered $NEXAR_RANK $line"'
        folder = Path(self.folder.name)
        os.mkfifo(folder / "go")
        job = subprocess.Popen([NEXARCTL, "run", "-n", "2", "--keep-going", "--", "sh", "-c", script], env=CLEAN, text=True,
                               cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn("rank 1 failed with exit code 7; the others go on", job.stderr.readline())
        time.sleep(2.5)  # sleep: longer than the second in which a failed rank's others are ended otherwise
        (folder / "go").write_text("late\n")
        output, _ = job.communicate(timeout=20)
        self.assertEqual((output, job.returncode), ("[0] recovered 0 late\n", 7))

    def test_rank_0_alone_reads_the_launchers_standard_input(self):
        text = "".join(f"line {i}\n" for i in range(30000))  # more than a pipe holds
        done = ctl("run", "-n", 3, "--", "sh", "-c", "echo $(cat | wc -c)", stdin=text)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"[0] {len(text)}", "[1] 0", "[2] 0"])
        done = ctl("run", "-n", 1, "--nodes", 2, "--node-index", 1, "--secret-file", self.secret(), "--", "wc", "-c", stdin=text)
        self.assertEqual(done.stdout, "[1] 0\n")

    def test_a_rank_that_reads_nothing_neither_stops_nor_fails_the_job(self):
        done = ctl("run", "-n", 1, "--", "true", stdin="x" * 1000000)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = ctl("run", "-n", 1, "--", "sh", "-c", "exec <&-; sleep 0.2; echo end", stdin="x" * 1000000)
        self.assertEqual((done.returncode, done.stdout), (0, "[0] end\n"))

    def test_a_launcher_without_standard_streams_works(self):
        done = subprocess.run(["sh", "-c", f'"{NEXARCTL}" run -n 2 -- sh -c "cat; echo x > {self.folder.name}/out" <&- >&- 2>&-'],
                              env=CLEAN, timeout=20, check=False)
        self.assertEqual((done.returncode, (Path(self.folder.name) / "out").read_text()), (0, "x\n"))

    def test_what_python_prints_comes_at_once(self):
        script = "import sys; print('early'); sys.stdin.readline()"
        job = subprocess.Popen([NEXARCTL, "run", "-n", "1", "--", sys.executable, "-c", script], env=CLEAN, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(job.stdout.readline(), "[0] early\n")  # it waits for its input meanwhile
        job.communicate("go\n", timeout=20)
        self.assertEqual(job.returncode, 0)
        self.assertEqual(ctl("run", "-n", 1, "--", "sh", "-c", "echo $PYTHONUNBUFFERED", PYTHONUNBUFFERED="x").stdout, "[0] x\n")

    def test_env_gives_variables_to_all_ranks(self):
        done = ctl("run", "-n", 2, "--env", "A=1 2", "--env", "B=", "--env", "PATH_LIKE=a=b", "--", "sh", "-c",
                   'echo "$A|$B|$PATH_LIKE|$NEXAR_INSTANCE"', B="outer")
        self.assertEqual(sorted(done.stdout.splitlines()), ["[0] 1 2||a=b|0", "[1] 1 2||a=b|0"])

    def test_the_output_goes_to_a_file_for_each_rank_and_stream(self):
        folder = Path(self.folder.name) / "a" / "b"
        for text in ("first", "second"):  # the second one replaces the first
            done = ctl("run", "-n", 2, "--output-dir", folder, "--", "sh", "-c",
                       f'echo "{text} $NEXAR_RANK"; echo "e $NEXAR_RANK" >&2')
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            self.assertEqual({path.name: path.read_text() for path in folder.iterdir()},
                             {"rank-0.stdout": f"{text} 0\n", "rank-1.stdout": f"{text} 1\n",
                              "rank-0.stderr": "e 0\n", "rank-1.stderr": "e 1\n"})
        for name in ("rank-2.stdout", "rank-17.stderr", "rank-02.stdout", "rank-2.core", "notes"):
            (folder / name).write_text("of a larger job, or of somebody else")
        (folder / "rank-9.stdout").mkdir()  # not written by run
        done = ctl("run", "-n", 2, "--output-dir", folder, "--", "true")
        self.assertEqual(done.returncode, 1)
        self.assertIn("rank-9.stdout is of a larger job before", done.stderr)
        (folder / "rank-9.stdout").rmdir()
        self.assertEqual(ctl("run", "-n", 2, "--output-dir", folder, "--", "true").returncode, 0)
        self.assertEqual({path.name for path in folder.iterdir()},
                         {"rank-0.stdout", "rank-1.stdout", "rank-0.stderr", "rank-1.stderr", "rank-02.stdout", "rank-2.core",
                          "notes"})
        mark = Path(self.folder.name) / "started"
        for bad in ("/proc/none", self.sessions, self.sessions + "/deeper"):
            done = ctl("run", "-n", 1, "--output-dir", bad, "--", "touch", mark)
            self.assertEqual((done.returncode, mark.exists()), (1, False))
            self.assertIn("run: --output-dir: ", done.stderr)
            self.assertIn(bad, done.stderr)

    def test_a_variable_that_nexar_lacks_is_warned_of(self):
        done = ctl("run", "-n", 1, "--env", "NEXAR_BARIER_TIMEOUT_SECS=3", "--env", "NEXAR_RPC_TIMEOUT_SECS=3", "--", "true",
                   NEXAR_COLLECTIVE_TIMEOUT="300", NEXAR_DETERMINISTIC="1", NEXAR_OPEN_TIMEOUT_SECS="60")
        self.assertEqual((done.returncode, re.findall(r"^nexarctl: (NEXAR_\w+) ", done.stderr, re.MULTILINE)),
                         (0, ["NEXAR_BARIER_TIMEOUT_SECS", "NEXAR_COLLECTIVE_TIMEOUT"]), done.stderr)

    def test_torch_programs_find_what_they_read(self):
        show = ["sh", "-c", 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT"']
        lines = sorted(ctl("run", "-n", 2, "--", *show).stdout.splitlines())
        match = re.fullmatch(r"\[0\] 0 2 0 2 127\.0\.0\.1 (\d+)", lines[0])
        self.assertTrue(match, lines)
        self.assertEqual(lines[1], f"[1] 1 2 1 2 127.0.0.1 {match[1]}")
        hosts = ["run", "-n", 2, "--nodes", 2, "--node-index", 1, "--secret-file", self.secret()]
        self.assertEqual(sorted(ctl(*hosts, "--master", "[fd00::1]:29500", "--", *show).stdout.splitlines()),
                         ["[2] 2 4 0 2 fd00::1 29500", "[3] 3 4 1 2 fd00::1 29500"])
        done = ctl(*hosts, "--", *show, MASTER_ADDR="kept", MASTER_PORT="1")
        self.assertEqual(sorted(done.stdout.splitlines()), ["[2] 2 4 0 2 kept 1", "[3] 3 4 1 2 kept 1"])

    def secret(self):
        path = Path(self.folder.name) / "job.secret"
        path.write_text("0123456789abcdef\n")
        path.chmod(0o600)
        return path


class Run(Listening):
    def run_shell(self, ranks, script, *options, **environment):
        return ctl("run", "-n", ranks, *options, "--", "sh", "-c", script, **environment)

    def test_each_rank_has_its_environment_and_its_prefix(self):
        done = self.run_shell(3, 'echo "$NEXAR_RANK $NEXAR_LOCAL_RANK $NEXAR_WORLD_SIZE $NEXAR_GROUP $NEXAR_JOB_SECRET"',
                              "--group", "g", NEXAR_RANK="77")
        lines = sorted(done.stdout.splitlines())
        self.assertEqual(done.returncode, 0)
        secrets = set()
        for rank, line in enumerate(lines):
            match = re.fullmatch(rf"\[{rank}\] {rank} {rank} 3 g ([0-9a-f]{{64}})", line)
            self.assertTrue(match, line)
            secrets.add(match[1])
        self.assertEqual(len(secrets), 1)
        again = self.run_shell(1, "echo $NEXAR_JOB_SECRET").stdout.split()[1]
        self.assertNotIn(again, secrets)

    def test_as_json_each_line_is_an_object_and_the_last_is_the_exit_code(self):
        done = ctl("run", "--json", "-n", 2, "--", "sh", "-c", 'echo "a $NEXAR_RANK"; echo "b \\"x\\"" >&2; exit 0')
        *lines, last = map(json.loads, done.stdout.splitlines())
        self.assertEqual((done.returncode, done.stderr, last), (0, "", {"exit": 0}))
        self.assertEqual(sorted((line["rank"], line["stream"], line["line"]) for line in lines),
                         [(rank, *output) for rank in range(2)
                          for output in (("stderr", 'b "x"'), ("stdout", f"a {rank}"))])
        done = ctl("run", "--json", "-n", 1, "--", "sh", "-c", "exit 3")
        self.assertEqual((done.returncode, json.loads(done.stdout)), (3, {"exit": 3}))
        done = ctl("run", "--json", "-n", 1, "--", "/nonexistent")
        self.assertEqual(done.returncode, 127)
        self.assertIn("/nonexistent", json.loads(done.stdout)["error"]["text"])
        self.assertEqual(json.loads(ctl("run", "--json", "-n", 1).stdout)["error"]["name"], "INVALID_ARGUMENT")

    def test_several_hosts_share_a_secret_and_count_on(self):
        secret = Path(self.folder.name) / "secret"
        secret.write_text("0123456789abcdef\n")
        secret.chmod(0o600)
        done = self.run_shell(2, "echo $NEXAR_RANK $NEXAR_LOCAL_RANK $NEXAR_WORLD_SIZE $NEXAR_JOB_SECRET",
                              "--nodes", 3, "--node-index", 2, "--secret-file", secret)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["[4] 4 0 6 0123456789abcdef", "[5] 5 1 6 0123456789abcdef"])
        self.assertEqual(done.stderr, "")
        for bad in ("short\n", "two lines of text\nare not a secret\n", "x" * 2000, ""):
            secret.write_text(bad)
            self.assertEqual(self.run_shell(1, "true", "--secret-file", secret).returncode, 2)
        self.assertEqual(self.run_shell(1, "true", "--secret-file", "/nonexistent").returncode, 2)

    def test_lines_are_never_torn_also_when_ranks_print_in_pieces(self):
        script = 'for i in $(seq 200); do printf "a$NEXAR_RANK"; printf "b$NEXAR_RANK"; echo "c$NEXAR_RANK"; done; printf end'
        done = self.run_shell(4, script)
        self.assertEqual(done.returncode, 0)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 4 * 201)
        for line in lines:
            self.assertTrue(re.fullmatch(r"\[(\d)\] (a\1b\1c\1|end)", line), line)

    def test_streams_stay_apart_and_the_prefix_can_be_left_out(self):
        done = self.run_shell(1, "echo out; echo err >&2", "--no-prefix")
        self.assertEqual((done.stdout, done.stderr), ("out\n", "err\n"))

    def test_the_exit_code_is_the_first_failing_ranks_and_the_others_are_ended(self):
        script = 'if [ $NEXAR_RANK = 1 ]; then exit 7; fi; trap "exit 3" TERM; while :; do sleep 0.05; done'
        started = time.monotonic()
        done = self.run_shell(3, script)
        self.assertEqual(done.returncode, 7)
        self.assertIn("rank 1 failed with exit code 7", done.stderr)
        self.assertLess(time.monotonic() - started, 6)

    def test_who_ignores_sigterm_is_killed_after_the_grace(self):
        script = 'echo $$; if [ $NEXAR_RANK = 0 ]; then sleep 0.3; kill -9 $$; fi; trap "" TERM INT; while :; do sleep 1; done'
        done = self.run_shell(2, script, "--grace", 0.5)
        self.assertEqual(done.returncode, 137)
        self.assertIn("rank 0 was ended by signal 9", done.stderr)
        for pid in re.findall(r"\] (\d+)", done.stdout):
            self.assertFalse(running(int(pid)))

    def test_a_signal_is_forwarded_and_nobody_is_left(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            job = subprocess.Popen(
                [NEXARCTL, "run", "-n", "2", "--", "sh", "-c",
                 'trap "echo got INT; exit 0" INT; trap "echo got TERM; exit 0" TERM; echo $$; while :; do sleep 0.05; done'],
                stdout=subprocess.PIPE, text=True, env=CLEAN)
            pids = [int(job.stdout.readline().split()[1]) for _ in range(2)]
            job.send_signal(number)
            rest, _ = job.communicate(timeout=15)
            self.assertEqual(job.returncode, 128 + number)
            self.assertEqual(rest.count("got " + number.name[3:]), 2, rest)
            self.assertTrue(await_true(lambda: not any(map(running, pids))))

    def test_a_second_signal_kills_at_once(self):
        job = subprocess.Popen([NEXARCTL, "run", "-n", "1", "--grace", "60", "--", "sh", "-c",
                                'trap "echo no" INT; echo ready; while :; do sleep 0.05; done'],
                               stdout=subprocess.PIPE, text=True, env=CLEAN)
        self.assertIn("ready", job.stdout.readline())
        job.send_signal(signal.SIGINT)
        self.assertIn("no", job.stdout.readline())
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=10)
        self.assertEqual(job.returncode, 130)

    def test_the_timeout_ends_the_job_with_124(self):
        done = self.run_shell(2, "sleep 60", "--timeout", 0.3)
        self.assertEqual(done.returncode, 124)
        self.assertIn("did not end within 0.3 s", done.stderr)

    def test_what_a_rank_leaves_behind_neither_hangs_nor_survives(self):
        done = self.run_shell(1, "sleep 300 & echo $!")
        self.assertEqual(done.returncode, 0)
        pid = int(done.stdout.split()[1])
        self.assertTrue(await_true(lambda: not running(pid)))

    def test_a_launcher_that_is_killed_takes_its_ranks_along(self):
        job = subprocess.Popen([NEXARCTL, "run", "-n", "1", "--", "sh", "-c", "echo $$; while :; do sleep 0.05; done"],
                               stdout=subprocess.PIPE, text=True, env=CLEAN)
        pid = int(job.stdout.readline().split()[1])
        job.kill()
        job.communicate(timeout=10)
        self.assertTrue(await_true(lambda: not running(pid)))

    def test_nobody_reading_ends_the_job_instead_of_blocking_it(self):
        job = subprocess.Popen([NEXARCTL, "run", "-n", "2", "--", "yes"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, env=CLEAN)
        job.stdout.readline()
        job.stdout.close()
        self.assertNotEqual(job.wait(timeout=15), 0)

    def test_a_command_that_cannot_be_started_is_an_error_and_starts_nothing(self):
        done = ctl("run", "-n", 2, "--", "no-such-program")
        self.assertEqual((done.returncode, done.stdout), (127, ""))
        self.assertIn("no-such-program", done.stderr)
        self.assertEqual(ctl("run", "-n", 1, "--", "/").returncode, 126)

    def test_arguments_after_the_dashes_are_the_programs_own(self):
        done = ctl("run", "-n", 1, "--", "echo", "--json", "-n", "--", "x")
        self.assertEqual(done.stdout, "[0] --json -n -- x\n")


if __name__ == "__main__":
    unittest.main(verbosity=1)
