"""Started operations, one at a time. (Several at once: _several.py.)"""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import dataclasses
import functools
import logging
import struct
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from ctypes import byref, c_uint32, c_uint64
from typing import Any

from . import _library, _quick
from ._dropped import name_of_operation
from ._errors import CallError, Error, check, error_of
from ._futures import Awaited, Future
from ._library import BAD_HANDLE, NO_TIMEOUT, TABLE_FULL, lib, milliseconds

# How long an interrupted operation may take to end after it was cancelled.
CANCEL_SECONDS = 5
# How often an event loop looks whether the daemon runs.
LOOK_SECONDS = 1
_LOG = logging.getLogger("nexar")
_NO_SEQUENCE, _NOBODY = 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF
_TRANSFER = struct.Struct(f"={_library.Completion.bytes.offset}xQQI4x")  # bytes, tag and source of a nexar_completion
_END = struct.Struct("=4xi16xQQQQII")  # status, group, sequence, bytes, tag, source and epoch
_WHICH = struct.Struct("=8xQQ")  # request and user_data, which begin it


def received(end: bytes, itemsize: int) -> tuple[int, int, int]:
    """A receive's result, of its completion: (source, tag, elements)."""
    size, tag, source = _TRANSFER.unpack(end)
    return source, tag, size // itemsize


@functools.cache
def _name_of(status: int) -> str:
    return str(lib.nexar_status_name(status).decode())


@dataclasses.dataclass(frozen=True)
class Completion:
    """The completion of an ended operation, as nexar_completion.

    request     the Request
    status      0, or the nexar_status of its failure; name: that in words, "OK"
    user_data   as given when it was started
    group       the Group whose operation it was, or that was opened; None where there is none any more
    epoch       of the group
    sequence    a collective's number in its group, from 0; None: not a collective
    bytes, tag, source   of a received message; source None: not a receive
    """
    request: Request
    status: int
    name: str
    user_data: int
    group: Any
    epoch: int
    sequence: int | None
    bytes: int
    tag: int
    source: int | None


def _completion_of(request: Request, end: bytes) -> Completion:
    status, group, sequence, size, tag, source, epoch = _END.unpack(end)
    made: Completion = object.__new__(Completion)
    made.__dict__.update(  # the __init__ of a frozen dataclass costs a microsecond
        request=request, status=status, name=_name_of(status), user_data=request._user_data, group=request._connection.groups.get(group),
        epoch=epoch, sequence=None if sequence == _NO_SEQUENCE else sequence, bytes=size, tag=tag, source=None if source == _NOBODY else source)
    return made


