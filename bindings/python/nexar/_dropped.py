"""Requests that nobody holds any more: their slots, their arrays, and their errors."""
from __future__ import annotations

import ctypes
import warnings
import weakref
from ctypes import byref
from typing import Any

from . import _library
from ._errors import Error, error_of
from ._library import BAD_STATE, CLOSED, PENDING, lib

_IN_OPS = 0


class Fate:
    """What a Request leaves behind. It must not refer to the Request.

    op       the library's function that began it; group: a weak reference to the Group, or the name of one that is opened
    kept     what must stay alive until it has ended; opens: whether it opens a group
    number   of the library; 0: its slot is free
    ended    it is not pending; error: what it failed with, if nobody has seen that
    reported     the program has seen its end, or asked for it: then there is nothing to warn of
    """
    __slots__ = ("op", "group", "kept", "opens", "number", "ended", "error", "reported")

    def __init__(self, op: str, group: Any, kept: list[Any], opens: bool, reported: bool) -> None:
        self.op, self.group, self.kept, self.opens, self.reported = op, group, kept, opens, reported
        self.number, self.ended = 0, False
        self.error: Error | None = None

    def name(self) -> str:
        """"all_reduce of group 'train'": in Python's words."""
        op = self.op.removeprefix("nexar_").removesuffix("_start").removesuffix("_init")
        op = "group" if op == "group_open" else op.removeprefix("group_")
        name = name_of(self.group)
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


class Dropped:
    """Requests whose Request nobody holds any more: cancelled, and freed when they have ended. Until then their arrays
    stay alive. One per session."""

    def __init__(self) -> None:
        # number: (what to keep alive, whether it opens a group); _IN_OPS: a thread is in an op group. Not empty: the quick way,
        # which knows neither, is not taken.
        self.requests: dict[int, Any] = {}

    def take(self, fate: Fate) -> None:
        """Called when a Request is gone, in any thread, also in the middle of garbage collection. The slot comes first: a
        warning may be an exception."""
        pending = False
        if not fate.ended:
            pending = self._look(fate)
        if fate.number and lib.nexar_request_free(fate.number) == BAD_STATE:
            lib.nexar_request_cancel(fate.number)
            self.requests[fate.number] = fate.kept, fate.opens
        if fate.reported:
            return
        if pending:
            warnings.warn(f"{fate.name()} was dropped while it ran, and is cancelled: keep its Request until it has ended",
                          RuntimeWarning, stacklevel=3)
        elif fate.error is not None and fate.error.code != CLOSED:  # that is this rank's own doing
            warnings.warn(f"the error of {fate.name()} was never seen: {fate.error}", RuntimeWarning, stacklevel=3)

    def _look(self, fate: Fate) -> bool:
        """Whether it is pending still; what it failed with goes into its fate."""
        end = _library.Completion(struct_size=ctypes.sizeof(_library.Completion), status=PENDING)
        status = lib.nexar_request_test(fate.number, byref(end))
        if status == PENDING:
            return True
        if status == 0 and fate.opens and end.group:
            lib.nexar_group_free(end.group)  # the library leaves it to who was reported of it
        if status != 0 and end.status == status:
            fate.error = error_of(status)
        return False

    def sweep(self) -> None:
        for number in list(self.requests):
            if number != _IN_OPS and lib.nexar_request_free(number) != BAD_STATE:
                self.requests.pop(number, None)

    def in_ops(self, threads: int) -> None:
        if threads:
            self.requests[_IN_OPS] = None, False
        else:
            self.requests.pop(_IN_OPS, None)

    def wait(self, milliseconds: int) -> bool:
        """Makes room: waits for the end of those that are there. Whether there were any."""
        numbers = [number for number in self.requests if number != _IN_OPS]
        for number in numbers:
            lib.nexar_request_wait(number, milliseconds, None)
        self.sweep()
        return bool(numbers)

    def saw(self, end: Any) -> None:
        """A poll has seen the end of a request that is not there any more."""
        _, opens = self.requests.get(end.request, (None, False))
        if opens and end.status == 0:
            lib.nexar_group_free(end.group)  # else the library would have, with the request
