"""What a rank of chaos.py does: random operations in several groups at once, a thread each, every result compared.

All members of a group draw the same operations from the group's seed; how each posts them (memory, blocking, how many
at once, in which order it waits) is its own.
"""
import dataclasses
import os
import random
import signal
import threading
import time
import traceback
from ctypes import byref, c_uint64

from harness import cabi, nexar, np
from harness.values import FLOATS, INTEGERS, check, given, reduced

KINDS = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", "messages")
DTYPES = INTEGERS + FLOATS
OPS = ("sum", "prod", "min", "max", "avg")
PENDING = cabi.PENDING

lib = cabi.lib


@dataclasses.dataclass(frozen=True)
class Spec:
    """One group: its name, and which processes are its ranks, in rank order."""
    name: str
    seed: str
    members: tuple
    largest: int
    kinds: tuple = KINDS


@dataclasses.dataclass
class Report:
    """What became of one group at one rank."""
    rank: int
    done: int = 0
    end: str = "running"
    failures: list = dataclasses.field(default_factory=list)
    operation_failures: list = dataclasses.field(default_factory=list)


class Plan:
    """Operation number `turn` of a group: the same on all its ranks."""

    def __init__(self, spec, turn):
        rng = random.Random(f"{spec.seed}/{turn}")
        size = len(spec.members)
        self.turn, self.kind = turn, rng.choice(spec.kinds)
        self.dtype, self.op, self.root = rng.choice(DTYPES), rng.choice(OPS), rng.randrange(size)
        width = 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize
        largest = max(1, spec.largest // width // (size if self.kind in ("all_gather", "reduce_scatter") else 1))
        how = rng.random()
        self.count = 0 if how < 0.06 else rng.randint(1, size + 1) if how < 0.15 else int(largest ** rng.random())
        self.to = list(range(size))
        rng.shuffle(self.to)
        self.any_source = rng.random() < 0.3


class Turn:
    """One operation at one rank: its memory, its requests, its check."""

    def __init__(self, worker, plan):
        self.w, self.plan, self.requests = worker, plan, []
        rank, size, local = worker.rank, worker.size, worker.local
        p = plan
        self.region, self.in_place = local.random() < 0.4, local.random() < 0.4
        blocks_in, blocks_out = (size if p.kind == k else 1 for k in ("reduce_scatter", "all_gather"))
        if p.kind == "barrier":
            self.x = self.out = None
            return
        mine = self.values(rank, p.count * blocks_in)
        dtype = mine.dtype if p.dtype != "bfloat16" else np.dtype("uint16")

        def memory(count):
            array = worker.session.alloc(count, dtype) if self.region else np.full(count, 77, dtype)
            return array.view(type(mine)) if p.dtype == "bfloat16" else array

        if p.kind == "broadcast":
            self.x = self.out = memory(p.count)
            self.x[:] = mine if rank == p.root else 5
        elif p.kind == "messages":
            self.x, self.out = memory(p.count), memory(p.count + local.randint(0, 3))
            self.x[:] = mine
        elif self.in_place and p.kind == "all_gather":
            self.out = memory(p.count * size)
            self.x = self.out[rank * p.count:(rank + 1) * p.count]
            self.x[:] = mine
        else:
            self.x = memory(p.count * blocks_in)
            self.x[:] = mine
            self.out = memory(p.count * blocks_out) if not self.in_place else self.x
            if self.in_place and p.kind == "reduce_scatter":
                self.out = self.x[rank * p.count:(rank + 1) * p.count]
        self.apart = mine if not self.in_place and p.kind not in ("broadcast",) else None

    def values(self, rank, count):
        return given(self.plan.dtype, self.plan.op, rank, count, salt=self.plan.turn)

    def arguments(self):
        p = self.plan
        if p.kind == "barrier":
            return ()
        number, op = nexar.DTYPES[p.dtype], nexar.OPS[p.op]
        pair = (self.x.ctypes.data, self.out.ctypes.data, p.count, number)
        return {"all_reduce": (*pair, op), "reduce": (*pair, op, p.root), "all_gather": pair,
                "reduce_scatter": (*pair, op), "broadcast": (self.x.ctypes.data, p.count, number, p.root)}[p.kind]

    def _start(self, function, *arguments):
        until = time.monotonic() + 20
        while True:
            request = c_uint64()
            status = getattr(lib, f"nexar_{function}_start")(self.w.group._handle, *arguments, None, byref(request))
            if status in (cabi.TABLE_FULL, cabi.NO_MEMORY) and time.monotonic() < until:  # no slot or no scratch: others end first
                self.w.pump()
                continue
            cabi.check(status)
            self.requests.append(request.value)
            return

    def start(self):
        p = self.plan
        if p.kind != "messages":
            return self._start(p.kind, *self.arguments())
        number = nexar.DTYPES[p.dtype]
        source = nexar.ANY_SOURCE if p.any_source else p.to.index(self.w.rank)
        posts = [("send", self.x.ctypes.data, p.count, number, p.to[self.w.rank], p.turn),
                 ("recv", self.out.ctypes.data, self.out.size, number, source, p.turn)]
        for post in posts if self.w.local.random() < 0.5 else reversed(posts):
            self._start(*post)

    def call(self):
        """The blocking form."""
        if self.plan.kind == "messages":
            self.start()
            return self.w.finish(self)
        until = time.monotonic() + 20
        while True:
            status = getattr(lib, f"nexar_{self.plan.kind}")(self.w.group._handle, *self.arguments(), None)
            if status not in (cabi.TABLE_FULL, cabi.NO_MEMORY) or time.monotonic() > until:
                break
            time.sleep(0.001)  # sleep: between two tries
        cabi.check(status)
        self.verify()

    def verify(self):
        p, rank, size = self.plan, self.w.rank, self.w.size
        what = (f"{self.w.spec.name} turn {p.turn} rank {rank}/{size}: {p.kind} {p.op} {p.dtype} x {p.count}, "
                f"root {p.root}, {'region' if self.region else 'ordinary'}, {'in place' if self.in_place else 'apart'}")
        if p.kind == "barrier":
            return
        if p.kind == "broadcast":
            check(self.out, self.values(p.root, p.count), what)
        elif p.kind == "messages":
            check(self.out[:p.count], self.values(p.to.index(rank), p.count), what)
        elif p.kind == "all_gather":
            check(self.out, np.concatenate([np.asarray(self.values(r, p.count)) for r in range(size)]), what)
        elif p.kind == "reduce_scatter":
            want = reduced(p.dtype, p.op, size, p.count * size, salt=p.turn)
            check(self.out, want[rank * p.count:(rank + 1) * p.count], what)
        elif p.kind == "all_reduce" or rank == p.root:
            check(self.out, reduced(p.dtype, p.op, size, p.count, salt=p.turn), what)
        if self.apart is not None:
            check(self.x, self.apart, f"{what}, its input afterwards")


class Worker:
    """One rank in one group, in a thread of its own."""

    def __init__(self, me, session, spec, stop, options):
        self.me, self.session, self.spec, self.stop, self.options = me, session, spec, stop, options
        self.rank, self.size = spec.members.index(me.rank), len(spec.members)
        self.local = random.Random(f"{spec.seed}/rank {self.rank}")
        self.report, self.pending, self.ready, self.group = Report(self.rank), [], threading.Event(), None
        self.broken = None

    def run(self):
        try:
            self.work()
        except nexar.Error as error:
            self.fail(error)
        except BaseException:
            self.broken = traceback.format_exc()
        finally:
            self.ready.set()
        return self

    def work(self):
        try:
            self.group = self.session.group(name=self.spec.name, size=self.size, rank=self.rank, job_secret="the secret of chaos",
                                            timeout=self.options["open_timeout"])
        except nexar.Error as error:
            self.report.end = "open"
            self.report.failures.append(self.me.failure(error))
            return
        turn = 0
        vote = self.session.alloc(1, "int32")  # not a copy: scratch may be full, and all must vote
        leave = self.options.get("leave", {}).get((self.spec.name, self.rank))
        while True:
            window = self.local.choice((0, 0, 1, 2, 3, 5))
            batch = 1 + random.Random(f"{self.spec.seed}/batch {turn}").randrange(8)
            for _ in range(batch):
                self.one(Turn(self, Plan(self.spec, turn)), window)
                turn += 1
            if leave and turn >= leave[0]:
                return self.leave(leave[1], turn)
            self.finish_all()
            vote[0] = 0 if self.stop[0] else 1
            try:
                self.group.all_reduce(vote, op="min")
            except nexar.Error as error:
                if not self.survivable(error):
                    raise
                vote[0] = 1  # nobody stops on a failed vote
                self.report.operation_failures.append((turn, self.me.failure(error)))
            self.ready.set()
            if not vote[0]:
                self.report.end = "stopped"
                if self.local.random() < 0.5:
                    self.group.free()
                return

    def survivable(self, error, kind="vote"):
        """Whether the group goes on. A rank that leaves ends what it had pending, and messages with it; the group ends
        with the first collective that it had not called."""
        if self.options.get("leave"):
            return error.name == "ABORTED" or (kind == "messages" and error.name == "PEER_LOST")
        return self.options.get("survive") and error.name in ("ABORTED", "TIMED_OUT")

    def one(self, turn, window):
        if window == 0:
            self.finish_all()
            try:
                turn.call()
                self.report.done += 1
            except nexar.Error as error:
                if not self.survivable(error, turn.plan.kind):
                    raise
                self.report.operation_failures.append((turn.plan.turn, self.me.failure(error)))
            return
        while len(self.pending) >= window:
            self.finish(self.pending.pop(self.local.randrange(len(self.pending))))
        turn.start()
        self.pending.append(turn)

    def pump(self):
        """Lets staged requests move."""
        for turn in self.pending:
            for request in turn.requests:
                lib.nexar_request_test(request, None)
        time.sleep(0.001)  # sleep: between two looks

    def finish(self, turn):
        first = None
        how = self.local.randrange(3)
        for request in turn.requests:
            if how == 0:
                while (status := lib.nexar_request_test(request, None)) == PENDING:
                    time.sleep(0.0005)  # sleep: between two looks
            elif how == 1:
                index = c_uint64()
                while (status := lib.nexar_request_wait_any(cabi.requests(request), 1, 500, byref(index),
                                                            None)) == PENDING:
                    pass
                cabi.check(status)
                status = lib.nexar_request_test(request, None)
            else:
                while (status := lib.nexar_request_wait(request, 500, None)) in (PENDING, cabi.INTERRUPTED):
                    pass
            if status != 0 and first is None:
                first = cabi.error_of(status)
            freed = lib.nexar_request_free(request)
            assert freed == 0 or status == freed == cabi.CLOSED, f"request_free: {freed} after {status}"
        turn.requests = []
        if first is not None:
            if not self.survivable(first, turn.plan.kind):
                raise first
            self.report.operation_failures.append((turn.plan.turn, self.me.failure(first)))
            return
        turn.verify()
        self.report.done += 1

    def finish_all(self):
        while self.pending:
            self.finish(self.pending.pop(self.local.randrange(len(self.pending))))

    def leave(self, how, turn):
        """This rank goes while the others still want something from it."""
        self.report.end = how
        if how == "finish":
            self.finish_all()
        elif how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how in ("finish", "free"):
            self.group.free()
            for t in self.pending:
                for request in t.requests:
                    status = lib.nexar_request_wait(request, 5000, None)
                    name = lib.nexar_status_name(status).decode()
                    # PEER_LOST: the message's other end went first.
                    assert name in ("OK", "CLOSED", "CANCELLED", "PEER_LOST"), f"freed: {cabi.error_of(status)}"
        elif how == "close":
            lib.nexar_session_close(self.session._connection.handle)
        self.ready.set()

    def fail(self, error):
        """The group failed: what is pending ends the same way, and so does what comes later."""
        self.report.end = "failed"
        self.report.failures.append(self.me.failure(error))
        for turn in self.pending:
            try:
                self.finish(turn)
            except nexar.Error as later:
                self.report.failures.append(self.me.failure(later))
        for call in (self.group.barrier, lambda: self.group.recv(np.zeros(3), 0, 5),
                     lambda: self.group.all_reduce(np.zeros(3))):
            if self.local.random() < 0.5:
                try:
                    call()
                    self.broken = f"a call succeeded in a group that has failed ({error})"
                except nexar.Error as later:
                    self.report.failures.append(self.me.failure(later))
        if self.local.random() < 0.3:
            self.group.free()


def opened(me, **options):
    """Its daemon may just be starting."""
    until = time.monotonic() + 8
    while True:
        try:
            return me.session(**options)
        except nexar.Error:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)  # sleep: between two tries


def member(me, specs, stop, options):
    """One process: its session, and a thread per group."""
    local = random.Random(f"{options['seed']}/process {me.rank}")
    delay = options.get("delays", {}).get(me.rank, 0)
    time.sleep(delay)  # sleep: a late process is what the seed asks for
    options_here = dict(slots=local.choice((64, 256, 1024)), daemon_unresponsive=options["unresponsive"],
                        scratch_limit=local.choice((None, None, 64 << 20, 12 << 20)),
                        spin_us=local.choice((None, 0, 500)))
    mine = [spec for spec in specs if me.rank in spec.members]
    try:
        session = opened(me, **options_here)
    except nexar.Error as error:
        return {spec.name: Report(spec.members.index(me.rank), end="open", failures=[me.failure(error)])
                for spec in mine}
    workers = [Worker(me, session, spec, stop, options) for spec in mine]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for worker in workers:
        worker.ready.wait()
    me.mark()
    for thread in threads:
        thread.join()
    broken = [worker.broken for worker in workers if worker.broken]
    if broken:
        raise AssertionError("\n".join(broken))
    if local.random() < 0.5 and options.get("close", True):
        session.close()
    return {worker.spec.name: worker.report for worker in workers}
