"""Persistent operations and op groups on healthy nodes: each start gives what numpy gives of the data of that start.

    node 1 ──┐
    node 2 ──┼── switch
    node 3 ──┘
"""
import contextlib

from harness import *
from harness.memory import Memory
from harness.system import run_in
from harness.values import check, element

STARTS = 4
PLACEMENTS = {"alone": [1], "one node": [1, 1, 1], "two nodes": [1, 2, 1], "three nodes": [1, 2, 3, 1]}


def on(cluster, numbers):
    return [cluster[n] for n in numbers]


def values(rank, start, what, count):
    """Of each rank, start, operation and place; sums of them are exact."""
    return element("int64", "sum", rank, count, salt=31 * start + 1009 * what)


class Prepared:
    """One persistent operation: its arrays, and what a start must give."""

    def __init__(self, me, group, what, count, memory):
        self.me, self.group, self.what, self.count = me, group, what, count
        size, rank = me.size, me.rank
        self.counts = [count + 3 * r if r != size - 1 else 0 for r in range(size)]
        self.sent = [count + rank + 2 * r for r in range(size)]
        self.received = [count + r + 2 * rank for r in range(size)]
        self.root, self.memory = what % size, memory
        self.name = NAMES[what % len(NAMES)]
        self.request = getattr(self, self.name)()

    def array(self, index, count):
        return self.memory[index].array(count, "int64")

    def inputs(self, start, count):
        return [values(rank, start, self.what, count) for rank in range(self.me.size)]

    def fill(self, start):
        if self.x is not None:
            self.x[:] = values(self.me.rank, start, self.what, len(self.x))
        if self.out is not None and self.out is not self.x:
            self.out[:] = -1

    def check(self, start, result):
        want = self.want(start)
        if want is not None:
            check(result, want, f"{self.name} x {self.count}, start {start}, {self.memory[0].kind}")

    def all_reduce(self):
        self.x = self.out = self.array(0, self.count)
        self.want = lambda start: sum(self.inputs(start, self.count))
        return self.group.all_reduce_init(self.x)

    def reduce(self):
        self.x, self.out = self.array(0, self.count), self.array(1, self.count)
        self.want = lambda start: sum(self.inputs(start, self.count)) if self.me.rank == self.root else None
        return self.group.reduce_init(self.x, self.out, root=self.root)

    def broadcast(self):
        self.x = self.out = self.array(0, self.count)
        self.want = lambda start: self.inputs(start, self.count)[self.root]
        return self.group.broadcast_init(self.x, root=self.root)

    def all_gather(self):
        self.x, self.out = self.array(0, self.count), self.array(1, self.count * self.me.size)
        self.want = lambda start: np.concatenate(self.inputs(start, self.count))
        return self.group.all_gather_init(self.x, self.out)

    def reduce_scatter(self):
        n, rank = self.count, self.me.rank
        self.x, self.out = self.array(0, n * self.me.size), self.array(1, n)
        self.want = lambda start: sum(self.inputs(start, n * self.me.size))[rank * n:(rank + 1) * n]
        return self.group.reduce_scatter_init(self.x, self.out)

    def all_to_all(self):
        n, rank = self.count, self.me.rank
        self.x, self.out = self.array(0, n * self.me.size), self.array(1, n * self.me.size)
        self.want = lambda start: np.concatenate([x[rank * n:(rank + 1) * n] for x in self.inputs(start, n * self.me.size)])
        return self.group.all_to_all_init(self.x, self.out)

    def gather(self):
        self.x, self.out = self.array(0, self.count), self.array(1, self.count * self.me.size)
        self.want = lambda start: np.concatenate(self.inputs(start, self.count)) if self.me.rank == self.root else None
        return self.group.gather_init(self.x, self.out, root=self.root)

    def scatter(self):
        n, rank = self.count, self.me.rank
        self.x, self.out = self.array(0, n * self.me.size), self.array(1, n)
        self.want = lambda start: self.inputs(start, n * self.me.size)[self.root][rank * n:(rank + 1) * n]
        return self.group.scatter_init(self.x, self.out, root=self.root)

    def scan(self):
        self.x, self.out = self.array(0, self.count), self.array(1, self.count)
        self.want = lambda start: sum(self.inputs(start, self.count)[:self.me.rank + 1])
        return self.group.scan_init(self.x, self.out)

    def exclusive_scan(self):
        self.x, self.out = self.array(0, self.count), self.array(1, self.count)
        self.want = lambda start: sum(self.inputs(start, self.count)[:self.me.rank], np.zeros(self.count, np.int64))
        return self.group.exclusive_scan_init(self.x, self.out)

    def all_gatherv(self):
        self.x, self.out = self.array(0, self.counts[self.me.rank]), self.array(1, sum(self.counts))
        self.want = lambda start: np.concatenate(
            [values(rank, start, self.what, n) for rank, n in enumerate(self.counts)])
        return self.group.all_gatherv_init(self.x, self.counts, self.out)

    def gatherv(self):
        self.x, self.out = self.array(0, self.counts[self.me.rank]), self.array(1, sum(self.counts))
        self.want = lambda start: None if self.me.rank != self.root else np.concatenate(
            [values(rank, start, self.what, n) for rank, n in enumerate(self.counts)])
        return self.group.gatherv_init(self.x, self.counts, self.out, root=self.root)

    def own(self):
        at = sum(self.counts[:self.me.rank])
        return slice(at, at + self.counts[self.me.rank])

    def scatterv(self):
        self.x, self.out = self.array(0, sum(self.counts)), self.array(1, self.counts[self.me.rank])
        self.want = lambda start: self.inputs(start, sum(self.counts))[self.root][self.own()]
        return self.group.scatterv_init(self.x, self.counts, self.out, root=self.root)

    def reduce_scatterv(self):
        self.x, self.out = self.array(0, sum(self.counts)), self.array(1, self.counts[self.me.rank])
        self.want = lambda start: sum(self.inputs(start, sum(self.counts)))[self.own()]
        return self.group.reduce_scatterv_init(self.x, self.counts, self.out)

    def all_to_allv(self):
        def block(rank, start):
            sent = [self.count + rank + 2 * r for r in range(self.me.size)]
            at = sum(sent[:self.me.rank])
            return values(rank, start, self.what, sum(sent))[at:at + sent[self.me.rank]]
        self.x, self.out = self.array(0, sum(self.sent)), self.array(1, sum(self.received))
        self.want = lambda start: np.concatenate([block(rank, start) for rank in range(self.me.size)])
        return self.group.all_to_allv_init(self.x, self.sent, self.received, self.out)

    def barrier(self):
        self.x = self.out = None
        self.want = lambda start: None
        return self.group.barrier_init()


