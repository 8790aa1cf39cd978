"""Several requests at once. As in MPI, each end is reported once: a Request whose end wait, test, poll, an await or one of these
has found is inactive, as is a Persistent that is not started. The functions here pass over those that are inactive, or None."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from . import _quick
from ._errors import Error
from ._library import BAD_HANDLE
from ._requests import Request, _Clock, must_be_requests

_INVALID_ARGUMENT = -101
Requests = Sequence[Optional[Request]]


def wait_any(requests: Requests, timeout: float | None = None) -> int | None:
    """The index of a request that has ended: its wait() has the result or the error. Later calls pass over it, so that
    `while (i := nexar.wait_any(requests)) is not None:` sees each once. None: all are inactive or None. After `timeout`
    seconds none has ended: TimeoutError."""
    found = _wait(requests, timeout, True)
    return found[0] if found else None


def test_any(requests: Requests) -> int | None:
    """The same without waiting; None: none has ended, or all are inactive or None."""
    numbers = _numbers(requests)
    found = _found(requests, numbers, 0, True) if any(numbers) else []
    return found[0] if found else None


def wait_some(requests: Requests, timeout: float | None = None) -> list[int]:
    """The indices of all requests that have ended, at least one, ascending: their wait() has the result or the error. Later
    calls pass over them. Empty: all are inactive or None. After `timeout` seconds none has ended: TimeoutError."""
    return _wait(requests, timeout, False)


def test_some(requests: Requests) -> list[int]:
    """The same without waiting; empty: none has ended, or all are inactive or None."""
    numbers = _numbers(requests)
    return _found(requests, numbers, 0, False) if any(numbers) else []


def _wait(requests: Requests, timeout: float | None, one: bool) -> list[int]:
    clock = None if timeout is None else _Clock(timeout)
    while any(numbers := _numbers(requests)):
        if found := _found(requests, numbers, -1 if clock is None else clock.slice_ms(), one):
            return found
        if clock is not None and clock.over():
            raise TimeoutError("all still pending")
    return []


def _found(requests: Requests, numbers: list[int], milliseconds: int, one: bool) -> list[int]:
    """The places of those that have ended, which know it now."""
    found = _quick.some(numbers, milliseconds, one)
    if isinstance(found, Error):
        if found.code in (BAD_HANDLE, _INVALID_ARGUMENT) and _numbers(requests) != numbers:
            numbers = _numbers(requests)  # another thread saw the end of one of them meanwhile
            return _found(requests, numbers, milliseconds, one) if any(numbers) else []
        try:
            raise found
        finally:
            del found  # with its traceback it would keep this frame alive, and the requests
    places = []
    for index, end in found or ():
        request = requests[index]
        assert request is not None  # the library passes over those that are 0
        request._settle(end) if end is not None else request.test()
        places.append(index)
    return places


def wait_all(requests: Requests, timeout: float | None = None) -> list[Any]:
    """The results, in order; None for those that are None. When all have ended, and some have failed: the first one's
    error is raised. After `timeout` seconds not all have ended: TimeoutError."""
    clock, results = None if timeout is None else _Clock(timeout), []
    first: Error | None = None
    try:
        each = iter(requests)
    except TypeError:
        must_be_requests(requests)
        raise
    for request in each:
        try:
            results.append(None if request is None else request.wait(None if clock is None else clock.left()))
        except Error as error:
            first = first or error
        except AttributeError:
            must_be_requests(requests)
            raise
    if first is None:
        return results
    try:
        raise first
    finally:
        del first  # with its traceback it would keep this frame alive


def _numbers(requests: Requests) -> list[int]:
    try:
        return [0 if request is None or request._answer is not None else request._number for request in requests]
    except (AttributeError, TypeError):
        must_be_requests(requests)
        raise
