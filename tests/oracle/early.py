"""Steps that may end early: what a rank does in them. allowed.py says which ends are right."""
import time

from harness import cabi

from .calls import Collective, Post

lib = cabi.lib
OTHER = 1 << 50  # no step's match_id
LATER = 0.3  # how long after a deadline the other side comes


def take(thread, step, rank, local):
    if step.kind != "messages":
        return {"cancel": cancelled, "late": late, "differs": differs}[step.end.how](thread, step, rank, local)
    message, = step.messages
    if rank == message.source:
        return sender(thread, step, local, message)
    if rank == message.to:
        return receiver(thread, step, local, message)
    return None


def cancelled(thread, step, rank, local):
    """All start it; one cancels, at a moment that the seed chooses."""
    thread.post(step, rank, local, blocking=rank != step.end.rank and local.random() < 0.5)
    if rank == step.end.rank:
        cancel(thread, step, local)
    finish(thread)


def cancel(thread, step, local):
    time.sleep(local.choice((0, 0, 0.0003, 0.002)))  # sleep: the seed chooses the moment; right at each
    for requests in thread.pending:
        if requests.step is step:
            for number in requests.numbers:
                if (status := lib.nexar_request_cancel(number)) != 0:
                    thread.violation(step, f"request_cancel: {cabi.name_of(status)}")


def finish(thread):
    while thread.pending:
        thread.finish_one()


def has_deadline(step, rank):
    """All but the late one, or only some of them: the lowest always."""
    others = [other for other in range(step.group.size) if other != step.end.rank]
    return rank == others[0] or (rank in others and (rank + step.number) % 3 > 0)


def late(thread, step, rank, local):
    if rank == step.end.rank:
        time.sleep(step.end.seconds + LATER)  # sleep: to be late is what this rank is here for
    item = Collective(thread.program, step, rank, thread.process.store, local)
    call(thread, step, item, item.options(int(step.end.seconds * 1000) if has_deadline(step, rank) else cabi.DEFAULT), local)


def differs(thread, step, rank, local):
    item = Collective(thread.program, step, rank, thread.process.store, local)
    options = item.options()
    options.match_id += OTHER if rank == step.end.rank else 0
    call(thread, step, item, options, local)


def call(thread, step, item, options, local):
    group = thread.process.groups[step.group.number]
    if local.random() < 0.5:
        began = time.monotonic()
        status = thread.retried(lambda: item.call(group, options))
        thread.ended(step, item, status, began)
        return
    thread.start(step, group, [(item, options)])
    finish(thread)


def one(thread, step, local, timeout_ms, to_cancel=False, **which):
    """A send or a receive, to its end; the name of its status."""
    post = Post(thread.program, step, thread.process.store, local, **which)
    thread.start(step, thread.process.groups[step.group.number], [(post, cabi.op_options(timeout_ms))])
    if to_cancel:
        cancel(thread, step, local)
    finish(thread)
    return [outcome for outcome in thread.report.outcomes if outcome.step == step.number][-1].name


def sender(thread, step, local, message):
    how, timeout = step.end.how, int(step.end.seconds * 1000) or cabi.DEFAULT
    if how == "late_recv":
        time.sleep(step.end.seconds + LATER)  # sleep: the receive's deadline is to pass first
    one(thread, step, local, timeout if how == "late_send" else cabi.DEFAULT, how == "cancel_send", message=message)


def receiver(thread, step, local, message):
    """After a receive that was cancelled, or was too early, another one gets the message."""
    how, wanted = step.end.how, {"receive": step.receives[0], "capacity": message.count}
    if how.endswith("send"):
        if how == "late_send":
            time.sleep(step.end.seconds + LATER)  # sleep: the send's deadline is to pass first
        one(thread, step, local, 500, **wanted)
        return
    timeout = int(step.end.seconds * 1000) or cabi.DEFAULT
    if one(thread, step, local, timeout, how == "cancel_recv", **wanted) in ("CANCELLED", "TIMED_OUT"):
        one(thread, step, local, cabi.DEFAULT, **wanted)

