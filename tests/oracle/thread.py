"""Steps that a thread of a rank takes one after the other, some of them pending while it goes on."""
import collections
import hashlib
import os
import random
import signal
import threading
import time
import traceback
from ctypes import byref, c_uint64

from harness import cabi

from . import creates, early, messages
from .calls import Collective, Post, exchange, local_of
from .waits import until_ended

lib = cabi.lib
RETRY_SECONDS = 60
REASON = "the seed wants it"
WINDOWS = (0, 1, 2, 4, 8)

# One operation's end at one rank. what: collective, send, recv, fence, create, ending (a create that may end early), leave (of a group). name: of its status.
# culprit: the rank in the error. digest: of a successful output; of a create the id of its group. began, ended: by the monotonic clock, which all processes share.
Outcome = collections.namedtuple("Outcome", "step what name culprit text digest began ended")


class Requests:
    """The started parts of one step: [(its item, request, when)]."""

    def __init__(self, step, parts):
        self.step, self.parts = step, parts

    @property
    def numbers(self):
        return [request for _, request, _ in self.parts]


class Thread:
    """Takes steps one after the other, with some of them pending."""

    def __init__(self, process, steps):
        self.process, self.program, self.steps = process, process.program, steps
        self.pending, self.broken, self.report, self.in_ops = [], None, process.report, False
        self.local = random.Random(f"{self.program.seed} {process.rank} {[step.number for step in steps]}")
        self.creating = {}  # by the number of the group: what is not waited for yet

    def run(self):
        try:
            for step in self.steps:
                self.take(step)
            while self.pending:
                self.finish_one()
            for number in list(self.creating):
                creates.finish(self, number)
        except BaseException:
            self.broken = traceback.format_exc()

    def take(self, step):
        needed = step.group.parent if step.kind == "create" else step.group.number
        if needed in self.process.left or not creates.has(self, needed) or self.leaves(step):
            return
        rank, local = step.group.members.index(self.process.rank), local_of(self.program, step, self.process.rank)
        death = self.program.death
        dies = death and death.rank == self.process.rank and death.step == step.number and death.when
        if dies == "before":
            die()
        if dies == "later":
            threading.Timer(death.delay, die).start()
        if local.random() < 0.1:
            time.sleep(local.random() * 0.004)  # sleep: the seed chooses who comes late; right in every order
        if step.fenced:
            self.fence(step)
        if step.kind == "create":
            creates.take(self, step, rank, local, dies == "started")
            return die() if dies == "started" else None
        if step.end:
            return early.take(self, step, rank, local)
        self.post(step, rank, local, blocking=local.random() < 0.4 and dies != "started")
        if dies == "started":
            die()
        if step.fenced:
            self.fence(step)
        window = local.choice(WINDOWS)
        while len(self.pending) > window:
            self.finish_one()

    def leaves(self, step):
        leave = self.program.leave
        if not leave or (leave.rank, leave.step) != (self.process.rank, step.number):
            return False
        group = self.process.groups[self.program.group_left.number]
        self.process.left.add(self.program.group_left.number)
        began = time.monotonic()
        group.abort(REASON) if leave.how == "abort" else group.free()
        self.outcome(step, "leave", "OK", -1, "", None, began)
        return True

    def fence(self, step):
        while self.pending:
            self.finish_one()
        began = time.monotonic()
        status = self.retried(lambda: lib.nexar_barrier(self.handle(step), None))
        self.record(step, "fence", status, began)

    def handle(self, step):
        return self.process.groups[step.group.number]._handle

    def post(self, step, rank, local, blocking):
        group = self.process.groups[step.group.number]
        if step.starts > 1:
            return self.repeat(step, rank, local, group)
        if step.kind != "messages":
            item = Collective(self.program, step, rank, self.process.store, local)
            if blocking:
                began = time.monotonic()
                status = self.retried(lambda: item.call(group, item.options()))
                self.ended(step, item, status, began)
            else:
                self.start(step, group, [(item, item.options())])
            return
        posts = [(post, cabi.op_options(priority=local.choice(cabi.PRIORITIES))) for post in self.posts(step, rank, local)]
        if blocking and len(posts) == 2 and self.may_exchange(*(post for post, _ in posts)):
            return self.exchange(step, group, *sorted((post for post, _ in posts), key=lambda post: post.message is None))
        if blocking:
            return self.call_messages(step, group, posts)
        self.start(step, group, posts)

    def repeat(self, step, rank, local, group):
        """All calls of the step: of one persistent operation, or each an operation of its own."""
        if local.random() < 0.7:
            return self.persist(step, rank, local, group)
        for turn in step.turns()[:-1]:
            item, began = Collective(self.program, turn, rank, self.process.store, local), time.monotonic()
            self.turn_ended(turn, item, self.retried(lambda: item.call(group, item.options())))
            self.process.blocks += item.blocks
        item, began = Collective(self.program, step, rank, self.process.store, local), time.monotonic()
        self.ended(step, item, self.retried(lambda: item.call(group, item.options())), began)

    def persist(self, step, rank, local, group):
        turns = step.turns()
        item, request, began = Collective(self.program, turns[0], rank, self.process.store, local), None, time.monotonic()
        options = item.options()
        options.match_id = step.match_id

        def once():
            nonlocal request
            status, request = item.start(group, options, "init")
            return status

        if (status := self.retried(once)) != 0:
            return self.ended(step, item, status, began)
        for turn in turns:
            item.again(turn)
            self.started(turn, request, local)
            until_ended([request], local, self.process.session)
            status = lib.nexar_request_test(request, None)
            if turn is not step:
                self.turn_ended(turn, item, status)
        self.ended(step, item, status, began)
        if lib.nexar_request_free(request) != 0:
            self.violation(step, f"request_free of a persistent request: {cabi.name_of(cabi.last_error().code)}")

    def started(self, turn, request, local):
        how = local.choice(("start", "start_all", "ops"))
        if how == "ops":
            self.begin_ops()
        status = (lib.nexar_request_start_all(cabi.requests(0, request), 2) if how == "start_all"
                  else lib.nexar_request_start(c_uint64(request)))
        self.end_ops()
        if status != 0:
            self.violation(turn, f"{how} of a persistent request: {cabi.error_of(status)}")

    def turn_ended(self, turn, item, status):
        """A call before the step's last one, in a program where all of these succeed."""
        wrong, _ = item.ended(status == 0)
        if status != 0 or wrong:
            self.violation(turn, f"{cabi.name_of(status)}, {item}: {wrong}")

    def begin_ops(self):
        cabi.check(lib.nexar_ops_begin(cabi.of(self.process.session)))
        self.in_ops = True

    def end_ops(self):
        if self.in_ops:
            cabi.check(lib.nexar_ops_end(cabi.of(self.process.session)))
        self.in_ops = False

    def posts(self, step, rank, local):
        """Sends and receives, each in the program's order, mixed at random."""
        store = self.process.store
        sends = [Post(self.program, step, store, local, message=message) for message in step.messages if message.source == rank]
        receives = [Post(self.program, step, store, local, receive=receive,
                         capacity=messages.room(step, receive) + local.choice((0, 0, 5)))
                    for receive in step.receives if receive.to == rank]
        while sends or receives:
            yield (sends if not receives or (sends and local.random() < 0.5) else receives).pop(0)

    def call_messages(self, step, group, posts):
        """Sends are started, unless there is nothing else; then each receive is waited for: its send has been started."""
        sends = [each for each in posts if each[0].message]
        if len(posts) > 1:
            self.start(step, group, sends)
        found = []
        for post, options in posts:
            if post.message and len(posts) > 1:
                continue
            began, completion = time.monotonic(), cabi.completion()
            status = self.retried(lambda: post.call(group, options, completion))
            found.append((post, self.record(step, "send" if post.message else "recv", status, began), completion))
        if found:
            self.message_ended(step, found)

    def may_exchange(self, one, other):
        """One status is that of both: only where both succeed."""
        return self.program.kind in ("plain", "ends") and not one.vector and not other.vector and bool(one.message) != bool(other.message)

    def exchange(self, step, group, send, receive):
        began, completion = time.monotonic(), cabi.completion()
        status = self.retried(lambda: exchange(send, receive, group, cabi.op_options(), completion))
        outcomes = [self.record(step, what, status, began) for what in ("send", "recv")]
        self.message_ended(step, [(send, outcomes[0], None), (receive, outcomes[1], completion)])

    def start(self, step, group, items):
        """Starts all; those that the library refuses at once are recorded."""
        parts, refused = [], []
        if self.local.random() < 0.3:
            self.begin_ops()
        for item, options in items:
            began, request = time.monotonic(), None

            def once():
                nonlocal request
                status, request = item.start(group, options)
                return status

            status = self.retried(once)
            if status == 0:
                parts.append((item, request, began))
            elif isinstance(item, Collective):
                self.ended(step, item, status, began)
            else:
                refused.append((item, self.record(step, "send" if item.message else "recv", status, began), None))
        self.end_ops()
        if refused:
            self.message_ended(step, refused)
        if parts:
            self.pending.append(Requests(step, parts))

    def retried(self, call):
        """The status of a call that may find no slot or no scratch memory: then other requests end first."""
        until = time.monotonic() + RETRY_SECONDS
        while True:
            status = call()
            if status not in (cabi.TABLE_FULL, cabi.NO_MEMORY) or time.monotonic() > until:
                return status
            self.end_ops()  # what waits in it ends no earlier
            if self.pending:
                self.finish_one()
            else:
                cabi.poll(self.process.session)  # moves the bytes of what other threads have staged
                time.sleep(0.001)  # sleep: between two tries

    def finish_one(self):
        requests = self.pending.pop(self.local.randrange(len(self.pending)))
        until_ended(requests.numbers, self.local, self.process.session)
        found = []
        for item, request, began in requests.parts:
            completion = cabi.completion()
            status = lib.nexar_request_test(request, byref(completion))
            if isinstance(item, Collective):
                self.ended(requests.step, item, status, began)
            else:
                found.append((item, self.record(requests.step, "send" if item.message else "recv", status, began), completion))
            if lib.nexar_request_free(request) != 0:
                self.violation(requests.step, f"request_free: {cabi.name_of(cabi.last_error().code)} after {status}")
        if found:
            self.message_ended(requests.step, found)

    def record(self, step, what, status, began, output=None):
        """Requires: the status is that of the last call of this thread."""
        culprit, text = -1, ""
        if status != 0:
            error = cabi.last_error()
            culprit, text = error.rank, f"{error.text.decode()} (op {error.op.decode()}, group {error.group.decode()})"
            if error.code != status:
                self.violation(step, f"status {cabi.name_of(status)}, but last_error is {cabi.name_of(error.code)}")
        digest = hashlib.blake2b(output, digest_size=8).hexdigest() if output is not None else None
        return self.outcome(step, what, cabi.name_of(status), culprit, text, digest, began)

    def outcome(self, step, what, name, culprit, text, digest, began):
        outcome = Outcome(step.number, what, name, culprit, text, digest, began, time.monotonic())
        self.report.outcomes.append(outcome)
        return outcome

    def ended(self, step, item, status, began):
        if status == 0 and self.process.sabotage == "wrong" and item.output and item.output.array.size:
            item.output.array.view("u1")[-1] ^= 1
        wrong, output = item.ended(status == 0)
        self.record(step, "collective", status, began, output)
        self.process.blocks += item.blocks
        if self.process.sabotage == "late" and item.blocks and item.blocks[0].view.size:
            item.blocks[0].view[0] ^= 1
        if wrong:
            self.violation(step, f"{cabi.name_of(status)}, {item}: {wrong}")

    def message_ended(self, step, found):
        """found: [(post, outcome, completion)] of this rank, receives in the order in which they were posted."""
        received = []
        for post, outcome, completion in found:
            stands, wrong = post.ended(completion)
            self.process.blocks.append(post.block)
            if wrong:
                self.violation(step, f"{outcome.what} {post.message or post.receive}: {outcome.name}: {wrong}")
            if post.receive and outcome.name == "OK":
                received.append((post.receive, completion, stands))
        for wrong in messages.wrong(self.program, step, step.group.members.index(self.process.rank), received):
            self.violation(step, wrong)

    def violation(self, step, text):
        self.report.violations.append(f"rank {self.process.rank} of the program, {step}: {text}")


def die():
    os.kill(os.getpid(), signal.SIGKILL)
