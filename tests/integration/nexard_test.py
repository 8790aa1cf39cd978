"""nexard's command line and configuration, without a cluster: what it refuses, and in which words. usage: nexard_test.py
NEXARD"""

import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

NEXARD = sys.argv.pop(1)
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("NEXAR_")}


def nexard(*arguments, **environment):
    return subprocess.run([NEXARD, *map(str, arguments)], capture_output=True, text=True, timeout=20, check=False,
                          env={**CLEAN, **environment})


class Refusals(unittest.TestCase):
    def refused(self, done, *words, code=1):
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("nexard: "), done.stderr)
        for word in words:
            self.assertIn(str(word), done.stderr)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "nexar.toml"

    def test_a_bad_value_is_one_line_wherever_it_stands(self):
        for key, value, allowed in (("heartbeat_timeout", "abc", "0.05 to 86400 seconds"), ("workers", "257", "to 256"),
                                    ("listen", "foo", "ADDRESS:PORT"), ("listen", "1.2.3.4:0", "ADDRESS:PORT"),
                                    ("socket", "relative", "an absolute path"), ("log_level", "loud", "debug, info"),
                                    ("init_cluster", "perhaps", "true, false"), ("cluster_name", "", "1 to 53 bytes"),
                                    ("pipeline_segment_bytes", "65537", "a multiple of 64"),
                                    ("topology", "torus", "full_mesh"), ("recovery_policy", "automatic", "wait for recovery")):
            self.file.write_text(f'\n{key} = "{value}"\n')
            self.refused(nexard("--config", self.file), f"line 2: {key} = '{value}'", allowed)
            flag = "--" + key.replace("_", "-")
            self.refused(nexard(flag, value), f"command line: {key} = '{value}'", allowed)
        self.refused(nexard("--check-config", NEXAR_HEARTBEAT_TIMEOUT_SECS="0"), "NEXAR_HEARTBEAT_TIMEOUT_SECS", "0.05")

    def test_a_flag_that_does_not_exist_is_named(self):
        self.refused(nexard("--heartbeet", "3"), "--heartbeet", "nexard --help", code=2)
        self.refused(nexard("start"), "start", code=2)
        self.refused(nexard("--listen"), "--listen", code=2)
        self.refused(nexard("--listen", "0.0.0.0:1", "--listen", "0.0.0.0:2"), "--listen", code=2)

    def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(self):
        self.refused(nexard("--check-config", "--config", self.file), self.file, "no such file")
        self.refused(nexard("--check-config", "--config", self.file.parent), self.file.parent)
        self.file.write_text("hearbeat_timeout = 3\n")
        self.refused(nexard("--check-config", "--config", self.file), "line 1", "'hearbeat_timeout'", "heartbeat_timeout")
        if os.geteuid() == 0:
            self.file.parent.chmod(0o755)
            self.file.chmod(0)
            done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", NEXARD, "--check-config", "--config",
                                   self.file], capture_output=True, text=True, timeout=20, check=False, env=CLEAN)
            if "setpriv" in done.stderr or "xec" in done.stderr:
                self.skipTest(f"no other user may run nexard here: {done.stderr}")
            self.refused(done, self.file, "Permission denied")

    def test_help_names_variable_default_and_range_of_every_key(self):
        output = nexard("--help").stdout
        for words in ("NEXAR_HEARTBEAT_TIMEOUT_SECS", "default 5.0", "0.05 to 86400 seconds", "NEXAR_CLUSTER_TOKEN",
                      "/etc/nexar/nexar.toml"):
            self.assertIn(words, " ".join(output.split()))

    def start(self, before=None, **environment):
        """A daemon, and what it has logged until it served."""
        folder = self.file.parent
        daemon = subprocess.Popen([NEXARD, "--socket", folder / "s", "--admin-socket", folder / "a", "--state-dir",
                                   folder / "state"], stderr=subprocess.PIPE, text=True, preexec_fn=before,
                                  env={**CLEAN, **environment})
        lines = []
        for line in daemon.stderr:
            lines.append(line)
            if "not_in_a_cluster" in line:
                break
        return daemon, lines

    def end(self, daemon):
        daemon.send_signal(signal.SIGTERM)
        _, rest = daemon.communicate(timeout=20)
        self.assertEqual(daemon.returncode, 0, rest)

    def test_a_start_that_fails_says_what_to_do(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            for listen, words in ((f"127.0.0.1:{port}", ("another process has the port", f"ss -ulpn 'sport = :{port}'", "set listen")),
                                  ("192.0.2.1:7654", ("this host does not have the address", "ip addr", "0.0.0.0:7654"))):
                daemon, lines = self.start(NEXAR_LISTEN=listen, NEXAR_INIT_CLUSTER="1")
                self.assertEqual(daemon.wait(20), 1)
                daemon.stderr.close()
                for word in words:
                    self.assertIn(word, "".join(lines))
        daemon, lines = self.start(NEXAR_CLUSTER_TOKEN="nexar1.cut")
        self.assertEqual(daemon.wait(20), 1)
        daemon.stderr.close()
        self.assertIn("nexarctl token create", "".join(lines))

    def test_a_misspelt_variable_is_warned_of(self):
        daemon, lines = self.start(NEXAR_HEARTBEAT_TIMEOUT="3", NEXAR_RANK="0")
        self.end(daemon)
        self.assertEqual([line for line in lines if "variable_ignored" in line and "NEXAR_HEARTBEAT_TIMEOUT" in line],
                         lines[:1])
        self.assertNotIn("NEXAR_RANK", "".join(lines))

    def test_it_uses_all_descriptors_that_it_may_have(self):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        daemon, _ = self.start(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, most)))
        limits = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        self.end(daemon)
        self.assertEqual(limits, (most, most))

    def test_with_too_few_descriptors_it_says_so_and_does_not_start(self):
        """[N23]"""
        for few in (4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 511):
            done = subprocess.run([NEXARD], capture_output=True, text=True, timeout=20, check=False, env=CLEAN,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few)))
            self.refused(done, f"is {few},", "at least 512", "LimitNOFILE")
        daemon, _ = self.start(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)))
        self.end(daemon)


if __name__ == "__main__":
    unittest.main()
