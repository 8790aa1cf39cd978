"""Messages between two ranks, on healthy nodes unless noted otherwise: tags, probes, exchanges, pieces, very long ones.

    node 1 ──┐
    node 2 ──┼── switch
    node 3 ──┘
"""
import ctypes
import threading

from harness import *
from harness.memory import Memory
from harness.states import receiving
from harness.values import check, element

lib = cabi.lib
F64 = nexar.DTYPES["float64"]
NEAR_AND_FAR = ([1, 1], [1, 2])
EDGES = (0, 1 << 32, (1 << 64) - 2)


def on(cluster, numbers):
    return [cluster[n] for n in numbers]


def message(sender, number, count, dtype="int64"):
    """Distinct data of each sender, message and place."""
    return (element("int64", "sum", sender, count, salt=7919 * number) + 1000003 * number).astype(dtype)


# ---- Tags ----

def every_tag(me):
    """Ten tags at once, in both directions; taken in another order than they were sent."""
    group, other = me.group(), 1 - me.rank
    tags = [*EDGES, 5, 6, 7, (1 << 32) - 1, 1 << 63, (1 << 64) - 3, 1]
    sends = [group.send_start(message(me.rank, i, 3 + 40000 * (i % 3 == 0)), other, tag) for i, tag in enumerate(tags)]
    for i, tag in sorted(enumerate(tags), key=lambda pair: pair[1] * 2654435761 % (1 << 64)):
        x, count = np.zeros(50000, np.int64), 3 + 40000 * (i % 3 == 0)
        equal(group.recv(x, other, tag), (other, tag, count), "message")
        check(x[:count], message(other, i, count), f"tag {tag}")
    for send in sends:
        send.wait(10)


def test_tags_of_all_sizes_travel_ten_at_once_in_both_directions(cluster):
    for placement in NEAR_AND_FAR:
        run(on(cluster, placement), every_tag)


# ---- Probes ----

