"""Random programs on real daemons, compared with a reference: tests/oracle, for a minute. And that it finds what is wrong.

ORACLE_SECONDS, ORACLE_SEED: for longer, or with other programs (tools/nightly). Daemons on the loopback device; no root.
"""
import contextlib
import io
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import *
from oracle import run


def finds(sabotage, words):
    """One program whose results, or memory afterwards, the ranks themselves spoil."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert run.main(["--kind", "plain", "--seed", "2", "--sabotage", sabotage]) == 1, f"{sabotage} was not found"
    contains(text.getvalue(), words)
    print(f"ok      {sabotage} is found", flush=True)


finds("wrong", " wrong, first at ")
finds("late", " bytes were written afterwards, from ")
seconds = os.environ.get("ORACLE_SECONDS", "45")
sys.exit(1 if run.main(["--seed", os.environ.get("ORACLE_SEED", "1"), "--seconds", seconds, "--failures", "2"]) else 0)
