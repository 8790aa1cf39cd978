"""One collective at one rank: its memory, its call, and what must be true of its memory when it has ended."""
import random
from ctypes import byref, c_uint64

import numpy as np

from harness import cabi, nexar

from . import data, memory
from .reference import difference, expected

lib = cabi.lib


def counted(numbers):
    return (c_uint64 * len(numbers))(*numbers)


class Side:
    """Input or output. A side that the rank has not may be named all the same: nobody looks at it."""

    def __init__(self, block, dtype, part=slice(None)):
        self.block, self.dtype, self.part = block, data.STORAGE[dtype], part

    @property
    def array(self):
        return self.block.view.view(self.dtype)[self.part]

    def address(self):
        return self.block.address + (self.part.start or 0) * self.dtype.itemsize


class Collective:
    def __init__(self, program, step, rank, store, local):
        self.step, self.rank, self.seed, self.store, self.local = step, rank, program.seed, store, local
        self.blocks, self.keep = [], []
        row = step.row
        have_in, have_out = step.elements(row.in_, rank), step.elements(row.out, rank)
        self.in_place = None not in (have_in, have_out) and row.in_place != "never" and local.random() < 0.4
        self.kinds = local.choice(memory.KINDS), local.choice(memory.KINDS)
        self.input, self.output = self.sides(have_in, have_out)
        self.fill(step)
        self.unused = self.block(1, self.kinds[0]) if local.random() < 0.5 else None
        if self.unused:
            self.unused.view[:] = self.unused.poison = memory.POISON

    def fill(self, step):
        """Its data, which the step's number chooses."""
        self.step, self.given = step, None
        have_in = step.elements(step.row.in_, self.rank)
        if have_in is not None:
            self.given = data.given(self.seed, step, self.rank, have_in)
            self.input.array[:] = self.given

    def again(self, step):
        """Another call in the same memory."""
        for block in self.blocks:
            if block is not self.unused:
                block.view[:], block.poison = memory.POISON, None
        self.fill(step)

    def block(self, elements, kind):
        width = data.STORAGE[self.step.dtype].itemsize
        block = self.store.block(kind, elements * width, width, self.local.choice((0, 0, 1, 3)))
        block.view[:] = memory.POISON
        self.blocks.append(block)
        return block

    def sides(self, have_in, have_out):
        step, dtype = self.step, self.step.dtype

        def apart(elements, kind):
            return None if elements is None else Side(self.block(elements, kind), dtype)

        if not self.in_place:
            return apart(have_in, self.kinds[0]), apart(have_out, self.kinds[1])
        block, part = self.block(max(have_in, have_out), self.kinds[0]), step.block(self.rank)
        whole = Side(block, dtype)
        if step.row.in_place == "same":
            return whole, whole
        own = Side(block, dtype, part)
        return (own, whole) if step.row.in_place == "block_of_out" else (whole, own)

    def arguments(self):
        """As the C function takes them, after the group and before the options."""
        step, row = self.step, self.step.row
        if row.memory == "nothing":
            return []
        where_in, where_out = (self.named(side) for side in (self.input, self.output))
        if self.in_place and row.in_place != "same" and self.local.random() < 0.5:
            where_in = where_out = self.blocks[0].address  # the other of the two forms that mean the same
        number = data.NUMBER[step.dtype]
        result = {"data": [where_in if self.input else where_out, step.count, number],
                  "in_out": [where_in, where_out, step.count, number],
                  "in_out_counts": [where_in, where_out, self.kept(step.counts), number],
                  "in_out_own_counts": [where_in, self.kept(step.blocks[self.rank] if step.blocks else ()), where_out,
                                        self.kept([line[self.rank] for line in step.blocks]), number]}[row.memory]
        return result + [nexar.OPS[step.op]] * row.reduces + [step.root] * row.rooted

    def kept(self, counts):
        self.keep.append(counted(counts))
        return self.keep[-1]

    def named(self, side):
        if side is None:
            return self.unused.address if self.unused else None
        return side.address() if side.array.size or self.local.random() < 0.5 else None

    def options(self, timeout_ms=cabi.DEFAULT):
        # Of each rank and call: ranks of one collective may ask for different ones.
        options = cabi.op_options(timeout_ms, self.step.match_id, self.step.number, self.local.choice(cabi.PRIORITIES))
        options.flags = self.step.flags
        if self.step.op == "premul_sum" and self.step.row.reduces:
            self.keep.append(data.scalar(self.seed, self.step, self.rank))
            options.scalar = self.keep[-1].ctypes.data
        return options

    def start(self, group, options, form="start"):
        """(status, request)"""
        request = c_uint64()
        function = getattr(lib, f"nexar_{self.step.kind}_{form}")
        status = function(group._handle, *self.arguments(), byref(options), byref(request))
        return status, request.value

    def call(self, group, options):
        return getattr(lib, f"nexar_{self.step.kind}")(group._handle, *self.arguments(), byref(options))

    def ended(self, ok):
        """(what is wrong or None, the output's bytes or None); afterwards the memory is this test's again, and poisoned."""
        wrong = self.wrong(ok)
        bytes_out = self.output.array.tobytes() if ok and self.output else None
        for block in self.blocks:
            block.fill(memory.POISON ^ 0xFF)
        self.given = None
        return wrong, bytes_out

    def wrong(self, ok):
        for block in self.blocks:
            if bad := block.wrong():
                return bad
        if ok and self.output:
            bad = difference(self.output.array, *expected(self.seed, self.step, self.rank), self.step.dtype)
            if bad:
                return bad
        if self.given is not None and not self.in_place and not np.array_equal(
                self.input.array.view(np.uint8), self.given.view(np.uint8)):
            return "its input was written"
        if ok and self.in_place and self.step.row.in_place == "block_of_in" and self.step.row.rooted:
            return difference(self.input.array, self.given, None, self.step.dtype)
        return None

    def __str__(self):
        return f"{' and '.join(self.kinds)} memory, {'in place' if self.in_place else 'apart'}"


