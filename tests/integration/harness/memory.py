"""The kinds of memory that an operation may work on: ordinary, nexar_alloc's, and registered memfds."""
import fcntl
import mmap
import os

import numpy as np

from .values import storage, typed

OPENING = 3  # elements that are left out before each array: not every array starts on a page


class Memory:
    """Arrays of a session in one kind of memory; each call reuses the same bytes."""

    def __init__(self, session, kind, nbytes):
        self.kind, nbytes = kind, nbytes + OPENING * 8
        if kind == "ordinary":
            self._bytes = np.zeros(nbytes, np.uint8)
        elif kind == "alloc":
            self._bytes = session.alloc(nbytes, "uint8")
        else:
            self._bytes = self._register(session, nbytes)

    def _register(self, session, nbytes):
        nbytes = (nbytes + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        self._fd = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(self._fd, 2 * nbytes)  # the registered part starts in its middle
        self._map = mmap.mmap(self._fd, nbytes, mmap.MAP_SHARED, offset=nbytes)
        array = session.register_memfd(np.frombuffer(self._map, np.uint8), self._fd, nbytes)
        seals = fcntl.fcntl(self._fd, fcntl.F_GET_SEALS)
        assert seals & fcntl.F_SEAL_SHRINK and seals & fcntl.F_SEAL_GROW, "registered memory is not sealed"
        return array

    def array(self, count, dtype):
        kind = storage(dtype)
        start = OPENING * kind.itemsize
        return typed(self._bytes[start:start + count * kind.itemsize].view(kind), dtype)
