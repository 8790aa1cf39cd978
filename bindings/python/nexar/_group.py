"""Groups and what they do."""
from __future__ import annotations

import contextlib
import ctypes
import weakref
from ctypes import byref, c_uint32
from types import TracebackType
from typing import Any

import numpy as np

from . import _arrays, _library, _quick
from ._arrays import Memory, Values
from ._children import Children
from ._collectives import Collectives
from ._dropped import drain, name_of
from ._errors import check, error_of
from ._library import ANY_SOURCE, ANY_TAG, CLOSED, lib
from ._messages import Messages
from ._objects import Objects
from ._requests import Persistent, Request, received


class Group(Collectives, Messages, Children, Objects):
    """An ordered list of ranks, of which this is one: `rank` of `size`, in `epoch`.

    Memory is a C-contiguous numpy array, anything with the buffer protocol (array.array, bytearray, memoryview), or a
    CPU tensor with DLPack, as torch's; of any shape, without a copy: only its number of elements and its dtype count, and
    must be the same on all ranks. A number or a list is copied, and comes back as a number or a list; Python's
    integers are int64, so a larger number is an OverflowError, a sum that does not fit wraps around, and "avg" rounds toward 0. An `out` of None is
    the input itself (in place), unless stated otherwise. `op` is one of
    nexar.OPS: "sum", "prod", "min", "max", "avg"; of integers and bool also "band", "bor", "bxor", "land", "lor", "lxor"; of
    pairs, arrays of a struct like [("value", "f4"), ("index", "i4")], "minloc" and "maxloc". "premul_sum" multiplies this
    rank's values by its scalar=, a number of the arrays' dtype, before the sum. Every operation also takes, by name:
    timeout= (seconds), match_id= (a number, of a collective the same on all ranks; 0: none), user_data=, priority=; a
    collective also flags= (0: the group's alone), of nexar.FLAG_DETERMINISTIC (a reduction's bits do not depend on
    where the ranks run) and nexar.FLAG_F32_PARTIALS. None is refused for both. Each x_start begins what x does and returns a Request, whose
    wait() returns what x returns, and which can be awaited.

    As a context manager it is freed at the end; if that is an exception, the group is aborted with its text, so that the
    other ranks do not wait: they get a GroupError that names this rank and has the text.
    """

    def __init__(self, connection: Any, handle: int) -> None:
        self._connection, self._handle, self._gate = connection, handle, bytearray(1)
        self._dropped, self._weak = connection.dropped.requests, weakref.ref(self)
        self._owned: list[int] = []  # its handle, from when it is this object's to free until it is freed
        # Lazily, and in C alone, so that no handler comes. A process that ends does not leave its groups first.
        weakref.finalize(self, drain, map(lib.nexar_group_free, self._owned), 0).atexit = False
        self.rank, self.size, self.epoch = (self._number(function) for function in (
            lib.nexar_group_rank, lib.nexar_group_size, lib.nexar_group_epoch))

    def __repr__(self) -> str:
        name = name_of(self) if self._owned else None
        which = "freed" if name is None else repr(name)
        return f"<nexar.Group {which}: rank {self.rank} of {self.size}, epoch {self.epoch}>"

    def _number(self, function: Any) -> int:
        number = c_uint32()
        check(function(self._handle, byref(number)))
        return number.value

    def free(self) -> None:
        """Leaves the group. This rank's pending requests end with CLOSED, the other ranks' with ABORTED; what
        this rank has sent is delivered."""
        self._end(lib.nexar_group_free)

    def abort(self, reason: str = "") -> None:
        """Ends the group for all: the other ranks get a GroupError (PEER_LOST) naming this rank, and the reason. This
        rank's pending requests end with CLOSED, and the group cannot be used any more."""
        if not isinstance(reason, str):
            raise TypeError(f"reason is {_library.shown(reason)}; allowed: text")
        self._end(lib.nexar_group_abort, reason.encode(errors="replace").replace(b"\0", b" "))

    def _end(self, function: Any, *arguments: Any) -> None:
        if self._owned:
            status = function(self._handle, *arguments)
            if status not in (0, CLOSED):
                raise error_of(status)
            self._owned.clear()
            self._connection.groups.pop(self._handle, None)

    def _leave_by(self, exception: BaseException | None) -> None:
        """Frees it; aborts it for an exception, which must not be hidden by an error of that."""
        if exception is None or (isinstance(exception, SystemExit) and exception.code in (None, 0)):
            return self.free()
        with contextlib.suppress(Exception):
            return self.abort(reason_of(exception))
        with contextlib.suppress(Exception):
            self.free()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None) -> None:
        self._leave_by(exception)

    def node(self, rank: int) -> str:
        """The identity of the node that a rank runs on, 64 hex digits."""
        text = ctypes.create_string_buffer(65)
        _library.check_numbers(lib.nexar_group_node, self._handle, rank)
        check(lib.nexar_group_node(self._handle, rank, text, len(text)))
        return text.value.decode()

    # ---- Messages ----

    def send(self, values: Values, to: int, tag: int = 0, *, timeout: float | None = None, match_id: int = 0,
             user_data: int = 0, priority: int | None = None) -> None:
        """Ends when the receive that matched it has the data. timeout=0: only if one waits for it already. Raises
        ValueError for memory that cannot be used, and nexar.Error."""
        if not self._dropped:
            if _quick.message(_quick.SEND, self._handle, values, to, tag, False, timeout, match_id, priority, 0, None) is not NotImplemented:
                return
        if isinstance(values, _arrays.COPIED):
            return self.send(_arrays.copy_of(values), to, tag, timeout=timeout, match_id=match_id, priority=priority)
        self._send(values, to, tag, hidden=True, timeout=timeout, match_id=match_id, priority=priority)._finish()

    def send_start(self, values: Values, to: int, tag: int = 0, *, timeout: float | None = None, match_id: int = 0,
                   user_data: int = 0, priority: int | None = None) -> Request:
        """Begins send."""
        if not self._dropped or self._may_start():
            given = values if type(values) is np.ndarray else _arrays.lifted(values)[0]
            request = Request(self._connection, "send", self._weak, (self, given), None, None, user_data)
            begun = _quick.message(_quick.SEND, self._handle, given, to, tag, False, timeout, match_id, priority, 0, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._send(values, to, tag, timeout=timeout, match_id=match_id, user_data=user_data, priority=priority)

    def _send(self, values: Values, to: int, tag: int, **given: Any) -> Request:
        values, _ = _arrays.lifted(values)
        return self._start(lib.nexar_send_start, *_arrays.array(values, False), to, tag, keep=(values, _arrays.held(values)), **given)

    def send_init(self, values: Values, to: int, tag: int = 0, *, timeout: float | None = None, match_id: int = 0,
                  user_data: int = 0, priority: int | None = None) -> Persistent:
        """Prepares send: each start() sends what values holds then. Raises TypeError for a number or a list, ValueError for
        memory that cannot be used, and nexar.Error."""
        values, copied = _arrays.lifted(values)
        if copied:
            raise TypeError("values is a copy: a persistent operation reads its values at each start: give an array")
        return self._prepare(lib.nexar_send_init, *_arrays.array(values, False), to, tag, keep=(values, _arrays.held(values)),
                             collective=False, timeout=timeout, match_id=match_id, user_data=user_data, priority=priority)

    def recv_init(self, values: Memory, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None,
                  match_id: int = 0, user_data: int = 0, priority: int | None = None) -> Persistent:
        """Prepares recv: wait() of each start() returns (source, tag, elements). Raises ValueError for memory that cannot be
        used, and nexar.Error."""
        address, elements, dtype = _arrays.array(values, True)
        return self._prepare(lib.nexar_recv_init, address, elements, dtype, source, tag, keep=(values, _arrays.held(values)),
                             collective=False, value=int(lib.nexar_dtype_size(dtype)), made=received, timeout=timeout,
                             match_id=match_id, user_data=user_data, priority=priority)

    def recv(self, values: Memory, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None,
             match_id: int = 0, user_data: int = 0, priority: int | None = None) -> tuple[int, int, int]:
        """The oldest message that matches, into values, which may be longer. Returns (source, tag, elements).
        timeout=0: only one that is here already. Raises ValueError for memory that cannot be used, and nexar.Error."""
        if not self._dropped:
            got = _quick.message(_quick.RECV, self._handle, values, source, tag, True, timeout, match_id, priority, 0, None)
            if got is not NotImplemented:
                return got  # type: ignore[no-any-return]
        return self._recv(values, source, tag, hidden=True, timeout=timeout, match_id=match_id,  # type: ignore[no-any-return]
                          priority=priority)._finish()

    def recv_start(self, values: Memory, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None,
                   match_id: int = 0, user_data: int = 0, priority: int | None = None) -> Request:
        """Begins recv."""
        if not self._dropped or self._may_start():
            request = Request(self._connection, "recv", self._weak, (self, values), None, received, user_data)
            begun = _quick.message(_quick.RECV, self._handle, values, source, tag, True, timeout, match_id, priority, 0, request)
            if begun is not NotImplemented:
                return begun  # type: ignore[no-any-return]
        return self._recv(values, source, tag, timeout=timeout, match_id=match_id, user_data=user_data, priority=priority)

    def _recv(self, values: Memory, source: int, tag: int, **given: Any) -> Request:
        address, elements, dtype = _arrays.array(values, True)
        return self._start(lib.nexar_recv_start, address, elements, dtype, source, tag, keep=(values, _arrays.held(values)),
                           value=int(lib.nexar_dtype_size(dtype)), made=received, **given)


def reason_of(exception: BaseException) -> str:
    """One line: "ValueError: row 7 is empty"."""
    text = str(exception)
    return type(exception).__name__ + (f": {text}" if text else "")