def probes(me):
    group = me.group()
    other = (me.rank + 1) % me.size
    if me.rank == 0:
        equal(me.fails(group.probe, timeout=0).name, "TIMED_OUT", "a probe where there is nothing")
        equal(me.fails(group.mprobe, timeout=0.05).name, "TIMED_OUT", "an mprobe that finds nothing")
    group.barrier()
    for turn, tag in enumerate(EDGES):
        for count in (0, 1, 30000):
            send = group.send_start(message(me.rank, turn, count), other, tag)
            source, got, nbytes = group.probe(tag=tag if turn else nexar.ANY_TAG)
            equal((source, got, nbytes), ((me.rank - 1) % me.size, tag, 8 * count), "what the probe found")
            x = np.zeros(nbytes // 8, np.int64)  # room for exactly that
            equal(group.recv(x, source, got), (source, tag, count), "received")
            check(x, message(source, turn, count), "message")
            send.wait(10)


def test_a_probe_reports_what_a_receive_of_exactly_that_will_get(cluster):
    for placement in ([1], [1, 1], [1, 2, 3]):  # alone: a message to oneself
        run(on(cluster, placement), probes)


def shared_by_threads(me, each):
    """Rank 0's threads take messages of any length by probing first: nobody takes another's. One of them only probes, another
    one receives without asking."""
    session = me.session()
    group = me.group(session)
    if me.rank != 0:
        for number in range(each):
            group.send(message(me.rank, number, (number * 37 + me.rank) % 5000), 0, number % 3)
        group.barrier()  # it stays while rank 0 probes
        return None
    got, left, lock, seen = [], [each * (me.size - 1)], threading.Lock(), []

    def next_one():
        with lock:
            left[0] -= 1
            return left[0] >= 0

    def takes():
        while next_one():
            found = group.mprobe()
            x = np.zeros(found.bytes // 8, np.int64)
            equal(found.recv(x), (found.source, found.tag, x.size), "received")
            got.append((found.source, found.tag, x))

    def receives():
        while next_one():
            x = np.zeros(5000, np.int64)
            source, tag, count = group.recv(x)
            got.append((source, tag, x[:count]))

    def looks():
        while left[0] > 0:
            try:
                seen.append(group.probe(timeout=0.01))
            except nexar.TimedOut:
                pass

    def puts_back():
        while left[0] > 0:
            try:
                group.mprobe(timeout=0.01).free()
            except nexar.TimedOut:
                pass

    failures = []

    def guarded(function):
        try:
            function()
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(function,)) for function in (takes, takes, takes, receives, looks, puts_back)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    group.barrier()
    equal(failures, [], "failures of threads")
    wanted = sorted((rank, number % 3, message(rank, number, (number * 37 + rank) % 5000).tobytes())
                    for rank in range(1, me.size) for number in range(each))
    equal(sorted((source, tag, x.tobytes()) for source, tag, x in got) == wanted, True, "each message was received once, whole")
    return len(seen)


def test_threads_that_probe_receive_and_put_back_take_each_message_once(cluster):
    for placement in ([1, 1, 1], [1, 2, 3]):
        assert run(on(cluster, placement), shared_by_threads, 60)[0] > 0, "no probe found anything"


def set_apart(me):
    """Rank 0 sends three; rank 1 sets the first apart, and the others pass it."""
    group = me.group()
    if me.rank == 0:
        sends = [group.send_start(message(0, number, 20000 + number), 1, 5) for number in range(3)]
        group.barrier()
        outcomes = [request.wait(20) for request in sends[:2]]
        group.barrier()
        return outcomes, me.fails(sends[2].wait, 20)
    group.barrier()

    def received(receive, number):
        x = np.zeros(30000, np.int64)
        equal(receive(x), (0, 5, 20000 + number), "received")
        check(x[:20000 + number], message(0, number, 20000 + number), f"message {number}")
    first = group.mprobe(0, 5)
    equal(first.bytes, 8 * 20000, "bytes")
    received(lambda x: group.recv(x, 0, 5), 1)
    first.free()  # it is older than the third
    equal(group.probe(0, 5), (0, 5, 8 * 20000), "the oldest")
    again = group.mprobe()
    received(again.recv, 0)
    equal(lib.nexar_status_name(lib.nexar_message_free(group._handle, again._number)).decode(), "BAD_HANDLE", "freed when received")
    third = group.mprobe(0)
    group.barrier()
    group.free()  # with a message apart
    return third.bytes


def test_a_message_set_apart_is_passed_put_back_and_ends_with_its_rank(cluster):
    for placement in NEAR_AND_FAR:
        (sent, failure), nbytes = run(on(cluster, placement), set_apart)
        equal((sent, nbytes), ([None, None], 8 * 20002), "outcomes")
        equal((failure.name, failure.rank), ("ABORTED", 1), f"what the sender got: {failure}")


def withdrawn(me):
    group = me.group()
    if me.rank == 0:
        send = group.send_start(message(0, 1, 20000), 1, 5)
        group.barrier()
        group.barrier()  # it is apart
        send.cancel()
        failure = me.fails(send.wait, 20)
        group.barrier()
        group.send(message(0, 2, 3), 1, 5)
        return failure
    group.barrier()
    found = group.mprobe()
    group.barrier()
    group.barrier()  # it was taken back
    failure = me.fails(found.recv, np.zeros(20000, np.int64))
    x = np.zeros(3, np.int64)
    equal(group.recv(x), (0, 5, 3), "the next")
    check(x, message(0, 2, 3), "the next")
    return failure


def test_a_message_set_apart_that_its_sender_cancels_names_the_sender(cluster):
    for placement in NEAR_AND_FAR:
        sender, receiver = Job(on(cluster, placement), withdrawn).outcomes()
        equal(sender.name, "CANCELLED", f"{sender}")
        equal((receiver.name, receiver.rank, receiver.op), ("ABORTED", 0, "mrecv"), f"{receiver}")


def waits_for_any(me, how):
    group, x = me.group(), np.zeros(3)
    group.barrier()
    me.mark()
    if me.rank == 2:
        me.stay()
    return me.fails({"recv": lambda: group.recv(x), "probe": group.probe, "mprobe": group.mprobe,
                     "recvv": lambda: group.recvv([x, np.zeros(2)])}[how])


def test_who_waits_for_any_rank_when_one_fails_gets_the_groups_failure(cluster):
    for placement in ([1, 1, 1], [1, 2, 3]):
        for how in ("recv", "probe", "mprobe", "recvv"):
            nodes = on(cluster, placement)
            job = Job(nodes, waits_for_any, how)
            job.await_marks()
            eventually(lambda: receiving(job, 0, 1), "both to wait")
            job[2].kill()
            for failure in job.outcomes(0, 1):
                equal((failure.name, failure.rank), ("PEER_LOST", 2), f"{how}: {failure}")


def gives_up(me):
    """Rank 1's receives end early, again and again: each by itself, and the message stays."""
    group, count = me.group(), 400_000
    if me.rank == 0:
        sends = [group.send_start(message(0, number, count), 1, 6) for number in range(2)]
        group.barrier()
        return [send.wait(30) for send in sends]
    group.barrier()
    x, early = np.zeros(count, np.int64), []
    for turn in range(20):
        try:
            if turn % 2:
                group.recv(x, 0, 6, timeout=0.001 * (turn % 5 + 1))
            else:
                request = group.recv_start(x, 0, 6)
                request.cancel()
                request.wait()
            break  # it was faster
        except nexar.OperationError as error:
            early.append(error.name)
    else:
        equal(group.recv(x, 0, 6), (0, 6, count), "received in the end")
    check(x, message(0, 0, count), "the first")
    equal(group.recv(x, 0, 6), (0, 6, count), "the next")
    check(x, message(0, 1, count), "the next")
    equal(set(early) - {"TIMED_OUT", "CANCELLED"}, set(), "errors")
    return None


def test_a_receive_that_ends_early_ends_alone_and_the_message_stays(cluster):
    for placement in NEAR_AND_FAR:
        equal(run(on(cluster, placement), gives_up), [[None, None], None], "outcomes")


# ---- Both directions at once ----

def exchanges(me):
    session = me.session()
    group, to, source = me.group(session), (me.rank + 1) % me.size, (me.rank - 1) % me.size
    memories = [Memory(session, kind, 8 * 400_100) for kind in ("ordinary", "alloc", "registered")]
    for turn, count in enumerate((1, 0, 700, 200_000)):
        for memory in memories:
            both = memory.array(2 * count + 5, "int64")
            both[:] = 0
            both[:count] = message(me.rank, turn, count)
            equal(group.sendrecv(both[:count], to, both[count:], source, turn, turn), (source, turn, count), "exchanged")
            check(both[count:2 * count], message(source, turn, count), "exchanged")
            end = cabi.completion()
            both[count:] = 0
            at = both.ctypes.data
            status = lib.nexar_sendrecv(group._handle, at, count, nexar.DTYPES["int64"], to, turn, at + 8 * count, count + 5,
                                        nexar.DTYPES["int64"], nexar.ANY_SOURCE, nexar.ANY_TAG, ctypes.byref(end), None)
            equal((status, end.status, end.source, end.tag, end.bytes), (0, 0, source, turn, 8 * count), "completion")
            check(both[count:2 * count], message(source, turn, count), "by the C function")


def test_all_ranks_of_a_ring_send_and_receive_in_one_call(cluster):
    for placement in ([1], [1, 1], [1, 2], [1, 2, 3, 1, 2, 3]):
        run(on(cluster, placement), exchanges)


def exchange_fails(me):
    """Rank 1's message does not fit: each side gets its own failure, and the other direction its message."""
    group, other = me.group(), 1 - me.rank
    x = np.zeros(3 + 2 * me.rank, np.int64)
    failure = me.fails(group.sendrecv, message(me.rank, 1, 3 if me.rank == 0 else 9), other, x, other, 1, 1)
    group.barrier()
    return failure, x.tolist()


def test_an_exchange_that_fails_in_one_direction_ends_and_the_other_direction_has_its_message(cluster):
    for placement in NEAR_AND_FAR:
        outcomes = run(on(cluster, placement), exchange_fails)
        equal([failure.name for failure, _ in outcomes], ["MISMATCH"] * 2, f"{outcomes}")
        equal(outcomes[1][1][:3], message(0, 1, 3).tolist(), "what did arrive")


# ---- Pieces ----

class Pieces:
    """Arrays in memory of all kinds, one after the other in each."""

    def __init__(self, session):
        self.memory = {kind: Memory(session, kind, 8 * 400_010) for kind in ("ordinary", "alloc", "registered")}

    def of(self, lengths, kinds):
        used, pieces = dict.fromkeys(kinds, 0), []
        for i, length in enumerate(lengths):
            kind = kinds[i % len(kinds)]
            pieces.append(self.memory[kind].array(400_000, "int64")[used[kind]:used[kind] + length])
            used[kind] += length + 1  # apart
        return pieces


def in_pieces(me):
    session = me.session()
    group, other = me.group(session), (me.rank + 1) % me.size
    source = (me.rank - 1) % me.size
    kinds = ("ordinary", "alloc", "registered"), ("ordinary",), ("alloc", "ordinary")
    from_, into = Pieces(session), Pieces(session)
    for turn, (sent, received) in enumerate((
            ([1], [1]), ([3, 0, 5], [8]), ([8], [2, 0, 3, 3]), ([1000, 1, 40000, 7], [5, 41000, 3, 9]), ([], [3, 3]),
            ([0, 0], []), ([2] * 256, [1] * 255 + [257]), ([30000] * 9, [270000]))):
        count, room = sum(sent), sum(received)
        data, mine = message(source, turn, count), message(me.rank, turn, count)
        outs, ins = into.of(received, kinds[turn % 3]), from_.of(sent, kinds[(turn + 1) % 3])
        at = 0
        for piece in ins:
            piece[:] = mine[at:at + piece.size]
            at += piece.size
        for out in outs:
            out[:] = -1
        # What has no pieces has no dtype that Python could know.
        send = group.sendv_start(ins, other, turn) if ins else group.send_start(mine, other, turn)
        got = group.recvv(outs, source, turn) if outs else group.recv(np.zeros(0, np.int64), source, turn)
        equal(got, (source, turn, count), f"turn {turn}")
        send.wait(20)
        have = np.concatenate([*outs, np.zeros(0, np.int64)])
        check(have, np.concatenate([data, np.full(room - count, -1)]), f"turn {turn}, {kinds[turn % 3]}")
    return session.stats()["bytes_copied"]


def test_messages_are_sent_from_and_received_into_pieces_of_all_kinds_of_memory(cluster):
    for placement in ([1], *NEAR_AND_FAR):
        run(on(cluster, placement), in_pieces)


def without_copies(me):
    session = me.session()
    group = me.group(session)
    x = session.alloc((20, 100), "int64")
    x[:] = me.rank
    before = session.stats()["bytes_copied"]
    if me.rank == 0:
        group.sendv([x[1], x[3, :50]], 1)
    else:
        group.recvv([x[4], x[2]], 0)
        equal((x[4].tolist(), x[2].tolist(), x[5].tolist()), ([0] * 100, [0] * 50 + [1] * 50, [1] * 100), "received")
    return session.stats()["bytes_copied"] - before


def test_pieces_in_memory_of_nexar_alloc_are_not_copied(cluster):
    for placement in NEAR_AND_FAR:
        equal(run(on(cluster, placement), without_copies), [0, 0], "bytes copied")


# ---- Names in errors ----

def names_in_errors(me):
    group, x = me.group(), np.zeros(8)
    soon, late = {"timeout": 0.05}, cabi.op_options(timeout_ms=50)
    calls = {"send": lambda: group.send(x, 0, 1, **soon), "recv": lambda: group.recv(x, 0, 2, **soon),
             "sendv": lambda: group.sendv([x[:4], x[4:]], 0, 1, **soon), "recvv": lambda: group.recvv([x[:4], x[4:]], 0, 2, **soon),
             "sendrecv": lambda: group.sendrecv(x[:4], 0, x[4:], 0, 1, 2, **soon),
             "sendrecv_replace": lambda: group.sendrecv_replace(x, 0, 0, 1, 2, **soon)}
    for name, call in calls.items():
        failure = me.fails(call)
        equal((failure.name, failure.op), ("TIMED_OUT", name), f"{failure}")
    at, pieces = x.ctypes.data, (nexar._library.Piece * 1)((x.ctypes.data, 8))
    for status, beyond in (("TIMED_OUT", 0), ("INVALID_ARGUMENT", 1)):
        ended = {"sendrecv": (at, 4, F64, beyond, 1, at + 32, 4, F64, 0, 2, None), "sendrecv_replace": (at, 8, F64, beyond, 1, 0, 2, None),
                 "sendv": (pieces, 1, F64, beyond, 1), "recvv": (pieces, 1, F64, beyond, 2, None)}
        for name, arguments in ended.items():
            equal(cabi.name_of(getattr(lib, f"nexar_{name}")(group._handle, *arguments, ctypes.byref(late))), status, name)
            equal(cabi.last_error().op.decode(), name, status)
            equal(cabi.name_of(getattr(lib, f"nexar_{name}")(None, *arguments, None)), "BAD_HANDLE", name)
            equal(cabi.last_error().op.decode(), name, "without a group")


def test_an_error_names_the_function_that_was_called(cluster):
    run(on(cluster, [1]), names_in_errors)


# ---- What is no call ----

class Wrong:
    """Wrong calls, by what is wrong: each a function that returns a status."""

    def __init__(self, me, group, x):
        self.me, self.group, self.at = me, group, x.ctypes.data
        self.number, self.short = ctypes.c_uint64(), cabi.completion()
        self.short.struct_size = 4
        self.match, self.late = cabi.op_options(match_id=3), cabi.op_options(timeout_ms=-7)

    def sendrecv(self, end=None, options=None, **changes):
        at, rank = self.at, self.me.rank
        given = {"in_": at, "sent": 3, "dtype": F64, "to": rank, "tag": 1, "out": at + 64, "received": 3, "type": F64,
                 "source": rank, "receive_tag": 1, **changes}
        return lib.nexar_sendrecv(self.group._handle, *given.values(), end and ctypes.byref(end), options and ctypes.byref(options))

    def start(self, name, *arguments, options=None):
        return getattr(lib, f"nexar_{name}_start")(self.group._handle, *arguments, options and ctypes.byref(options),
                                                   ctypes.byref(self.number))

    def probe(self, *arguments, end=None, options=None):
        return lib.nexar_probe(self.group._handle, *arguments, end and ctypes.byref(end), options and ctypes.byref(options))

    def mprobe(self, *arguments, end=None, options=None, message=True):
        return lib.nexar_mprobe(self.group._handle, *arguments, ctypes.byref(self.number) if message else None,
                                end and ctypes.byref(end), options and ctypes.byref(options))

    def exchanges(self):
        huge, beyond = 1 << 61, self.me.size
        wrong = {"input": {"in_": None}, "output": {"out": None}, "rank to send to": {"to": beyond}, "source": {"source": beyond},
                 "any rank to send to": {"to": nexar.ANY_SOURCE}, "any tag to send": {"tag": nexar.ANY_TAG},
                 "sent count": {"sent": huge}, "received count": {"received": huge}, "sent dtype": {"dtype": 99},
                 "received dtype": {"type": -1}, "exchange in place": {"out": self.at}, "overlap": {"out": self.at + 16},
                 "match id": {"options": self.match}, "time-out": {"options": self.late}, "completion": {"end": self.short}}
        return {what: lambda given=given: self.sendrecv(**given) for what, given in wrong.items()}

    def pieces(self):
        def list_of(*pieces):
            return (nexar._library.Piece * len(pieces))(*pieces)
        at, beyond, any_tag = self.at, self.me.size, nexar.ANY_TAG
        apart, null = list_of((at, 2), (at + 64, 2)), list_of((at, 1), (None, 1))
        both = {"pieces": (None, 1), "number of pieces": (list_of(*[(at, 1)] * 257), 257), "piece": (null, 2),
                "piece's count": (list_of((at, 1 << 61), (at, 1)), 2), "sum of pieces": (list_of(*[(at, 1 << 58)] * 9), 9),
                "pieces beyond their memory": (list_of((at, 2), (at + 63 * 8, 2000)), 2)}
        calls = {f"{what} of {name}": lambda name=name, pieces=pieces: self.start(name, *pieces, F64, 0, 1)
                 for name in ("sendv", "recvv") for what, pieces in both.items()}
        return calls | {
            "sendv's dtype": lambda: self.start("sendv", apart, 2, 99, 0, 1), "sendv's rank": lambda: self.start("sendv", apart, 2, F64, beyond, 1),
            "sendv's tag": lambda: self.start("sendv", apart, 2, F64, 0, any_tag),
            "sendv's match id": lambda: self.start("sendv", apart, 2, F64, 0, 1, options=self.match),
            "overlapping pieces": lambda: self.start("recvv", list_of((at, 2), (at + 8, 2)), 2, F64, 0, 1),
            "recvv's source": lambda: self.start("recvv", apart, 2, F64, beyond, 1),
            "recvv's completion": lambda: lib.nexar_recvv(self.group._handle, apart, 2, F64, 0, 1, ctypes.byref(self.short), None),
            "sendv's request": lambda: lib.nexar_sendv_start(self.group._handle, apart, 2, F64, 0, 1, None, None),
            "recvv's request": lambda: lib.nexar_recvv_start(self.group._handle, apart, 2, F64, 0, 1, None, None)}

    def probes(self):
        at, beyond, start = self.at, self.me.size, self.start
        return {
            "source of a probe": lambda: start("probe", beyond, 1), "probe's match id": lambda: start("probe", 0, 1, options=self.match),
            "probe's time-out": lambda: start("probe", 0, 1, options=self.late), "probe's completion": lambda: self.probe(0, 1, end=self.short),
            "probe's request": lambda: lib.nexar_probe_start(self.group._handle, 0, 1, None, None),
            "source of an mprobe": lambda: self.mprobe(beyond, 1), "message": lambda: self.mprobe(0, 1, message=False),
            "mprobe's completion": lambda: self.mprobe(0, 1, end=self.short), "mprobe's time-out": lambda: self.mprobe(0, 1, options=self.late),
            "mrecv's dtype": lambda: start("mrecv", 1, at, 3, 99), "mrecv's memory": lambda: start("mrecv", 1, None, 3, F64),
            "mrecv's count": lambda: start("mrecv", 1, at, 1 << 61, F64), "mrecv's match id": lambda: start("mrecv", 1, at, 3, F64, options=self.match),
            "mrecv's completion": lambda: lib.nexar_mrecv(self.group._handle, 1, at, 3, F64, ctypes.byref(self.short), None),
            "mrecv's request": lambda: lib.nexar_mrecv_start(self.group._handle, 1, at, 3, F64, None, None)}


def wrong_calls(me):
    session = me.session(slots=16)
    group, x = me.group(session), session.alloc(64, "float64")
    wrong = Wrong(me, group, x)
    for what, call in (wrong.exchanges() | wrong.pieces() | wrong.probes()).items():
        equal(cabi.name_of(call()), "INVALID_ARGUMENT", f"status of a wrong {what}")
    for number in (0, 1, 77, (1 << 64) - 1):
        equal(cabi.name_of(lib.nexar_message_free(group._handle, number)), "BAD_HANDLE", "freed")
        equal(cabi.name_of(lib.nexar_mrecv(group._handle, number, x.ctypes.data, 3, F64, None, None)), "BAD_HANDLE", "received")
    # A full table: an exchange needs two places, and what is apart can be put back.
    sent, pending = group.send_start(np.array([7.0]), me.rank, 50), []
    found = group.mprobe(me.rank, 50)
    try:
        while True:
            pending.append(group.recv_start(np.zeros(1), me.rank, 1000 + len(pending)))
    except nexar.RetryError:
        pass
    equal(cabi.name_of(wrong.sendrecv()), "TABLE_FULL", "an exchange without room")
    equal(cabi.name_of(lib.nexar_message_free(group._handle, found._number)), "OK", "freed without room")
    pending[-1].cancel()
    me.fails(pending.pop().wait, 10)
    equal(cabi.name_of(wrong.sendrecv()), "TABLE_FULL", "an exchange with room for one")
    equal(cabi.name_of(wrong.probe(me.rank, 1, options=cabi.op_options(timeout_ms=0))), "TIMED_OUT", "nothing was sent")
    for request in pending:
        request.cancel()
    for request in pending:
        me.fails(request.wait, 10)
    equal(group.recv(x[:1], tag=50), (me.rank, 50, 1), "what was put back")
    sent.wait(10)
    done = cabi.completion()
    x[:3] = me.rank + 5
    equal(cabi.name_of(wrong.sendrecv(end=done)), "OK", "a good exchange")
    equal((x[8:11].tolist(), done.source, done.bytes), ([me.rank + 5.0] * 3, me.rank, 24), "exchanged with oneself")
    group.barrier()


def test_every_wrong_call_is_refused_and_changes_nothing(cluster):
    run(on(cluster, [1, 2]), wrong_calls)


# ---- Very long ones ----

LONG = (1 << 32) + 4099  # bytes: more than 32 bits count
BLOCK = 1 << 26


def very_long(me, pattern):
    """The sender's pieces are one block again and again; the receiver has all of it."""
    session = me.session()
    group = me.group(session, collective_timeout=300)
    if me.rank == 0:
        block = session.alloc(BLOCK, "uint8")
        block[:] = pattern
        group.sendv([block] * (LONG // BLOCK) + [block[:LONG % BLOCK]], 1, 9)
        return None
    equal(group.probe(), (0, 9, LONG), "what the probe found")
    whole = session.alloc(LONG, "uint8")
    equal(group.recv(whole), (0, 9, LONG), "received")
    return all(np.array_equal(whole[at:at + BLOCK], pattern[:min(BLOCK, LONG - at)]) for at in range(0, LONG, BLOCK))


def test_a_message_of_more_than_4_gib_arrives_whole(cluster):
    available = int(next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable")).split()[1]) << 10
    if available < 3 * LONG:
        return print(f"        skipped: {available >> 30} GiB are available")
    pattern = np.random.default_rng(1).integers(0, 256, BLOCK, np.uint8)
    for placement in NEAR_AND_FAR:
        equal(run(on(cluster, placement), very_long, pattern, seconds=300)[1], True, "all bytes are right")


main(globals())
