"""Which ends the creates of a program may have (creates.py has what ranks do in them).

All creates succeed, with one group on all listed ranks, which no other create has made; but, for calls that may end early,

  cancel       CANCELLED for the canceller, and GROUP_INCOMPLETE naming it for the others; or the group had been decided: the others
               have it then, and the canceller too, or not [Y12]
  again        the same, and the canceller calls again, with the same list and tag: it meets the others' first calls, or, where they have
               the group without it, nobody
  late         all have the group, or none: GROUP_INCOMPLETE naming a rank that was late
  differs      none has the group. Who gave the other list, and one or more of the others, have MISMATCH, if they waited for long enough at
               the same time; the rest waits until its deadline
  two at once  what either of them allows
  the parent loses a rank   all listed ranks have the group, or none has it: PEER_LOST naming the lost rank; ABORTED for those that list
               it where it freed the parent. The rank itself: CLOSED (or NOT_FOUND), or the same as all others. What begins when the parent has failed, or
               the rank has left it, does not succeed: allowed.after_loss
"""
import collections


def judged(program, step, of_step):
    """Words about the ends that are wrong. of_step: {rank in the group: Outcomes}"""
    parent = program.groups[step.group.parent]
    of_parent = {parent.members.index(step.group.members[rank]): found for rank, found in of_step.items()}
    words = several_groups(of_parent)
    if program.lost(parent) is not None:
        return words + with_loss(program, step, parent.members.index(program.lost(parent)), of_parent)
    words += [f"rank {rank} of the parent: {[shown(each) for each in found]}" for rank, found in of_parent.items()
              if [each.name for each in found if each.what == "create"] != ["OK"]]
    if step.end:
        ends = {parent.members.index(step.group.members[end.rank]): end for end in step.end.all}
        found = {rank: [each for each in some if each.what == "ending"] for rank, some in of_parent.items()}
        if not (one_each(ends, found) and fits(ends, found)):
            words.append(f"ends of {ends} at ranks of the parent: { {rank: [*map(shown, some)] for rank, some in found.items()} }")
    return words


def shown(each):
    return each.what, each.name, each.culprit, each.text, each.began, each.ended


def succeeded(outcomes, what="create"):
    return [each for each in outcomes if (each.what, each.name) == (what, "OK")]


def several_groups(of_parent):
    words = []
    for what in ("create", "ending"):
        groups = {rank: each.digest for rank, found in of_parent.items() for each in succeeded(found, what)}
        if len(set(groups.values())) > 1 or None in groups.values():
            words.append(f"{what}: not one group, but by rank of the parent {groups}")
    return words


def shared(outcomes):
    """Words about groups that two creates have made. outcomes: of the whole program, by rank"""
    makers = collections.defaultdict(set)
    for found in outcomes.values():
        for what in ("create", "ending"):
            for each in succeeded(found, what):
                makers[each.digest].add((each.step, what))
    return [f"creates (by step) made the same group {group}: {sorted(made)}" for group, made in makers.items() if group and len(made) > 1]


# ---- The parent loses a rank ----

def with_loss(program, step, lost, of_parent):
    """Ranks are the parent's."""
    words = [f"rank {rank} of the parent: {shown(each)}" for rank, found in of_parent.items() for each in found
             if not fits_loss(program, lost, is_listed(program, step, lost), rank, each)]
    have = {rank for rank, found in of_parent.items() if succeeded(found)}
    ends = program.death or program.leave.how == "exception"  # a process that ends withdraws its call [R12]
    lacking = set(of_parent) - have - ({lost} if ends else set())
    if have and lacking:
        words.append(f"half a group: ranks {have} of the parent have it, {lacking} do not")
    if have and is_listed(program, step, lost) and never_called(program, step):
        words.append(f"ranks {have} of the parent have a group with rank {lost}, which never called")
    return words


def is_listed(program, step, rank):
    return program.groups[step.group.parent].members[rank] in step.group.members


def fits_loss(program, lost, listed, rank, each):
    if each.name == "OK":
        return True
    if rank == lost and program.leave and each.name in ("CLOSED", "NOT_FOUND"):  # NOT_FOUND: the last one of its node has left
        return True
    frees = program.leave and program.leave.how == "free"
    return each.culprit == lost and (each.name == "PEER_LOST" or (each.name == "ABORTED" and bool(frees) and listed))


def never_called(program, step):
    """Whether the lost rank certainly did not: one thread has all creates of a rank, and another one maybe the rest."""
    last = program.step((program.leave or program.death).step)
    if program.death and program.death.when == "later":
        return False
    if step.number == last.number:
        return program.leave is not None or program.death.when == "before"
    return step.number > last.number and last.kind == "create"


# ---- Calls that may end early ----

def one_each(ends, found):
    """Whether each rank called once, or twice where it calls again and had not got the group."""
    for rank, some in found.items():
        again = rank in ends and ends[rank].how == "again" and bool(some) and some[0].name != "OK"
        if len(some) != 1 + again:
            return False
    return True


def fits(ends, found):
    cancellers = {rank for rank, end in ends.items() if end.how in ("cancel", "again")}
    differing = {rank for rank, end in ends.items() if end.how == "differs"}
    have = {rank for rank, some in found.items() if succeeded(some, "ending")}
    lack = found.keys() - have
    late = late_ranks(ends, found)
    if any((some[0].name == "CANCELLED" and rank not in cancellers) or any(each.name == "CANCELLED" for each in some[1:])
           for rank, some in found.items()):
        return False
    if have:
        return not differing and all(found[rank][0].name == "CANCELLED" for rank in lack) and all(
            each.name == "GROUP_INCOMPLETE" for rank in lack for each in found[rank][1:])
    if differing:
        return all(each.name in ("CANCELLED", "MISMATCH", "GROUP_INCOMPLETE") for some in found.values() for each in some) and (
            fits_difference(*differing, found))
    return all(is_missing(rank, each, late, found) or (each.name == "CANCELLED" and each is some[0] and rank in cancellers)
               for rank, some in found.items() for each in some) and all(found[rank][0].name == "CANCELLED" for rank in cancellers)


def is_missing(rank, each, late, found):
    """To a rank that is late itself nobody may be missing, nor to one that another one's deadline came before: a deadline that has
    just passed counts as a call [R11]."""
    passed = any(other.name == "GROUP_INCOMPLETE" and other.ended < each.ended for who, some in found.items() if who != rank for other in some)
    return each.name == "GROUP_INCOMPLETE" and (rank in late or each.culprit in late or (each.culprit == -1 and bool(late) and passed))


def late_ranks(ends, found):
    """Who may be named: who cancels or is late, and whom a slow machine made late as well."""
    first = min(some[0].began for some in found.values())
    seconds = min(end.seconds for end in ends.values())
    return {rank for rank, some in found.items() if some[-1].began > first + seconds / 2
            or (rank in ends and ends[rank].how in ("cancel", "late"))}


def fits_difference(who, found):
    """Each asks when it has waited for a second: half a second for the answer, and half for a slow machine. A call that its own
    cancel ends while it is answered for ends the other one all the same [Y18]."""
    together = [min(each.ended, own.ended) - max(each.began, own.began) for rank, some in found.items() if rank != who
                for each in some for own in found[who]]
    mismatched = {rank for rank, some in found.items() if any(each.name == "MISMATCH" for each in some)}
    if not mismatched:
        return max(together) < 2
    cancelled = {rank for rank, some in found.items() if some[0].name == "CANCELLED"}
    return who in mismatched | cancelled and len(mismatched | cancelled | {who}) > 1
