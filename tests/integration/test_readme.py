"""The examples of README.md are compiled and run, as they stand there."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from harness import *

ROOT = pathlib.Path(__file__).resolve().parents[2]


def example(language):
    return re.search(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)[1]


def ranks_of(cluster, command, **environment):
    """Exit statuses and outputs of two ranks."""
    os.environ.update(environment, NEXAR_TEST_EXAMPLE=command[0])
    ranks = [program(cluster[rank + 1], "NEXAR_TEST_EXAMPLE", *command[1:], rank=rank, size=2, group="readme")
             for rank in range(2)]
    outputs = [rank.communicate(timeout=30)[0] for rank in ranks]
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs)]


def test_the_c_example_sums_and_says_what_failed(cluster):
    """[U17]"""
    with tempfile.TemporaryDirectory() as folder:
        source, hello = os.path.join(folder, "hello.c"), os.path.join(folder, "hello")
        pathlib.Path(source).write_text(example("c"))
        library = pathlib.Path(os.environ["NEXAR_LIBRARY"]).parent
        subprocess.run([os.environ.get("NEXAR_TEST_CC", "cc"), "-Wall", "-Wextra", "-Werror", source, "-o", hello,
                        f"-I{ROOT}/include", f"-L{library}", "-lnexar_c", f"-Wl,-rpath,{library}"], check=True)
        equal(ranks_of(cluster, [hello]), [(0, "0 2 4 6\n")] * 2, "exits and outputs")
        alone = subprocess.run([hello], capture_output=True, text=True, env={"NEXAR_SOCKET": "/nowhere"}, timeout=10)
        equal((alone.returncode, alone.stdout), (1, ""), "without a daemon")
        contains(alone.stderr, "session: session_open: NOT_FOUND", "/nowhere", "nexarctl dev")


def test_what_the_page_has_typed_is_what_there_is(_cluster):
    """The folders of an installation, and `nexarctl dev` with its flags, as a first try types them."""
    page = (ROOT / "README.md").read_text()
    tried = subprocess.run([os.environ["NEXAR_TEST_NEXARCTL"], "dev", "--help"], capture_output=True, text=True, timeout=20)
    for flag in set(re.findall(r"nexarctl dev ((?:-\S+ \d+ )+)", page)):
        for name in re.findall(r"-[-a-z]+", flag):
            contains(tried.stdout + tried.stderr, name)
    for line in re.findall(r"^    .*nexarctl dev .*$", page, re.MULTILINE):
        contains(line, "-n 4", " -- ")


def test_the_python_example_sums(cluster):
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(example("python"))
        script.flush()
        ends = ranks_of(cluster, [sys.executable, "-B", script.name], PYTHONPATH=str(ROOT / "bindings/python"))
    equal(ends, [(0, f"{rank} [1. 3. 5. 7.]\n") for rank in range(2)], "exits and outputs")


def test_no_example_shows_a_token_on_a_command_line_and_linux_only_is_stated(_cluster):
    """[U17]"""
    for page in ("README.md", "docs/operations.md"):
        for words in re.findall(r"cluster join +([^`\n]*)", (ROOT / page).read_text()):
            assert words.startswith("-"), f"{page}: cluster join {words}"
    contains((ROOT / "README.md").read_text(), "It is for Linux on 64-bit machines only", "sealed memfds")


main(globals(), nodes=2)
