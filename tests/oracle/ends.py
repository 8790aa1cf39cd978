"""Steps that may end early, as text for the simulator: what early.py does on real daemons."""
from . import creates
from .early import LATER, OTHER, has_deadline

MATCH_ID = 9  # the word of a collective's line
SECOND_WAIT_MS = 500  # of a receive whose message may not come


def with_end(step, lines):
    """The step's lines, with what each rank does before and after its own."""
    return [each for line in lines for each in around(step, line)]


def around(step, line):
    what, number, member, *rest = line.split(" ")
    rank, end = step.group.members.index(int(member)), step.end
    seconds_ms = int(end.seconds * 1000)
    cancel, late = f"cancel {number} {member}", f"pause {number} {member} {int((end.seconds + LATER) * 1e6)}"

    def deadline(milliseconds):
        return f"deadline {number} {member} {milliseconds}"

    if what == "collective":
        own = rank == end.rank
        if end.how == "cancel":
            return [line, cancel] if own else [line]
        if end.how == "late":
            return [late, line] if own else [deadline(seconds_ms), line] if has_deadline(step, rank) else [line]
        return [differing(line)] if own else [line]
    if what == "send":
        return {"late_recv": [late, line], "cancel_send": [line, cancel], "late_send": [deadline(seconds_ms), line]}.get(end.how, [line])
    again = [f"wait {member}", " ".join(("recv_again", number, member, *rest))]
    return {"cancel_recv": [line, cancel, *again], "late_recv": [deadline(seconds_ms), line, *again],
            "cancel_send": [deadline(SECOND_WAIT_MS), line], "late_send": [late, deadline(SECOND_WAIT_MS), line]}[end.how]


def create_with_end(step, rank, ending, create):
    """The lines of one rank: what creates.twice does."""
    number, member, seconds, end = step.number, step.group.members[rank], step.end.seconds, creates.end_of(step, rank)
    how, timed = end and end.how, ending.replace(" -1 ", f" {int(seconds * 1000)} ")
    first = [timed]
    if how in ("cancel", "again"):
        first = [ending, f"cancel {number} {member}"]
    if how == "again":
        first += [f"wait {member}", timed.replace("ending", "ending_again")]
    if how == "late":
        first = [f"pause {number} {member} {int((seconds + LATER) * 1e6)}", timed]
    return [*first, f"wait {member}", create]


def differing(line):
    words = line.split(" ")
    words[MATCH_ID] = str(int(words[MATCH_ID]) + OTHER)
    return " ".join(words)
