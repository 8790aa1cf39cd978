"""Groups and what they do."""
import contextlib
import ctypes
import threading
import weakref
from ctypes import byref, c_uint32

import numpy as np

from . import _arrays, _library
from ._arrays import pair, reduction
from ._errors import CallError, check, error_of
from ._library import ANY_SOURCE, ANY_TAG, BAD_STATE, CLOSED, lib, milliseconds, options
from ._requests import Request


class Group:
    """An ordered list of ranks, of which this is one: `rank` of `size`, in `epoch`.

    Arrays are C-contiguous numpy arrays, of any shape: only their number of elements and their dtype count, and must be
    the same on all ranks. An `out` of None is the input itself (in place), unless said otherwise. `op` is one of
    nexar.OPS: "sum", "prod", "min", "max", "avg". Every operation also takes, by name: timeout= (seconds), match_id=,
    user_data=. Each x_start begins what x does and returns a Request, whose wait() returns what x returns.
    """

    def __init__(self, connection, handle):
        self._connection, self._handle, self._inside = connection, handle, threading.Lock()
        self._free = weakref.finalize(self, lib.nexar_group_free, handle)
        self._free.atexit = False  # a process that ends has ended; it does not leave its groups first
        connection.groups[handle] = self
        self.rank, self.size, self.epoch = (self._number(function) for function in (
            lib.nexar_group_rank, lib.nexar_group_size, lib.nexar_group_epoch))

    def _number(self, function):
        number = c_uint32()
        check(function(self._handle, byref(number)))
        return number.value

    def free(self):
        """Leaves the group. This rank's pending requests end with CLOSED, the other ranks' with ABORTED; what
        this rank has sent is delivered."""
        if self._free.alive:
            status = lib.nexar_group_free(self._handle)
            if status not in (0, CLOSED):
                raise error_of(status)
            self._free.detach()
            self._connection.groups.pop(self._handle, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()

    def node(self, rank):
        """The identity of the node that a rank runs on, 64 hex digits."""
        text = ctypes.create_string_buffer(65)
        check(lib.nexar_group_node(self._handle, rank, text, len(text)))
        return text.value.decode()

    def _start(self, function, *arguments, keep, result, given):
        request = _Given(**given)

        def start(key, number):
            return function(self._handle, *arguments, byref(request.options(key)), number)

        return Request(self._connection, start, (self, keep), result, request.user_data, request.hidden)

    def _collective(self, *arguments, given, **named):
        """A start. Not while another thread is inside a collective of this group: nothing orders the two."""
        with contextlib.nullcontext() if given.get("_hidden") else self._alone():
            return self._start(*arguments, given=given, **named)

    def _run(self, start, *arguments, **options):
        """The blocking form of a collective."""
        with self._alone():
            return start(*arguments, _hidden=True, **options)._finish()

    @contextlib.contextmanager
    def _alone(self):
        if not self._inside.acquire(blocking=False):
            text = "another thread is inside a collective of this group: give each thread a group of its own"
            raise CallError(BAD_STATE, f"BAD_STATE: {text}", text=text)
        try:
            yield
        finally:
            self._inside.release()

    # ---- Collectives ----

    def all_reduce(self, values, out=None, op="sum", **options):
        """out[i] = the reduction of all ranks' values[i], on every rank; returns out. As many elements as values."""
        return self._run(self.all_reduce_start, values, out, op, **options)

    def all_reduce_start(self, values, out=None, op="sum", **options):
        """Begins all_reduce."""
        out, address, out_address, count, out_count, dtype = pair(values, out)
        if count != out_count:
            raise ValueError(f"values has {count} elements and out {out_count}; all_reduce needs as many")
        return self._collective(lib.nexar_all_reduce_start, address, out_address, count, dtype, reduction(op),
                                keep=(values, out), result=lambda _: out, given=options)

    def reduce(self, values, out=None, op="sum", root=0, **options):
        """The same on rank `root` only, which gets out; the others get None, and their out is not looked at."""
        return self._run(self.reduce_start, values, out, op, root, **options)

    def reduce_start(self, values, out=None, op="sum", root=0, **options):
        """Begins reduce."""
        if self.rank == root:
            out, address, out_address, count, out_count, dtype = pair(values, out)
            if count != out_count:
                raise ValueError(f"values has {count} elements and out {out_count}; reduce needs as many")
        else:
            out = out_address = None
            address, count, dtype = _arrays.array(values, False)
        return self._collective(lib.nexar_reduce_start, address, out_address, count, dtype, reduction(op), root,
                                keep=(values, out), result=lambda _: out, given=options)

    def broadcast(self, values, root=0, **options):
        """The root's elements arrive in values on every rank; returns values."""
        return self._run(self.broadcast_start, values, root, **options)

    def broadcast_start(self, values, root=0, **options):
        """Begins broadcast."""
        address, count, dtype = _arrays.array(values, self.rank != root)
        return self._collective(lib.nexar_broadcast_start, address, count, dtype, root,
                                keep=values, result=lambda _: values, given=options)

    def all_gather(self, values, out=None, **options):
        """Every rank's values, in rank order; returns out: size * values.size elements (None: a new array of shape
        (size, *values.shape)). In place: values is out[rank * n:(rank + 1) * n]."""
        return self._run(self.all_gather_start, values, out, **options)

    def all_gather_start(self, values, out=None, **options):
        """Begins all_gather."""
        if out is None:
            out = np.empty((self.size, *values.shape), values.dtype)
        out, address, out_address, count, out_count, dtype = pair(values, out)
        if out_count != count * self.size:
            raise ValueError(f"out has {out_count} elements; {self.size} ranks with {count} each need "
                             f"{count * self.size}")
        return self._collective(lib.nexar_all_gather_start, address, out_address, count, dtype,
                                keep=(values, out), result=lambda _: out, given=options)

    def reduce_scatter(self, values, out=None, op="sum", **options):
        """values are size blocks of n elements; block r of the reduction arrives in out of rank r. Returns out: n
        elements (None: a new array of shape (n,)). In place: out is values[rank * n:(rank + 1) * n]."""
        return self._run(self.reduce_scatter_start, values, out, op, **options)

    def reduce_scatter_start(self, values, out=None, op="sum", **options):
        """Begins reduce_scatter."""
        if values.size % self.size:
            raise ValueError(f"values has {values.size} elements, which {self.size} ranks cannot share evenly")
        if out is None:
            out = np.empty(values.size // self.size, values.dtype)
        out, address, out_address, count, out_count, dtype = pair(values, out)
        if out_count * self.size != count:
            raise ValueError(f"out has {out_count} elements; want {count // self.size}")
        return self._collective(lib.nexar_reduce_scatter_start, address, out_address, out_count, dtype, reduction(op),
                                keep=(values, out), result=lambda _: out, given=options)

    def barrier(self, **options):
        """Ends when every rank has started it."""
        return self._run(self.barrier_start, **options)

    def barrier_start(self, **options):
        """Begins barrier."""
        return self._collective(lib.nexar_barrier_start, keep=None, result=lambda _: None, given=options)

    # ---- Messages ----

    def send(self, values, to, tag=0, **options):
        """Ends when the receive that matched it has the data. timeout=0: only if one waits for it already."""
        return self.send_start(values, to, tag, _hidden=True, **options)._finish()

    def send_start(self, values, to, tag=0, **options):
        """Begins send."""
        return self._start(lib.nexar_send_start, *_arrays.array(values, False), to, tag,
                                keep=values, result=lambda _: None, given=options)

    def recv(self, values, source=ANY_SOURCE, tag=ANY_TAG, **options):
        """The oldest message that matches, into values, which may be longer. Returns (source, tag, elements).
        timeout=0: only one that is here already."""
        return self.recv_start(values, source, tag, _hidden=True, **options)._finish()

    def recv_start(self, values, source=ANY_SOURCE, tag=ANY_TAG, **options):
        """Begins recv."""
        return self._start(lib.nexar_recv_start, *_arrays.array(values, True), source, tag, keep=values,
                           result=lambda end: (end.source, end.tag, end.bytes // values.itemsize), given=options)


class _Given:
    """What every operation takes by name."""

    def __init__(self, timeout=None, match_id=0, user_data=0, priority=None, _hidden=False):
        self.user_data, self.hidden = user_data, _hidden
        self._values = {"timeout_ms": milliseconds(timeout), "match_id": match_id, "priority": priority}

    def options(self, key):
        return options(_library.OpOptions, lib.nexar_op_options_init, user_data=key, **self._values)
