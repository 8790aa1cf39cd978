"""Steps that create a group from a list of ranks: what a rank does in them, and which ends are right.

A create runs while its rank goes on, or not; who needs the group waits for it. A group that this rank did not get it does not use.
All creates succeed, but

  cancel       the canceller has CANCELLED, the others GROUP_INCOMPLETE naming it; or the group had been decided: the others have it
               then, and the canceller too, or not
  late         all have the group, or none: GROUP_INCOMPLETE naming a rank that was late
  differs      none has the group. Who gave the other list, and one or more of the others, have MISMATCH, if they waited for long enough at
               the same time; the rest waits until its deadline
  the parent loses a rank   PEER_LOST naming that rank; ABORTED where it freed the parent; or the group. The rank itself: CLOSED.
               The same for ranks that lack the parent
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
    """The group; nothing: this rank did not get it."""
    step, what, request, began = thread.creating.pop(number)
    try:
        group = request.wait()
    except nexar.Error as error:
        return record(thread, step, what, began, error)
    record(thread, step, what, began, None)
    if what == "ending":
        group.free()
        return None
    thread.process.groups[number] = group
    for wrong in wrong_about(group, thread.process.rank, step):
        thread.violation(step, wrong)
    return group


def wrong_about(group, rank, step):
    found = group.rank, group.size
    wanted = step.group.members.index(rank), step.group.size
    return [] if found == wanted else [f"rank and size are {found}, want {wanted}"]


def record(thread, step, what, began, error):
    name, culprit, text = ("OK", -1, "") if error is None else (error.name, -1 if error.rank is None else error.rank, error.text)
    thread.outcome(step, what, name, culprit, text, None, began)


def first_list(step, rank, ranks):
    return ranks[::-1] if step.end.how == "differs" and rank == step.end.rank else ranks


def twice(thread, step, rank, local):
    """A create that may end early, whatever comes of it; and the same with another tag, which all get."""
    end, ranks, own = step.end, list_of(thread, step), rank == step.end.rank
    if own and end.how == "late":
        time.sleep(end.seconds + LATER)  # sleep: to be late is what this rank is here for
    request = started(thread, step, "ending", first_list(step, rank, ranks), FIRST_TAG + step.number,
                      None if own and end.how == "cancel" else end.seconds)
    if request and own and end.how == "cancel":
        time.sleep(local.choice((0, 0, 0.0003, 0.002, 0.02)))  # sleep: the seed chooses the moment; right at each
        request.cancel()
    if request:
        finish(thread, step.group.number)
    started(thread, step, "create", ranks, SECOND_TAG + step.number)


def judged(program, step, of_step, lacking):
    """Words about the ends that are wrong. of_step: {rank in the group: Outcomes}"""
    parent = program.groups[step.group.parent]
    lost, absent = program.lost(parent), {parent.members.index(rank) for rank in lacking.get(parent.number, ())}
    of_parent = {parent.members.index(step.group.members[rank]): found for rank, found in of_step.items()}
    if lost is not None or absent:
        lost = None if lost is None else parent.members.index(lost)
        return [f"rank {rank} of the parent: {shown(each)}" for rank, found in of_parent.items() for each in found
                if not fits_loss(program, lost, absent, rank, each)]
    words = [f"rank {rank} of the parent: {[shown(each) for each in found]}" for rank, found in of_parent.items()
             if [each.name for each in found if each.what == "create"] != ["OK"]]
    if step.end:
        who = parent.members.index(step.group.members[step.end.rank])
        ends = {rank: each for rank, found in of_parent.items() for each in found if each.what == "ending"}
        if not {"cancel": after_cancel, "late": after_deadline, "differs": after_difference}[step.end.how](step.end, who, ends):
            words.append(f"{step.end.how} of rank {who} of the parent: { {rank: shown(each) for rank, each in ends.items()} }")
    return words


def shown(each):
    return each.what, each.name, each.culprit, each.text, each.began, each.ended


def fits_loss(program, lost, absent, rank, each):
    if each.name == "OK":
        return True
    if rank == lost and program.leave:
        return each.name == "CLOSED"
    if each.culprit in absent and each.name in ("PEER_LOST", "ABORTED"):
        return True
    frees = program.leave and program.leave.how == "free"
    return each.culprit == lost and (each.name == "PEER_LOST" or (each.name == "ABORTED" and bool(frees)))


def late_ranks(end, who, ends):
    """Who may be named: who is late, and whom a slow machine made late as well."""
    first = min(each.began for rank, each in ends.items() if rank != who)
    return {rank for rank, each in ends.items() if each.began > first + end.seconds / 2} | {who}


def after_cancel(end, who, ends):
    others = [each for rank, each in ends.items() if rank != who]
    if all(each.name == "OK" for each in others):
        return ends[who].name in ("OK", "CANCELLED")
    return ends[who].name == "CANCELLED" and all(
        each.name == "GROUP_INCOMPLETE" and each.culprit in late_ranks(end, who, ends) for each in others)


def after_deadline(end, who, ends):
    """To a rank that is late itself nobody may be missing: a deadline that has just passed counts as a call."""
    late = late_ranks(end, who, ends)
    if all(each.name == "OK" for each in ends.values()):
        return True
    return all(each.name == "GROUP_INCOMPLETE" and (rank in late or each.culprit in late) for rank, each in ends.items())


def after_difference(end, who, ends):
    """Each asks when it has waited for a second: half a second for the answer, and half for a slow machine."""
    own = ends[who]
    together = [min(each.ended, own.ended) - max(each.began, own.began) for rank, each in ends.items() if rank != who]
    differing = [rank for rank, each in ends.items() if each.name == "MISMATCH"]
    fine = all(each.name in ("MISMATCH", "GROUP_INCOMPLETE") for each in ends.values())
    if not differing:
        return fine and max(together) < 2
    return fine and len(differing) > 1 and who in differing
