"""Sessions: the connection to this host's daemon, memory, and the opening of groups."""
from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import math
import operator
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char, c_int, c_uint64, c_void_p
from types import TracebackType
from typing import Any

import numpy as np

from . import _arrays, _library, _requests
from ._dropped import Dropped
from ._errors import CallError, check
from ._group import Group
from ._library import BAD_STATE, NOT_FOUND, assign, lib, milliseconds, options
from ._requests import Request

_LAZY, _HUGE_PAGES = 1, 2  # NEXAR_ALLOC_...


class _Connection:
    """The C session. It exists until its last holder is gone: the Session, its groups and requests, and every array from alloc,
    so that no array can outlive its memory."""

    def __init__(self, session_options: Any) -> None:
        handle = c_void_p()
        check(lib.nexar_session_open(byref(session_options), byref(handle)))
        self.handle = handle.value
        self.groups: weakref.WeakValueDictionary[int, Group] = weakref.WeakValueDictionary()
        # By key, with what it keeps; each goes with its end.
        self.requests: dict[int, tuple[weakref.ref[Request], list[Any]]] = {}
        self.readers: dict[asyncio.AbstractEventLoop, _requests.Reader] = {}  # of loops that await requests
        self.ops = threading.local()  # its depth: how many op groups of this thread are open
        self._lock, self._threads_in_ops = threading.Lock(), 0
        # By key, with what puts it back: each Message.
        self.messages: dict[int, tuple[weakref.ref[Any], int, list[int]]] = {}
        self.dropped, self.keys = Dropped(self.requests, self.messages), itertools.count(1)  # requests are found by their key
        self.unseen: list[Any] = []  # what a poll has found, when a signal's handler raised in it: the next one has it
        self._spares: list[tuple[c_void_p, int]] = []  # (address, bytes), one or none, but where threads compete: see copied
        weakref.finalize(self, _close, self.handle, self._spares).atexit = False  # the library does so
        _connections.add(self)
        _watch_exceptions()

    def fileno(self) -> int:
        fd = c_int()
        check(lib.nexar_session_fd(self.handle, byref(fd)))
        return fd.value

    def reader_of(self, loop: asyncio.AbstractEventLoop) -> _requests.Reader:
        for other in list(self.readers):  # which other threads add to, and take from
            if other.is_closed():
                self.readers.pop(other, None)
        if loop not in self.readers:
            self.readers[loop] = _requests.Reader(self, loop)
        return self.readers[loop]

    def enter_ops(self, depth: int) -> None:
        """This thread is in so many op groups now."""
        before, self.ops.depth = getattr(self.ops, "depth", 0), depth
        with self._lock:
            self._threads_in_ops += bool(depth) - bool(before)
            self.dropped.in_ops(self._threads_in_ops)

    def may_block(self) -> None:
        """An error in an op group of this thread: there nothing can be waited for."""
        if getattr(self.ops, "depth", 0):
            text = "this thread is inside session.ops(), where nothing can be waited for: use the _start forms"
            raise CallError(BAD_STATE, f"BAD_STATE: {text}", text=text)

    def copied(self, values: np.ndarray[Any, Any], lent: list[Any]) -> np.ndarray[Any, Any]:
        """A copy that stays until give_back, or let_go. One of a size where that pays is in shared memory, which is kept for the next:
        it is copied once, and not again into scratch memory. `lent` has that memory in any case: a signal's handler may raise."""
        if not _SPARE_MIN <= values.nbytes <= _SPARE_MAX or values.dtype.hasobject:
            return values.copy()
        with contextlib.suppress(IndexError):
            lent.extend(map(list.pop, (self._spares,)))  # in one step
        if lent and lent[0][1] < values.nbytes:
            self.let_go(lent)
        if not lent:
            memory, how = c_void_p(), options(_library.AllocOptions, lib.nexar_alloc_options_init)
            lent.append((memory, values.nbytes))
            if lib.nexar_alloc(self.handle, values.nbytes, byref(how), byref(memory)) != 0:
                lent.clear()
                return values.copy()
        block: Any = (c_char * values.nbytes).from_address(lent[0][0].value)
        copy: np.ndarray[Any, Any] = np.ndarray(values.shape, values.dtype, buffer=block)
        np.copyto(copy, values)
        return copy

    def give_back(self, lent: list[Any]) -> None:
        """Nothing uses the copy any more."""
        if self._spares:  # another thread was first
            self.let_go(lent)
        self._spares.extend(map(list.pop, (lent,) if lent else ()))

    def let_go(self, lent: list[Any]) -> None:
        """The library keeps it while a send still reads it: then the session's end frees it."""
        for memory, _ in lent:
            if memory.value:
                lib.nexar_free(self.handle, memory.value)
        lent.clear()

    def opened(self, end: bytes, kept: list[Any]) -> Group | None:
        """The Group of the completion of an opening, or none. `kept`, which stays as long as the Request has no end, has it as well:
        where a signal's handler raises before the Request has it, the next look finds the same one."""
        handle = _library.Completion.from_buffer_copy(end).group
        if not handle:
            return None
        group = self.groups.get(handle)
        if group is None:
            group = Group(self, handle)
            kept.append(group)
            self.groups[handle] = group
        if not group._owned:
            group._owned.append(handle)
        return group


