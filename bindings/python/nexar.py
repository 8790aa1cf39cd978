"""nexar for Python: the C library libnexar_c through ctypes, with numpy arrays.

    import nexar
    with nexar.Session() as session, session.group() as group:   # who and how many: from the environment
        x = session.alloc(1000, "float32")                       # memory that is reduced in place
        x[:] = group.rank
        group.all_reduce(x)                                      # the sum, on every rank

include/nexar.h is the manual; this file only says what Python adds. Every operation has a blocking form and a
_start form that returns a Request. Timeouts are seconds. While anything waits, other threads run and Ctrl-C
works: it cancels the operation, on all ranks of the group, and raises KeyboardInterrupt.
"""
import contextlib
import ctypes
import glob
import os
import time
import weakref
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

import numpy as np

PENDING, TIMED_OUT, INTERRUPTED, CANCELLED = 1, -21, -22, -24
ANY_SOURCE, ANY_TAG, RANK_AUTO = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF
DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int8": 4, "int32": 5, "int64": 6, "uint8": 7,
          "uint32": 8, "uint64": 9, "int16": 10, "uint16": 11}
OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}

# Longest single wait. A signal that arrives just before the library sleeps is seen after so long at the latest.
WAIT_MS = 500
# How long an interrupted or abandoned operation may take to end after it was cancelled.
CANCEL_MS = 5000


# ---- Errors ----

class Error(Exception):
    """A nexar call failed. code and name: which nexar_status; rank, other_rank, node: who is at fault, or None."""

    def __init__(self, code, text="", op="", rank=None, other_rank=None, node=None):
        self.code, self.name = code, _lib.nexar_status_name(code).decode()
        self.text, self.op, self.rank, self.other_rank, self.node = text, op, rank, other_rank, node
        super().__init__(": ".join(part for part in (op, self.name, text) if part))


class CallError(Error):
    """Fix the call."""


class RetriableError(Error):
    """Try again, or give more time or room."""


class OperationError(Error):
    """This operation failed on all ranks; the group lives."""


class GroupError(Error):
    """This group is finished: open a new one with the survivors."""


class SessionError(Error):
    """This session is finished: open a new one."""


_CLASSES = {1: CallError, 2: RetriableError, 3: OperationError, 4: GroupError, 5: SessionError}


def _error(status):
    kind = _CLASSES.get(_lib.nexar_status_class(status), Error)
    last = _ErrorStruct(struct_size=ctypes.sizeof(_ErrorStruct))
    if _lib.nexar_last_error(byref(last)) != 0 or last.code != status:
        return kind(status)
    known = [None if rank < 0 else rank for rank in (last.rank, last.other_rank)]
    return kind(status, last.text.decode(errors="replace"), last.op.decode(), *known, last.node.decode() or None)


def _check(status):
    if status != 0:
        raise _error(status)


# ---- The library ----

class _ErrorStruct(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("code", c_int32), ("error_class", c_int32), ("reserved", c_int32),
                ("rank", c_int64), ("other_rank", c_int64), ("node", c_char * 65), ("op", c_char * 24),
                ("text", c_char * 256)]


class _SessionOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("slots", c_uint32), ("socket_path", c_char_p),
                ("connect_timeout_ms", c_int64), ("daemon_unresponsive_ms", c_int64), ("scratch_limit", c_uint64),
                ("spin_us", c_int64)]


class _GroupOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("size", c_uint32), ("rank", c_uint32), ("reserved", c_uint32),
                ("name", c_char_p), ("job_secret", c_char_p), ("timeout_ms", c_int64),
                ("collective_timeout_ms", c_int64)]


class _Completion(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("status", c_int32), ("bytes", c_uint64), ("tag", c_uint64),
                ("source", c_uint32), ("reserved", c_uint32)]


