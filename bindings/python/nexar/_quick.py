"""The quick way: _native, where it was built, for operations on plain numpy arrays. What is not plain, and everything where it was
not built, is NotImplemented: then the general way (_calls.py) does the same, 40 us slower. And the ends of requests, by either."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_uint64
from typing import Any

import numpy as np

from . import _library
from ._errors import error_of
from ._library import BAD_HANDLE, INTERRUPTED, PENDING, lib
from ._rows import ROWS

SEND, RECV, PROBE, MRECV = 6, 7, 18, 20  # the numbers of messages in proto/operations.def
# Longest single wait. A signal that arrives just before the library sleeps is seen after so long at the latest.
WAIT_MS = 500


def _not_here(*_: Any) -> Any:
    return NotImplemented


nothing: Any = _not_here
data: Any = _not_here
sides: Any = _not_here
packed: Any = _not_here
message: Any = _not_here
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


free: Any = lib.nexar_request_free


def _address(name: str) -> int:
    return ctypes.cast(getattr(lib, f"nexar_{name}"), ctypes.c_void_p).value or 0


def _use() -> None:
    functions = ("request_wait", "request_test", "request_wait_any", "request_wait_some", "request_cancel", "request_free",
                 "request_start", "mprobe")
    _native.bind(tuple(map(_address, functions)), error_of, np.ndarray)
    for row in ROWS.values():
        _native.operation(row.number, _address(f"{row.name}_start"), row.reduces, row.rooted)
    for number, name in ((SEND, "send"), (RECV, "recv"), (PROBE, "probe"), (MRECV, "mrecv")):
        _native.operation(number, _address(f"{name}_start"), False, False)
    for name in ("nothing", "data", "sides", "packed", "message", "exchange", "probe", "mprobe", "mrecv", "start", "ask", "some", "free"):
        globals()[name] = getattr(_native, name)


if _native is not None:
    _use()


def enter(gate: bytearray) -> bool:
    """Whether this thread may be inside a collective of the gate's group; then leave() follows."""
    if _native is not None:
        return bool(_native.enter(gate))
    # Pure Python: pop() is one step, so of two threads one finds the byte.
    try:
        gate.pop()
    except IndexError:
        return False
    return True


def leave(gate: bytearray) -> None:
    if _native is not None:
        _native.leave(gate)
    else:
        gate.append(0)