_SPARE_MIN, _SPARE_MAX = 32 << 10, 16 << 20


def _close(handle: int | None, spares: list[tuple[c_void_p, int]]) -> None:
    for memory, _ in spares:
        lib.nexar_free(handle, memory)
    lib.nexar_session_close(handle)


def _free_memory(connection: _Connection, address: int) -> None:
    lib.nexar_free(connection.handle, address)  # BAD_STATE while a request uses it: then the session's end frees it


class Session:
    """A connection to the daemon of this host.

    socket_path          of the daemon; None: $NEXAR_SOCKET, else /run/nexar/nexard.sock
    slots                requests at once: 16 .. 4096, a power of two; None: 256
    connect_timeout      seconds; None: 5
    daemon_unresponsive  seconds that a daemon may stand still before it is given up; None: 10
    scratch_limit        bytes that copies of ordinary memory may take at once; None: 256 MiB
    spin_us              longest busy wait before sleeping, in microseconds; None: 50
    """

    def __init__(self, socket_path: Any = None, slots: int | None = None, connect_timeout: float | None = None,
                 daemon_unresponsive: float | None = None, scratch_limit: int | None = None,
                 spin_us: int | None = None) -> None:
        self._connection: _Connection | None = _Connection(options(
            _library.SessionOptions, lib.nexar_session_options_init, socket_path=socket_path, slots=slots,
            scratch_limit=scratch_limit, spin_us=spin_us, connect_timeout_ms=milliseconds(connect_timeout, "connect_timeout"),
            daemon_unresponsive_ms=milliseconds(daemon_unresponsive, "daemon_unresponsive")))

    def __repr__(self) -> str:
        if self._connection is None:
            return "<nexar.Session: closed>"
        return f"<nexar.Session at node {self.node[:8]}: {len(self._connection.groups)} groups, {len(self._connection.requests)} requests>"

    def close(self) -> None:
        """Frees the groups. The connection itself ends when the last array from alloc is gone."""
        if self._connection is not None:
            for group in list(self._connection.groups.values()):
                group.free()
            self._connection.dropped.sweep()
        self._connection = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None) -> None:
        """Closes it. For an exception its groups are aborted, as at the end of a group's own `with`."""
        if self._connection is not None and exception is not None:
            for group in list(self._connection.groups.values()):
                group._leave_by(exception)
        self.close()

    def _open(self) -> _Connection:
        if self._connection is None:
            raise ValueError("the session is closed")
        return self._connection

    @property
    def node(self) -> str:
        """The identity of this host's node, 64 hex digits."""
        text = ctypes.create_string_buffer(65)
        check(lib.nexar_session_node(self._open().handle, text, len(text)))
        return text.value.decode()

    def stats(self) -> dict[str, int]:
        """Counters of this session, by name, as nexar_session_stats."""
        stats = _library.SessionStats(struct_size=ctypes.sizeof(_library.SessionStats))
        check(lib.nexar_session_stats_get(self._open().handle, byref(stats)))
        return {field[0]: getattr(stats, field[0]) for field in stats._fields_[2:]}

    # ---- Op groups ----

    @contextlib.contextmanager
    def ops(self) -> Iterator[None]:
        """What this thread starts inside is submitted at the end, as one: one wake of the daemon at most.

            with session.ops():
                requests = [group.all_reduce_start(x) for x in arrays]
            nexar.wait_all(requests)

        Blocking forms are refused inside (BAD_STATE), and nothing ends before. After an exception nothing of it is started,
        and waits for its Requests raise nexar.CallError. May be nested: the outermost end submits."""
        connection = self._open()
        check(lib.nexar_ops_begin(connection.handle))
        depth = getattr(connection.ops, "depth", 0)
        connection.enter_ops(depth + 1)
        try:
            yield
        except BaseException:
            connection.enter_ops(depth)
            lib.nexar_ops_drop(connection.handle)  # BAD_STATE where an inner one was dropped: all of it is
            raise
        connection.enter_ops(depth)
        check(lib.nexar_ops_end(connection.handle))
        connection.dropped.sweep()

    # ---- Event loops ----

    def fileno(self) -> int:
        """Readable when poll() has something to do: for select, and event loops. (asyncio: `await request` does it all.)"""
        return self._open().fileno()

    def poll(self, capacity: int = 64) -> list[_requests.Completion]:
        """Completions of the requests that have ended since the last poll, at most `capacity`; call it until it returns
        none. Does not block. Requests of blocking forms are not among them."""
        return _requests.poll(self._open(), capacity)

    # ---- Memory ----

    def alloc(self, shape: Any, dtype: Any = "float32", lazy: bool = False, huge_pages: bool = False) -> np.ndarray[Any, Any]:
        """A zeroed array that operations use in place, without copies. dtype: float32 unless you name another, as gradients and
        tensors are (numpy's own default is float64). lazy: its pages come when they are first touched; huge_pages: in huge
        pages where the system gives them."""
        connection, memory = self._open(), c_void_p()
        try:
            dtype = np.dtype("float32" if dtype is None else dtype)  # numpy's own float64 is not what None stands for here
        except (TypeError, ValueError):
            raise TypeError(f"dtype is {_library.shown(dtype)}; allowed: what numpy.dtype takes") from None
        if dtype.hasobject:
            raise ValueError(f"dtype is {dtype}, of Python objects, which only this process can reach: give another one")
        sides = _sides_of(shape)
        nbytes = math.prod(sides) * dtype.itemsize
        if nbytes >= 1 << 63:
            raise ValueError(f"shape is {_library.shown(shape)} of {dtype}: more bytes than 64 bits have; allowed: less than 2**63")
        array = c_char * nbytes  # what can fail comes before there is memory to lose
        how = options(_library.AllocOptions, lib.nexar_alloc_options_init,
                      flags=(_LAZY if lazy else 0) | (_HUGE_PAGES if huge_pages else 0))
        check(lib.nexar_alloc(connection.handle, max(nbytes, 1), byref(how), byref(memory)))
        assert memory.value is not None
        block = array.from_address(memory.value)
        # The array keeps the block. At the end of the process the library gives the memory back, not Python.
        weakref.finalize(block, _free_memory, connection, memory.value).atexit = False
        try:
            return np.ndarray(sides, dtype, buffer=block)
        except ValueError as error:  # too many dimensions, or one that is too long beside one of 0
            raise ValueError(f"shape is {_library.shown(shape)}, of which numpy makes no array ({error}); allowed: {_SHAPES}") from None

    def register_memfd(self, array: np.ndarray[Any, Any], fd: int, offset: int = 0) -> np.ndarray[Any, Any]:
        """Makes an array over a shared, writable mapping of the memfd `fd`, from `offset` bytes on, usable in place, where
        the daemon has memfds_in_place; elsewhere it is copied. The memfd is sealed. Keep the array, the mapping and the
        descriptor until unregister(array)."""
        address, _, _ = _arrays.array(_ndarray(array), True, "array")
        fd, offset = _library.checked(c_int, fd, "fd"), _library.checked(c_uint64, offset, "offset")
        check(lib.nexar_register_memfd(self._open().handle, address, array.nbytes, fd, offset))
        return array

    def unregister(self, array: np.ndarray[Any, Any]) -> None:
        """The reverse; before you unmap."""
        check(lib.nexar_unregister(self._open().handle, _ndarray(array).ctypes.data))

    # ---- Groups ----

    def group(self, name: str | bytes | None = None, size: int | None = None, rank: int | None = None, **options: Any) -> Group:
        """Joins a group and waits for all its members.

        What is not given the environment says (nexar_group_options_from_env: nexarctl run, torchrun, Slurm, Open MPI).

        name, size    which group, and how many ranks: the same for all members
        rank          0 .. size-1, or nexar.RANK_AUTO on all members; None, and no rank in the environment: RANK_AUTO
        job_secret    16 to 128 bytes: keeps jobs apart, and admits processes of other hosts and users
        timeout       seconds, for all members to arrive; None: 30
        collective_timeout, barrier_timeout, rpc_timeout   seconds: deadlines of the group's operations, agreed between
                      its members; None: what the others say
        flags         nexar.FLAG_...: of all its collectives, and those of its children; None: NEXAR_DETERMINISTIC
        A session may have several ranks of one group: use group_start, or one thread for each.
        """
        return self.group_start(name, size, rank, _hidden=True, **options)._finish()  # type: ignore[no-any-return]

    def group_start(self, name: str | bytes | None = None, size: int | None = None, rank: int | None = None,
                    **options: Any) -> Request:
        """Begins group, and takes user_data= too. The Request's wait() returns the Group."""
        return _opening(self._open(), name, size, rank, **options)