class Request:
    """A started operation.

    Its arrays stay alive until it has ended. Keep it until then: a Request that nobody holds any more is cancelled (a
    collective on all ranks), and its slot is freed. That is a RuntimeWarning, and so is an error that nobody has seen: by
    wait(), its completion, a poll or a future. (None for CLOSED: this rank has freed the group, or for one that was cancelled.)
    `await request` gives what wait() does, in an asyncio program.
    """
    # What most have: an attribute of its own costs time. _connection and _key: of one whose __init__ a signal's handler has left.
    _connection: Any = None
    _key = 0
    _number = 0  # of the library; 0: not begun yet
    _answer: tuple[Any, Error | None] | None = None  # (result, error); None: pending
    _end: bytes | None = None  # its completion
    _error: Error | None = None  # what it failed with, if nobody has seen that
    _reported = False  # the program has seen its end, or asked for it: then there is nothing to warn of
    _hidden = False  # of a blocking form
    _opens = False  # a group
    _kept: Any = None
    _gone = False  # nobody holds it
    _keeps_slot = False  # when it has ended
    _callbacks: tuple[Callable[[Request], object], ...] = ()

    def __init__(self, connection: Any, op: str, group: Any, kept: Any, value: Any = None,
                 made: Callable[[bytes, Any], Any] | None = None, user_data: int = 0) -> None:
        """Known to polls from now on, by its key, which is the library's user_data: a poll on another thread may find its end
        before the call that begins it has returned.

        op       the library's function that begins it; group: a weak reference to the Group, or the name of one that is opened
        kept     what must stay alive until it has ended
        value    its result; or made: what gives that, of its completion and value
        """
        self._op, self._group, self._value, self._made = op, group, value, made
        self._user_data, self._lock = user_data, threading.RLock()  # again by a signal's handler that polls
        self._connection = connection
        self._key = key = next(connection.keys)
        # Number of the library, whether it opens a group, and memory. The session holds it, too, so that it outlives this until the end
        # where a handler raises as __del__ begins, which Python ignores.
        self._kept = memory = [0, False, kept]
        connection.requests[key] = weakref.ref(self, connection.dropped.orphaned), memory

    def _begin(self, start: Callable[[int, Any], int]) -> Request:
        """By start(user_data, number): the call of the library."""
        dropped, memory, number = self._connection.dropped, self._kept, c_uint64()
        dropped.sweep()
        try:
            status = start(self._key, byref(number))
            if status == TABLE_FULL and dropped.wait(CANCEL_SECONDS * 1000):
                status = start(self._key, byref(number))
            check(status)
        finally:  # also where a signal's handler raises once it has begun
            self._number = memory[0] = number.value
        return self

    def _hide(self) -> Request:
        """Its blocking form reports its end."""
        self._hidden = self._reported = True
        return self

    def __del__(self) -> None:
        if (self._answer is None or self._error is not None or self._kept is not None) and self._connection is not None:
            self._connection.dropped.take(self)

    def __repr__(self) -> str:
        return f"<nexar.{type(self).__name__} {name_of_operation(self)}: {self._state()}>"

    def _state(self) -> str:
        if self._answer is None:
            return "pending"
        return "ended" if self._answer[1] is None else f"ended with {self._answer[1].name}"

    @property
    def completion(self) -> Completion | None:
        """Its Completion; None: pending."""  # made anew: kept, it and the Request would keep each other alive
        if self._end is None:
            return None
        self._report()
        return _completion_of(self, self._end)

    def test(self) -> bool:
        """Whether it has ended. Never blocks, never raises what the operation failed with: wait() does."""
        return self._answer is not None or self._settle(_quick.ask(self._number, 0))

    def wait(self, timeout: float | None = None) -> Any:
        """The result of the operation, or its error raised. After `timeout` seconds it is still pending: TimeoutError."""
        if timeout is not None:
            self._wait_until(timeout)
        while (answer := self._answer) is None:  # again: a persistent one was started meanwhile
            self._settle(_quick.ask(self._number, -1))
        value, error = answer
        if error is not None:
            self._report()
            raise copy.copy(error)  # which gets a traceback: the frames in it may hold this, and so the error that is kept here
        return value

    def _wait_until(self, timeout: float) -> None:
        try:
            right = timeout >= 0
        except (TypeError, ValueError):
            right = False
        if not right:
            milliseconds(timeout)  # which refuses it
        if self._answer is not None or self._settle(_quick.ask(self._number, 0)):
            return  # without a clock
        clock = _Clock(timeout)
        while self._answer is None:
            if not self._settle(_quick.ask(self._number, clock.slice_ms())) and clock.over():
                raise TimeoutError(f"{name_of_operation(self)} is still pending")

    def _report(self) -> None:
        """The program sees how it ended. The error goes: raised it would keep its callers alive, and one of them this."""
        with self._lock:
            self._reported, self._error = True, None

    def cancel(self) -> None:
        """Requests the end; wait() then returns or raises how it ended. A collective ends on all ranks."""
        if self._answer is None:
            self._reported = True
            status = lib.nexar_request_cancel(self._number)
            if status != 0 and self._answer is None:
                raise error_of(status)

    def _remove_done_callback(self, function: Callable[[Request], object]) -> None:
        with self._lock:
            self._callbacks = tuple(each for each in self._callbacks if each != function)

    def add_done_callback(self, function: Callable[[Request], object]) -> None:
        """Calls function(request) once it has ended: in the thread whose wait, test or poll found that, or now. What it raises is
        logged by the logger "nexar", as concurrent.futures does: the thread goes on, with other ends, too."""
        with self._lock:
            if self._answer is None:
                self._callbacks += (function,)
                return
        self._call((function,))

    def _call(self, functions: Sequence[Callable[[Request], object]]) -> None:
        for i, function in enumerate(functions):
            try:
                function(self)
            except Exception:
                _LOG.exception("exception calling callback for %r", self)
            except BaseException:  # it ends the program, or the thread: not before the others know
                self._call(functions[i + 1:])
                raise

    def future(self) -> asyncio.Future[Any]:
        """An asyncio.Future with its result or error, in the running event loop, which then reads the session's
        descriptor. Cancelling the future cancels the operation: so does the end of asyncio.run() where one is awaited then. One that
        nobody awaits when its loop ends stays pending, while the operation goes on: wait() for it, or await it in another loop."""
        return Awaited(self, asyncio.get_running_loop()).future

    def concurrent_future(self) -> concurrent.futures.Future[Any]:
        """A concurrent.futures.Future with its result or error, for programs of threads: as_completed, wait, executors.
        A thread of its own waits for it. Cancelling the future cancels the operation."""
        return Future(self)

    def __await__(self) -> Generator[Any, None, Any]:
        return self.future().__await__()

    def _seen(self) -> Completion | None:
        """Its Completion, which a poll has found; None: it was started again."""
        self.test()
        return self.completion

    def _settle(self, found: Any) -> bool:
        """What _quick.ask has found. True: it has ended, and its slot is free."""
        if found is None:
            return False
        try:
            with self._lock:
                return self._take_end(found)
        finally:  # also where a signal's handler raises once it has ended
            del found  # an error with its traceback would keep this frame alive
            if self._callbacks and self._answer is not None:
                self._call_all()

    def _take_end(self, found: Any) -> bool:
        """The same, with the lock, and without the callbacks."""
        if self._answer is not None:
            return True  # another thread was first, and freed it
        error, end = (None, found) if type(found) is bytes else found
        if end is None:
            try:
                raise error  # the call itself failed
            finally:
                del error, found
        value = self._value if self._made is None else self._made(end, self._value) if error is None else None
        answer = value, error
        if self._answer is not None:
            return True  # a signal's handler was first
        self._end, self._answer = end, answer
        if error is not None and not self._reported:
            self._error = error
        self._let_go()
        return True

    def _call_all(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, ()
        self._call(callbacks)

    def _let_go(self) -> None:
        """It has ended; with the lock."""
        _quick.free(self._number)
        self._connection.requests.pop(self._key, None)
        self._kept = self._value = self._made = None

    def _finish(self) -> Any:
        """The blocking form: where a signal's handler raises, as for Ctrl-C, the operation itself ends."""
        try:
            return self.wait()
        except Error:
            raise
        except BaseException:
            with contextlib.suppress(Error, TimeoutError):
                self.cancel()
                self.wait(CANCEL_SECONDS)
            raise


def opening(request: Request, start: Callable[[int, Any], int], hidden: bool) -> Request:
    """Begins what makes a group."""
    request._opens = request._kept[1] = True
    request._value = request._kept  # see _Connection.opened
    return (request._hide() if hidden else request)._begin(start)


class Persistent(Request):
    """An operation that is prepared once, by x_init, and started often, each time with what its arrays hold then.

    start() begins it; then it is as a Request that was started: wait(), test(), cancel(), completion, callbacks, await. When
    one of them has found its end it may be started again. Before the first start wait() returns None; between two starts it
    returns or raises what the last one did. Its arrays stay alive, and its slot is taken, until free(), the end of a `with`, or
    until nobody holds it any more.
    """

    _keeps_slot = True

    def __init__(self, group: Any, collective: bool, prepare: Callable[[int, Any], int], *of_request: Any, **given: Any) -> None:
        super().__init__(group._connection, *of_request, **given)
        self._of, self._collective = group, collective
        self._begin(prepare)
        self._answer = None, None
        self._let_go()

    def __del__(self) -> None:
        if self._connection is not None and (self._number or self._error is not None):
            self._connection.dropped.take(self)

    def start(self) -> None:
        """Begins it. Raises nexar.Error: BAD_STATE while it is pending, or when no call has found the end of its last start;
        CLOSED when its group was freed."""
        gate = self._of._gate if self._collective else None
        if _quick.start is None or self._answer is None or self._number == 0:
            return _start([self], None)  # which says what is wrong
        with self._lock:  # see _settle
            undo = self._as_pending()
            if (failed := _quick.start(self._number, gate)) == 0:
                return
            undo()
        if failed is NotImplemented:
            return _start([self], None)
        try:
            raise failed
        finally:
            del failed  # with its traceback it would keep this frame alive

    def _as_pending(self) -> Callable[[], None]:
        """Before the library has it, as another thread may find its end at once; with the lock. Returns what undoes that."""
        before = self._answer, self._end
        self._answer = self._end = None
        self._reported = False
        self._in_table(self._kept)

        def undo() -> None:
            self._answer, self._end = before
            self._let_go()
        return undo

    def _in_table(self, memory: Any) -> None:
        """What the session holds."""
        known = self._connection.requests.get(self._key)
        if known is not None and memory is not None:
            self._connection.requests[self._key] = known[0], memory

    def _take_end(self, found: Any) -> bool:
        if self._answer is None and self._number:  # asked anew, as no start comes now: it may be the end of the last but one
            found = _quick.ask(self._number, 0)
        try:
            return found is not None and super()._take_end(found)
        finally:
            del found

    def free(self) -> None:
        """Frees its slot, and lets go of its arrays; wait() still has what the last start gave. It cannot be started any more.
        Nothing happens if it was freed before. Raises nexar.CallError while it is pending: cancel() and wait() first."""
        try:
            with self._lock:
                if self._number == 0:
                    return
                self._take_end(None)  # it may have ended: then nobody can ask for its end any more
                check(lib.nexar_request_free(self._number))
                self._number = 0
                self._kept = self._value = self._made = None
                self._connection.requests.pop(self._key, None)
        finally:
            if self._callbacks and self._answer is not None:
                self._call_all()

    def __enter__(self) -> Persistent:
        return self

    def __exit__(self, kind: Any, exception: BaseException | None, trace: Any) -> None:
        """Frees it. While it is pending that is a nexar.CallError; for an exception it is cancelled first."""
        if exception is None:
            return self.free()
        with contextlib.suppress(Error, TimeoutError):
            self.cancel()
            self.wait(CANCEL_SECONDS)
        with contextlib.suppress(Error):
            self.free()

    def _state(self) -> str:
        if self._number == 0:
            return "freed"
        return super()._state() if self._answer is None else f"inactive, {super()._state()}" if self._end else "inactive"

    def _let_go(self) -> None:
        """Not before free(), or the end of this object; until the next start the session does not hold its memory."""
        self._in_table(self._kept and self._kept[:2])


class Reader:
    """The session's descriptor in an event loop, as long as the loop awaits one of its requests; used in the loop's thread."""

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._connection, self._loop = connection, loop
        self._awaited: dict[Request, int] = {}  # by how many futures
        # Whose futures are gone, and whose callbacks wait: the program holds them, or nobody does.
        self._called: weakref.WeakSet[Request] = weakref.WeakSet()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, request: Request) -> None:
        if self._timer is None:
            self._loop.add_reader(self._connection.fileno(), self._read)
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
            self._connection.readers[self._loop] = self
        self._awaited[request] = self._awaited.get(request, 0) + 1
        self._loop.call_soon(self._read)  # it may have ended before

    def forget(self, request: Request) -> None:
        """A future of it has its end, or was cancelled. If nobody else awaits the request, or holds it, it frees its slot when it has
        ended. While it is pending its callbacks are called here."""
        if (awaited := self._awaited.pop(request, 0)) > 1:
            self._awaited[request] = awaited - 1
        elif self._timer is not None and request._answer is None and request._callbacks:
            self._called.add(request)
        self._stop_if_idle()

    def _look(self) -> None:
        """The descriptor does not become readable for a daemon that stands still: a poll finds that."""
        self._read()
        if self._timer is not None:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _read(self) -> None:
        with contextlib.suppress(Error):  # of the session: each request has it, too
            while poll(self._connection, 64):
                pass
        for request in [*self._awaited, *self._called]:
            try:
                request.test()  # its futures forget it
                if request._answer is not None:  # no callback has started it again
                    self._called.discard(request)
            except Error:  # the handle is not known any more
                self._awaited.pop(request, None)
                self._called.discard(request)
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if not self._awaited and not self._called and self._timer is not None:
            self._loop.remove_reader(self._connection.fileno())
            self._timer.cancel()
            self._timer = None
            self._connection.readers.pop(self._loop, None)