_SIGNATURES = {
    # name: argument types; all return nexar_status
    "nexar_last_error": [POINTER(_ErrorStruct)],
    "nexar_session_open": [POINTER(_SessionOptions), POINTER(c_void_p)],
    "nexar_session_close": [c_void_p],
    "nexar_session_node": [c_void_p, c_char_p, c_size_t],
    "nexar_alloc": [c_void_p, c_uint64, POINTER(c_void_p)],
    "nexar_free": [c_void_p, c_void_p],
    "nexar_group_open": [c_void_p, POINTER(_GroupOptions), POINTER(c_void_p)],
    "nexar_group_free": [c_void_p],
    "nexar_group_rank": [c_void_p, POINTER(c_uint32)],
    "nexar_group_size": [c_void_p, POINTER(c_uint32)],
    "nexar_group_node": [c_void_p, c_uint32, c_char_p, c_size_t],
    "nexar_all_reduce_start": [c_void_p, c_void_p, c_void_p, c_uint64, c_int32, c_int32, POINTER(c_uint64)],
    "nexar_reduce_start": [c_void_p, c_void_p, c_void_p, c_uint64, c_int32, c_int32, c_uint32, POINTER(c_uint64)],
    "nexar_broadcast_start": [c_void_p, c_void_p, c_uint64, c_int32, c_uint32, POINTER(c_uint64)],
    "nexar_all_gather_start": [c_void_p, c_void_p, c_void_p, c_uint64, c_int32, POINTER(c_uint64)],
    "nexar_reduce_scatter_start": [c_void_p, c_void_p, c_void_p, c_uint64, c_int32, c_int32, POINTER(c_uint64)],
    "nexar_barrier_start": [c_void_p, POINTER(c_uint64)],
    "nexar_send_start": [c_void_p, c_void_p, c_uint64, c_int32, c_uint32, c_uint64, POINTER(c_uint64)],
    "nexar_recv_start": [c_void_p, c_void_p, c_uint64, c_int32, c_uint32, c_uint64, POINTER(c_uint64)],
    "nexar_test": [c_uint64, POINTER(_Completion)],
    "nexar_wait": [c_uint64, c_int64, POINTER(_Completion)],
    "nexar_cancel": [c_uint64],
    "nexar_request_free": [c_uint64],
    "nexar_status_class": [c_int32],
}


def _load():
    """$NEXAR_LIBRARY; else the library of the prefix that this file is installed in; else the loader's choice."""
    named = os.environ.get("NEXAR_LIBRARY")
    prefix = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
    names = [named] if named else [*sorted(glob.glob(f"{prefix}/lib/**/libnexar_c.so.0", recursive=True)),
                                   "libnexar_c.so.0"]
    for name in names:
        with contextlib.suppress(OSError):
            lib = ctypes.CDLL(name)
            break
    else:
        raise ImportError(f"{' and '.join(names)} cannot be loaded: install nexar, or set NEXAR_LIBRARY to its path")
    for function, arguments in _SIGNATURES.items():
        getattr(lib, function).argtypes, getattr(lib, function).restype = arguments, c_int32
    lib.nexar_session_options_init.argtypes = [POINTER(_SessionOptions), c_size_t]
    lib.nexar_group_options_init.argtypes = [POINTER(_GroupOptions), c_size_t]
    lib.nexar_session_options_init.restype = lib.nexar_group_options_init.restype = None
    lib.nexar_status_name.argtypes, lib.nexar_status_name.restype = [c_int32], c_char_p
    return lib


_lib = _load()


def _milliseconds(seconds):
    return -1 if seconds is None else max(0, round(seconds * 1000))


def _options(struct, init, **values):
    options = struct()
    init(byref(options), ctypes.sizeof(struct))
    for name, value in values.items():
        if value is not None:
            setattr(options, name, os.fsencode(value) if isinstance(value, (str, os.PathLike)) else value)
    return options


def _array(array, write):
    """(address, elements, nexar_dtype) of an array that nexar can work on."""
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or not array.dtype.isnative:
        raise ValueError("want a C-contiguous numpy array in native byte order")
    if write and not array.flags.writeable:
        raise ValueError("the array is read-only")
    if array.dtype.name not in DTYPES:
        raise ValueError(f"dtype {array.dtype.name} is not one of {', '.join(DTYPES)}")
    return array.ctypes.data, array.size, DTYPES[array.dtype.name]


def _pair(values, out):
    """The same for input and output; an out of None is the input itself."""
    out = values if out is None else out
    address, count, dtype = _array(values, False)
    out_address, out_count, out_dtype = _array(out, True)
    if dtype != out_dtype:
        raise ValueError(f"the arrays' dtypes differ: {values.dtype.name} and {out.dtype.name}")
    return out, address, out_address, count, out_count, dtype


def _op(name):
    if name not in OPS:
        raise ValueError(f"op {name!r} is not one of {', '.join(OPS)}")
    return OPS[name]


# ---- Session ----

class _Connection:
    """The C session. It lives until nobody holds it: the Session, its groups, and every array from alloc, so that
    no array can outlive its memory."""

    def __init__(self, options):
        handle = c_void_p()
        _check(_lib.nexar_session_open(byref(options), byref(handle)))
        self.handle = handle.value
        weakref.finalize(self, _lib.nexar_session_close, self.handle)


def _free_memory(connection, address):
    _lib.nexar_free(connection.handle, address)  # BAD_STATE while a request uses it: then the session's end frees it


