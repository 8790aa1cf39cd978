"""The quick way: _native, where it was built, for operations on numpy arrays, buffers and tensors. What is not plain, and everything
where it was not built, is NotImplemented: then the general way (_calls.py) does the same, 40 us slower. And the ends of requests, by
either."""
from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from ctypes import byref, c_uint64
from typing import Any

import numpy as np

from . import _arrays, _library
from ._errors import CallError, check, error_of
from ._library import BAD_HANDLE, BAD_STATE, INTERRUPTED, PENDING, lib
from ._rows import ROWS

SEND, RECV, PROBE, MRECV = 6, 7, 18, 20  # the numbers of messages in proto/operations.def
SENDV, RECVV = 62, 63  # which has none for these: the last ones of _native's table
# Longest single wait. A signal that arrives just before the library sleeps is seen after so long at the latest.
WAIT_MS = 500


def _not_here(*_: Any) -> Any:
    return NotImplemented


nothing: Any = _not_here
data: Any = _not_here
sides: Any = _not_here
packed: Any = _not_here
message: Any = _not_here
pieces: Any = _not_here
look: Any = _not_here
exchange: Any = _not_here
probe: Any = _not_here
mprobe: Any = _not_here
mrecv: Any = _not_here
start: Any = None  # of a persistent one
try:
    from . import _native
except ImportError:
    _native = None  # type: ignore[assignment]


def ask(number: int, milliseconds: int) -> Any:
    """How a request ended: the bytes of its completion, or (error, those; None where the call itself failed). None: pending, after
    so many milliseconds; 0 does not wait, and one below 0 waits until it has ended."""
    while True:
        end = _library.no_end()
        if milliseconds == 0:
            status = lib.nexar_request_test(number, end)
        else:
            status = lib.nexar_request_wait(number, WAIT_MS if milliseconds < 0 else milliseconds, end)
        if end.status != PENDING or status not in (PENDING, INTERRUPTED):
            break
        if milliseconds >= 0:
            return None
    if status == 0:
        return bytes(end)
    return error_of(status), None if end.status == PENDING or status == BAD_HANDLE else bytes(end)


def some(numbers: list[int], milliseconds: int, one: bool) -> Any:
    """Which of several requests have ended (0: passed over), or one of them: [(index, completion; None: to be asked for)]. None: none
    has, after so many milliseconds, as ask. An Error, which is not raised: of the call."""
    count, ended, indices = len(numbers), c_uint64(), (c_uint64 * len(numbers))()
    asked = (c_uint64 * count)(*numbers)
    while True:
        wait = WAIT_MS if milliseconds < 0 else milliseconds
        if one:
            status, ended.value = lib.nexar_request_wait_any(asked, count, wait, indices, None), 1
        else:
            status = lib.nexar_request_wait_some(asked, count, wait, indices, byref(ended), None, 0)
        if status not in (PENDING, INTERRUPTED):
            break
        if milliseconds >= 0:
            return None
    return [(index, None) for index in indices[:ended.value]] if status == 0 else error_of(status)


def poll(session: int, capacity: int, ends: list[Any]) -> None:
    """Appends the completions that a poll finds, as bytes."""
    ended, count = (_library.Completion * capacity)(), c_uint64()
    try:
        check(lib.nexar_session_poll(session, ended, ctypes.sizeof(_library.Completion), capacity, byref(count)))
    finally:  # also where a signal's handler raises
        ends.extend(map(bytes, ended[:count.value]))


free: Any = lib.nexar_request_free


def _address(name: str) -> int:
    return ctypes.cast(getattr(lib, f"nexar_{name}"), ctypes.c_void_p).value or 0


def _use() -> None:
    functions = ("request_wait", "request_test", "request_wait_any", "request_wait_some", "request_cancel", "request_free",
                 "request_start", "mprobe", "session_poll", "last_error")
    _native.bind(tuple(map(_address, functions)), error_of, np.ndarray, _arrays.COPIED, _arrays.refused, _arrays.shares,
                 _arrays.OPS)
    for row in ROWS.values():
        _native.operation(row.number, _address(f"{row.name}_start"), row.reduces, row.rooted)
    for number, name in ((SEND, "send"), (RECV, "recv"), (PROBE, "probe"), (MRECV, "mrecv"), (SENDV, "sendv"), (RECVV, "recvv")):
        _native.operation(number, _address(f"{name}_start"), False, False)
    for name in ("nothing", "data", "sides", "packed", "message", "pieces", "look", "exchange", "probe", "mprobe", "mrecv", "start", "ask",
                 "some", "poll", "free", "inside"):
        globals()[name] = getattr(_native, name)


def inside(function: Callable[[], Any], *gates: bytearray) -> Any:
    """What the function gives, called inside all gates; NotImplemented: a thread is inside one of them.

    A signal's handler may raise after any call that Python makes. So each step with a gate is one call of C: a byte goes from one
    list to another, and at the end back."""
    taken: list[int] = []
    back = map(bytearray.append, gates, taken)  # lazily: what is taken by then
    try:
        try:
            deque(map(taken.append, map(bytearray.pop, gates)), 0)
        except IndexError:
            return NotImplemented
        return function()
    finally:
        deque(back, 0)


if _native is not None:
    _use()


def alone(function: Callable[[], Any], *gates: bytearray) -> Any:
    """What it gives; CallError: another thread is inside a collective of one of these groups."""
    given = inside(function, *gates)
    if given is NotImplemented:
        text = "another thread is inside a collective of this group: give each thread a group of its own"
        raise CallError(BAD_STATE, f"BAD_STATE: {text}", text=text)
    return given
