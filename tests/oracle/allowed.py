"""Which ends the operations of a program may have, over all its ranks.

Success always means the right data, which each rank has compared itself, and the same bits everywhere. Without an `End` or a
`Death` everything succeeds. Otherwise include/nexar.h says what else there may be:

  cancel       the canceller has CANCELLED or was too late; then nobody has an error. The others: success, or ABORTED naming it
  late         those with a deadline: TIMED_OUT, or ABORTED when another one's passed first; the others ABORTED. All name the
               late rank, unless the machine made another one late as well: then one of the late ones, the same for all
  differs      MISMATCH, on all where all need one another's data; elsewhere some may have ended well before. Every error names
               the one that differs
  cancel_...   a send or receive: CANCELLED, TIMED_OUT or success; the other side is not disturbed. What one receive left,
               the next one has
  free         in that group: CLOSED for what the rank had pending. The others: ABORTED naming it for the collectives that it
               had started, and messages with it; PEER_LOST for what needs it, and then for everything, as below
  abort        in that group: as death, and every error has the reason; CLOSED for what the rank itself had pending
  exception    abort, in all groups of the rank
  death        PEER_LOST naming the victim, in its groups only, and for every operation that begins after the first such error.
               No barrier succeeds that the victim had not begun

creates_allowed.py has what creates may end with. Where the parent loses a rank nobody may get the group: then nothing is called there.
"""
import collections

from . import creates_allowed
from .early import has_deadline
from .thread import REASON

SAME_EVERYWHERE = ("all_reduce", "broadcast", "all_gather", "all_gatherv")
NEED_ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # with elements; and a barrier
# Of the only message of a step: the ends of (send, receives) that may be.
MESSAGE_ENDS = {
    "cancel_recv": {("OK", "OK"), ("OK", "CANCELLED", "OK")},
    "late_recv": {("OK", "OK"), ("OK", "TIMED_OUT", "OK")},
    "cancel_send": {("OK", "OK"), ("CANCELLED", "OK"), ("CANCELLED", "TIMED_OUT")},
    "late_send": {("OK", "OK"), ("TIMED_OUT", "OK"), ("TIMED_OUT", "TIMED_OUT")},
}


def judge(program, outcomes):
    """Words about what is not allowed. outcomes: {rank of the program: its Outcomes}, without a victim's."""
    words = creates_allowed.shared(outcomes)
    for step in program.steps:
        of_step = {step.group.members.index(rank): [each for each in found if each.step == step.number and each.what != "leave"]
                   for rank, found in outcomes.items() if rank in step.group.members}
        words += [f"{step}: {word}" for word in judged(program, step, of_step, outcomes)]
    if program.death or program.leave:
        words += after_loss(program, outcomes)
    return words


def is_there(program, group, outcomes):
    """Whether anybody has got the group, if it is one that a step creates. A victim may have it alone, and then uses it alone."""
    return any(has_got(group, found) for found in outcomes.values())


def has_got(group, found):
    """found: the outcomes of one rank."""
    return group.made != "create" or any((each.step, each.what, each.name) == (group.call, "create", "OK") for each in found)


def judged(program, step, of_step, outcomes):
    """of_step: {rank in the group: Outcomes}, those of the step."""
    needed = program.groups[step.group.parent] if step.kind == "create" else step.group
    if not is_there(program, needed, outcomes):
        return [f"rank {rank}: called without the group: {found}" for rank, found in of_step.items() if found]
    if step.kind == "create":
        return creates_allowed.judged(program, step, of_step)
    fences = {rank: [each for each in found if each.what == "fence"] for rank, found in of_step.items()}
    steps = {rank: [each for each in found if each.what != "fence"] for rank, found in of_step.items()}
    lost = program.lost(step.group)
    if lost is not None:
        reason = REASON if program.leave and program.leave.how != "free" and has_got(step.group, outcomes[lost]) else ""
        return with_loss(program, step, step.group.members.index(lost), reason, fences, steps)
    words = [word for found in (fences if step.end else of_step).values() for each in found for word in failed(each)]
    if step.kind in SAME_EVERYWHERE:
        words += differ(steps)
    if step.kind != "messages" and any(len(found) != 1 for found in steps.values()):
        words.append(f"not one end on each rank: { {rank: len(found) for rank, found in steps.items()} }")
    if step.end:
        how = {"cancel": after_cancel, "late": after_deadline, "differs": after_difference}.get(step.end.how, after_message)
        words += how(step, steps)
    return words


def failed(outcome):
    return [f"{outcome.what}: {outcome.name} naming {outcome.culprit}: {outcome.text}"] if outcome.name != "OK" else []


def differ(steps):
    digests = collections.defaultdict(list)
    for rank, found in steps.items():
        for each in found:
            if each.digest:
                digests[each.digest].append(rank)
    return [f"ranks have different results: {dict(digests)}"] if len(digests) > 1 else []


def shown(steps):
    return {rank: [(each.name, each.culprit, each.text) for each in found] for rank, found in steps.items()}


def after_cancel(step, steps):
    who, ends = step.end.rank, {rank: found[0] for rank, found in steps.items()}
    others = [each for rank, each in ends.items() if rank != who]
    fine = (ends[who].name in ("OK", "CANCELLED")
            and all(each.name == "OK" or (each.name, each.culprit) == ("ABORTED", who) for each in others)
            and (ends[who].name == "CANCELLED" or all(each.name == "OK" for each in others)))
    return [] if fine else [f"after a cancel of rank {who}: {shown(steps)}"]


