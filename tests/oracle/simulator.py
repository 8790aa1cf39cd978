#!/usr/bin/python3
"""The same random programs in the simulator (tests/sim/oracle_test.cpp): with reordering, lost channels, and delays.

    NEXAR_BUILD_DIR=build/whole tests/oracle/simulator.py [--seed FIRST] [--programs N] [--kind KIND] [--sabotage] [--show]

Kinds: plain; ends, operations are cancelled, late, or differ; death, a rank dies; leave, it frees or aborts a group; exception, it
aborts all its groups and ends. But for plain ones allowed.py judges the end of every call. A program goes to the simulator as text, in which everything stands that its ranks call and must get; nothing is computed
there. A line is an item of one rank (its number in the program), in the rank's order:

    program SEED JUDGED     the first line; JUDGED: 1, unless everything must succeed
    places N...             the node of each rank
    processes N...          the session of each rank
    group NUMBER MADE PARENT CALL MEMBER...         MADE: open, split, dup, create
    collective STEP RANK GROUP KIND DTYPE OP COUNT ROOT MATCH_ID SCALAR (COUNTS or -) (SENDS or -) (RECEIVES or -) IN OUT
    send STEP RANK GROUP DTYPE TO TAG NUMBER BYTES
    recv STEP RANK GROUP DTYPE FROM TAG ROOM NUMBER         the message that it must get; -1: any that fits, each once
    create STEP RANK GROUP PARENT TAG MILLISECONDS LIST     who gets it has the group from then on; MILLISECONDS: its deadline, or -1
    ending STEP RANK GROUP PARENT TAG MILLISECONDS LIST     the same, but who gets it frees it
    ending_again ...        as ending, if the rank's ending of this step before it made no group
    wait RANK               for the end of all that the rank has begun
    recv_again ...                  as recv, if the rank's receive of this step before it was cancelled or late
    deadline STEP RANK MILLISECONDS         of the rank's next call
    pause STEP RANK MICROSECONDS            until then the rank does nothing
    cancel STEP RANK                        what the rank has begun of the step, within 2 ms
    lose STEP RANK GROUP HOW        the rank goes: die, die_later (within 3 ms), free, abort, exception
    end

Bytes are hexadecimal after an x; lists have commas; a side that the rank has not is a dash. Sums that are exact, at most STEP_BYTES in
a side of a step: the simulator has the others in its own tests.
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
from oracle import allowed, creates, data, messages  # noqa: E402
from oracle.calls import content  # noqa: E402
from oracle.draw import draw  # noqa: E402
from oracle.ends import create_with_end, with_end  # noqa: E402
from oracle.program import ANY_SOURCE, ANY_TAG, matches  # noqa: E402
from oracle.reference import expected  # noqa: E402
from oracle.thread import Outcome  # noqa: E402

STEP_BYTES = 40_000
MESSAGE_FENCE = 10**6  # and twice a step's number, or one more: the barriers around it
KINDS = ("plain", "ends", "death", "leave", "exception")


# Names of errors, each of which becomes another one.
LOST = (" collective PEER_LOST ", " collective TIMED_OUT ")
SABOTAGE = {"plain": (LOST,),
            "ends": ((" ABORTED ", " MISMATCH "), (" ending MISMATCH ", " ending GROUP_INCOMPLETE "), (" create OK ", " create MISMATCH ")),
            "death": (LOST, (" create PEER_LOST ", " create GROUP_INCOMPLETE ")),
            "leave": (LOST, (" create ABORTED ", " create MISMATCH ")),
            "exception": (LOST, (" create PEER_LOST ", " create CLOSED "))}


def hexadecimal(array):
    return "-" if array is None else "x" + array.tobytes().hex()


def listed(numbers):
    return ",".join(map(str, numbers)) if len(numbers) else "-"


def suitable(step):
    """The step as the simulator can have it; None: it is not for it."""
    if step.kind == "create":
        return step
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
    if step.kind == "create":
        return creates_of(program, step)
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
    return fenced(step, lines)


def creates_of(program, step):
    parent = program.groups[step.group.parent]
    ranks = [parent.members.index(member) for member in step.group.members]

    def line(what, member, tag, listed_ranks):
        return f"{what} {step.number} {member} {step.group.number} {parent.number} {tag} -1 {listed(listed_ranks)}"

    if not step.end:
        return [line("create", member, step.tag, ranks) for member in step.group.members]
    return [each for rank, member in enumerate(step.group.members)
            for each in create_with_end(step, rank, line("ending", member, creates.FIRST_TAG + step.number, creates.first_list(step, rank, ranks)),
                                        line("create", member, creates.SECOND_TAG + step.number, ranks))]


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
    return fenced(step, lines)


def any_tag(tag):
    return "any" if tag == ANY_TAG else tag


def fenced(step, lines):
    """With barriers around them, if it is such a step; and with its end."""
    if step.end and step.kind != "create":
        lines = with_end(step, lines)
    if not step.fenced:
        return lines

    def barrier(number):
        around = []
        for member in step.group.members:
            around += [f"wait {member}", f"collective {number} {member} {step.group.number} 0 0 0 0 0 0 0 - - - - -", f"wait {member}"]
        return around

    return barrier(MESSAGE_FENCE + 2 * step.number) + lines + barrier(MESSAGE_FENCE + 2 * step.number + 1)


def drawn(seed, kind):
    """(the program with the steps that the simulator can have, lines of each)."""
    program = draw(seed, "leave" if kind == "exception" else kind)
    if kind == "exception":
        program = dataclasses.replace(program, leave=dataclasses.replace(program.leave, how="exception"),
                                      hosts=tuple(range(len(program.hosts))))
    steps = {step.number: suitable(step) for step in program.steps}
    lines = {number: step and items_of(program, step) for number, step in steps.items()}
    return program.without([number for number, found in lines.items() if not found]), lines


def with_loss(program, step, lines):
    """The step's lines, and at their place among them how the rank is lost."""
    loss = program.death or program.leave
    if not loss or loss.step != step.number:
        return lines
    how = {"before": "die", "started": "die", "later": "die_later"}[loss.when] if program.death else loss.how
    group = program.group_left if program.leave else step.group
    line = f"lose {step.number} {loss.rank} {group.number} {how}"
    if not program.death or loss.when != "started":
        return [line, *lines]
    last = max((at for at, each in enumerate(lines) if each.split()[:3] in (["collective", str(step.number), str(loss.rank)],
                                                                           ["send", str(step.number), str(loss.rank)],
                                                                           ["recv", str(step.number), str(loss.rank)],
                                                                           ["create", str(step.number), str(loss.rank)])), default=-1)
    return [*lines[:last + 1], line, *lines[last + 1:]]


