"""Blocks of each kind of memory, with a guard before and after; and what must still stand in those that are done with."""
import mmap
import os
from ctypes import byref, c_void_p

import numpy as np

from harness import cabi, nexar

KINDS = ("ordinary", "alloc", "registered")
ARENA = 1 << 20
GUARD, GUARD_BYTE, POISON = 64, 0xA5, 0x5A


class Block:
    """view: the bytes of one side of an operation."""

    def __init__(self, raw, start, nbytes):
        self.raw, self.view = raw, raw[start:start + nbytes]
        self.start, self.poison = start, None
        raw[:] = GUARD_BYTE

    @property
    def address(self):
        return self.raw.ctypes.data + self.start

    def fill(self, byte):
        self.view[:] = byte
        self.poison = byte

    def wrong(self):
        """What has been written that should not; None: nothing."""
        end = self.start + self.view.size
        if (self.raw[:self.start] != GUARD_BYTE).any() or (self.raw[end:] != GUARD_BYTE).any():
            return "bytes beside it were written"
        if self.poison is not None and (self.view != self.poison).any():
            bad = np.flatnonzero(self.view != self.poison)
            return f"{bad.size} of its {self.view.size} bytes were written afterwards, from {bad[0]} to {bad[-1]}"
        return None


class Memory:
    """Of one session. Blocks are not reused; free() gives all back, which the library must accept."""

    def __init__(self, session):
        self.session, self.arenas, self.allocated, self.registered = session, {}, [], []

    def block(self, kind, nbytes, align, shift):
        """shift: by how many alignments it begins later, as not every array begins on a page."""
        start = GUARD + shift * align
        total = (start + nbytes + GUARD + 63) // 64 * 64
        if kind == "ordinary":
            return Block(np.empty(total, np.uint8), start, nbytes)
        arena, used = self.arenas.get(kind, (None, 0))
        if arena is None or used + total > arena.size:
            arena, used = (self.alloc if kind == "alloc" else self.register)(max(ARENA, total)), 0
        self.arenas[kind] = arena, used + total
        return Block(arena[used:used + total], start, nbytes)

    def alloc(self, nbytes):
        memory = c_void_p()
        cabi.check(cabi.lib.nexar_alloc(cabi.of(self.session), nbytes, None, byref(memory)))
        self.allocated.append(memory)
        return np.frombuffer((cabi.ctypes.c_char * nbytes).from_address(memory.value), np.uint8)

    def register(self, nbytes):
        nbytes = (nbytes + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        fd = os.memfd_create("oracle", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, nbytes)
            mapped = mmap.mmap(fd, nbytes, mmap.MAP_SHARED)
            array = self.session.register_memfd(np.frombuffer(mapped, np.uint8), fd)
        finally:
            os.close(fd)
        self.registered.append(array)
        return array

    def free(self):
        """Words about what could not be given back."""
        bad = []
        for memory in self.allocated:
            status = cabi.lib.nexar_free(cabi.of(self.session), memory)
            bad += [f"nexar_free: {cabi.error_of(status)}"] * (status != 0)
        for array in self.registered:
            try:
                self.session.unregister(array)
            except nexar.Error as error:
                bad.append(f"nexar_unregister: {error}")
        self.arenas, self.allocated, self.registered = {}, [], []
        return bad
