"""One collective at one rank: its memory, its call, and what must be true of its memory when it has ended."""
import random
from ctypes import byref, c_uint64

import numpy as np

from harness import cabi, nexar
from nexar import _library

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
    """One send or receive: memory of its own, in one piece or in several. message: what is sent; None for a receive."""

    def __init__(self, program, step, store, local, receive=None, message=None, capacity=0):
        self.step, self.seed, self.receive, self.message, self.local = step, program.seed, receive, message, local
        storage = data.STORAGE[step.dtype]
        elements = message.count if message else capacity
        self.block = store.block(local.choice(memory.KINDS), elements * storage.itemsize, storage.itemsize,
                                 local.choice((0, 0, 1, 3)))
        self.array, self.elements = self.block.view.view(storage), elements
        self.block.view[:] = memory.POISON
        self.content = content(program.seed, step, message) if message else None
        # The pieces in the message's order, as places in the block: all of it, or some cut out of it in any order.
        cuts = sorted(local.choices(range(elements + 1), k=local.randint(1, 4))) if local.random() < 0.3 else []
        self.pieces = [slice(*ends) for ends in zip([0, *cuts], [*cuts, elements])]
        local.shuffle(self.pieces)
        if message:
            at = 0
            for piece in self.pieces:
                self.array[piece] = self.content[at:at + piece.stop - piece.start]
                at += piece.stop - piece.start

    @property
    def vector(self):
        return "v" if len(self.pieces) > 1 else ""

    def memory(self):
        """As the C functions take it."""
        dtype = data.NUMBER[self.step.dtype]
        if not self.vector:
            return [self.block.address if self.elements else None, self.elements, dtype]
        width = self.array.dtype.itemsize
        self.keep = (_library.Piece * len(self.pieces))(
            *((self.block.address + piece.start * width, piece.stop - piece.start) for piece in self.pieces))
        return [self.keep, len(self.pieces), dtype]

    def arguments(self):
        return [*self.memory(), *((self.message.to, self.message.tag) if self.message else (self.receive.source, self.receive.tag))]

    def start(self, group, options):
        request = c_uint64()
        name = f"{'send' if self.message else 'recv'}{self.vector}_start"
        status = getattr(lib, f"nexar_{name}")(group._handle, *self.arguments(), byref(options), byref(request))
        return status, request.value

    def call(self, group, options, completion):
        if self.message:
            return getattr(lib, f"nexar_send{self.vector}")(group._handle, *self.arguments(), byref(options))
        how = self.local.choice(("recv", "recv", "probe", "mprobe"))
        if how == "mprobe" and not self.vector:
            return self.in_two_steps(group, options, completion)
        if how == "probe":
            found = cabi.completion()
            status = lib.nexar_probe(group._handle, self.receive.source, self.receive.tag, byref(found), byref(options))
            if status != 0:
                return status
        status = getattr(lib, f"nexar_recv{self.vector}")(group._handle, *self.arguments(), byref(completion), byref(options))
        if how == "probe" and status == 0:
            self.found = found
        return status

    def in_two_steps(self, group, options, completion):
        message, found = c_uint64(), cabi.completion()
        status = lib.nexar_mprobe(group._handle, self.receive.source, self.receive.tag, byref(message), byref(found), byref(options))
        if status != 0:
            return status
        if self.local.random() < 0.3:  # back, and once more: no other thread of this group takes it meanwhile
            status = lib.nexar_message_free(group._handle, message) or lib.nexar_mprobe(
                group._handle, self.receive.source, self.receive.tag, byref(message), None, byref(options))
            if status != 0:
                return status
        status = lib.nexar_mrecv(group._handle, message, *self.memory(), byref(completion), byref(options))
        self.found = found if status == 0 else None
        return status

    found = None  # what a probe has found out about the message that was received then

    def ended(self, completion=None):
        """The bytes that stand there, in the message's order, and what is wrong beside them; poisons the memory."""
        wrong = self.block.wrong()
        stands = np.concatenate([self.array[piece] for piece in self.pieces])
        if self.message and stands.tobytes() != self.content.tobytes():
            wrong = "what was sent was written"
        if self.found is not None:
            probed, got = ((each.source, each.tag, each.bytes) for each in (self.found, completion))
            wrong = wrong or (probed != got and f"a probe found {probed}, and then came {got}")
        self.block.fill(memory.POISON ^ 0xFF)
        return stands.tobytes(), wrong


def exchange(send, receive, group, options, completion):
    """A send and a receive in one call."""
    out = send.arguments()
    return lib.nexar_sendrecv(group._handle, *out, *receive.arguments(), byref(completion), byref(options))


def content(seed, step, message):
    """Of each message its own, even where source, destination and tag are those of another one."""
    return data.given(seed, step, 1000 + message.number, message.count)


def local_of(program, step, rank):
    """What a rank chooses for itself in a step."""
    return random.Random(f"{program.kind} {program.seed}/{step.number}/{rank}")
