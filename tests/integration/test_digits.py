"""The example job as a user runs it, three hosts with two ranks each:

    node 1: ranks 0, 1 ──┐
    node 2: ranks 2, 3 ──┼── switch
    node 3: ranks 4, 5 ──┘
"""
import json
import os
import pathlib
import subprocess
import sys

from harness import *
from harness.system import die_with_parent, enter

EPOCHS = 12
PYTHON = [sys.executable, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.py")]


def train(cluster, command_of_rank, seconds=90, node_of=lambda rank: rank // 2 + 1, **variables):
    """The report of rank 0."""
    ranks = []
    for rank in range(6):
        node = cluster[node_of(rank)]
        environment = {**os.environ, "NEXAR_SOCKET": str(node.socket), "NEXAR_RANK": str(rank), "NEXAR_WORLD_SIZE": "6",
                       "NEXAR_GROUP": "digits", "NEXAR_JOB_SECRET": "a secret of the test",
                       "PYTHONPATH": str(pathlib.Path(nexar.__file__).parents[1]), **variables}
        namespace = node.network.namespace(node.host)
        ranks.append(subprocess.Popen(
            [*command_of_rank(rank), "--epochs", str(EPOCHS), "--json", *(["--check-reference"] if rank == 0 else [])],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
            preexec_fn=lambda namespace=namespace: (enter(namespace), die_with_parent())))
    outputs = [rank.communicate(timeout=seconds)[0] for rank in ranks]
    for rank, (process, output) in enumerate(zip(ranks, outputs)):
        equal(process.returncode, 0, f"exit status of rank {rank}, with output:\n{output}")
    return json.loads(outputs[0])


def check_report(report):
    assert report["passed"], report
    assert report["accuracy"] >= 0.95, report
    equal(report["ranks"], 6, "ranks")
    return report["parameters_hash"]


def cpp(_):
    return [os.environ["NEXAR_TEST_DIGITS"]]


def test_six_cpp_ranks_on_three_hosts_train_a_classifier(cluster):
    first = check_report(train(cluster, cpp))
    equal(check_report(train(cluster, cpp)), first, "parameters of a second run")


def test_cpp_and_python_ranks_train_together(cluster):
    check_report(train(cluster, lambda rank: PYTHON if rank % 2 else cpp(rank)))


def test_a_python_rank_may_lead(cluster):
    check_report(train(cluster, lambda rank: cpp(rank) if rank % 2 else PYTHON))


def test_a_sharded_optimiser_has_the_parameters_of_all_reduce_to_the_bit_wherever_its_ranks_run(cluster):
    """[Z1] In deterministic mode, which the environment asks for."""
    hashes = [check_report(train(cluster, lambda _: PYTHON + sharded, node_of=node_of, NEXAR_DETERMINISTIC="1"))
              for sharded, node_of in (([], lambda rank: rank // 2 + 1), (["--sharded"], lambda rank: rank // 2 + 1),
                                       (["--sharded"], lambda rank: rank % 3 + 1))]
    equal(hashes, hashes[:1] * 3, "hashes of the parameters")


main(globals())
