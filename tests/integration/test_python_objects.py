"""Messages of pickled objects: what is none is never taken for one, and one is received whole or not at all.

    node 1 ──┐
    node 2 ──┴── switch
"""
import signal

from harness import *
from harness.states import asleep

LARGE = list(range(5000))  # its pickle is longer than what one receive of unknown length has room for


def strays():
    """What a program sends with send, where recv_object is the receive."""
    return {"empty": np.empty(0, np.uint8), "empty bytes": b"", "short": np.arange(3, dtype=np.uint8),
            "as long as a head": np.zeros(16, np.uint8), "a pickle": b"\x80\x05K\x07.", "longer than any head": np.zeros(9000, np.uint8),
            "of another dtype": np.arange(3.0)}


def receives_strays(me):
    group = me.group()
    if me.rank == 1:
        for stray in strays().values():
            group.send_object({"salary": 100}, 0, 7)
            try:
                group.send(stray, 0, 7)
            except nexar.OperationError as error:  # the receive has found out
                equal(error.name, "MISMATCH", "the sender's")
        group.send_object("the end", 0, 7)
        return None
    found = []
    for _ in strays():
        equal(group.recv_object(1, 7), ({"salary": 100}, 1, 7), "the object before")
        error = me.fails(group.recv_object, 1, 7)
        found.append((error.name, type(error.error).__name__, error.rank, error.op))
        contains(str(error.error), "use recv")
    equal(group.recv_object(), ("the end", 1, 7), "the object after")
    return found


def test_a_message_that_is_no_object_is_an_error_that_names_its_sender(cluster):
    found = run([cluster[1], cluster[1]], receives_strays)[0]
    equal(found, [("MISMATCH", "OperationError", 1, "recv_object")] * len(strays()), "errors")


def sends_slowly(me, timeout):
    """Between the two messages of a large object the receive ends: by its time-out, or by Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    group = me.group()
    if me.rank == 1:
        send = group.send

        def held_up(*given, **by_name):
            group.send = send  # the second is not held up
            send(*given, **by_name)
            me.mark()
            me.wait_for_go()

        group.send = held_up
        group.send_object(LARGE, 0, 3)
        return group.send_object("next", 0, 3)
    try:
        group.recv_object(1, 3, timeout=timeout)
        ended = "received"
    except (nexar.TimedOut, KeyboardInterrupt) as error:
        ended = type(error).__name__
    me.mark()
    return ended, group.recv_object(), group.recv_object(1)


def test_a_large_object_is_whole_for_the_receive_after_one_that_ended_early(cluster):
    for timeout, wanted in ((5, "TimedOut"), (None, "KeyboardInterrupt")):
        job = Job([cluster[1], cluster[1]], sends_slowly, timeout)
        job[1].await_mark()  # the first of the two was received
        if timeout is None:
            eventually(lambda job=job: asleep(job[0].pid), "the receiver to wait for the second")
            job[0].kill(signal.SIGINT)
        job[0].await_mark()
        job.go(1)
        ended, first, second = job.outcomes(0)[0]
        equal(ended, wanted, "the first receive")
        assert first == (LARGE, 1, 3), str(first)[:100]
        equal(second, ("next", 1, 3), "what follows")


def gives_up_sending(me):
    """The sender ends between the two."""
    group = me.group()
    if me.rank == 0:
        return group.recv_object(1), group.recv_object(1)
    send = group.send

    def interrupted(*given, **by_name):
        send(*given, **by_name)
        raise KeyboardInterrupt

    group.send = interrupted
    try:
        group.send_object(LARGE, 0, 3)
    except KeyboardInterrupt:
        group.send = send
    group.send_object("next", 0, 3)
    return group.send_object(LARGE, 0, 3)


def test_a_large_object_whose_sender_gave_up_is_passed_over(cluster):
    first, second = run([cluster[1], cluster[1]], gives_up_sending)[0]
    equal(first, ("next", 1, 3), "the first object")
    assert second == (LARGE, 1, 3), str(second)[:100]


def steps_apart(me):
    """One rank is elsewhere in its program: its plain collectives look like what the objects travel in."""
    group = me.group()
    if me.rank == 1:
        return me.fails(group.broadcast, np.array([8], np.uint64), 0).name, me.fails(group.all_gather, np.array([8], np.uint64)).name
    return me.fails(group.bcast_object, "x", 0).name, me.fails(group.gather_object, "x").name


def test_a_plain_collective_is_never_taken_for_one_of_objects(cluster):
    equal(run([cluster[1], cluster[2]], steps_apart), [("MISMATCH", "MISMATCH")] * 2, "errors")


def hears_lies(me):
    objects = nexar._objects
    group, other = me.group(), 1 - me.rank
    whole = b"".join((objects._HEAD.pack(objects._OBJECT, 8000), bytes(8000)))
    announced = (1 << 62, 4200, len(whole) + 1)
    if me.rank == 1:
        for length in announced:
            group.send(objects._ANNOUNCEMENT.pack(objects._LARGE, 1, 7, length), other, 7)
            group.send(whole, other, 7)
            group.send(objects._ANNOUNCEMENT.pack(objects._LARGE, 1, 7, length), other, 7)  # and gives that up
            group.send_object("short", other, 7)
            group.send(objects._ANNOUNCEMENT.pack(objects._LARGE, 1, 7, length), other, 7)
            group.send_object(LARGE, other, 7)
        for tag in range(200):
            group.send(objects._ANNOUNCEMENT.pack(objects._LARGE, 1, tag, 9000), other, 9)
        group.send_object(LARGE, other, 9)
        return
    for length in announced:
        error = me.fails(group.recv_object, 1, 7)
        equal((error.name, error.rank, error.op), ("MISMATCH", 1, "recv_object"), str(error))
        contains(str(error.error), f"{len(whole)} bytes, announced with {length}")
        equal(group.recv_object(1, 7), ("short", 1, 7), "what came instead")
        equal(group.recv_object(1, 7), (LARGE, 1, 7), "what was announced again")
    equal(group.recv_object(1, 9), (LARGE, 1, 9), "the object after many announcements")
    assert len(group._announced) <= objects._ANNOUNCED_MAX, len(group._announced)


def test_a_length_that_is_announced_gets_no_memory_and_many_announcements_little(cluster):
    run([cluster[1], cluster[1]], hears_lies)
    run([cluster[1], cluster[2]], hears_lies)


main(globals(), nodes=2)