class Post:
    """One send or receive: memory of its own. message: what is sent; None for a receive."""

    def __init__(self, program, step, store, local, receive=None, message=None, capacity=0):
        self.step, self.seed, self.receive, self.message = step, program.seed, receive, message
        storage = data.STORAGE[step.dtype]
        elements = message.count if message else capacity
        self.block = store.block(local.choice(memory.KINDS), elements * storage.itemsize, storage.itemsize,
                                 local.choice((0, 0, 1, 3)))
        self.array, self.elements = self.block.view.view(storage), elements
        self.block.view[:] = memory.POISON
        self.content = content(program.seed, step, message) if message else None
        if message:
            self.array[:] = self.content

    def arguments(self):
        to, tag = (self.message.to, self.message.tag) if self.message else (self.receive.source, self.receive.tag)
        where = self.block.address if self.elements else None
        return [where, self.elements, data.NUMBER[self.step.dtype], to, tag]

    def start(self, group, options):
        request = c_uint64()
        name = "send" if self.message else "recv"
        status = getattr(lib, f"nexar_{name}_start")(group._handle, *self.arguments(), byref(options), byref(request))
        return status, request.value

    def call(self, group, options, completion):
        if self.message:
            return lib.nexar_send(group._handle, *self.arguments(), byref(options))
        return lib.nexar_recv(group._handle, *self.arguments(), byref(completion), byref(options))

    def ended(self):
        """The bytes that stand there, and what is wrong beside them; poisons the memory."""
        wrong = self.block.wrong()
        if self.message and self.array.tobytes() != self.content.tobytes():
            wrong = "what was sent was written"
        found = self.array.tobytes()
        self.block.fill(memory.POISON ^ 0xFF)
        return found, wrong


def content(seed, step, message):
    """Of each message its own, even where source, destination and tag are those of another one."""
    return data.given(seed, step, 1000 + message.number, message.count)


def local_of(program, step, rank):
    """What a rank chooses for itself in a step."""
    return random.Random(f"{program.kind} {program.seed}/{step.number}/{rank}")
