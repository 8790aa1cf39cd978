"""Steps that create a group from a list of ranks: what a rank does in them.

A create runs while its rank goes on, or not; who needs the group waits for it. A group that this rank did not get it does not use.
Which ends are right: creates_allowed.py.
"""
import time

from harness import cabi, nexar

from .early import LATER
from .program import PRIVATE_TAG

FIRST_TAG, SECOND_TAG = 2 * PRIVATE_TAG, 3 * PRIVATE_TAG  # and the step's number, of a create that may end early and of the next


def has(thread, number):
    """Whether this rank has the group, once its create has ended."""
    if number in thread.creating:
        finish(thread, number)
    return number in thread.process.groups


def take(thread, step, rank, local, dies):
    group = step.group
    for number, (other, *_) in list(thread.creating.items()):
        if (other.group.parent, other.tag) == (group.parent, step.tag):
            finish(thread, number)  # a rank has one create of a tag in flight [Y9]
    if step.end:
        return twice(thread, step, rank, local)
    started(thread, step, "create", list_of(thread, step), step.tag)
    if not dies and local.random() < 0.4:
        finish(thread, group.number)


def list_of(thread, step):
    """Of the parent's ranks."""
    parent = thread.program.groups[step.group.parent]
    return [parent.members.index(member) for member in step.group.members]


def started(thread, step, what, ranks, tag, timeout=None):
    """The request; nothing: it was refused."""
    parent, began = thread.process.groups[step.group.parent], time.monotonic()
    given = {} if timeout is None else {"timeout": timeout}
    while True:
        try:
            request = parent.create_start(ranks, tag, **given)
            break
        except nexar.RetryError as full:
            if thread.pending:
                thread.finish_one()
            elif time.monotonic() > began + 60:
                return record(thread, step, what, began, full)
            else:
                cabi.poll(thread.process.session)
                time.sleep(0.001)  # sleep: between two tries
        except nexar.Error as refused:
            return record(thread, step, what, began, refused)
    thread.creating[step.group.number] = step, what, request, began
    return request


def finish(thread, number):
    """Whether this rank got the group."""
    step, what, request, began = thread.creating.pop(number)
    try:
        group = request.wait()
    except nexar.Error as error:
        record(thread, step, what, began, error)
        return False
    record(thread, step, what, began, None, "-".join(map(str, group.info().id)))
    if what == "ending":
        group.free()
        return True
    thread.process.groups[number] = group
    for wrong in wrong_about(group, thread.process.rank, step):
        thread.violation(step, wrong)
    return True


def wrong_about(group, rank, step):
    found = group.rank, group.size
    wanted = step.group.members.index(rank), step.group.size
    return [] if found == wanted else [f"rank and size are {found}, want {wanted}"]


def record(thread, step, what, began, error, group=None):
    """group: the id of the one that the create made."""
    name, culprit, text = ("OK", -1, "") if error is None else (error.name, -1 if error.rank is None else error.rank, error.text)
    thread.outcome(step, what, name, culprit, text, group, began)


def end_of(step, rank):
    """What the rank does that may end the calls early; nothing: its call is an ordinary one."""
    return next((end for end in step.end.all if end.rank == rank), None)


def first_list(step, rank, ranks):
    end = end_of(step, rank)
    return ranks[::-1] if end and end.how == "differs" else ranks


def twice(thread, step, rank, local):
    """A create that may end early, whatever comes of it; and the same with another tag, which all get."""
    ranks, end = list_of(thread, step), end_of(step, rank)
    how = end and end.how
    cancels = how in ("cancel", "again")
    if how == "late":
        time.sleep(step.end.seconds + LATER)  # sleep: to be late is what this rank is here for
    request = started(thread, step, "ending", first_list(step, rank, ranks), FIRST_TAG + step.number, None if cancels else step.end.seconds)
    if request and cancels:
        time.sleep(local.choice((0, 0, 0.0003, 0.002, 0.02)))  # sleep: the seed chooses the moment; right at each
        request.cancel()
    got = request and finish(thread, step.group.number)
    if how == "again" and not got and started(thread, step, "ending", ranks, FIRST_TAG + step.number, step.end.seconds):
        finish(thread, step.group.number)
    started(thread, step, "create", ranks, SECOND_TAG + step.number)