NAMES = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "scan",
         "exclusive_scan", "all_gatherv", "gatherv", "scatterv", "reduce_scatterv", "all_to_allv", "barrier"]


def every_collective(me, count, kind, scratch_limit=None):
    """Started one by one, all at once, and in an op group beside ordinary operations."""
    with me.session(scratch_limit=scratch_limit) as session:
        group = me.group(session)
        room = 8 * (count + 3 * me.size + 8) * me.size
        prepared = [Prepared(me, group, i, count, (Memory(session, kind, room), Memory(session, kind, room)))
                    for i in range(len(NAMES))]
        for start in range(STARTS):
            for one in prepared:
                one.fill(start)
            if start % 3 == 0:
                for one in prepared:
                    one.request.start()
                    one.check(start, one.request.wait())
                continue
            if start % 3 == 1:
                nexar.start_all([one.request for one in prepared])
            else:
                with session.ops():
                    extra = group.all_reduce_start(values(me.rank, start, 99, 5))
                    nexar.start_all([one.request for one in prepared])
                    more = group.all_reduce_start(values(me.rank, start, 98, 7))
                for request, what, n in ((extra, 99, 5), (more, 98, 7)):
                    check(request.wait(), sum(values(rank, start, what, n) for rank in range(me.size)), "beside them")
            results = nexar.wait_all([one.request for one in prepared])
            for one, result in zip(prepared, results):
                one.check(start, result)
                equal(one.request.completion.request is one.request, True, "completion's request")


