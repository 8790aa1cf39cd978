"""Any Python object, pickled. Receive objects only from ranks that you trust: unpickling runs what they sent."""
from __future__ import annotations

import contextlib
import pickle
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ._errors import Error, OperationError, call_by_its_name
from ._library import ANY_SOURCE, ANY_TAG, Root, checked
from ._requests import _Clock
from ._words import OBJECTS

# A message that is an object: this, and its pickle. It is set apart first, and has room when its length is known.
_HEAD = struct.Struct("=8sQ")
_OBJECT = b"nexarobj"  # and the bytes of the pickle
_JOINED = 1 << 20  # a pickle below that is copied behind its head, which is cheaper than a message in pieces
_MISMATCH = -304

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class _Failed:
    """In place of an object that its rank could not pickle, or has not: so nobody waits for it."""

    def __init__(self, rank: int, text: str) -> None:
        self.rank, self.text = rank, text


def _bytes_of(value: Any, rank: int) -> tuple[Bytes, Exception | None]:
    """(its pickle, or that of why there is none; what to raise when it was sent)."""
    try:
        return np.frombuffer(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), np.uint8), None
    except Exception as error:  # whatever the object's own methods raise
        text = f"could not pickle its object: {_text_of(error)}"
        return np.frombuffer(pickle.dumps(_Failed(rank, text)), np.uint8), error


