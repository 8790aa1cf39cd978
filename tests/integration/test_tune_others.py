"""nexarctl tune where there can be no race: the node that makes groups is not among the hosts that are tuned, or a host's daemon
knows nothing of trials. The rest is measured and kept."""
import contextlib
import json
import socket
import threading

from harness import *
from test_tune import PARAMETERS, ended, started


def written_secret(cluster):
    secret = cluster.folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("0123456789abcdef\n")
    return secret


def tuned(cluster, nodes):
    """The reports of a tune of these hosts."""
    secret = written_secret(cluster)
    return [ended(process) for process in [
        started(node, "tune", "--nodes", len(nodes), "--node-index", index, "--secret-file", secret, "--seconds", 1, "--json")
        for index, node in enumerate(nodes)]]


class OlderDaemon:
    """A node whose admin socket answers for it, and refuses trials as a daemon of an older version does."""

    def __init__(self, node, path):
        self.node, self.admin, self.socket, self.refused = node, path, node.socket, []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(caller,), daemon=True).start()

    def _answer(self, caller):
        with caller, socket.socket(socket.AF_UNIX) as daemon, caller.makefile("rb") as lines:
            daemon.connect(str(self.node.admin))
            answers = daemon.makefile("rb")
            for line in lines:
                arguments = json.loads(line).get("arguments", {})
                if "trial" in arguments:
                    self.refused.append(arguments["trial"])
                    text = "unknown argument 'trial' (allowed: model, forget)"
                    answer = json.dumps({"ok": False, "error": {"code": -1, "name": "INVALID_ARGUMENT", "text": text}}).encode() + b"\n"
                else:
                    daemon.sendall(line)
                    answer = answers.readline()
                caller.sendall(answer)


def test_without_the_node_that_makes_groups_there_is_no_race(cluster):
    lowest, *others = sorted(cluster, key=lambda node: node.id)
    reports = tuned(cluster, others)
    for node, report in zip(others, reports):
        equal((set(report["model"]), report["raced"]), (PARAMETERS, []), "no limit")
        contains(report["why_no_race"], "the node that makes groups is none of these hosts")
        equal(node.ask("tune")["model"], reports[0]["model"], "the rest is kept")
    equal(lowest.ask("tune")["is_tuned"], False, "of the host that was not tuned")


def test_a_daemon_that_refuses_the_trial_ends_the_race_on_all_hosts(cluster):
    lowest, other, _ = sorted(cluster, key=lambda node: node.id)
    for older in (lowest, other):  # the one that makes the groups, or another one
        relay = OlderDaemon(older, cluster.folder / f"older-{older.id}.sock")
        nodes = [relay if node is older else node for node in (lowest, other)]
        reports = tuned(cluster, nodes)
        relay.close()
        equal(bool(relay.refused), True, "the trial was announced to it")
        for node, report in zip(nodes, reports):
            equal((set(report["model"]), report["raced"]), (PARAMETERS, []), "no limit")
            contains(report["why_no_race"], "this host's daemon takes no part: unknown argument 'trial'" if node is relay
                     else "another host's daemon takes no part")
        equal([node.ask("tune")["model"] for node in (lowest, other)], [reports[0]["model"]] * 2, "the rest is kept")


if __name__ == "__main__":
    main(globals(), nodes=3)