class _Clock:
    """What is left of a time-out, in slices: between them Python's signal handlers run."""

    def __init__(self, timeout: float | None) -> None:
        if timeout is None:
            self._end = None
        else:
            milliseconds(timeout)  # refuses what is no time-out
            self._end = None if timeout == NO_TIMEOUT else time.monotonic() + timeout

    def slice_ms(self) -> int:
        """Of the next look; below 0: until something has ended."""
        if self._end is None:
            return -1
        return min(_quick.WAIT_MS, milliseconds(max(0, self._end - time.monotonic())))

    def left(self) -> float | None:
        return None if self._end is None else max(0, self._end - time.monotonic())

    def over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


def must_be_requests(requests: Any) -> None:
    """TypeError: they are none."""
    for index, request in enumerate(_library.entries(requests, "requests", "a list of nexar.Request and None")):
        if request is not None and not isinstance(request, Request):
            raise TypeError(f"requests[{index}] is {_library.shown(request)}; allowed: a nexar.Request, or None")


def start_all(requests: Sequence[Persistent | None]) -> None:
    """Starts all of them, of one session, in order, as one submission: all, or none, and the error names the first that cannot
    be. None is passed over. Raises nexar.Error, as Persistent.start()."""
    try:
        mine = [request for request in requests if request is not None]
    except TypeError:
        must_be_requests(requests)
        raise
    _start(mine, requests)


