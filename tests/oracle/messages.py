"""Which message each receive of a step must have got."""
from . import data
from .calls import content
from .program import ANY_SOURCE, ANY_TAG, matches


def fits(receive, message):
    return message.to == receive.to and receive.source in (message.source, ANY_SOURCE) and receive.tag in (message.tag, ANY_TAG)


def room(step, receive):
    """Elements that any of the messages for it has at most."""
    return max((message.count for message in step.messages if fits(receive, message)), default=0)


def wrong(program, step, rank, received):
    """Words about the receives of a rank that succeeded: [(receive, completion, bytes)] in the order in which they were posted.

    Receives that name their source get what `matches` says. Those from any source may get them in any order of sources, but of
    each source the oldest first. Where some have failed, each of the others has some message for it, whole."""
    sent = [message for message in step.messages if message.to == rank]
    receives = [receive for receive, _, _ in received]
    if len(receives) < len(sent):
        return [bad for each in received if (bad := none_of(program, step, *each, sent))]
    fixed = None if ANY_SOURCE in [receive.source for receive in receives] else matches(receives, sent)
    words = []
    for number, (receive, completion, stands) in enumerate(received):
        message = fixed[number] if fixed else next(
            (m for m in sent if m.source == completion.source and fits(receive, m)), None)
        if message and not fixed:
            sent.remove(message)
        if bad := mistaken(program, step, message, completion, stands):
            words.append(f"{receive}: {bad}")
    return words


def none_of(program, step, receive, completion, stands, sent):
    fitting = [message for message in sent if fits(receive, message)]
    mistakes = [mistaken(program, step, message, completion, stands) for message in fitting or [None]]
    return None if None in mistakes else f"{receive}: {mistakes}"


def mistaken(program, step, message, completion, stands):
    """What is wrong with a receive that succeeded; None: nothing."""
    if message is None:
        return f"a message from rank {completion.source} with tag {completion.tag} that nobody sent"
    size = data.STORAGE[step.dtype].itemsize
    have, want = (completion.source, completion.tag, completion.bytes), (message.source, message.tag, message.count * size)
    if have != want:
        return f"source, tag and bytes are {have}, want {want}"
    if stands[:completion.bytes] != content(program.seed, step, message).tobytes():
        return f"not the data of {message}"
    return None