class Session:
    """A connection to the daemon of this host. Options as in nexar_session_options, times in seconds."""

    def __init__(self, socket_path=None, slots=None, connect_timeout=None, daemon_unresponsive=None,
                 scratch_limit=None, spin_us=None):
        times = {"connect_timeout_ms": connect_timeout, "daemon_unresponsive_ms": daemon_unresponsive}
        self._connection = _Connection(_options(
            _SessionOptions, _lib.nexar_session_options_init, socket_path=socket_path, slots=slots,
            scratch_limit=scratch_limit, spin_us=spin_us,
            **{name: _milliseconds(value) for name, value in times.items() if value is not None}))
        self._groups = weakref.WeakSet()

    def close(self):
        """Frees the groups. The connection itself ends when the last array from alloc is gone."""
        for group in list(self._groups):
            group.free()
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
        text = ctypes.create_string_buffer(65)
        _check(_lib.nexar_session_node(self._open().handle, text, len(text)))
        return text.value.decode()

    def alloc(self, shape, dtype="float32"):
        """A zeroed array that operations use in place, without copies."""
        connection, dtype, memory = self._open(), np.dtype(dtype), c_void_p()
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        _check(_lib.nexar_alloc(connection.handle, max(nbytes, 1), byref(memory)))
        block = (c_char * nbytes).from_address(memory.value)
        weakref.finalize(block, _free_memory, connection, memory.value)  # the array keeps the block
        return np.ndarray(shape, dtype, buffer=block)

    def group(self, name=None, size=None, rank=None, job_secret=None, timeout=None, collective_timeout=None):
        """Joins a group. Without arguments the environment says which; otherwise size is needed."""
        return Group(self, name, size, rank, job_secret, timeout, collective_timeout)


# ---- Group ----