def _text_of(error: Exception) -> str:
    """Of any: its own method may raise."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _object_of(data: Any) -> Any:
    value = pickle.loads(data)
    if isinstance(value, _Failed):
        raise ValueError(f"rank {value.rank} {value.text}")
    return value


def _of_message(message: Bytes, source: int) -> Any:
    """OperationError: it is none."""
    if message.size >= _HEAD.size and _HEAD.unpack(message[:_HEAD.size].tobytes()) == (_OBJECT, message.size - _HEAD.size):
        return _object_of(message[_HEAD.size:])
    raise _no_object(source, f"this message of {message.size} bytes")


def _no_object(source: int | None, what: str) -> OperationError:
    text = f"rank {source} sent no object: use recv for {what}, which is lost now"
    return OperationError(_MISMATCH, f"recv_object: MISMATCH: {text}", text=text, op="recv_object", rank=source)


@contextlib.contextmanager
def _within(function: str) -> Iterator[tuple[int, int]]:
    """The match_ids of the two collectives that its objects travel in: lengths, and pickles. Errors of them name the function."""
    try:
        yield OBJECTS[function]
    except Error as error:
        call_by_its_name(error, function, ("broadcast", "all_gather", "all_gatherv", "gatherv", "scatterv"))
        raise


class Objects:
    """Of a group; see nexar.Group."""
    rank: int
    size: int

    def bcast_object(self, value: Any = None, root: int = 0, *, timeout: float | None = None) -> Any:
        """The root's object, on every rank; the others' are not looked at. Raises ValueError where it cannot be pickled,
        on all ranks, and nexar.Error."""
        g: Any = self
        root = self._root(root)
        data, failed = _bytes_of(value, self.rank) if self.rank == root else (np.empty(0, np.uint8), None)
        length = np.array([data.size], np.uint64)
        with _within("bcast_object") as (lengths, pickles):
            g.broadcast(length, root, timeout=timeout, match_id=lengths)
            if self.rank != root:
                data = np.empty(int(length[0]), np.uint8)
            g.broadcast(data, root, timeout=timeout, match_id=pickles)
        if failed is not None:
            raise failed
        return value if self.rank == root else _object_of(data)

    def all_gather_object(self, value: Any, *, timeout: float | None = None) -> list[Any]:
        """Every rank's object, in rank order, on every rank. Raises ValueError where one cannot be pickled, on all ranks, and
        nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank)
        with _within("all_gather_object") as (lengths, pickles):
            counts = g.all_gather(np.array([data.size], np.uint64), timeout=timeout, match_id=lengths).ravel().tolist()
            packed = g.all_gatherv(data, counts, timeout=timeout, match_id=pickles)
        if failed is not None:
            raise failed
        return [_object_of(part) for part in np.split(packed, np.cumsum(counts)[:-1])]

    def gather_object(self, value: Any, root: int = 0, *, timeout: float | None = None) -> list[Any] | None:
        """Every rank's object, in rank order, on the root; None elsewhere. Raises ValueError where one cannot be pickled, on
        its rank and the root, and nexar.Error."""
        g: Any = self
        root = self._root(root)
        data, failed = _bytes_of(value, self.rank)
        with _within("gather_object") as (lengths, pickles):
            counts = g.all_gather(np.array([data.size], np.uint64), timeout=timeout, match_id=lengths).ravel().tolist()
            packed = g.gatherv(data, counts, root=root, timeout=timeout, match_id=pickles)
        if failed is not None:
            raise failed
        return None if packed is None else [_object_of(part) for part in np.split(packed, np.cumsum(counts)[:-1])]

    def scatter_object(self, values: Iterable[Any] | None = None, root: int = 0, *, timeout: float | None = None) -> Any:
        """Of the root's values, one for each rank, in rank order, this rank's; the others' are not looked at. Where one
        cannot be pickled its rank raises ValueError, and the root what pickling the first such one raised; the others get theirs. Raises
        ValueError on all where there are too few or too many; and nexar.Error."""
        g: Any = self
        root = self._root(root)
        data, counts, failed = np.empty(0, np.uint8), np.empty(self.size, np.uint64), None
        if self.rank == root:
            parts, errors = zip(*(_bytes_of(value, root) for value in self._one_each(values)))
            data, counts[:], failed = np.concatenate(parts), [part.size for part in parts], next((e for e in errors if e is not None), None)
        with _within("scatter_object") as (lengths, pickles):
            g.broadcast(counts, root, timeout=timeout, match_id=lengths)
            out = np.empty(int(counts[self.rank]), np.uint8)
            g.scatterv(data if self.rank == root else None, counts.tolist(), out, root, timeout=timeout, match_id=pickles)
        if failed is not None:
            raise failed
        return _object_of(out)

    def _root(self, root: int) -> int:
        """Refused before anything is sent: else the others would wait for a rank that goes no further."""
        if not 0 <= checked(Root, root) < self.size:
            raise ValueError(f"root is {root}; allowed: an integer, 0 to {self.size - 1}")
        return root

    def _one_each(self, values: Iterable[Any] | None) -> Sequence[Any]:
        text = f"gave no objects for {self.size} ranks"
        try:
            given = [] if values is None else list(values)
            if len(given) == self.size:
                return given
            if values is not None:
                text = f"gave {len(given)} objects for {self.size} ranks"
        except Exception as error:  # it gives none, or what it is raises
            text = f"gave no objects: {_text_of(error)}"
        return [_Failed(self.rank, text)] * self.size

    def send_object(self, value: Any, to: int, tag: int = 0, *, timeout: float | None = None) -> None:
        """Ends when the other rank has it. Receive it with recv_object. Raises what its pickling raises, and nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank)
        head = _HEAD.pack(_OBJECT, data.size)
        try:
            if data.size < _JOINED:
                g.send(b"".join((head, data.data)), to, tag, timeout=timeout)
            else:
                g.sendv([np.frombuffer(head, np.uint8), data], to, tag, timeout=timeout)
        except Error as error:
            call_by_its_name(error, "send_object")
            raise
        if failed is not None:
            raise failed

    def recv_object(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None) -> tuple[Any, int, int]:
        """(the object, its source, its tag). It is set apart (mprobe), and then received: several threads may do so at once. When
        this ends early, by its time-out or by Ctrl-C, the object stays, unless all of it has come; timeout=0 takes one that waits,
        and waits for its bytes. Raises ValueError where the sender could not pickle it, and nexar.Error: OperationError (MISMATCH)
        for a message that send_object has not sent, which is lost then."""
        try:
            message, of, its_tag = self._recv_object(source, tag, timeout)
        except Error as error:
            call_by_its_name(error, "recv_object")
            raise
        return _of_message(message, of), of, its_tag

    def _recv_object(self, source: int, tag: int, timeout: float | None) -> tuple[Bytes, int, int]:
        g: Any = self
        clock = _Clock(timeout)
        with g.mprobe(source, tag, timeout=timeout) as apart:
            room = np.empty(apart.bytes, np.uint8)
            try:
                left = clock.left()
                apart.recv(room, timeout=timeout if left is None else left if timeout else None)
            except OperationError as error:
                if error.code != _MISMATCH:
                    raise
                raise _no_object(apart.source, f"this message ({error.text})") from error
        return room, apart.source, apart.tag
