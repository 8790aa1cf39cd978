"""Any Python object, pickled. Receive objects only from ranks that you trust: unpickling runs what they sent."""
from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._errors import OperationError
from ._library import ANY_SOURCE, ANY_TAG
from ._requests import _Clock

# A message that is an object: this, and its pickle. Before one that is longer than _WHOLE bytes comes an announcement, of its length:
# a receive has room for _WHOLE bytes. What comes next is set apart first, and has room when its own length is known: an announcement may
# lie, or its sender have given up.
_HEAD = struct.Struct("=8sQ")
_OBJECT = b"nexarobj"  # and the bytes of the pickle
_WHOLE = _HEAD.size + 4096
_JOINED = 1 << 20  # a pickle below that is copied behind its head, which is cheaper than a message in pieces
_ANNOUNCEMENT = struct.Struct("=8sQQQ")
_LARGE = b"nexarbig"  # and the source, the tag, and the bytes of the message
# match_id of the two collectives of each that has two: so what another rank does instead is never taken for one of them.
_LENGTHS, _PICKLES = (int.from_bytes(name, "big") for name in (b"lengths ", b"pickles "))
_MISMATCH = -304
_ANNOUNCED_MAX = 64  # that a group remembers; beyond them each message of any source and tag counts as announced
_ANY = (ANY_SOURCE, ANY_TAG)

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
        text = f"could not pickle its object: {type(error).__name__}: {error}"
        return np.frombuffer(pickle.dumps(_Failed(rank, text)), np.uint8), error


def _object_of(data: Any) -> Any:
    value = pickle.loads(data)
    if isinstance(value, _Failed):
        raise ValueError(f"rank {value.rank} {value.text}")
    return value


def _of_message(message: Bytes, source: int) -> tuple[Any] | int:
    """The object; or the bytes of the next message, which is one. OperationError: it is neither."""
    if message.size >= _HEAD.size:
        kind, size = _HEAD.unpack(message[:_HEAD.size].tobytes())
        if kind == _OBJECT and message.size == _HEAD.size + size:
            return _object_of(message[_HEAD.size:]),
        if kind == _LARGE and message.size == _ANNOUNCEMENT.size:
            return int(_ANNOUNCEMENT.unpack(message.tobytes())[3])
    raise _no_object(source, f"this message of {message.size} bytes")


def _no_object(source: int | None, what: str) -> OperationError:
    text = f"rank {source} sent no object: use recv for {what}, which is lost now"
    return OperationError(_MISMATCH, f"MISMATCH: recv_object: {text}", text=text, op="recv_object", rank=source)