def after_deadline(step, steps):
    ends = {rank: found[0] for rank, found in steps.items()}
    deadline = min(each.began for rank, each in ends.items() if rank != step.end.rank) + step.end.seconds
    lateness = {rank for rank, each in ends.items() if each.began > deadline - step.end.seconds / 2} | {step.end.rank}
    errors = {each.culprit for each in ends.values() if each.name != "OK"}
    fine = all(each.name in ("OK", "ABORTED") or (each.name == "TIMED_OUT" and has_deadline(step, rank))
               for rank, each in ends.items())
    if not fine or len(errors) > 1 or not errors <= lateness:
        return [f"rank {step.end.rank} was late (late enough: {lateness}): {shown(steps)}"]
    return []


def after_difference(step, steps):
    ends = [found[0] for found in steps.values()]
    errors = [each for each in ends if each.name != "OK"]
    everybody = step.kind == "barrier" or (step.kind in NEED_ALL and step.count > 0)
    somebody = step.count > 0 and not step.counts and not step.blocks
    fine = (all(each.name == "MISMATCH" and f"rank {step.end.rank} (" in each.text for each in errors)
            and len(errors) >= (len(ends) if everybody else 1 if somebody else 0))
    return [] if fine else [f"rank {step.end.rank} had another match_id: {shown(steps)}"]


def after_message(step, steps):
    message, = step.messages
    sends = [each.name for each in steps[message.source] if each.what == "send"]
    receives = [each.name for each in steps[message.to] if each.what == "recv"]
    if (*sends, *receives) in MESSAGE_ENDS[step.end.how]:
        return []
    return [f"send ended with {sends}, receives with {receives}: {shown(steps)}"]


def with_loss(program, step, lost, reason, fences, steps):
    """lost: the rank that the group loses; reason: what it gives. Who ends while a group is created gives none."""
    words = [f"rank {rank}: {word}" for found in (fences, steps) for rank, some in found.items() for each in some
             if not fits_loss(program, step, lost, reason, rank, each) for word in failed(each)]
    if step.kind in SAME_EVERYWHERE:
        words += differ(steps)
    if never_begun(program, step):
        words += [f"a barrier succeeded on rank {rank} that rank {lost}, which was lost, never began"
                  for found in (fences, steps if step.kind == "barrier" else {}) for rank, some in found.items()
                  for each in some if each.name == "OK"]
    return words


def fits_loss(program, step, lost, reason, rank, each):
    leave = program.leave
    if each.name == "OK":
        return True
    if leave and rank == lost:
        return each.name == "CLOSED" or (leave.how == "free" and each.what == "send")  # what was sent is delivered, or not
    if (each.name, each.culprit) == ("PEER_LOST", lost):
        return reason in each.text
    if not leave or leave.how != "free" or (each.name, each.culprit) != ("ABORTED", lost):
        return False
    if step.kind != "messages":
        return step.number < leave.step or program.step(leave.step).kind == "create"  # whose thread may be another one
    return any(lost in (message.source, message.to) for message in step.messages)


def never_begun(program, step):
    """Whether the lost rank certainly did not: its steps of other groups may be those of another thread."""
    last = program.step((program.leave or program.death).step)
    if last.group != step.group or (program.death and program.death.when == "later"):
        return False
    return step.number > last.number or (step == last and (program.leave is not None or program.death.when == "before"))


def is_of_group(program, step, lost):
    """Whether PEER_LOST there says that the group has failed: a message with a rank that has freed it ends so alone [F18]."""
    freed = lost is not None and program.leave and program.leave.how == "free"
    lost = step.group.members.index(lost) if freed else None
    return not freed or step.kind != "messages" or all(lost not in (message.source, message.to) for message in step.messages)


def after_loss(program, outcomes):
    """Nothing succeeds on a group, or is created from it, that began after an error of that group on the same rank, or when the rank
    had left it. Nor is a group created with a rank that has left the parent, as an error states."""
    words, steps = [], {step.number: step for step in program.steps}
    for rank, found in outcomes.items():
        first = {}
        for each in sorted(found, key=lambda each: each.ended):
            for what in failed_by(program, steps[each.step], rank, each):
                first.setdefault(what, each)
        for each in found:
            errors = [first[what] for what in needed_by(program, steps[each.step]) if what in first and each.began > first[what].ended]
            if each.name == "OK" and each.what != "leave" and errors:
                words.append(f"rank {rank}: {steps[each.step]}: success, begun after the group's failure: {errors}")
    return words


def failed_by(program, step, rank, each):
    """What has failed when a rank has this outcome: a group, by its number; or a group's rank alone, as (number, rank in the group)."""
    if each.what == "leave":
        return [group.number for group in program.groups
                if group == program.group_left or (program.leave.how == "exception" and rank in group.members)]
    if step.kind == "create":
        if each.name not in ("PEER_LOST", "ABORTED"):
            return []
        return [(step.group.parent, each.culprit) if creates_allowed.is_listed(program, step, each.culprit) else step.group.parent]
    group_failed = each.name == "PEER_LOST" and is_of_group(program, step, program.lost(step.group))
    return [step.group.number] if group_failed or each.name == "CLOSED" else []


def needed_by(program, step):
    if step.kind != "create":
        return [step.group.number]
    parent = program.groups[step.group.parent]
    return [parent.number, *((parent.number, parent.members.index(member)) for member in step.group.members)]
