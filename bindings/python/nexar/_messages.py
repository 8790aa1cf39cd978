"""Probes, messages that are set apart, exchanges, and messages in pieces."""
from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Sequence
from ctypes import byref, c_uint64
from typing import Any

import numpy as np

from . import _arrays, _library, _quick
from ._arrays import Memory, Values
from ._calls import Calls
from ._dropped import put_back
from ._errors import Error, call_by_its_name, error_of
from ._library import ANY_SOURCE, ANY_TAG, lib
from ._requests import Request, _Clock, received
from ._several import wait_all

_TIMED_OUT = -301


class Message:
    """A message that mprobe has set apart: its source, tag and bytes. Only recv() gets it. free(), the end of a `with`, or
    the end of this object puts it back to its place, where the next receive that matches may take it."""

    source: int
    tag: int
    bytes: int
    _group: Any = None  # of one whose __init__ a signal's handler has left
    _number = 0  # once mprobe has set it apart

    def __init__(self, group: Any) -> None:
        """Before mprobe has one: where a signal's handler raises after that, this puts it back; or the session, where one raises as
        __del__ begins, which Python ignores."""
        self._apart: list[int] = []  # its number, while it is set apart
        connection = group._connection
        self._key = next(connection.keys)
        connection.messages[self._key] = weakref.ref(self, connection.dropped.orphaned), group._handle, self._apart
        self._group = group

    def recv(self, values: Memory, *, timeout: float | None = None, priority: int | None = None) -> tuple[int, int, int]:
        """The message into values, which may be longer. Returns (source, tag, elements). The message is not set apart any
        more, also when this fails. Raises ValueError for memory that cannot be used, and nexar.Error."""
        group = self._group
        if not group._dropped:
            got = _quick.mrecv(_quick.MRECV, group._handle, self, values, timeout, 0, priority, 0, None)
            if got is not NotImplemented:
                return got  # type: ignore[no-any-return]
        return self._recv(values, hidden=True, timeout=timeout, priority=priority)._finish()  # type: ignore[no-any-return]

    def recv_start(self, values: Memory, *, timeout: float | None = None, user_data: int = 0,
                   priority: int | None = None) -> Request:
        """Begins recv."""
        group = self._group
        if not group._dropped or group._may_start():
            request = Request(group._connection, "mrecv", group._weak, (group, values), None, received, user_data)
            begun = _quick.mrecv(_quick.MRECV, group._handle, self, values, timeout, 0, priority, 0, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._recv(values, timeout=timeout, user_data=user_data, priority=priority)

    def _recv(self, values: Memory, **given: Any) -> Request:
        address, elements, dtype = _arrays.array(values, True)
        request: Request = self._group._start(lib.nexar_mrecv_start, self._number, address, elements, dtype,
                                              keep=(values, _arrays.held(values)), value=int(lib.nexar_dtype_size(dtype)), made=received,
                                              **given)
        self._apart.clear()
        return request

    def __repr__(self) -> str:
        gone = "" if self._apart else ", put back or received"
        return f"<nexar.Message from rank {self.source}, tag {self.tag}: {self.bytes} bytes{gone}>"

    def free(self) -> None:
        """Puts it back. Nothing happens if it was received or freed before, or its group has ended."""
        if self._apart:
            put_back(self._group._handle, self._apart)

    def __del__(self) -> None:
        if self._group is not None and not sys.is_finalizing():  # the process ends: its group with it
            if self._apart:
                put_back(self._group._handle, self._apart)
            self._group._connection.messages.pop(self._key, None)

    def __enter__(self) -> Message:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.free()


def _must_be_apart(values: Values, out: Memory) -> None:
    """ValueError: what is sent and what is received share memory, or out cannot be received into."""
    at, room, out_dtype = _arrays.array(out, True, "out")
    given, copied = _arrays.lifted(values)
    if copied:
        return
    begin, count, dtype = _arrays.array(given, False)
    end, out_end = begin + count * int(lib.nexar_dtype_size(dtype)), at + room * int(lib.nexar_dtype_size(out_dtype))
    if max(begin, at) < min(end, out_end):
        raise ValueError("values and out overlap: use sendrecv_replace")


class Messages(Calls):
    """Of a group; see nexar.Group."""
    _send: Callable[..., Request]
    _recv: Callable[..., Request]

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None,
              priority: int | None = None) -> tuple[int, int, int]:
        """Waits for a message that recv would take, and leaves it. Returns (source, tag, bytes). timeout=0: only one that
        is here already, else nexar.TimedOut. Where other threads receive, use mprobe. Raises nexar.Error."""
        if not self._dropped:
            got = _quick.probe(_quick.PROBE, self._handle, source, tag, timeout, 0, priority, 0, None)
            if got is not NotImplemented:
                return got  # type: ignore[no-any-return]
        return self._probe(source, tag, hidden=True, timeout=timeout, priority=priority)._finish()  # type: ignore[no-any-return]

    def probe_start(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None,
                    user_data: int = 0, priority: int | None = None) -> Request:
        """Begins probe."""
        if not self._dropped or self._may_start():
            request = Request(self._connection, "probe", self._weak, (self,), 1, received, user_data)
            begun = _quick.probe(_quick.PROBE, self._handle, source, tag, timeout, 0, priority, 0, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._probe(source, tag, timeout=timeout, user_data=user_data, priority=priority)

    def _probe(self, source: int, tag: int, **given: Any) -> Request:
        return self._start(lib.nexar_probe_start, source, tag, keep=None, value=1, made=received, **given)

    def mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None,
               priority: int | None = None) -> Message:
        """As probe, and sets the message apart for the Message that it returns: nobody else gets it. Raises
        nexar.Error."""
        clock = None if timeout is None else _Clock(timeout)
        while (found := self._mprobe(source, tag)) is None:
            left = None if clock is None else clock.left()
            self.probe(source, tag, timeout=timeout if left is None else left, priority=priority)  # Ctrl-C works in it
        return found

    def _mprobe(self, source: int, tag: int) -> Message | None:
        message = Message(self)
        got = _quick.mprobe(self._handle, source, tag, message)
        if got is None:
            return None
        if got is not NotImplemented:
            message.source, message.tag, message.bytes = got
            return message
        number, end = c_uint64(), _library.no_end()
        now = _library.options(_library.OpOptions, lib.nexar_op_options_init, timeout_ms=0)
        _library.check_numbers(lib.nexar_mprobe, self._handle, source, tag)
        try:
            status = lib.nexar_mprobe(self._handle, source, tag, byref(number), byref(end), byref(now))
        finally:  # also where a signal's handler raises once it is set apart
            message._number = number.value
            if number.value:
                message._apart.append(number.value)
        if status == _TIMED_OUT:
            return None
        if status != 0:
            raise error_of(status)
        message.source, message.tag, message.bytes = end.source, end.tag, end.bytes
        return message

    def sendrecv(self, values: Values, to: int, out: Memory, source: int = ANY_SOURCE, send_tag: int = 0, tag: int = ANY_TAG,
                 *, timeout: float | None = None, priority: int | None = None) -> tuple[int, int, int]:
        """Sends values and receives into out at the same time, so that ranks that exchange data do not wait for each
        other. Returns (source, tag, elements) of what was received, when both have ended. Raises ValueError for memory
        that cannot be used or where the two overlap, and nexar.Error: the send's, if that failed."""
        try:
            if not self._dropped:
                got = _quick.exchange(_quick.SEND, _quick.RECV, self._handle, values, to, send_tag, out, source, tag, timeout, 0, priority, 0,
                                      None)
                if got is not NotImplemented:
                    return got  # type: ignore[no-any-return]
            if isinstance(values, _arrays.COPIED):
                return self.sendrecv(_arrays.copy_of(values), to, out, source, send_tag, tag, timeout=timeout, priority=priority)
            _library.checked(_library.SentTag, send_tag, "send_tag")  # the send would name its own
            _library.check_numbers(lib.nexar_probe_start, None, source, tag)
            _must_be_apart(values, out)  # refused before anything is sent
            given: dict[str, Any] = {"timeout": timeout, "priority": priority}
            return self._exchange(self._send(values, to, send_tag, hidden=True, **given), out, source, tag, given)
        except Error as error:
            call_by_its_name(error, "sendrecv")
            raise

    def sendrecv_replace(self, values: Memory, to: int, source: int = ANY_SOURCE, send_tag: int = 0, tag: int = ANY_TAG,
                         *, timeout: float | None = None, priority: int | None = None) -> tuple[int, int, int]:
        """As sendrecv with one array: a copy of it is sent, and the message received is written into it. Returns (source,
        tag, elements). After an error its content is not specified. Raises ValueError for memory that cannot be used, and
        nexar.Error."""
        try:
            if not self._dropped:  # a small one
                got = _quick.exchange(_quick.SEND, _quick.RECV, self._handle, NotImplemented, to, send_tag, values, source, tag, timeout, 0,
                                      priority, 0, None)
                if got is not NotImplemented:
                    return got  # type: ignore[no-any-return]
            if _quick.start is not None and not self._dropped and type(values) is np.ndarray:
                lent: list[Any] = []
                try:
                    copied = self._connection.copied(values, lent)
                    got = _quick.exchange(_quick.SEND, _quick.RECV, self._handle, copied, to, send_tag, values, source, tag, timeout, 0,
                                          priority, 0, None)
                    self._connection.give_back(lent)
                except BaseException:
                    self._connection.let_go(lent)
                    raise
                if got is not NotImplemented:
                    return got  # type: ignore[no-any-return]
            address, elements, dtype = _arrays.array(values, True)
            _library.checked(_library.SentTag, send_tag, "send_tag")  # as above
            _library.check_numbers(lib.nexar_probe_start, None, source, tag)
            size = elements * int(lib.nexar_dtype_size(dtype))
            copy = np.empty(size, np.uint8)
            ctypes.memmove(copy.ctypes.data, address, size)
            given: dict[str, Any] = {"timeout": timeout, "priority": priority}
            sending = self._start(lib.nexar_send_start, copy.ctypes.data, elements, dtype, to, send_tag, keep=copy,
                                  hidden=True, **given)
            return self._exchange(sending, values, source, tag, given)
        except Error as error:
            call_by_its_name(error, "sendrecv_replace")
            raise

    def _exchange(self, sending: Request, out: Memory, source: int, tag: int, given: dict[str, Any]) -> tuple[int, int, int]:
        both = [sending]
        try:
            both.append(self._recv(out, source, tag, hidden=True, **given))
            return wait_all(both)[1]  # type: ignore[no-any-return]
        except BaseException:
            for request in both:
                request.cancel()
            raise

    def sendv(self, pieces: Sequence[Values], to: int, tag: int = 0, *, timeout: float | None = None,
              priority: int | None = None) -> None:
        """One message of all elements of the arrays, which have one dtype, without joining them. Raises ValueError for
        memory that cannot be used, and nexar.Error."""
        if not self._dropped:
            given = _memories(pieces)
            if _quick.pieces(_quick.SENDV, self._handle, given, to, tag, False, timeout, 0, priority, 0, None) is not NotImplemented:
                return
        self._sendv(pieces, to, tag, hidden=True, timeout=timeout, priority=priority)._finish()

    def sendv_start(self, pieces: Sequence[Values], to: int, tag: int = 0, *, timeout: float | None = None,
                    user_data: int = 0, priority: int | None = None) -> Request:
        """Begins sendv."""
        if not self._dropped or self._may_start():
            given = _memories(pieces)
            request = Request(self._connection, "sendv", self._weak, (self, given), None, None, user_data)
            begun = _quick.pieces(_quick.SENDV, self._handle, given, to, tag, False, timeout, 0, priority, 0, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._sendv(pieces, to, tag, timeout=timeout, user_data=user_data, priority=priority)

    def _sendv(self, pieces: Sequence[Values], to: int, tag: int, **given: Any) -> Request:
        arrays, dtype, kept = pieces_of(pieces, False)
        return self._start(lib.nexar_sendv_start, arrays, len(arrays), dtype, to, tag, keep=(kept, _arrays.held(*kept)), **given)

    def recvv(self, pieces: Sequence[Memory], source: int = ANY_SOURCE, tag: int = ANY_TAG, *,
              timeout: float | None = None, priority: int | None = None) -> tuple[int, int, int]:
        """The oldest message that matches, into the arrays one after the other; it may be shorter. Returns (source, tag,
        elements). Raises ValueError for memory that cannot be used, and nexar.Error."""
        if not self._dropped:
            got = _quick.pieces(_quick.RECVV, self._handle, pieces if type(pieces) is list else None, source, tag, True, timeout, 0, priority,
                                0, None)
            if got is not NotImplemented:
                return got  # type: ignore[no-any-return]
        return self._recvv(pieces, source, tag, hidden=True, timeout=timeout, priority=priority)._finish()  # type: ignore[no-any-return]

    def recvv_start(self, pieces: Sequence[Memory], source: int = ANY_SOURCE, tag: int = ANY_TAG, *,
                    timeout: float | None = None, user_data: int = 0, priority: int | None = None) -> Request:
        """Begins recvv."""
        if type(pieces) is list and (not self._dropped or self._may_start()):
            request = Request(self._connection, "recvv", self._weak, (self, pieces[:]), None, received, user_data)
            begun = _quick.pieces(_quick.RECVV, self._handle, pieces, source, tag, True, timeout, 0, priority, 0, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._recvv(pieces, source, tag, timeout=timeout, user_data=user_data, priority=priority)

    def _recvv(self, pieces: Sequence[Memory], source: int, tag: int, **given: Any) -> Request:
        arrays, dtype, kept = pieces_of(pieces, True)
        return self._start(lib.nexar_recvv_start, arrays, len(arrays), dtype, source, tag, keep=(kept, _arrays.held(*kept)),
                           value=int(lib.nexar_dtype_size(dtype)), made=received, **given)


def _memories(pieces: Any) -> Any:
    """A list of memory, with copies of numbers and lists; None: it is no list, or has what cannot be copied."""
    if type(pieces) is not list:
        return None
    try:
        return [_arrays.copy_of(piece) if isinstance(piece, _arrays.COPIED) else piece for piece in pieces]
    except (TypeError, ValueError, OverflowError):  # the general way says which
        return None


def pieces_of(pieces: Sequence[Any], write: bool) -> tuple[Any, int, list[Any]]:
    """(the array of nexar_piece, dtype, what to keep alive)."""
    given = _library.entries(pieces, "pieces", "a list of arrays")
    kept = [piece if write else _arrays.lifted(piece, f"pieces[{index}]")[0] for index, piece in enumerate(given)]
    found = [_arrays.array(piece, write, f"pieces[{index}]") for index, piece in enumerate(kept)]
    if not found:
        raise ValueError(f"pieces is {_library.shown(pieces)}; allowed: a list of one array or more")
    dtype = found[0][2]
    for index, (_, _, other) in enumerate(found):
        if other != dtype:
            names = list(_arrays.DTYPES)
            raise ValueError(f"pieces[{index}] is of dtype {names[other]}, and pieces[0] of {names[dtype]}; allowed: one dtype for all")
    return (_library.Piece * len(found))(*(_library.Piece(address, count) for address, count, _ in found)), dtype, kept