def text_of(seed, kind):
    program, items = drawn(seed, kind)
    lines = [f"program {seed} {int(kind != 'plain')}", "places " + " ".join(map(str, program.places)), "processes " + " ".join(map(str, program.hosts))]
    for group in program.groups:
        parent, call = (-1, -1) if group.parent is None else (group.parent, group.call)
        lines.append(f"group {group.number} {group.made} {parent} {call} " + " ".join(map(str, group.members)))
    for step in program.steps:
        lines += with_loss(program, step, items[step.number])
    return "\n".join([*lines, "end", ""])


def judged(kind, text):
    """Words about the ends of calls in the programs of a kind. text: what the simulator wrote."""
    words = []
    for one in text.split("performance ")[1:]:
        seed, *lines = one.splitlines()
        program, outcomes = drawn(int(seed), kind)[0], {}
        for rank in range(len(program.places)):
            if not program.death or program.death.rank != rank:
                outcomes[rank] = []
        for line in lines:
            rank, step, what, name, culprit, began, ended, group, *text = line.split(" ", 8)
            step, fence = (int(step), False) if int(step) < MESSAGE_FENCE else ((int(step) - MESSAGE_FENCE) // 2, True)
            if int(rank) in outcomes:
                outcomes[int(rank)].append(Outcome(step, "fence" if fence else what, name, int(culprit), " ".join(text),
                                                   None if group == "-" else group,
                                                   int(began) / 1e9, int(ended) / 1e9))
        words += [f"seed {seed}, {kind}: {word}" for word in allowed.judge(program, outcomes)]
    return words


def spoiled(text):
    """With one bit of one result turned: the simulator must find it."""
    lines = text.split("\n")
    number = max(number for number, line in enumerate(lines) if line.startswith("collective") and line.split()[-1][0] == "x"
                 and len(line.split()[-1]) > 1)
    lines[number] = lines[number][:-1] + f"{int(lines[number][-1], 16) ^ 1:x}"
    return "\n".join(lines)


def performed(kind, texts, sabotage=False):
    """Whether the simulator did what it must. sabotage: one error is another one, and then whether one of these was not found."""
    with tempfile.TemporaryDirectory(prefix="nexar-simulator.") as folder:
        programs, outcomes = pathlib.Path(folder, "programs"), pathlib.Path(folder, "outcomes")
        programs.write_text("".join(texts))
        names = {"NEXAR_SIM_PROGRAMS": str(programs), "NEXAR_SIM_OUTCOMES": str(outcomes)}
        if subprocess.run([os.environ["NEXAR_TEST_SIM_ENGINE"], "[oracle]"], env={**os.environ, **names}).returncode != 0:
            return False
        ends = outcomes.read_text()
        found = [judged(kind, ends.replace(*each, 1)) for each in SABOTAGE[kind]] if sabotage else [judged(kind, ends)]
        for words in found:
            print(*words, sep="\n", end="\n" if words else "")
        return not all(found)


def main(given=None):
    """0: all is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--sabotage", action="store_true")
    chosen = parser.parse_args(given)
    failed = []
    for kind in chosen.kind or KINDS:
        texts = [text_of(seed, kind) for seed in range(chosen.seed, chosen.seed + chosen.programs)]
        if chosen.sabotage and kind == "plain":
            texts[-1] = spoiled(texts[-1])
        if chosen.show:
            print(*texts)
        if not performed(kind, texts, chosen.sabotage):
            failed.append(kind)
    print(f"programs of seeds {chosen.seed} to {chosen.seed + chosen.programs - 1}: "
          + (f"failed: {failed}; again: tests/oracle/simulator.py --programs 1 --seed THE_SEED --kind KIND" if failed
             else "as they must be"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
