"""What the judge of creates must not let pass, and what it must: made-up ends of small programs, without daemons."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "integration")]

import harness  # noqa: E402, F401
from oracle import allowed  # noqa: E402
from oracle.program import PRIVATE_TAG, Death, End, Group, Leave, Program, Step  # noqa: E402
from oracle.thread import Outcome  # noqa: E402

ROOT, PAIR, OTHER = Group(0, (0, 1, 2)), Group(1, (0, 1), "create", 0, 1), Group(2, (0, 1), "create", 0, 2)
LISTED = Group(3, (2, 0, 1), "create", 0, 3)  # of all ranks: also of the one that is lost
BARRIER, FIRST, SECOND, THIRD = (Step(0, ROOT, "barrier"), *(
    Step(group.number, group, "create", tag=PRIVATE_TAG + group.number) for group in (PAIR, OTHER, LISTED)))
DEATH, FREE = Death(2, 0, "before", 0.0), Leave(0, 0, "free")
checks = 0


def program(*steps, death=None, leave=None):
    return Program(1, "", (0, 1, 2), (ROOT, PAIR, OTHER, LISTED), steps, death, leave, (0, 1, 2))


def end(step, name="OK", culprit=-1, began=0, ended=1, what="create", of="a"):
    """of: the id of the group that a create made."""
    made = name == "OK" and what in ("create", "ending")
    return Outcome(step.number, what, name, culprit, "", of if made else None, began, ended)


def lost(culprit, name="PEER_LOST"):
    return end(BARRIER, name, culprit, what="collective")


def judged(words, one, outcomes):
    """words: what the judge's words have among them; "": it has none."""
    global checks
    found = allowed.judge(one, outcomes)
    assert bool(found) == bool(words) and words in "\n".join(found), f"want {words!r}, have {found}"
    checks += 1


def all_have(*ends, of=(0, 1)):
    return {rank: list(ends) for rank in of}


# After the parent's failure nothing is created from it, also where the lost rank is not listed.
dead = program(BARRIER, FIRST, SECOND, THIRD, death=DEATH)
judged("", dead, all_have(lost(2), end(FIRST), end(SECOND, "PEER_LOST", 2, 5, 6)))  # `FIRST` began before
judged("begun after the group's failure", dead, all_have(lost(2), end(FIRST, began=5, ended=6)))
judged("begun after the group's failure", dead, all_have(end(FIRST, "PEER_LOST", 2), end(SECOND, began=5, ended=6)))
listed = end(THIRD, "PEER_LOST", 2)  # this alone does not say that the parent has failed
judged("", dead, all_have(listed, end(FIRST, began=5, ended=6)))
again = Step(4, Group(4, (0, 2), "create", 0, 4), "create", tag=7)
twice = Program(1, "", (0, 1, 2), (ROOT, PAIR, OTHER, LISTED, again.group), (THIRD, again), Death(2, 4, "later", 0.0), None, (0, 1, 2))
judged("begun after the group's failure", twice, {0: [listed, end(again, began=5, ended=6)], 1: [listed]})

# All listed ranks have the group, or none.
judged("half a group", dead, {0: [lost(2), end(FIRST, ended=6)], 1: [lost(2), end(FIRST, "PEER_LOST", 2)]})
judged("half a group", dead, {0: [lost(2), end(FIRST, ended=6)], 1: [lost(2)]})
judged("", dead, all_have(lost(2), end(FIRST, "PEER_LOST", 2)))
first_dead = program(THIRD, death=Death(2, 3, "before", 0.0))
judged("never called", first_dead, all_have(end(THIRD)))
judged("", program(THIRD, death=Death(2, 3, "started", 0.0)), all_have(end(THIRD)))
judged("PEER_LOST", program(FIRST), {0: [end(FIRST)], 1: [end(FIRST, "PEER_LOST", 2)]})

# A rank that has left the parent creates nothing from it.
freed = program(BARRIER, FIRST, leave=FREE)
others = {rank: [lost(0), end(FIRST, "ABORTED", 0)] for rank in (1, 2)}
del others[2][1]
judged("", freed, others | {0: [lost(-1, "CLOSED"), end(FIRST, "CLOSED", began=5, ended=6)]})
judged("begun after the group's failure", freed, {0: [lost(-1, "CLOSED"), end(FIRST, began=5, ended=6)], 1: [lost(0), end(FIRST)], 2: [lost(0)]})
left = Outcome(0, "leave", "OK", -1, "", None, 1, 2)
judged("begun after the group's failure", freed, {0: [left, end(FIRST, began=5, ended=6)], 1: [lost(0), end(FIRST)], 2: [lost(0)]})
judged("", freed, {0: [end(FIRST, began=0, ended=6), left], 1: [end(FIRST), lost(0)], 2: [lost(0)]})  # it had called before
aborts = program(BARRIER, FIRST, leave=Leave(2, 0, "free"))
judged("ABORTED", aborts, {0: [lost(2), end(FIRST, "ABORTED", 2)], 1: [lost(2), end(FIRST, "ABORTED", 2)], 2: [left]})  # not listed

