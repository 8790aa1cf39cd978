"""What a random program is: who runs where, which groups there are, and what they do in which order.

A program is the same in every process that draws it, so only its seed travels. All ranks take the steps of their groups in
the order of the numbers of the steps, or those of each group on a thread of its own; a rank waits only for what it started
before. So a program always ends, in every schedule. What a rank chooses for itself (memory, blocking or started, how it
waits) is drawn by rank.py.
"""
import dataclasses

from harness import nexar
from nexar._rows import ROWS

KINDS = ("plain", "ends", "death", "leave")
RANKS_MAX, NODES, GROUPS_MAX, CHILDREN_MAX, CREATES_MAX = 12, 4, 4, 4, 6
ANY_SOURCE, ANY_TAG = nexar.ANY_SOURCE, nexar.ANY_TAG
TAGS = (0, 7, 1 << 32, ANY_TAG - 1)
CREATE_TAGS = (0, 0, 7, (1 << 64) - 1)
TURN = 1000  # more steps than a program has
PRIVATE_TAG = 1 << 40  # and the step's number: no other step uses it

FLOATS = ("float32", "float64", "float16", "bfloat16")
SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2")  # reduced by min and max only: unit_reduce is exhaustive about the others
FLAG_DETERMINISTIC, FLAG_F32_PARTIALS = 1, 2
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
PAIRS = ("float32_int32", "float64_int64", "int32_int32", "int64_int64")
ARITHMETIC, BITWISE = ("sum", "prod", "min", "max", "avg", "premul_sum"), ("band", "bor", "bxor", "land", "lor", "lxor")
OPS = {**{each: ARITHMETIC for each in FLOATS}, **{each: ("min", "max") for each in SMALL_FLOATS},
       **{each: ARITHMETIC + BITWISE for each in INTEGERS}, "bool": ("min", "max") + BITWISE,
       **{each: ("minloc", "maxloc") for each in PAIRS}}


@dataclasses.dataclass(frozen=True)
class Group:
    """members: the program's ranks, in the order of their ranks in the group. made: how it comes to be: "open" by name, or as
    a child of the group `parent` by "split" or "dup", before the first step; or by "create", in the step `call`. Children of one
    split have the number of its first child as `call`."""
    number: int
    members: tuple
    made: str = "open"
    parent: int = None
    call: int = None

    @property
    def size(self):
        return len(self.members)

    @property
    def is_made_first(self):
        """By a collective of its parent, before the first step."""
        return self.made in ("split", "dup")


@dataclasses.dataclass(frozen=True)
class Message:
    """number: in its step."""
    number: int
    source: int
    to: int
    tag: int
    count: int


@dataclasses.dataclass(frozen=True)
class Receive:
    """Posted by `to` in the step's order. source, tag: what it asks for, which may be any."""
    to: int
    source: int
    tag: int


@dataclasses.dataclass(frozen=True)
class End:
    """A step that may end early. how, of a collective: cancel (`rank` cancels it), late (`rank` begins after the others'
    deadline), differs (`rank` gives another match_id). Of a create: the same, but that `rank` gives another order of the list; or again
    (`rank` cancels it and calls again, with the same tag); `also`: what another rank does at the same time. All
    then create the group once more, with another tag, and get it. Of the only message of a step, whose other side comes too late or not:
    cancel_recv, cancel_send, late_recv, late_send."""
    how: str
    rank: int
    seconds: float = 0.0
    also: "End" = None

    @property
    def all(self):
        return [self, self.also] if self.also else [self]


