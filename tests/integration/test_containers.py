"""[U15] A process in other pid, ipc, user, mount and network namespaces, as in a container, has the daemon's runtime directory
mounted: it forms groups with processes outside, and goes on doing so when the daemon was started again.

    host: nexard, rank 1        container: rank 0, NEXAR_SOCKET=<the mounted directory>/nexard.sock
"""
import os
import pathlib
import subprocess

from harness import *
from harness.ranks import environment_of

# One line is one start of the program; "end STATUS" follows its output.
INSIDE = """
mount --bind "$RUNTIME_DIRECTORY" "$MOUNTED" || exit 9
echo "pid $$"
while read -r line; do "$NEXAR_TEST_RANK_CLIENT" 1000 5; echo "end $?"; done
"""


class Container:
    def __init__(self, node, folder):
        folder.mkdir()
        environment = {**os.environ, **environment_of(node, 0, 2, "contained"), "NEXAR_SOCKET": str(folder / "nexard.sock"),
                       "RUNTIME_DIRECTORY": str(node.folder), "MOUNTED": str(folder)}
        self.process = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--pid", "--ipc", "--net", "--mount", "--fork", "--mount-proc",
             "--kill-child", "sh", "-c", INSIDE], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        equal(self.process.stdout.readline(), "pid 1\n", "what the container prints first")

    def begin(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def output(self):
        lines = []
        while not (lines and lines[-1].startswith("end ")):
            line = self.process.stdout.readline()
            assert line, f"the container has ended: {lines}"
            lines.append(line)
        return "".join(lines)

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)


def test_a_container_with_the_runtime_directory_works_on_when_the_daemon_was_restarted(cluster):
    node = cluster[1]
    container = Container(node, cluster.folder / "container")
    try:
        for _ in range(2):
            container.begin()
            outside = program(node, "NEXAR_TEST_RANK_CLIENT", "1000", "5", rank=1, size=2, group="contained")
            equal(outside.communicate(timeout=30)[0], "rank 1: 5 right\n", "the rank outside")
            equal(container.output(), "rank 0: 5 right\nend 0\n", "the rank in the container")
            node.kill()
            node.start()
    finally:
        container.end()


def test_the_daemon_knows_the_process_in_the_container_by_its_number_outside(cluster):
    node = cluster[1]
    container = Container(node, cluster.folder / "another")
    try:
        container.begin()
        waits, = eventually(lambda: [here for one in node.ask("groups")["forming"] for here in one["here"]],
                            "the rank in the container to wait", 10)
        contains(pathlib.Path(f"/proc/{waits['pid']}/cmdline").read_text(), os.environ["NEXAR_TEST_RANK_CLIENT"])
        outside = program(node, "NEXAR_TEST_RANK_CLIENT", "1000", "5", rank=1, size=2, group="contained")
        equal(outside.communicate(timeout=30)[0], "rank 1: 5 right\n", "the rank outside")
        container.output()
    finally:
        container.end()


main(globals(), nodes=1)
