#!/usr/bin/python3
"""The same random programs in the simulator (tests/sim/oracle_test.cpp): with reordering, lost channels, and delays.

    NEXAR_BUILD_DIR=build/whole tests/oracle/simulator.py [--seed FIRST] [--programs N] [--sabotage] [--show]

A program goes to the simulator as text, in which everything stands that its ranks call and must get; nothing is computed
there. A line is an item of one rank (its number in the program), in the rank's order:

    program SEED            the first line
    places N...             the node of each rank
    group NUMBER MADE PARENT CALL MEMBER...         MADE: open, split, dup
    collective STEP RANK GROUP KIND DTYPE OP COUNT ROOT MATCH_ID SCALAR (COUNTS or -) (SENDS or -) (RECEIVES or -) IN OUT
    send STEP RANK GROUP DTYPE TO TAG NUMBER BYTES
    recv STEP RANK GROUP DTYPE FROM TAG ROOM NUMBER         the message that it must get; -1: any that fits, each once
    wait RANK               for the end of all that the rank has begun
    end

Bytes are hexadecimal after an x; lists have commas; a side that the rank has not is a dash. Programs without deaths and early
ends, sums that are exact, at most STEP_BYTES in a side of a step: the simulator has the others in its own tests.
"""
import argparse
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "integration")]

from harness import nexar  # noqa: E402
from oracle import data, messages  # noqa: E402
from oracle.calls import content  # noqa: E402
from oracle.draw import draw  # noqa: E402
from oracle.program import ANY_SOURCE, ANY_TAG, matches  # noqa: E402
from oracle.reference import expected  # noqa: E402

STEP_BYTES = 40_000
MESSAGE_FENCE = 10**6  # and a step's number: the barriers around it


def hexadecimal(array):
    return "-" if array is None else "x" + array.tobytes().hex()


def listed(numbers):
    return ",".join(map(str, numbers)) if len(numbers) else "-"


def suitable(step):
    """The step as the simulator can have it; None: it is not for it."""
    step = dataclasses.replace(step, exact=True)
    width = data.STORAGE[step.dtype].itemsize
    if step.kind == "messages":
        return step if all(message.count * width <= STEP_BYTES for message in step.messages) else None
    ranks = range(step.group.size)
    sides = [step.elements(word, rank) or 0 for rank in ranks for word in (step.row.in_, step.row.out)]
    return step if max(sides, default=0) * width <= STEP_BYTES else None


def items_of(program, step):
    """Lines of all ranks; None: some rank's result is not exact."""
    if step.kind == "messages":
        return messages_of(program, step)
    lines = []
    for rank, member in enumerate(step.group.members):
        side_in, side_out = (step.elements(word, rank) for word in (step.row.in_, step.row.out))
        given = None if side_in is None else data.given(program.seed, step, rank, side_in)
        wanted, distance = expected(program.seed, step, rank) if side_out is not None else (None, None)
        if distance is not None:
            return None
        premul = step.row.reduces and step.op == "premul_sum"
        scalar = int.from_bytes(data.scalar(program.seed, step, rank).tobytes(), "little") if premul else 0
        count = sum(step.counts) if step.counts else step.count
        sends, receives = (step.blocks[rank], [line[rank] for line in step.blocks]) if step.blocks else ((), ())
        lines.append(" ".join(map(str, (
            "collective", step.number, member, step.group.number, step.row.number, data.NUMBER[step.dtype] if step.row.memory != "nothing" else 0,
            nexar.OPS[step.op] if step.row.reduces else 0, count if step.row.memory != "nothing" else 0, step.root, step.match_id, scalar,
            listed(step.counts), listed(sends), listed(receives), hexadecimal(given), hexadecimal(wanted)))))
    return lines


def messages_of(program, step):
    lines, dtype, group = [], data.NUMBER[step.dtype], step.group
    for rank, member in enumerate(group.members):
        lines += [f"send {step.number} {member} {group.number} {dtype} {each.to} {each.tag} {each.number} "
                  f"{hexadecimal(content(program.seed, step, each))}" for each in step.messages if each.source == rank]
        mine = [each for each in step.receives if each.to == rank]
        some = any(each.source == ANY_SOURCE for each in mine)
        wanted = [-1] * len(mine) if some else [each.number for each in matches(mine, [m for m in step.messages if m.to == rank])]
        lines += [f"recv {step.number} {member} {group.number} {dtype} {each.source} {any_tag(each.tag)} {messages.room(step, each)} {number}"
                  for each, number in zip(mine, wanted)]
    return fenced(step, lines) if step.fenced else lines


def any_tag(tag):
    return "any" if tag == ANY_TAG else tag


def fenced(step, lines):
    def barrier(number):
        around = []
        for member in step.group.members:
            around += [f"wait {member}", f"collective {number} {member} {step.group.number} 0 0 0 0 0 0 0 - - - - -", f"wait {member}"]
        return around

    return barrier(MESSAGE_FENCE + 2 * step.number) + lines + barrier(MESSAGE_FENCE + 2 * step.number + 1)


def text_of(seed):
    program = draw(seed, "plain")
    lines = [f"program {seed}", "places " + " ".join(map(str, program.places))]
    for group in program.groups:
        parent, call = (-1, -1) if group.parent is None else (group.parent, group.call)
        lines.append(f"group {group.number} {group.made} {parent} {call} " + " ".join(map(str, group.members)))
    for step in filter(None, map(suitable, program.steps)):
        lines += items_of(program, step) or []
    return "\n".join([*lines, "end", ""])


def spoiled(text):
    """With one bit of one result turned: the simulator must find it."""
    lines = text.split("\n")
    number = max(number for number, line in enumerate(lines) if line.startswith("collective") and line.split()[-1][0] == "x"
                 and len(line.split()[-1]) > 1)
    lines[number] = lines[number][:-1] + f"{int(lines[number][-1], 16) ^ 1:x}"
    return "\n".join(lines)


def main(given=None):
    """How the simulator ended: 0, all is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--sabotage", action="store_true")
    chosen = parser.parse_args(given)
    texts = [text_of(seed) for seed in range(chosen.seed, chosen.seed + chosen.programs)]
    if chosen.sabotage:
        texts[-1] = spoiled(texts[-1])
    if chosen.show:
        print(*texts)
    with tempfile.NamedTemporaryFile("w", suffix=".programs") as file:
        file.write("".join(texts))
        file.flush()
        ended = subprocess.run([os.environ["NEXAR_TEST_SIM_ENGINE"], "[oracle]"], env={**os.environ, "NEXAR_SIM_PROGRAMS": file.name}).returncode
    print(f"programs of seeds {chosen.seed} to {chosen.seed + chosen.programs - 1}: "
          + ("as they must be" if ended == 0 else "failed; again: tests/oracle/simulator.py --programs 1 --seed THE_SEED"))
    return ended


if __name__ == "__main__":
    sys.exit(main())
