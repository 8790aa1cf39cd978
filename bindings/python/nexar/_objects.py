"""Any Python object, pickled. Receive objects only from ranks that you trust: unpickling runs what they sent."""
from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._library import ANY_SOURCE, ANY_TAG

_INLINE = 4096  # bytes that travel with the length, in one message
_HEAD = 8


class _Failed:
    """In place of an object that its rank could not pickle, or has not: so nobody waits for it."""

    def __init__(self, rank: int, text: str) -> None:
        self.rank, self.text = rank, text


def _bytes_of(value: Any, rank: int) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], Exception | None]:
    """(its pickle, or that of why there is none; what to raise when it was sent)."""
    try:
        return np.frombuffer(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), np.uint8), None
    except Exception as error:  # whatever the object's own methods raise
        text = f"could not pickle its object: {type(error).__name__}: {error}"
        return np.frombuffer(pickle.dumps(_Failed(rank, text)), np.uint8), error


def _object_of(data: Any) -> Any:
    value = pickle.loads(data)
    if isinstance(value, _Failed):
        raise ValueError(f"rank {value.rank} {value.text}")
    return value


class Objects:
    """Of a group; see nexar.Group."""
    rank: int
    size: int

    def bcast_object(self, value: Any = None, root: int = 0, *, timeout: float | None = None) -> Any:
        """The root's object, on every rank; the others' are not looked at. Raises ValueError where it cannot be pickled,
        on all ranks, and nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank) if self.rank == root else (np.empty(0, np.uint8), None)
        length = np.array([data.size], np.uint64)
        g.broadcast(length, root, timeout=timeout)
        if self.rank != root:
            data = np.empty(int(length[0]), np.uint8)
        g.broadcast(data, root, timeout=timeout)
        if failed is not None:
            raise failed
        return value if self.rank == root else _object_of(data)

    def all_gather_object(self, value: Any, *, timeout: float | None = None) -> list[Any]:
        """Every rank's object, in rank order, on every rank. Raises ValueError where one cannot be pickled, on all ranks, and
        nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank)
        counts = g.all_gather(np.array([data.size], np.uint64), timeout=timeout).ravel().tolist()
        packed = g.all_gatherv(data, counts, timeout=timeout)
        if failed is not None:
            raise failed
        return [_object_of(part) for part in np.split(packed, np.cumsum(counts)[:-1])]

    def gather_object(self, value: Any, root: int = 0, *, timeout: float | None = None) -> list[Any] | None:
        """Every rank's object, in rank order, on the root; None elsewhere. Raises ValueError where one cannot be pickled, on
        its rank and the root, and nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank)
        counts = g.all_gather(np.array([data.size], np.uint64), timeout=timeout).ravel().tolist()
        packed = g.gatherv(data, counts, root=root, timeout=timeout)
        if failed is not None:
            raise failed
        return None if packed is None else [_object_of(part) for part in np.split(packed, np.cumsum(counts)[:-1])]

    def scatter_object(self, values: Sequence[Any] | None = None, root: int = 0, *, timeout: float | None = None) -> Any:
        """Of the root's values, one for each rank, in rank order, this rank's; the others' are not looked at. Raises
        ValueError where one cannot be pickled, on its rank, and where there are too few or too many, on all; and nexar.Error."""
        g: Any = self
        parts, data, counts = [], np.empty(0, np.uint8), np.empty(self.size, np.uint64)
        if self.rank == root:
            parts = [_bytes_of(value, root)[0] for value in self._one_each(values)]
            data, counts[:] = np.concatenate(parts), [part.size for part in parts]
        g.broadcast(counts, root, timeout=timeout)
        out = np.empty(int(counts[self.rank]), np.uint8)
        g.scatterv(data if self.rank == root else None, counts.tolist(), out, root, timeout=timeout)
        return _object_of(out)

    def _one_each(self, values: Sequence[Any] | None) -> Sequence[Any]:
        if values is not None and len(values) == self.size:
            return values
        count = "no" if values is None else len(values)
        return [_Failed(self.rank, f"gave {count} objects for {self.size} ranks")] * self.size

    def send_object(self, value: Any, to: int, tag: int = 0, *, timeout: float | None = None) -> None:
        """Ends when the other rank has it. Receive it with recv_object: it is one message, or two. Raises what its pickling
        raises, and nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank)
        head = data.size.to_bytes(_HEAD, sys.byteorder) + data[:_INLINE].tobytes()
        g.send(np.frombuffer(head, np.uint8), to, tag, timeout=timeout)
        if data.size > _INLINE:
            g.send(data[_INLINE:], to, tag, timeout=timeout)
        if failed is not None:
            raise failed

    def recv_object(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None) -> tuple[Any, int, int]:
        """(the object, its source, its tag). Two threads must not receive objects of one source and tag at once. Raises
        ValueError where the sender could not pickle it, and nexar.Error."""
        g: Any = self
        head = np.empty(_HEAD + _INLINE, np.uint8)
        source, tag, _ = g.recv(head, source, tag, timeout=timeout)
        size = int.from_bytes(head[:_HEAD].tobytes(), sys.byteorder)
        if size <= _INLINE:
            return _object_of(head[_HEAD:_HEAD + size]), source, tag
        data = np.empty(size, np.uint8)
        data[:_INLINE] = head[_HEAD:]
        g.recv(data[_INLINE:], source, tag, timeout=timeout)
        return _object_of(data), source, tag