class Group:
    """An ordered list of ranks. `rank` and `size` are attributes; arrays work as they do in nexar.h."""

    def __init__(self, session, name, size, rank, job_secret, timeout, collective_timeout):
        self._connection, self._pending = session._open(), {}
        given = (name, size, rank, job_secret, timeout, collective_timeout)
        options = None
        if any(value is not None for value in given):
            deadline = None if collective_timeout is None else _milliseconds(collective_timeout)
            options = byref(_options(
                _GroupOptions, _lib.nexar_group_options_init, name=name, size=size, job_secret=job_secret,
                rank=RANK_AUTO if rank is None else rank, timeout_ms=_milliseconds(timeout),
                collective_timeout_ms=deadline))
        handle, number = c_void_p(), c_uint32()
        while (status := _lib.nexar_group_open(self._connection.handle, options, byref(handle))) == INTERRUPTED:
            pass  # Python's own handlers run here; Ctrl-C leaves the loop
        _check(status)
        self._handle = handle.value
        self._free = weakref.finalize(self, _lib.nexar_group_free, self._handle)
        session._groups.add(self)
        _check(_lib.nexar_group_rank(self._handle, byref(number)))
        self.rank = number.value
        _check(_lib.nexar_group_size(self._handle, byref(number)))
        self.size = number.value

    def free(self):
        """Leaves the group. Its pending requests end with an error."""
        self._free()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()

    def node(self, rank):
        text = ctypes.create_string_buffer(65)
        _check(_lib.nexar_group_node(self._handle, rank, text, len(text)))
        return text.value.decode()

    def _start(self, function, *arguments, keep, result):
        number = c_uint64()
        _check(function(self._handle, *arguments, byref(number)))
        return Request(self, number.value, keep, result)

    def all_reduce_start(self, values, out=None, op="sum"):
        out, address, out_address, count, out_count, dtype = _pair(values, out)
        if count != out_count:
            raise ValueError(f"values has {count} elements and out {out_count}; all_reduce needs as many")
        return self._start(_lib.nexar_all_reduce_start, address, out_address, count, dtype, _op(op),
                           keep=(values, out), result=lambda _: out)

    def reduce_start(self, values, out=None, op="sum", root=0):
        if self.rank == root:
            out, address, out_address, count, out_count, dtype = _pair(values, out)
            if count != out_count:
                raise ValueError(f"values has {count} elements and out {out_count}; reduce needs as many")
        else:
            out = out_address = None
            address, count, dtype = _array(values, False)
        return self._start(_lib.nexar_reduce_start, address, out_address, count, dtype, _op(op), root,
                           keep=(values, out), result=lambda _: out)

    def broadcast_start(self, values, root=0):
        address, count, dtype = _array(values, self.rank != root)
        return self._start(_lib.nexar_broadcast_start, address, count, dtype, root,
                           keep=values, result=lambda _: values)

    def all_gather_start(self, values, out=None):
        if out is None:
            out = np.empty((self.size, *values.shape), values.dtype)
        out, address, out_address, count, out_count, dtype = _pair(values, out)
        if out_count != count * self.size:
            raise ValueError(f"out has {out_count} elements; {self.size} ranks with {count} each need "
                             f"{count * self.size}")
        return self._start(_lib.nexar_all_gather_start, address, out_address, count, dtype,
                           keep=(values, out), result=lambda _: out)

    def reduce_scatter_start(self, values, out=None, op="sum"):
        if values.size % self.size:
            raise ValueError(f"values has {values.size} elements, which {self.size} ranks cannot share evenly")
        if out is None:
            out = np.empty(values.size // self.size, values.dtype)
        out, address, out_address, count, out_count, dtype = _pair(values, out)
        if out_count * self.size != count:
            raise ValueError(f"out has {out_count} elements; want {count // self.size}")
        return self._start(_lib.nexar_reduce_scatter_start, address, out_address, out_count, dtype, _op(op),
                           keep=(values, out), result=lambda _: out)

    def barrier_start(self):
        return self._start(_lib.nexar_barrier_start, keep=None, result=lambda _: None)

    def send_start(self, values, to, tag=0):
        return self._start(_lib.nexar_send_start, *_array(values, False), to, tag, keep=values, result=lambda _: None)

    def recv_start(self, values, source=ANY_SOURCE, tag=ANY_TAG):
        """The result is (source, tag, elements)."""
        return self._start(_lib.nexar_recv_start, *_array(values, True), source, tag, keep=values,
                           result=lambda end: (end.source, end.tag, end.bytes // values.itemsize))

    def all_reduce(self, values, out=None, op="sum", timeout=None):
        return self.all_reduce_start(values, out, op)._finish(timeout)

    def reduce(self, values, out=None, op="sum", root=0, timeout=None):
        return self.reduce_start(values, out, op, root)._finish(timeout)

    def broadcast(self, values, root=0, timeout=None):
        return self.broadcast_start(values, root)._finish(timeout)

    def all_gather(self, values, out=None, timeout=None):
        return self.all_gather_start(values, out)._finish(timeout)

    def reduce_scatter(self, values, out=None, op="sum", timeout=None):
        return self.reduce_scatter_start(values, out, op)._finish(timeout)

    def barrier(self, timeout=None):
        return self.barrier_start()._finish(timeout)

    def send(self, values, to, tag=0, timeout=None):
        return self.send_start(values, to, tag)._finish(timeout)

    def recv(self, values, source=ANY_SOURCE, tag=ANY_TAG, timeout=None):
        return self.recv_start(values, source, tag)._finish(timeout)


# ---- Requests ----

class Request:
    """A started operation. Its arrays stay alive, and its slot taken, until wait or test has seen its end."""

    def __init__(self, group, number, keep, result):
        self._group, self._number, self._keep, self._result = group, number, keep, result
        self._answer = None  # (value, error) once it has ended
        group._pending[number] = self

    def test(self):
        """Whether it has ended. Never blocks, never raises: wait() gives the result or the error."""
        return self._answer is not None or self._look(lambda end: _lib.nexar_test(self._number, end))

    def wait(self, timeout=None):
        """The result of the operation, or its error raised. After `timeout` it is still pending: TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._answer is None:
            left = WAIT_MS if deadline is None else min(WAIT_MS, _milliseconds(deadline - time.monotonic()))
            if not self._look(lambda end: _lib.nexar_wait(self._number, left, end)):
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError("still pending")
        value, error = self._answer
        if error is not None:
            raise error
        return value

    def cancel(self):
        """Asks for an end; wait() then tells how it ended. A collective ends on all ranks."""
        if self._answer is None:
            _check(_lib.nexar_cancel(self._number))

    def _look(self, ask):
        end = _Completion(struct_size=ctypes.sizeof(_Completion), status=PENDING)
        status = ask(byref(end))
        if end.status == PENDING and status in (PENDING, TIMED_OUT, INTERRUPTED):
            return False
        if end.status == PENDING:
            raise _error(status)  # the call itself failed
        self._answer = (self._result(end), None) if end.status == 0 else (None, _error(end.status))
        _lib.nexar_request_free(self._number)
        self._group._pending.pop(self._number, None)
        self._keep = self._result = None
        return True

    def _finish(self, timeout):
        """The blocking form: when time is up, or Ctrl-C is pressed, the operation itself ends."""
        try:
            return self.wait(timeout)
        except TimeoutError:
            self._give_up()
            if self._answer is None or (self._answer[1] and self._answer[1].code == CANCELLED):
                raise RetriableError(TIMED_OUT, f"not done after {timeout} s") from None
            return self.wait()
        except KeyboardInterrupt:
            self._give_up()
            raise

    def _give_up(self):
        with contextlib.suppress(Error, TimeoutError):
            self.cancel()
            self.wait(CANCEL_MS / 1000)