@dataclasses.dataclass(frozen=True)
class Step:
    """One collective, or some messages, or the create of its group. exact: inputs whose result has the same bits in any order of combination."""
    number: int
    group: Group
    kind: str
    dtype: str = "uint8"
    op: str = "sum"
    count: int = 0
    counts: tuple = ()
    blocks: tuple = ()
    root: int = 0
    exact: bool = True
    match_id: int = 0
    messages: tuple = ()
    receives: tuple = ()
    fenced: bool = False  # barriers around it, with nothing pending: receives for any tag get no other step's messages
    end: End = None
    flags: int = 0  # nexar_op_options.flags
    tag: int = 0  # of a create
    starts: int = 1  # how often all ranks call it, one after the other with other data each time; the last one is its outcome

    @property
    def row(self):
        return ROWS.get(self.kind)

    def elements(self, word, rank):
        """How many a side has at a rank, by the word of its row; None: it has no such side."""
        at_root = rank == self.root
        return {"none": None, "one": self.count, "all": self.count * self.group.size,
                "one_at_root": self.count if at_root else None, "one_elsewhere": None if at_root else self.count,
                "all_at_root": self.count * self.group.size if at_root else None,
                "own": self.counts[rank] if self.counts else None, "packed": sum(self.counts),
                "packed_at_root": sum(self.counts) if at_root else None,
                "sent": sum(self.blocks[rank]) if self.blocks else None,
                "received": sum(row[rank] for row in self.blocks) if self.blocks else None}[word]

    def turns(self):
        """Its calls, as steps: they differ in their numbers, and so in their data. The last one is the step itself."""
        return [*(dataclasses.replace(self, number=self.number + TURN * turn) for turn in range(1, self.starts)), self]

    def block(self, rank):
        """The slice of a rank's block in the side that has the blocks of all ranks."""
        if self.counts:
            return slice(sum(self.counts[:rank]), sum(self.counts[:rank + 1]))
        return slice(rank * self.count, (rank + 1) * self.count)

    def __str__(self):
        what = {"messages": f"{self.messages} by {self.receives}", "all_to_allv": f"{self.dtype} x {self.blocks}",
                "create": f"of group {self.group.parent} with tag {self.tag}"}.get(
            self.kind, f"{self.op if self.row and self.row.reduces else ''} {self.dtype} x {self.counts or self.count}")
        return (f"step {self.number}: {self.kind} {what}, root {self.root}, group {self.group.number} of "
                f"{self.group.members}{', fenced' if self.fenced else ''}{f', {self.end}' if self.end else ''}"
                f"{f', {self.starts} times' if self.starts > 1 else ''}")


@dataclasses.dataclass(frozen=True)
class Death:
    """rank: of the program. At its step `step` it is killed: before it, when it has started it, or `delay` later."""
    rank: int
    step: int
    when: str
    delay: float


@dataclasses.dataclass(frozen=True)
class Leave:
    """rank: of the program. Instead of its step `step` it frees the step's group, or aborts it, whatever is pending there; instead
    of a create, the parent. Or, in
    the simulator only, it aborts all its groups and ends, as a program does that an exception ends (how: "exception")."""
    rank: int
    step: int
    how: str


@dataclasses.dataclass(frozen=True)
class Program:
    seed: int
    kind: str
    places: tuple  # the number of the node of each rank
    groups: tuple
    steps: tuple
    death: Death = None
    leave: Leave = None
    hosts: tuple = ()  # of each rank: in which process it is, by the number of the process's own rank

    def ranks_in(self, process):
        return [rank for rank, host in enumerate(self.hosts) if host == process]

    def without(self, numbers):
        steps = tuple(step for step in self.steps if step.number not in numbers and not any(
            each.made == "create" and each.call in numbers for each in self.line(step.group)))
        left = {step.number for step in steps}
        death, leave = (None if each and each.step not in left else each for each in (self.death, self.leave))
        return dataclasses.replace(self, steps=steps, death=death, leave=leave)

    def line(self, group):
        """The group, what it comes from, and so on."""
        found = [group]
        while found[-1].parent is not None:
            found.append(self.groups[found[-1].parent])
        return found

    @property
    def group_left(self):
        """That the rank which leaves frees or aborts."""
        step = self.step(self.leave.step)
        return self.groups[step.group.parent] if step.kind == "create" else step.group

    def step(self, number):
        return next(each for each in self.steps if each.number == number)

    def lost(self, group):
        """The program's rank that the group loses; None: none."""
        if self.leave and (self.group_left == group
                           or (self.leave.how == "exception" and self.leave.rank in group.members)):
            return self.leave.rank
        return self.death.rank if self.death and self.death.rank in group.members else None

    def __str__(self):
        where = f"ranks on nodes {list(self.places)}, in processes {list(self.hosts)}"
        children = [f"group {each.number}: {each.members} by {each.made} of {each.parent}" for each in self.groups if each.is_made_first]
        return "\n".join([f"{self.kind} program {self.seed}: {where}", *children, *map(str, self.steps),
                          *(str(each) for each in (self.death, self.leave) if each)])


def matches(receives, messages):
    """The message that each receive of one rank gets, where all name their source: the oldest that matches. None: it gets none.
    As all receives of a pair prefer the older message, and all its messages the older receive, there is only one way."""
    left, found = list(messages), []
    for receive in receives:
        message = next((m for m in left if m.source == receive.source and receive.tag in (m.tag, ANY_TAG)), None)
        if message:
            left.remove(message)
        found.append(message)
    return found
