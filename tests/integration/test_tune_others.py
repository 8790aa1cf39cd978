"""nexarctl tune where the node that makes groups is not among the hosts that are tuned: without a race, and with the rest."""
from harness import *
from test_tune import PARAMETERS, ended, started


def test_without_the_node_that_makes_groups_there_is_no_race(cluster):
    secret = cluster.folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("0123456789abcdef\n")
    lowest, *others = sorted(cluster, key=lambda node: node.id)
    reports = [ended(process) for process in [
        started(node, "tune", "--nodes", 2, "--node-index", index, "--secret-file", secret, "--seconds", 1, "--json")
        for index, node in enumerate(others)]]
    for node, report in zip(others, reports):
        equal((set(report["model"]), report["raced"]), (PARAMETERS, []), "no limit")
        contains(report["why_no_race"], "the node that makes groups is none of these hosts")
        equal(node.ask("tune")["model"], reports[0]["model"], "the rest is kept")
    equal(lowest.ask("tune")["is_tuned"], False, "of the host that was not tuned")


if __name__ == "__main__":
    main(globals(), nodes=3)
