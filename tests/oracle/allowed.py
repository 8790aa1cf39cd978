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

creates.py has what creates may end with. Where the parent loses a rank, or some rank lacks the parent, not all ranks may get the group: then
what is called there ends as where those that lack it have died, or have left it.
"""
import collections

from . import creates
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
    words = []
    lacking = {group.number: lacking_ranks(group, outcomes) for group in program.groups if group.made == "create"}
    for step in program.steps:
        of_step = {step.group.members.index(rank): [each for each in found if each.step == step.number]
                   for rank, found in outcomes.items() if rank in step.group.members}
        words += [f"{step}: {word}" for word in judged(program, step, of_step, lacking)]
    if program.death or program.leave:
        words += after_loss(program, outcomes)
    return words


def lacking_ranks(group, outcomes):
    """The program's ranks that are in a created group, and did not get it. A victim may have."""
    got = {rank for rank, found in outcomes.items() for each in found if (each.step, each.what, each.name) == (group.call, "create", "OK")}
    return {rank for rank in group.members if rank in outcomes} - got


def judged(program, step, of_step, lacking):
    """of_step: {rank in the group: Outcomes}. lacking: {number of a created group: the program's ranks that lack it}"""
    if step.kind == "create":
        return creates.judged(program, step, of_step, lacking)
    fences = {rank: [each for each in found if each.what == "fence"] for rank, found in of_step.items()}
    steps = {rank: [each for each in found if each.what != "fence"] for rank, found in of_step.items()}
    lost, absent = program.lost(step.group), {step.group.members.index(rank) for rank in lacking.get(step.group.number, ())}
    if lost is not None or absent:
        return with_loss(program, step, None if lost is None else step.group.members.index(lost), absent, fences, steps)
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


def with_loss(program, step, lost, absent, fences, steps):
    """lost: the rank that the group loses; absent: those that never got it."""
    words = [f"rank {rank}: {word}" for found in (fences, steps) for rank, some in found.items() for each in some
             if not (each.culprit in absent and each.name in ("PEER_LOST", "ABORTED")) and not fits_loss(program, step, lost, rank, each)
             for word in failed(each)]
    if step.kind in SAME_EVERYWHERE:
        words += differ(steps)
    if lost is not None and never_begun(program, step):
        words += [f"a barrier succeeded on rank {rank} that rank {lost}, which was lost, never began"
                  for found in (fences, steps if step.kind == "barrier" else {}) for rank, some in found.items()
                  for each in some if each.name == "OK"]
    return words


def fits_loss(program, step, lost, rank, each):
    leave = program.leave
    if each.name == "OK":
        return True
    if lost is None:
        return False
    if leave and rank == lost:
        return each.name == "CLOSED" or (leave.how == "free" and each.what == "send")  # what was sent is delivered, or not
    if (each.name, each.culprit) == ("PEER_LOST", lost):
        return not leave or leave.how == "free" or REASON in each.text
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
    """Nothing succeeds on a group that began after an error of that group on the same rank."""
    words = []
    groups = {step.number: step for step in program.steps}
    for rank, found in outcomes.items():
        first = {}
        for each in sorted(found, key=lambda each: each.ended):
            group = groups[each.step].group.number
            step = groups[each.step]
            if each.name == "PEER_LOST" and is_of_group(program, step, program.lost(step.group)):
                first.setdefault(group, each)
        for each in found:
            error = first.get(groups[each.step].group.number)
            if error and each.name == "OK" and each.began > error.ended:
                words.append(f"rank {rank}: {groups[each.step]}: success, begun after the group's failure: {error}")
    return words