def _start(mine: list[Persistent], given: Sequence[Any] | None) -> None:
    """given: to start_all; None: it is the one whose start() the program calls."""
    for request in mine:
        if not isinstance(request, Persistent):
            must_be_requests(given)
            raise TypeError(f"requests has {request!r}, which cannot be started; allowed: what x_init has made")
        if request._number == 0:
            text = f"{name_of_operation(request)} was freed: prepare it again"
            raise CallError(BAD_HANDLE, f"BAD_HANDLE: {text}", text=text)
    groups = {id(request._of): request._of for request in mine if request._collective}
    failed = _quick.alone(lambda: _start_inside(mine, given is None), *(group._gate for group in groups.values()))
    if failed is not None:
        try:
            raise failed
        finally:
            del failed  # with its traceback it would keep this frame alive


def _start_inside(mine: list[Persistent], alone: bool) -> Error | None:
    with contextlib.ExitStack() as locks:
        idle = list({id(request): request for request in mine if request._answer is not None}.values())
        for request in sorted(idle, key=id):  # the same order in all threads
            locks.enter_context(request._lock)
        undo = [request._as_pending() for request in idle]
        if alone:
            status = lib.nexar_request_start(mine[0]._number)
        else:
            status = lib.nexar_request_start_all((c_uint64 * len(mine))(*(request._number for request in mine)), len(mine))
        failed = error_of(status) if status != 0 else None
        for each in undo if failed is not None else ():
            each()
    return failed


