"""A rank of random programs: a process that performs one after the other, and reports what became of each operation."""
import contextlib
import random
import signal
import threading
import traceback

from harness import nexar

from .draw import draw
from .memory import Memory
from .thread import Thread

SECRET = "the secret of the oracle"
OPEN_SECONDS = 60


class Report:
    def __init__(self):
        self.outcomes, self.violations = [], []


class Performance:
    """One rank in one program, alone in its process or not."""

    def __init__(self, program, rank, session, job, sabotage):
        self.program, self.rank, self.session, self.job, self.sabotage = program, rank, session, job, sabotage
        self.report, self.store, self.blocks, self.groups, self.left = Report(), Memory(session), [], {}, set()
        self.local = random.Random(f"{program.kind} {program.seed} process {rank}")

    def perform(self):
        mine = [group for group in self.program.groups if self.rank in group.members]
        self.open([group for group in mine if group.made == "open"])
        self.make_children()
        steps = [step for step in self.program.steps if self.rank in step.group.members]
        threads = [Thread(self, part) for part in self.parts(mine, steps)]
        for thread in threads[1:]:
            thread.thread = threading.Thread(target=thread.run)
            thread.thread.start()
        threads[0].run()
        for thread in threads[1:]:
            thread.thread.join()
        broken = [thread.broken for thread in threads if thread.broken]
        if broken:
            raise AssertionError("\n".join(broken))

    def open(self, groups):
        """All at once, in an order of its own."""
        self.local.shuffle(groups)
        started = [(group, self.session.group_start(f"{self.job} group {group.number}", group.size,
                                                    group.members.index(self.rank), job_secret=SECRET, timeout=OPEN_SECONDS))
                   for group in groups]
        self.groups |= {group.number: request.wait() for group, request in started}

    def make_children(self):
        """Those that are made before the first step. In the order of their numbers, which is the same on all ranks of a parent: nobody waits for what comes later."""
        for call in sorted({group.call for group in self.program.groups if group.is_made_first}):
            made = [group for group in self.program.groups if group.is_made_first and group.call == call]
            parent = self.groups.get(made[0].parent)
            if parent is None:
                continue
            own = next((group for group in made if self.rank in group.members), None)
            if made[0].made == "dup":
                child = parent.dup()
            else:
                child = parent.split(own and made.index(own), own.members.index(self.rank) if own else 0)
            if own:
                self.groups[own.number] = child

    def parts(self, groups, steps):
        """The steps of each thread: one for all, or one for some of the groups; for all that are created the same, so that a
        group is created by the thread that uses it, and creates with one tag one after the other."""
        if self.local.random() < 0.6 or len(groups) < 2:
            return [steps]
        creator = self.local.randrange(3)
        thread_of = {group.number: creator if group.made == "create" else self.local.randrange(3) for group in groups}
        return [[step for step in steps if thread_of[step.group.number] == number] for number in range(3)]

    def close(self):
        """When all ranks have ended. Words about what was written late, or cannot be given back."""
        bad = [f"rank {self.rank}: {wrong}" for block in self.blocks if (wrong := block.wrong())]
        for group in self.local.sample(list(self.groups.values()), len(self.groups)):  # parents and children in any order
            group.free()
        return bad + [f"rank {self.rank}: {wrong}" for wrong in self.store.free()]


@contextlib.contextmanager
def interrupted(local):
    """In some programs signals come all the time: waits return for them, and go on."""
    period = local.uniform(0.0003, 0.003) if local.random() < 0.15 else 0
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, period, period)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Sessions:
    """One at a time: programs on the same node often share it."""

    def __init__(self):
        self.node, self.session = None, None

    def at(self, node, socket, local):
        if self.session is None or node != self.node or local.random() < 0.2:
            if self.session:
                self.session.close()
            self.node = node
            self.session = nexar.Session(socket, slots=local.choice((256, 256, 512)), spin_us=local.choice((None, 0, 200)),
                                         scratch_limit=local.choice((None, None, 64 << 20, 12 << 20)))
        return self.session


def serve(pipe, number, sockets):
    """Performs what comes through the pipe: (seed, kind, steps left out, job's name, sabotage), and reports of each of its
    ranks; then waits for the word to close, which comes when all ranks have reported."""
    sessions = Sessions()
    while True:
        try:
            seed, kind, left_out, job, sabotage = pipe.recv()
        except EOFError:
            return
        try:
            program = draw(seed, kind).without(left_out)
            node = program.places[number]
            session = sessions.at(node, sockets[node], random.Random(f"{job} {number}"))
            ranks = {rank: Performance(program, rank, session, job, sabotage) for rank in program.ranks_in(number)}
            all_at_once(ranks.values())
            pipe.send(("report", {rank: (each.report.outcomes, each.report.violations) for rank, each in ranks.items()}))
            pipe.recv()
            pipe.send(("closed", [wrong for each in ranks.values() for wrong in each.close()]))
        except EOFError:
            return
        except BaseException:
            pipe.send(("broken", traceback.format_exc()))
            return


def all_at_once(ranks):
    """The first on this thread, which is the process's main one; the others on one each."""
    first, *others = ranks
    broken = []

    def perform(rank):
        try:
            rank.perform()
        except BaseException:
            broken.append(traceback.format_exc())

    threads = [threading.Thread(target=perform, args=(rank,)) for rank in others]
    for thread in threads:
        thread.start()
    with interrupted(first.local):
        perform(first)
        for thread in threads:
            thread.join()
    if broken:
        raise AssertionError("\n".join(broken))