# One group: the same id on all ranks, and no other create has it.
judged("", program(FIRST, SECOND), all_have(end(FIRST), end(SECOND, of="b")))
judged("not one group", program(FIRST), {0: [end(FIRST)], 1: [end(FIRST, of="b")]})
judged("not one group", dead, {0: [end(FIRST)], 1: [end(FIRST, of="b")]})
judged("not one group", program(FIRST), all_have(end(FIRST, of=None)))
judged("the same group", program(FIRST, SECOND), all_have(end(FIRST), end(SECOND)))


def early(*ends):
    step = Step(1, PAIR, "create", end=End(*ends[0], *(End(*other) for other in ends[1:])))
    return program(step), step


def ending(step, name="OK", culprit=-1, began=0, ended=0.1, of="x"):
    return end(step, name, culprit, began, ended, "ending", of)


def judged_early(words, ends, of_0, of_1):
    one, step = early(*ends)
    outcomes = {rank: [*(ending(step, *each) for each in found), end(step, began=9, ended=10)] for rank, found in ((0, of_0), (1, of_1))}
    judged(words, one, outcomes)


# A rank that cancels and calls again, with the same list and tag, meets the others, unless they have the group without it [Y12].
AGAIN, OK, CANCELLED = [("again", 0, 1.0)], ("OK",), ("CANCELLED", -1, 0, 0.1)
judged_early("", AGAIN, [OK], [OK])
judged_early("", AGAIN, [CANCELLED, ("OK", -1, 0.1, 0.2)], [OK])
judged_early("", AGAIN, [CANCELLED, ("GROUP_INCOMPLETE", 1, 0.1, 1.1)], [OK])
judged_early("not one group", AGAIN, [CANCELLED, ("OK", -1, 0.1, 0.2, "y")], [OK])
judged_early("ends of", AGAIN, [CANCELLED, ("OK", -1, 0.1, 0.2)], [("GROUP_INCOMPLETE", 0, 0, 1)])
judged_early("ends of", AGAIN, [CANCELLED, ("GROUP_INCOMPLETE", 1, 0.1, 1.1)], [("GROUP_INCOMPLETE", 0, 0, 1)])  # they did not meet
judged_early("", AGAIN, [CANCELLED, ("GROUP_INCOMPLETE", 1, 0.9, 1.9)], [("GROUP_INCOMPLETE", 0, 0, 1)])  # it came late
judged_early("ends of", AGAIN, [OK, ("GROUP_INCOMPLETE", 1, 0.1, 1.1)], [OK])
judged_early("ends of", AGAIN, [CANCELLED, ("BAD_STATE", -1, 0.1, 0.2)], [OK])
judged_early("ends of", AGAIN, [CANCELLED], [OK])  # it did not call again

# Two ends at once.
BOTH, LATE = [("cancel", 0, 0.5), ("cancel", 1, 0.5)], [("cancel", 0, 0.5), ("late", 1, 0.5)]
judged_early("", BOTH, [CANCELLED], [CANCELLED])
judged_early("", BOTH, [CANCELLED], [OK])
judged_early("ends of", BOTH, [("GROUP_INCOMPLETE", 1, 0, 0.5)], [CANCELLED])
judged_early("", LATE, [CANCELLED], [("GROUP_INCOMPLETE", 0, 0.8, 1.3)])
judged_early("ends of", LATE, [CANCELLED], [("CANCELLED", -1, 0.8, 1.3)])
judged_early("ends of", [("cancel", 0, 0.5)], [OK], [("GROUP_INCOMPLETE", 0, 0, 0.5)])
judged_early("ends of", [("late", 0, 0.2)], [("OK", -1, 0.5, 0.6)], [("GROUP_INCOMPLETE", 0, 0, 0.2)])
# Nobody is missing to rank 0's second call: rank 1 has come by then.
CAME = [("late", 1, 1.0), ("again", 0, 1.0)]
judged_early("", CAME, [CANCELLED, ("GROUP_INCOMPLETE", -1, 0.4, 1.4)], [("GROUP_INCOMPLETE", -1, 1.3, 1.35)])
judged_early("ends of", CAME, [CANCELLED, ("GROUP_INCOMPLETE", -1, 0.4, 1.4)], [("GROUP_INCOMPLETE", -1, 1.3, 2.3)])
DIFFERS = [("differs", 0, 2.5), ("cancel", 1, 2.5)]
judged_early("", DIFFERS, [("GROUP_INCOMPLETE", 1, 0, 2.5)], [CANCELLED])
judged_early("", DIFFERS, [("MISMATCH", 1, 0, 1.2)], [("MISMATCH", 0, 0, 1.2)])
judged_early("ends of", DIFFERS, [OK], [OK])
BEFORE = [("differs", 0, 2.5), ("again", 1, 2.5)]  # the MISMATCH comes before the cancel, and the second call finds nobody
judged_early("", BEFORE, [("MISMATCH", 1, 0, 0.1)], [("MISMATCH", 0, 0, 0.1), ("GROUP_INCOMPLETE", 0, 0.1, 2.6)])
judged_early("ends of", BEFORE, [("MISMATCH", 1, 0, 0.1)], [("MISMATCH", 0, 0, 0.1), ("OK", -1, 0.1, 0.2)])
judged_early("ends of", [("differs", 0, 2.5)], [("GROUP_INCOMPLETE", 1, 0, 2.5)], [("GROUP_INCOMPLETE", 0, 0, 2.5)])
print(f"ok      {checks} ends of small programs", flush=True)
