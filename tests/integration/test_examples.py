"""The programs of examples/, in C and in Python, on two nodes with two ranks each, as their first lines say that they are run:

    node 1: ranks 0, 1 ──┐
    node 2: ranks 2, 3 ──┴── switch
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from harness import *
from harness.system import die_with_parent, enter

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LIBRARY = pathlib.Path(os.environ["NEXAR_LIBRARY"])
CTL = os.environ["NEXAR_TEST_NEXARCTL"]
RANKS = 4


def build(name, folder):
    """By the command in the file, with this build in the place of pkg-config's."""
    line = re.search(r"cc (\S+\.c) \$\(pkg-config --cflags --libs nexar\) -o (\S+)", (EXAMPLES / f"{name}.c").read_text())
    equal(line.groups(), (f"{name}.c", name), "what the example says that it is built with")
    subprocess.run([os.environ.get("NEXAR_TEST_CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", line[1], "-o", folder / name,
                    f"-I{ROOT}/include", f"-L{LIBRARY.parent}", "-lnexar_c", f"-Wl,-rpath,{LIBRARY.parent}"], cwd=EXAMPLES, check=True)


def commands(name, folder):
    build(name, folder)
    return [[str(folder / name)], [sys.executable, "-B", str(EXAMPLES / f"{name}.py")]]


def outputs(cluster, command, size=RANKS):
    """By rank. All exit with 0."""
    os.environ.update(NEXAR_TEST_EXAMPLE=command[0], PYTHONPATH=str(pathlib.Path(nexar.__file__).parents[1]))
    ranks = [program(cluster[1 + 2 * rank // size], "NEXAR_TEST_EXAMPLE", *command[1:], rank=rank, size=size, group="example")
             for rank in range(size)]
    found = [rank.communicate(timeout=BUSY * 10)[0] for rank in ranks]
    equal([rank.returncode for rank in ranks], [0] * size, f"exits of {command}: {found}")
    return found


def each(cluster, name, size=RANKS):
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(name, pathlib.Path(folder)):
            yield outputs(cluster, command, size)


def test_send_recv(cluster):
    for found in each(cluster, "send_recv", 2):
        equal(found, ["", "1.5 2.5 3.5 4.5: 4 values with tag 42 from rank 0\n"], "what the ranks say")


def test_all_reduce(cluster):
    for found in each(cluster, "all_reduce"):
        equal(found, [f"rank {rank} of 4: x[0] = 6000, x[999] = 9996\n" for rank in range(RANKS)], "what the ranks say")


def test_broadcast(cluster):
    c, python = each(cluster, "broadcast")
    equal(c, [f"rank {rank}: rate 0.1, 25 epochs\n" for rank in range(RANKS)], "what the ranks say")
    equal(python, [f"rank {rank}: rate 0.1, 25 epochs, weights [0.0, 0.25, 0.5, 0.75, 1.0]\n" for rank in range(RANKS)],
          "what the ranks say")


def test_barrier(cluster):
    """When ranks may leave is tested elsewhere; here each begins its clock by itself."""
    for found in each(cluster, "barrier"):
        for rank, text in enumerate(found):
            number, came, left = map(int, re.fullmatch(r"rank (\d): came after (\d+) ms, left after (\d+) ms\n", text).groups())
            assert number == rank and 50 * rank <= came <= left, text


def test_two_hosts_become_a_cluster_and_run_a_job(cluster):
    """What the script says, on two nodes that have no cluster yet."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        (folder / "nexarctl").symlink_to(CTL)
        secret = folder / "job.secret"
        secret.write_text("ab" * 32)
        secret.chmod(0o600)
        for command in commands("two_hosts", folder):
            nodes = [cluster.node().start(), cluster.node().start()]
            found = "".join(joined(nodes, folder, secret, command))
            for node in nodes:
                node.end()
                cluster.nodes.pop(node.number)
            for rank in range(RANKS):
                contains(found, f"rank {rank}: 2 of 4 ranks are on my host")


def joined(nodes, folder, secret, command):
    """The outputs of the script on both hosts."""
    first = script(nodes[0], "first", folder, secret, command)
    token = ""
    while not token.startswith("nexar1."):
        token = first.stdout.readline()
        assert token, f"the first host has ended: {first.wait()}"
    second = script(nodes[1], "second", folder, secret, command)
    outs = second.communicate(token, timeout=BUSY * 15)[0], first.communicate(timeout=BUSY * 15)[0]
    equal((first.returncode, second.returncode), (0, 0), f"exits: {outs}")
    return outs


def script(node, which, folder, secret, command):
    def prepare():
        enter(node.network.namespace(node.host))
        die_with_parent()

    words = [str(EXAMPLES / "two_hosts.sh"), which, str(secret), *command]
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "NEXAR_SOCKET": str(node.socket),
                   "NEXAR_ADMIN_SOCKET": str(node.admin), "PYTHONPATH": str(pathlib.Path(nexar.__file__).parents[1])}
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=environment, preexec_fn=prepare)


def test_the_page_of_examples_names_each_of_them(_cluster):
    page = (EXAMPLES / "README.md").read_text()
    for file in EXAMPLES.iterdir():
        if file.suffix in (".c", ".py", ".sh"):
            contains(page, f"]({file.name})")


main(globals(), nodes=2)
