"""Sessions: the connection to this host's daemon, memory, and the opening of groups."""
import ctypes
import itertools
import weakref
from ctypes import byref, c_char, c_int, c_void_p

import numpy as np

from . import _arrays, _library, _requests
from ._errors import check
from ._group import Group
from ._library import NOT_FOUND, assign, lib, milliseconds, options
from ._requests import Request

_LAZY, _HUGE_PAGES = 1, 2  # NEXAR_ALLOC_...


class _Connection:
    """The C session. It exists until its last holder is gone: the Session, its groups and requests, and every array from alloc,
    so that no array can outlive its memory."""

    def __init__(self, session_options):
        handle = c_void_p()
        check(lib.nexar_session_open(byref(session_options), byref(handle)))
        self.handle = handle.value
        self.groups, self.requests = weakref.WeakValueDictionary(), weakref.WeakValueDictionary()
        self.dropped, self.keys = _requests.Dropped(), itertools.count(1)  # requests are found by their key
        weakref.finalize(self, lib.nexar_session_close, self.handle).atexit = False  # the library does so

    def completion(self, end, request):
        return _requests.Completion(
            request, end.status, lib.nexar_status_name(end.status).decode(), request._user_data,
            self.groups.get(end.group), end.epoch, None if end.sequence == _requests._NO_SEQUENCE else end.sequence,
            end.bytes, end.tag, None if end.source == _requests._NOBODY else end.source)

    def opened(self, handle):
        """The Group of the handle of an opening: one object, whichever thread sees the completion first."""
        return self.groups.get(handle) or Group(self, handle)


def _free_memory(connection, address):
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

    def __init__(self, socket_path=None, slots=None, connect_timeout=None, daemon_unresponsive=None,
                 scratch_limit=None, spin_us=None):
        self._connection = _Connection(options(
            _library.SessionOptions, lib.nexar_session_options_init, socket_path=socket_path, slots=slots,
            scratch_limit=scratch_limit, spin_us=spin_us, connect_timeout_ms=milliseconds(connect_timeout),
            daemon_unresponsive_ms=milliseconds(daemon_unresponsive)))

    def close(self):
        """Frees the groups. The connection itself ends when the last array from alloc is gone."""
        if self._connection is not None:
            for group in list(self._connection.groups.values()):
                group.free()
            self._connection.dropped.sweep()
        self._connection = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _open(self):
        if self._connection is None:
            raise ValueError("the session is closed")
        return self._connection

    @property
    def node(self):
        """The identity of this host's node, 64 hex digits."""
        text = ctypes.create_string_buffer(65)
        check(lib.nexar_session_node(self._open().handle, text, len(text)))
        return text.value.decode()

    def stats(self):
        """Counters of this session, by name, as nexar_session_stats."""
        stats = _library.SessionStats(struct_size=ctypes.sizeof(_library.SessionStats))
        check(lib.nexar_session_stats_get(self._open().handle, byref(stats)))
        return {name: getattr(stats, name) for name, _ in stats._fields_[2:]}

    # ---- Event loops ----

    def fileno(self):
        """Readable when poll() has something to do: for select, and asyncio's add_reader."""
        fd = c_int()
        check(lib.nexar_session_fd(self._open().handle, byref(fd)))
        return fd.value

    def poll(self, capacity=64):
        """Completions of the requests that have ended since the last poll, at most `capacity`; call it until it returns
        none. Does not block. Requests of blocking forms are not among them."""
        return _requests.poll(self._open(), capacity)

    # ---- Memory ----

    def alloc(self, shape, dtype="float32", lazy=False, huge_pages=False):
        """A zeroed array that operations use in place, without copies. lazy: its pages come when they are first touched;
        huge_pages: in huge pages where the system gives them."""
        connection, dtype, memory = self._open(), np.dtype(dtype), c_void_p()
        if dtype.hasobject:
            raise ValueError(f"dtype {dtype} holds Python objects, which only this process can reach")
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if nbytes < 0:
            raise ValueError(f"shape is {shape}; allowed: 0 and more elements")
        array = c_char * nbytes  # what can fail comes before there is memory to lose
        how = options(_library.AllocOptions, lib.nexar_alloc_options_init,
                      flags=(_LAZY if lazy else 0) | (_HUGE_PAGES if huge_pages else 0))
        check(lib.nexar_alloc(connection.handle, max(nbytes, 1), byref(how), byref(memory)))
        block = array.from_address(memory.value)
        # The array keeps the block. At the end of the process the library gives the memory back, not Python.
        weakref.finalize(block, _free_memory, connection, memory.value).atexit = False
        return np.ndarray(shape, dtype, buffer=block)

    def register_memfd(self, array, fd, offset=0):
        """Makes an array over a shared, writable mapping of the memfd `fd`, from `offset` bytes on, usable in place, where
        the daemon has memfds_in_place; elsewhere it is copied. The memfd is sealed. Keep the array, the mapping and the
        descriptor until unregister(array)."""
        address, _, _ = _arrays.array(array, True)
        check(lib.nexar_register_memfd(self._open().handle, address, array.nbytes, fd, offset))
        return array

    def unregister(self, array):
        """The reverse; before you unmap."""
        check(lib.nexar_unregister(self._open().handle, array.ctypes.data))

    # ---- Groups ----

    def group(self, name=None, size=None, rank=None, **options):
        """Joins a group and waits for all its members.

        What is not given the environment says (nexar_group_options_from_env: nexarctl run, torchrun, Slurm, Open MPI).

        name, size    which group, and how many ranks: the same for all members
        rank          0 .. size-1, or nexar.RANK_AUTO on all members; None, and no rank in the environment: RANK_AUTO
        job_secret    16 to 128 bytes: keeps jobs apart, and admits processes of other hosts and users
        timeout       seconds, for all members to arrive; None: 30
        collective_timeout, barrier_timeout, rpc_timeout   seconds: deadlines of the group's operations, agreed between
                      its members; None: what the others say
        A session may have several ranks of one group: use group_start, or one thread for each.
        """
        return self.group_start(name, size, rank, _hidden=True, **options)._finish()

    def group_start(self, name=None, size=None, rank=None, **options):
        """Begins group, and takes user_data= too. The Request's wait() returns the Group."""
        return _opening(self._open(), name, size, rank, **options)


def _opening(connection, name, size, rank, user_data=0, _hidden=False, **given):
    options, strings = _group_options(name, size, rank, **given)

    def start(key, number):
        options.user_data = key
        return lib.nexar_group_open_start(connection.handle, byref(options), number)

    return Request(connection, start, strings, lambda end: connection.opened(end.group), user_data, _hidden, opens=True)


def _group_options(name, size, rank, job_secret=None, timeout=None, collective_timeout=None, barrier_timeout=None,
                   rpc_timeout=None):
    result = _library.GroupOptions()
    status = lib.nexar_group_options_from_env(byref(result), ctypes.sizeof(result))
    if status != NOT_FOUND or size is None:  # no rank and size there: its other variables count all the same
        check(status)
    times = zip(_TIMES, (timeout, collective_timeout, barrier_timeout, rpc_timeout))
    assign(result, name=name, size=size, rank=rank, job_secret=job_secret,
           **{field: milliseconds(value) for field, value in times if value is not None})
    return result, (result.name, result.job_secret)


_TIMES = ("timeout_ms", "collective_timeout_ms", "barrier_timeout_ms", "rpc_timeout_ms")
