#!/usr/bin/env python3
"""Lets Spin search every state of the models of docs/protocol/shm.md, as they are and with each sabotage.

Usage: check.py SPIN CC

As it is, a model must hold; a sabotaged one must not: a model in which the missing fence makes no difference proves nothing
about the fence. The variants of a model are its own #defines, in words; the environment chooses one (tso.pml).
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
INTACT = "as it is"
# Per model: the variants that hold; what Spin must find in all others.
LOST = "invalid end state"
WRONG = "assertion violated"
MODELS = {
    "sleep_word": {},
    "ring": {"NO_TURN": WRONG},
    "generations": {name: WRONG for name in ("LEDGER_FORGETS_GENERATIONS", "NO_LEDGER", "SAME_GENERATION_AGAIN",
                                             "DONE_BEFORE_RESULT", "ENTRY_BEFORE_PAYLOAD")},
    "alive": {},
    "given_up": {name: WRONG for name in ("NO_FENCE_IN_CLIENT", "NO_FENCE_IN_DAEMON", "ONE_LOOK_AT_THE_TICK",
                                          "NO_LOOK_AFTER_THE_TICK", "NO_LOOK_BEFORE_THE_REST")},
}
HOLD = {"ring": {"TWO_PRODUCERS"}}
DEPTH = 100000


def variants(text):
    found = {INTACT: 0}
    block = text.split("/* Variants: */")[1].split("/* End of variants. */")[0]
    for name, number in re.findall(r"^#define ([A-Z]\w+) (\d+)$", block, re.M):
        found[name] = int(number)
    if sorted(found.values()) != list(range(len(found))):
        sys.exit(f"the variants are not numbered 1, 2, ..: {found}")
    return found


def build(model, spin, compiler, folder):
    for source in HERE.glob("*.pml"):
        (folder / source.name).write_bytes(source.read_bytes())
    # Spin's own preprocessor is gcc, which a machine with clang may not have.
    subprocess.run([spin, f"-P{compiler} -E -x c", "-a", f"{model}.pml"], cwd=folder, check=True, timeout=60,
                   stdout=subprocess.DEVNULL)
    subprocess.run([compiler, "-O2", "-w", "-DSAFETY", "-o", "pan", "pan.c"], cwd=folder, check=True, timeout=120)


def search(folder, number):
    """What the search found: '' for nothing. An unfinished search is a failure, whatever it found."""
    run = subprocess.run(["./pan", f"-m{DEPTH}", "-w22"], cwd=folder, timeout=120, text=True, capture_output=True,
                         env={**os.environ, "SABOTAGE": str(number)})
    sums = re.search(r"errors: (\d+)\n\s*(\d+) states, stored", run.stdout)
    if not sums or "max search depth too small" in run.stdout or ("not completed" in run.stdout and sums[1] == "0"):
        sys.exit(f"the search did not end:\n{run.stdout}{run.stderr}")
    error = re.search(r"^pan:1: (.*) \(at depth", run.stdout, re.M)
    return error[1] if error else "", int(sums[2])


def check(model, spin, compiler):
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        build(model, spin, compiler, folder)
        for variant, number in variants((HERE / f"{model}.pml").read_text()).items():
            found, states = search(folder, number)
            holds = variant == INTACT or variant in HOLD.get(model, ())
            good = not found if holds else MODELS[model].get(variant, LOST) in found
            wrong += not good
            print(f"{'ok   ' if good else 'WRONG'} {model}, {variant}: {found or 'holds'} ({states} states)", flush=True)
    return wrong


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(1 if sum([check(model, *sys.argv[1:]) for model in MODELS]) else 0)