def test_every_collective_is_started_often_with_other_data(cluster):
    """[S21][S22][S23][S24]"""
    for placement in PLACEMENTS.values():
        for kind in ("ordinary", "alloc"):
            run(on(cluster, placement), every_collective, 1003, kind)


def test_large_and_staged_ones_too(cluster):
    """[S21] 8 MiB of scratch memory: ordinary memory is moved in windows, at each start."""
    run(on(cluster, [1, 2, 1]), large_ones, "alloc", None)
    run(on(cluster, [1, 2, 1]), large_ones, "ordinary", 8 << 20)
    run(on(cluster, [1, 1]), large_ones, "ordinary", 8 << 20)


def large_ones(me, kind, scratch_limit):
    count = 1500007
    with me.session(scratch_limit=scratch_limit) as session:
        group = me.group(session)
        for name in ("all_reduce", "all_gather"):
            pair = [Memory(session, kind, 8 * count * me.size) for _ in range(2)]
            one = Prepared(me, group, NAMES.index(name), count, pair)
            for start in range(3):
                one.fill(start)
                one.request.start()
                one.check(start, one.request.wait())
            one.request = None  # its scratch memory is the next one's


def exchanges(me, count):
    """A ring of persistent messages, also to itself, and sendrecv_replace beside it."""
    with me.session() as session:
        group = me.group(session)
        right, left = (me.rank + 1) % me.size, (me.rank - 1) % me.size
        x, y, z = (session.alloc(count + 10, "int64")[:n] for n in (count, count, count + 10))
        requests = [group.recv_init(y, left, tag=5), group.send_init(x, right, tag=5), group.recv_init(z, tag=6)]
        equal([request.wait() for request in requests], [None] * 3, "before the first start")
        for start in range(4):
            x[:] = values(me.rank, start, 3, count)
            nexar.start_all(requests)
            ended = set()
            group.send(values(me.rank, start, 4, start + 1), left, 6)
            while len(ended) < 3:
                some = nexar.wait_some(requests, timeout=20)
                equal(ended & set(some), set(), "ends that were returned twice")
                ended |= set(some)
            equal(nexar.wait_all(requests), [(left, 5, count), None, (right, 6, start + 1)], "results")
            check(y, values(left, start, 3, count), "received")
            check(z[:start + 1], values(right, start, 4, start + 1), "received from any")
            for whole in (session.alloc(count, "int64"), np.zeros(count, np.int64)):
                whole[:] = values(me.rank, start, 8, count)
                equal(group.sendrecv_replace(whole, right, left, send_tag=9, tag=9), (left, 9, count), "replaced")
                check(whole, values(left, start, 8, count), "sendrecv_replace")


def test_messages_are_started_often(cluster):
    """[S21]"""
    for placement in ([1], [1, 1], [1, 2], [1, 2, 3]):
        for count in (1, 1003):
            run(on(cluster, placement), exchanges, count)
    run(on(cluster, [1, 2, 1]), exchanges, 300007)


def fails(me, name, function, *arguments):
    equal(me.fails(function, *arguments).name, name, f"what {function} fails with")


def refusals(me):
    session = me.session(slots=16)
    group = me.group(session)
    x = np.zeros(3, np.int64)
    step = group.all_reduce_init(x)
    equal(step.test(), True, "an inactive one has ended")
    equal((nexar.wait_any([step, None]), nexar.wait_some([step]), nexar.test_any([step]), nexar.test_some([step])), (None, [], None, []),
          "nothing to wait for")
    equal(repr(step).partition(": ")[2], "inactive>", "its repr")
    late = group.recv_init(np.zeros(1), 1 - me.rank, tag=77, timeout=0.2)
    for _ in range(2):
        late.start()
        fails(me, "BAD_STATE", late.start)
        fails(me, "TIMED_OUT", late.wait)
        fails(me, "TIMED_OUT", late.wait)  # the last start's, until the next
    with session.ops():
        begun = group.all_reduce_start(x)
        fails(me, "BAD_STATE", group.barrier)
        fails(me, "BAD_STATE", lambda: group.send(x, 0))
        fails(me, "BAD_STATE", lambda: nexar.start_all([step, late, step]))
        equal(begun.test(), False, "before the end")
    begun.wait(20)
    try:
        with session.ops():
            dropped = group.all_reduce_start(x)
            step.start()
            raise KeyError("mine")
    except KeyError:
        pass
    fails(me, "BAD_HANDLE", dropped.wait)
    x[:] = me.rank + 1
    step.start()
    equal(list(step.wait()), [3, 3, 3], "the group's order is as if nothing had been dropped")
    many = [group.barrier_init() for _ in range(10)]
    fails(me, "TABLE_FULL", group.barrier_init)
    del many
    group.barrier_init()
    frees(me, group)
    group.free()
    fails(me, "CLOSED", step.start)