def _ndarray(array: Any) -> np.ndarray[Any, Any]:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"array is {_library.shown(array)}; allowed: a numpy array")
    return array


_SHAPES = "an integer of 0 or more, or a tuple of them"


def _sides_of(shape: Any) -> list[int]:
    listed = getattr(shape, "ndim", 0) == 1 or (isinstance(shape, Sequence) and not isinstance(shape, (str, bytes)))
    given = list(shape) if listed else [shape]
    try:
        sides = list(map(operator.index, given))
    except TypeError:
        raise TypeError(f"shape is {_library.shown(shape)}; allowed: {_SHAPES}") from None
    if bool in map(type, given):
        raise TypeError(f"shape is {_library.shown(shape)}; allowed: {_SHAPES}")
    if min(sides, default=0) < 0:
        raise ValueError(f"shape is {_library.shown(shape)}; allowed: {_SHAPES}")
    return sides


def _opening(connection: _Connection, name: Any, size: Any, rank: Any, user_data: int = 0, _hidden: bool = False,
             **given: Any) -> Request:
    unknown = given.keys() - set(_GIVEN)
    if unknown:
        raise TypeError(f"group has no option {', '.join(sorted(unknown))}; allowed: name, size, rank, {', '.join(_GIVEN)}")
    options, strings = _group_options(name, size, rank, **given)

    def start(key: int, number: Any) -> int:
        options.user_data = key
        return int(lib.nexar_group_open_start(connection.handle, byref(options), number))

    return _requests.opening(Request(connection, "nexar_group_open_start", options.name, strings, None, connection.opened, user_data),
                             start, _hidden)


