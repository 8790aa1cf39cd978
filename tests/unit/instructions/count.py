"""How many instructions each hot path takes, counted by valgrind: time says little on a shared machine, and these hardly vary.
A path that takes half as many again as when its figure was written has become slower, and fails; so does one that takes
less than half, whose figure says nothing any more.

    count.py UNIT_INSTRUCTIONS
"""
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROUNDS = 300  # and as many more: the difference is the path's own
EXPECTED = {  # of one round: both ranks, both nodes, and the little that the test itself does; clang 19, -O2
    "all_reduce of 8 bytes": 48000,
    "message of 8 bytes": 16000,
    "message beside 500 receives": 20000,
    "transfer of 8 bytes": 8800,
    "chunk of 1000 bytes": 10700,
    "record of 1000 bytes": 3550,
}
MORE, LESS = 1.5, 0.5  # of what is expected: compilers and their options differ by a quarter


def instructions(program, path, rounds):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env={**os.environ, "NEXAR_ROUNDS": str(rounds)})
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not counted:
        sys.exit(f"{path}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return int(counted[1])


def stripped(program, folder):
    """Without debug information, which valgrind would read each time, and of which Debian 12's knows an older form only."""
    copy = os.path.join(folder, "program")
    subprocess.run([shutil.which("strip") or "llvm-strip-19", "-o", copy, program], check=True)
    return copy


def main():
    if not shutil.which("valgrind") or platform.machine() != "x86_64":
        print("valgrind is missing, or this is not an x86-64: skipped")
        return 77
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        program = stripped(sys.argv[1], folder)
        for path, expected in EXPECTED.items():
            each = (instructions(program, path, 2 * ROUNDS) - instructions(program, path, ROUNDS)) / ROUNDS
            wrong = not LESS * expected <= each <= MORE * expected
            bad += wrong
            print(f"{path:30} {each:9.0f} instructions, {each / expected:.2f} of what is expected{'  ***' * wrong}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
