"""Failures, in classes by what one can do about them."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref
from typing import Any

from . import _library
from ._library import lib
from ._words import in_python

_NO_SEQUENCE = 0xFFFFFFFFFFFFFFFF


class Error(Exception):
    """A nexar call failed. Its text is the library's one line, with Python's names; the fields, as in nexar_error:

    code, name      which nexar_status: -601, "PEER_LOST"
    text            a sentence: what was wrong and what is allowed
    op              the operation that failed, "all_reduce"; "" if none
    rank            at fault, or None; other_rank: the other one of a lost link, a clash, or differing options, or None. Of a
                    MISMATCH the two that differ: either may be the wrong one
    node, host, pid of the process at fault, each None where it is not known
    group, epoch    the group's name and epoch, or None where it is not about a group
    sequence        the collective's number in its group, from 0, or None
    lost_ranks      those that are lost, ascending (at most 32 of them); lost_count: how many they are
    errno           of the system call that failed, or None
    """

    code: int
    name: str
    text: str
    op: str
    rank: int | None
    other_rank: int | None
    node: str | None
    host: str | None
    pid: int | None
    group: str | None
    epoch: int | None
    sequence: int | None
    lost_ranks: tuple[int, ...]
    lost_count: int
    errno: Any  # int | None; of TimedOut, which is an OSError too, that one's

    def __init__(self, code: int, line: str = "", **fields: Any) -> None:
        name = str(lib.nexar_status_name(code).decode())
        super().__init__(line or name)
        for field, value in {**_UNKNOWN, "code": code, "name": name, **fields}.items():
            setattr(self, field, value)

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args, {field: getattr(self, field) for field in (*_UNKNOWN, "code", "name")},
                        vars(self))


_UNKNOWN: dict[str, Any] = {
    "text": "", "op": "", "rank": None, "other_rank": None, "node": None, "host": None, "pid": None, "group": None,
    "epoch": None, "sequence": None, "lost_ranks": (), "lost_count": 0, "errno": None}


def _again(kind: type[Error], arguments: tuple[str, ...], fields: dict[str, Any], others: dict[str, Any]) -> Error:
    error = kind(fields["code"], *arguments, **{name: value for name, value in fields.items() if name not in ("code", "name")})
    vars(error).update(others)
    return error


class CallError(Error):
    """Fix the call: it had no effect."""


class RetryError(Error):
    """The same call may succeed later, or with more room: it had no effect."""


class OperationError(Error):
    """This operation failed, on all ranks that take part in it; the group stays usable."""


class TimedOut(OperationError, TimeoutError):
    """Its deadline passed: the error names the late rank. A TimeoutError as well."""


class OpenError(Error):
    """The group did not come about: correct what the text says, and open it again."""


class RecoverableError(Error):
    """The group goes on without those that are lost."""


class GroupError(Error):
    """This group is finished: free it, and open a new one with the survivors."""


class SessionError(Error):
    """This session is finished, or was never opened: open a new one."""


class NexarSystemError(Error):
    """The operating system refused something: see errno."""


_TIMED_OUT = -301
_OF_REQUESTS = "request_"  # request_start is start() here
_CLASSES: dict[int, type[Error]] = {1: CallError, 2: RetryError, 3: OperationError, 4: OpenError, 5: RecoverableError, 6: GroupError,
            7: SessionError, 8: NexarSystemError}


def error_of(status: int, known: bytes | None = None) -> Error:
    """The Error of a status that the last nexar call on this thread returned; known: its nexar_error, which _native has looked up
    before the handler of a signal could make another call."""
    kind = _CLASSES.get(lib.nexar_status_class(status), Error)
    if status == _TIMED_OUT:
        kind = TimedOut
    if known is None:
        last = _library.Error(struct_size=ctypes.sizeof(_library.Error))
        lib.nexar_last_error(byref(last))
    else:
        last = _library.Error.from_buffer_copy(known) if known else _library.Error()
    if last.code != status:
        return kind(status)
    line = ctypes.create_string_buffer(2048)
    lib.nexar_error_line(byref(last), line, len(line), None)
    return kind(status, in_python(_text(line.value).removeprefix(_OF_REQUESTS)), **_fields(last))


def call_by_its_name(error: Error, op: str, parts: Sequence[str] = ("send", "sendv", "recv", "probe", "mprobe")) -> None:
    """It may be of one of these parts of the function `op`, which the program has called."""
    line, half = str(error), error.op
    if half not in parts:
        return
    error.op = op
    if line.startswith(half):
        error.args = (op + line[len(half):],)


def check(status: int) -> None:
    if status != 0:
        raise error_of(status)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _fields(last: Any) -> dict[str, Any]:
    about_group = last.epoch != 0 or last.group != b""
    return {"text": in_python(_text(last.text)), "op": _text(last.op).removeprefix(_OF_REQUESTS), "node": _text(last.node) or None,
            "host": _text(last.host) or None, "pid": last.pid or None, "errno": last.system_errno or None,
            "rank": None if last.rank < 0 else last.rank,
            "other_rank": None if last.other_rank < 0 else last.other_rank,
            "group": _text(last.group) if about_group else None, "epoch": last.epoch or None,
            "sequence": None if last.sequence == _NO_SEQUENCE else last.sequence, "lost_count": last.lost_count,
            "lost_ranks": tuple(last.lost_ranks[:min(last.lost_count, len(last.lost_ranks))])}