def _group_options(name: Any, size: Any, rank: Any, job_secret: Any = None, timeout: float | None = None,
                   collective_timeout: float | None = None, barrier_timeout: float | None = None,
                   rpc_timeout: float | None = None, flags: int | None = None) -> tuple[_library.GroupOptions, Any]:
    result = _library.GroupOptions()
    status = lib.nexar_group_options_from_env(byref(result), ctypes.sizeof(result))
    if status != NOT_FOUND or size is None:  # no rank and size there: its other variables count all the same
        check(status)
    times = zip(_TIMES, (timeout, collective_timeout, barrier_timeout, rpc_timeout))
    assign(result, name=name, size=size, rank=rank, job_secret=job_secret, flags=flags,
           **{f"{field}_ms": milliseconds(value, field) for field, value in times if value is not None})
    return result, (result.name, result.job_secret)


_TIMES = ("timeout", "collective_timeout", "barrier_timeout", "rpc_timeout")
_GIVEN = ("job_secret", *_TIMES, "flags")


# ---- A program that ends by an exception ----

_connections: weakref.WeakSet[_Connection] = weakref.WeakSet()
_hook: Any = None  # the excepthook before ours


def _watch_exceptions() -> None:
    """From the first session on, an exception that ends the program aborts its groups: else the other ranks would read
    that it left, and not why."""
    global _hook
    if _hook is None:
        _hook, sys.excepthook = sys.excepthook, _abort_all


def _abort_all(kind: type[BaseException], exception: BaseException, trace: TracebackType | None) -> None:
    with contextlib.suppress(Exception):  # the program ends by the exception, whatever comes of this
        for connection in list(_connections):
            for group in list(connection.groups.values()):
                group._leave_by(exception)
    _hook(kind, exception, trace)
