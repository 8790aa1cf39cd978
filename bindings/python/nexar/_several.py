"""Several requests at once. As in MPI, each end is reported once: a Request whose end wait, test, poll, an await or one of these
has found is inactive, as is a Persistent that is not started. The functions here pass over those that are inactive, or None."""
from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_uint64
from typing import Any, Optional

from ._errors import Error, error_of
from ._library import BAD_HANDLE, INTERRUPTED, PENDING, lib
from ._requests import Request, _Clock

_INVALID_ARGUMENT = -101
Requests = Sequence[Optional[Request]]


def wait_any(requests: Requests, timeout: float | None = None) -> int | None:
    """The index of a request that has ended: its wait() has the result or the error. Later calls pass over it, so that
    `while (i := nexar.wait_any(requests)) is not None:` sees each once. None: all are inactive or None. After `timeout`
    seconds none has ended: TimeoutError."""
    clock, index = _Clock(timeout), c_uint64()
    while any(numbers := _numbers(requests)):
        status = lib.nexar_request_wait_any(numbers, len(numbers), clock.slice_ms(), byref(index), None)
        if status == 0:
            return _tested(requests, index.value)
        if not _lost_race(status, requests, numbers) and clock.over():
            raise TimeoutError("all still pending")
    return None


def test_any(requests: Requests) -> int | None:
    """The same without waiting; None: none has ended, or all are inactive or None."""
    index = c_uint64()
    while any(numbers := _numbers(requests)):
        status = lib.nexar_request_test_any(numbers, len(numbers), byref(index), None)
        if status == 0:
            return _tested(requests, index.value)
        if not _lost_race(status, requests, numbers):
            break
    return None


def wait_some(requests: Requests, timeout: float | None = None) -> list[int]:
    """The indices of all requests that have ended, at least one, ascending: their wait() has the result or the error. Later
    calls pass over them. Empty: all are inactive or None. After `timeout` seconds none has ended: TimeoutError."""
    clock = _Clock(timeout)
    while any(numbers := _numbers(requests)):
        if found := _some(requests, numbers, clock.slice_ms()):
            return found
        if clock.over():
            raise TimeoutError("all still pending")
    return []


def test_some(requests: Requests) -> list[int]:
    """The same without waiting; empty: none has ended, or all are inactive or None."""
    numbers = _numbers(requests)
    return _some(requests, numbers, 0) if any(numbers) else []


def _some(requests: Requests, numbers: Any, left: int) -> list[int]:
    indices, count = (c_uint64 * len(numbers))(), c_uint64()
    status = lib.nexar_request_wait_some(numbers, len(numbers), left, indices, byref(count), None, 0)
    if status == 0:
        return [_tested(requests, index) for index in indices[:count.value]]
    _lost_race(status, requests, numbers)
    return []


def wait_all(requests: Requests, timeout: float | None = None) -> list[Any]:
    """The results, in order; None for those that are None. When all have ended, and some have failed: the first one's
    error is raised. After `timeout` seconds not all have ended: TimeoutError."""
    clock, results = _Clock(timeout), []
    first: Error | None = None
    for request in requests:
        try:
            results.append(None if request is None else request.wait(clock.left()))
        except Error as error:
            first = first or error
    if first is not None:
        raise first
    return results


def _tested(requests: Requests, index: int) -> int:
    request = requests[index]
    assert request is not None  # the library skips those that are 0
    request.test()
    return index


def _numbers(requests: Requests) -> Any:
    return (c_uint64 * len(requests))(*(0 if request is None or request._ended() else request._number
                                        for request in requests))


def _lost_race(status: int, requests: Requests, numbers: Any) -> bool:
    """Whether another thread saw the end of one of them meanwhile. What is no state of a wait is raised."""
    if status in (PENDING, INTERRUPTED):
        return False
    error = error_of(status)
    if status in (BAD_HANDLE, _INVALID_ARGUMENT) and list(_numbers(requests)) != list(numbers):
        return True
    raise error