def poll(connection: Any, capacity: int) -> list[Completion]:
    if type(capacity) is not int or capacity < 0:
        capacity = _library.checked(c_uint32, capacity, "capacity")
    completions: list[Completion] = []
    ends, connection.unseen = connection.unseen, []  # each the bytes of a completion, then its Request; None: the program has none
    try:
        if len(ends) < capacity:
            _quick.poll(connection.handle, capacity - len(ends), ends)
        for at in range(min(len(ends), capacity)):
            if type(ends[at]) is bytes:
                ends[at] = _found(connection, ends[at])
            if ends[at] is not None and (completion := ends[at]._seen()) is not None:
                completions.append(completion)
        connection.dropped.sweep()
        rest = ends[capacity:]
    except BaseException:  # a signal's handler: the next poll gives what this one cannot any more
        connection.unseen += [end for end in ends if end is not None]
        raise
    connection.unseen += rest
    return completions


def _found(connection: Any, end: bytes) -> Request | None:
    number, key = _WHICH.unpack_from(end)
    known = connection.requests.get(key)
    request: Request | None = known and known[0]()
    if request is None or request._gone:
        connection.dropped.saw(_library.Completion.from_buffer_copy(end))
        return None
    if request._hidden:
        return None
    request._number = number  # on another thread the call that started it may not have returned yet
    return request
