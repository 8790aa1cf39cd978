"""Requests that nobody holds any more: their slots, their arrays, and their errors."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import types
import warnings
import weakref
from collections import deque
from ctypes import byref
from typing import Any

from . import _library, _quick
from ._library import BAD_STATE, CLOSED, lib

_IN_OPS, _ORPHANS = 0, -1
drain: Any = deque  # (iterator, 0): goes through it in C alone
_pop: Any = list.pop


def name_of_operation(request: Any) -> str:
    """"all_reduce of group 'train'": in Python's words."""
    op: str = request._op.removeprefix("nexar_").removesuffix("_start").removesuffix("_init")
    op = "group" if op == "group_open" else op.removeprefix("group_")
    name = name_of(request._group)
    return op if name is None else f"{op} of group {name!r}"


def name_of(group: Any) -> str | None:
    """Of a Group, which a weak reference may name, or of one that is opened; None: it has been freed, or has no name yet."""
    if isinstance(group, bytes):
        return group.decode(errors="replace")
    if isinstance(group, weakref.ref):
        group = group()
    if group is None:
        return None
    given = _library.GroupInfo(struct_size=ctypes.sizeof(_library.GroupInfo))
    if lib.nexar_group_info_get(group._handle, byref(given)) != 0:
        return None
    return str(given.name.decode(errors="replace"))


def put_back(group: int, apart: list[int]) -> None:
    """A message that is set apart, of a group's handle. In one step, as between two a signal's handler may raise."""
    with contextlib.suppress(IndexError):  # it was received, or put back
        drain(map(lib.nexar_message_free, (group,), map(_pop, (apart,))), 0)


def _has_group(kept: Any) -> bool:
    """Whether what a Request keeps has the Group that it opened, which frees the handle itself."""
    return any(getattr(each, "_owned", None) for each in kept or ())


class Dropped:
    """Requests whose Request nobody holds any more: cancelled, and freed when they have ended. Until then their arrays
    stay alive. One per session."""

    def __init__(self, table: dict[int, Any], messages: dict[int, Any]) -> None:
        # number: (what to keep alive, whether it opens a group); _IN_OPS: a thread is in an op group. Not empty: the quick way,
        # which knows neither, is not taken.
        self.requests: dict[int, Any] = {}
        self._table, self._messages = table, messages  # of the session's Requests, and Messages
        # Called with the weak reference in the table when one is gone that is in it still. C alone, so that no handler comes.
        self.orphaned = functools.partial(self.requests.setdefault, _ORPHANS)

    def take(self, request: Any) -> None:
        """Called when a Request is gone, in any thread, also in the middle of garbage collection. The slot comes first: a
        warning may be an exception."""
        if sys.is_finalizing():
            return  # the process ends: the library closes the session
        number, pending = request._number, False
        request._gone = True
        request._connection.requests.pop(request._key, None)
        if number and request._answer is None:
            pending = self._look(request)
        holds = number and (request._answer is None or request._keeps_slot or request._kept is not None)
        if holds and _quick.free(number) == BAD_STATE:
            lib.nexar_request_cancel(number)
            self.requests[number] = request._kept, request._opens
        if request._reported:
            return
        if pending:
            warnings.warn(f"{name_of_operation(request)} was dropped while it ran, and is cancelled: keep its Request until it has "
                          "ended", RuntimeWarning, stacklevel=3)
        elif request._error is not None and request._error.code != CLOSED:  # that is this rank's own doing
            warnings.warn(f"the error of {name_of_operation(request)} was never seen: {request._error}", RuntimeWarning, stacklevel=3)

    def _look(self, request: Any) -> bool:
        """Whether it is pending still; what it failed with goes into it."""
        found = _quick.ask(request._number, 0)
        if found is None:
            return True
        if type(found) is not bytes:
            request._error = found[0] if found[1] is not None else None
        elif request._opens and (group := _library.Completion.from_buffer_copy(found).group) and not _has_group(request._kept):
            lib.nexar_group_free(group)  # the library leaves it to who was reported of it
        return False

    def _adopt(self) -> None:
        """Requests and Messages whose __del__ did not run, as the handler of a signal raised. Python has reported that."""
        self.requests.pop(_ORPHANS, None)
        try:
            for key, (request, kept) in list(self._table.items()):
                if request() is not None:
                    continue
                if kept[0]:
                    self.requests[kept[0]] = kept, kept[1]
                    self._look(types.SimpleNamespace(_number=kept[0], _opens=kept[1], _kept=kept))
                self._table.pop(key, None)
            for key, (message, group, apart) in list(self._messages.items()):
                if message() is None:
                    put_back(group, apart)
                    self._messages.pop(key, None)
        except BaseException:
            self.requests[_ORPHANS] = None  # again
            raise

    def sweep(self) -> None:
        if _ORPHANS in self.requests:
            self._adopt()
        for number in list(self.requests):
            if number <= _IN_OPS:
                continue
            if lib.nexar_request_free(number) != BAD_STATE:
                self.requests.pop(number, None)
            else:
                lib.nexar_request_cancel(number)  # once counts; before, it was in an op group, and refused that

    def none(self) -> bool:
        """Whether there are none any more."""
        self.sweep()
        return not self.requests or list(self.requests) == [_IN_OPS]

    def in_ops(self, threads: int) -> None:
        if threads:
            self.requests[_IN_OPS] = None, False
        else:
            self.requests.pop(_IN_OPS, None)

    def wait(self, milliseconds: int) -> bool:
        """Makes room: waits for the end of those that are there. Whether there were any."""
        numbers = [number for number in self.requests if number > _IN_OPS]
        for number in numbers:
            lib.nexar_request_wait(number, milliseconds, None)
        self.sweep()
        return bool(numbers)

    def saw(self, end: Any) -> None:
        """A poll has seen the end of a request that is not there any more."""
        _, opens = self.requests.get(end.request, (None, False))
        if opens and end.status == 0:
            lib.nexar_group_free(end.group)  # else the library would have, with the request