def frees(me, group):
    """Persistent.free and `with`: the slots of 16 come back, and a freed one is refused by its name."""
    x = np.zeros(3, np.int64)
    for _ in range(20):
        with group.all_reduce_init(x) as sum_of:
            x[:] = me.rank
            sum_of.start()
            equal(list(sum_of.wait()), [1, 1, 1], "its result")
        equal(list(sum_of.wait()), [1, 1, 1], "the last result stays")
        sum_of.free()  # has no effect
    fails(me, "BAD_HANDLE", sum_of.start)
    contains(me.fails(lambda: nexar.start_all([None, sum_of])).text, "all_reduce", "was freed: prepare it again")
    equal((nexar.wait_any([sum_of]), repr(sum_of).partition(": ")[2]), (None, "freed>"), "a freed one")
    late = group.recv_init(np.zeros(1), 1 - me.rank, tag=78)
    late.start()
    fails(me, "BAD_STATE", late.free)
    try:
        with late:
            raise KeyError("mine")
    except KeyError:
        fails(me, "CANCELLED", late.wait)
    late.free()
    group.barrier()  # who has left would be why it ended


AT_ONCE, TURNS = 64, 40


def packets_sent():
    """By this rank's host."""
    with open("/proc/self/net/dev") as lines:
        return next(int(line.split()[10]) for line in lines if line.strip().startswith("eth0:"))


def sums_at_once(me):
    """How many packets this rank's host sends for each of many sums of one value that are submitted as one."""
    session = me.session()
    group = me.group(session)
    memory = [np.zeros(1, np.int64) for _ in range(AT_ONCE)]
    group.barrier()
    before = packets_sent()
    for turn in range(TURNS):
        for i, one in enumerate(memory):
            one[:] = values(me.rank, turn, i, 1)
        with session.ops():
            requests = [group.all_reduce_start(one) for one in memory]
        for i, (one, request) in enumerate(zip(memory, requests)):
            request.wait()
            check(one, sum(values(rank, turn, i, 1) for rank in range(me.size)), f"start {turn}, operation {i}")
    return (packets_sent() - before) / (AT_ONCE * TURNS)


@contextlib.contextmanager
def each_datagram_a_packet(cluster, numbers):
    """The kernel hands a link several datagrams as one packet otherwise, and counts one."""
    def at_most(segments):
        for node in on(cluster, numbers):
            run_in(cluster.network.namespace(node.host), "ip", "link", "set", "eth0", "gso_max_segs", str(segments))
    at_most(1)
    try:
        yield
    finally:
        at_most(65535)


def test_small_operations_at_once_share_datagrams(cluster):
    with each_datagram_a_packet(cluster, [1, 2]):
        for packets in run(on(cluster, [1, 2]), sums_at_once):
            assert packets < 0.5, f"{packets:.2f} packets for each operation"


def test_what_is_refused_has_no_effect(cluster):
    """[S21][S24]"""
    run(on(cluster, [1, 2]), refusals)


def loses_a_rank(me):
    group = me.group()
    x = np.ones(4, np.int64)
    step = group.all_reduce_init(x, np.zeros(4, np.int64))
    for _ in range(3):
        step.start()
        step.wait()
    me.mark()
    if me.rank == 2:
        me.stay()
    for _ in range(3):
        step.start()
        fails(me, "PEER_LOST", step.wait)


def test_a_persistent_operation_fails_with_its_group_at_each_start(cluster):
    """[S21]"""
    job = Job(on(cluster, [1, 2, 1]), loses_a_rank)
    for rank in range(3):
        job[rank].await_mark()
    job[2].kill()
    job.outcomes(0, 1)


main(globals())