class Objects:
    """Of a group; see nexar.Group."""
    rank: int
    size: int
    _announced: set[tuple[int, int]]  # of which source and tag a large object is next, or its sender gave up

    def bcast_object(self, value: Any = None, root: int = 0, *, timeout: float | None = None) -> Any:
        """The root's object, on every rank; the others' are not looked at. Raises ValueError where it cannot be pickled,
        on all ranks, and nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank) if self.rank == root else (np.empty(0, np.uint8), None)
        length = np.array([data.size], np.uint64)
        g.broadcast(length, root, timeout=timeout, match_id=_LENGTHS)
        if self.rank != root:
            data = np.empty(int(length[0]), np.uint8)
        g.broadcast(data, root, timeout=timeout, match_id=_PICKLES)
        if failed is not None:
            raise failed
        return value if self.rank == root else _object_of(data)

    def all_gather_object(self, value: Any, *, timeout: float | None = None) -> list[Any]:
        """Every rank's object, in rank order, on every rank. Raises ValueError where one cannot be pickled, on all ranks, and
        nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank)
        counts = g.all_gather(np.array([data.size], np.uint64), timeout=timeout, match_id=_LENGTHS).ravel().tolist()
        packed = g.all_gatherv(data, counts, timeout=timeout, match_id=_PICKLES)
        if failed is not None:
            raise failed
        return [_object_of(part) for part in np.split(packed, np.cumsum(counts)[:-1])]

    def gather_object(self, value: Any, root: int = 0, *, timeout: float | None = None) -> list[Any] | None:
        """Every rank's object, in rank order, on the root; None elsewhere. Raises ValueError where one cannot be pickled, on
        its rank and the root, and nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank)
        counts = g.all_gather(np.array([data.size], np.uint64), timeout=timeout, match_id=_LENGTHS).ravel().tolist()
        packed = g.gatherv(data, counts, root=root, timeout=timeout, match_id=_PICKLES)
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
        g.broadcast(counts, root, timeout=timeout, match_id=_LENGTHS)
        out = np.empty(int(counts[self.rank]), np.uint8)
        g.scatterv(data if self.rank == root else None, counts.tolist(), out, root, timeout=timeout, match_id=_PICKLES)
        return _object_of(out)

    def _one_each(self, values: Sequence[Any] | None) -> Sequence[Any]:
        if values is not None and len(values) == self.size:
            return values
        count = "no" if values is None else len(values)
        return [_Failed(self.rank, f"gave {count} objects for {self.size} ranks")] * self.size

    def send_object(self, value: Any, to: int, tag: int = 0, *, timeout: float | None = None) -> None:
        """Ends when the other rank has it. Receive it with recv_object. One whose pickle is longer than 4 KiB is announced by a
        message of its own, which takes an exchange more; timeout=0 does not send it. Raises what its pickling raises, and
        nexar.Error."""
        g: Any = self
        data, failed = _bytes_of(value, self.rank)
        head = _HEAD.pack(_OBJECT, data.size)
        if len(head) + data.size <= _WHOLE:
            g.send(b"".join((head, data.data)), to, tag, timeout=timeout)
        else:
            clock = _Clock(timeout)
            g.send(_ANNOUNCEMENT.pack(_LARGE, self.rank, tag, len(head) + data.size), to, tag, timeout=timeout)
            if data.size < _JOINED:
                g.send(b"".join((head, data.data)), to, tag, timeout=_rest(clock, timeout))
            else:
                g.sendv([np.frombuffer(head, np.uint8), data], to, tag, timeout=_rest(clock, timeout))
        if failed is not None:
            raise failed

    def recv_object(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None) -> tuple[Any, int, int]:
        """(the object, its source, its tag). An object is received whole or stays, also when this ends early, by its time-out or by
        Ctrl-C. Two threads must not receive objects of one source and tag at once. Raises ValueError where the sender could not
        pickle it, and nexar.Error: OperationError (MISMATCH) for a message that send_object has not sent, which is lost then."""
        clock, announced = _Clock(timeout), 0
        while True:
            if self._announced or announced:
                message, source, tag = self._recv_set_apart(source, tag, _rest(clock, timeout), announced)
            else:
                message, source, tag = self._recv_into(source, tag, _rest(clock, timeout))
            found = _of_message(message, source)
            if isinstance(found, tuple):
                return found[0], source, tag
            announced = found

    def _recv_into(self, source: int, tag: int, timeout: float | None) -> tuple[Bytes, int, int]:
        g: Any = self
        room = np.empty(_WHOLE, np.uint8)
        room[:_HEAD.size] = 0
        try:
            source, tag, elements = g.recv(room, source, tag, timeout=timeout)
            self._note(room, source, tag)
        except OperationError as error:
            if error.code != _MISMATCH:
                raise
            sender = error.rank if error.rank != self.rank or error.other_rank is None else error.other_rank
            raise _no_object(sender, f"this message ({error.text})") from error
        except BaseException:  # a signal's handler, which may come when the message has
            self._note(room, source, tag)
            raise
        return room[:elements], source, tag

    def _note(self, message: Bytes, source: int, tag: int) -> None:
        """That a large object is next, or is not any more: what has come is an announcement, or, where something has, is none."""
        kind = message[:len(_LARGE)].tobytes()
        if kind == _LARGE and message.size >= _ANNOUNCEMENT.size:
            _, of, its_tag, _ = _ANNOUNCEMENT.unpack(message[:_ANNOUNCEMENT.size].tobytes())
            self._announced.add((of, its_tag))
            if len(self._announced) > _ANNOUNCED_MAX:
                self._announced = {_ANY}
        elif kind == _OBJECT:
            self._announced.discard((source, tag))

    def _recv_set_apart(self, source: int, tag: int, timeout: float | None, announced: int) -> tuple[Bytes, int, int]:
        """Of any length: what ends this early puts the message back to its place. One whose sender has announced another length is
        received, and is no object."""
        g: Any = self
        clock = _Clock(timeout)
        with g.mprobe(source, tag, timeout=timeout) as apart:
            room = np.empty(apart.bytes, np.uint8)
            try:
                apart.recv(room, timeout=_rest(clock, timeout))
            except OperationError as error:
                if error.code != _MISMATCH:
                    raise
                raise _no_object(apart.source, f"this message ({error.text})") from error
        self._note(room, apart.source, apart.tag)
        if announced and apart.bytes > _WHOLE and apart.bytes != announced:  # a short one: the sender gave the announced one up
            raise _no_object(apart.source, f"this message of {apart.bytes} bytes, announced with {announced}")
        return room, apart.source, apart.tag


def _rest(clock: _Clock, timeout: float | None) -> float | None:
    left = clock.left()
    return timeout if left is None else left
