"""The quick way of blocking operations on plain numpy arrays, and of persistent ones: _native, where it was built. What is not
plain, and everything where it was not built, is NotImplemented: then the general way (_calls.py) does the same, 40 us slower."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ._errors import error_of
from ._library import lib
from ._rows import ROWS

SEND, RECV = 6, 7  # the numbers of messages in proto/operations.def


def _not_here(*_: Any) -> Any:
    return NotImplemented


nothing: Any = _not_here
data: Any = _not_here
sides: Any = _not_here
message: Any = _not_here
exchange: Any = _not_here
wait: Any = None  # of a request, until it has ended
start: Any = None  # of a persistent one
try:
    from . import _native
except ImportError:
    _native = None  # type: ignore[assignment]


def _address(name: str) -> int:
    return ctypes.cast(getattr(lib, name), ctypes.c_void_p).value or 0


def _use() -> None:
    global nothing, data, sides, message, exchange, wait, start
    _native.bind(_address("nexar_request_wait"), _address("nexar_request_cancel"), _address("nexar_request_free"),
                 _address("nexar_request_start"), error_of, np.ndarray)
    for row in ROWS.values():
        _native.operation(row.number, _address(f"nexar_{row.name}_start"), row.reduces, row.rooted)
    for number, name in ((SEND, "send"), (RECV, "recv")):
        _native.operation(number, _address(f"nexar_{name}_start"), False, False)
    nothing, data, sides, message = _native.nothing, _native.data, _native.sides, _native.message
    exchange, wait, start = _native.exchange, _native.wait, _native.start


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
