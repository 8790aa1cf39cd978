"""Groups and what they do."""
import contextlib
import ctypes
import operator
import threading
import weakref
from ctypes import byref, c_uint32

import numpy as np

from . import _arrays, _library
from ._arrays import pair, reduction
from ._collectives import Collectives
from ._errors import CallError, check, error_of
from ._library import ANY_SOURCE, ANY_TAG, BAD_STATE, CLOSED, lib, milliseconds, options
from ._requests import Request


class Group(Collectives):
    """An ordered list of ranks, of which this is one: `rank` of `size`, in `epoch`.

    Arrays are C-contiguous numpy arrays, of any shape: only their number of elements and their dtype count, and must be
    the same on all ranks. An `out` of None is the input itself (in place), unless stated otherwise. `op` is one of
    nexar.OPS: "sum", "prod", "min", "max", "avg"; of integers and bool also "band", "bor", "bxor", "land", "lor", "lxor"; of
    pairs, arrays of a struct like [("value", "f4"), ("index", "i4")], "minloc" and "maxloc". "premul_sum" multiplies this
    rank's values by its scalar=, a number of the arrays' dtype, before the sum. Every operation also takes, by name: timeout= (seconds), match_id=,
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
        _library.check_numbers(lib.nexar_group_node, self._handle, rank)
        check(lib.nexar_group_node(self._handle, rank, text, len(text)))
        return text.value.decode()

    def _start(self, function, *arguments, keep, result, given):
        request = _Given(**given)
        _library.check_numbers(function, self._handle, *arguments)

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

    # ---- Collectives: what the methods of _collectives.py do ----

    def _begin(self, row, values=None, out=None, op="sum", root=0, counts=None, *, given):
        """Starts the collective of a row of the table."""
        if given.get("scalar") is not None:
            given = {**given, "scalar": np.array(given["scalar"], values.dtype)}
        arguments, result = (), None
        if row.memory == "data":
            arguments, result = _arrays.array(values, self.rank != root), values
        elif row.memory == "in_out":
            arguments, result = self._sides(row, values, out, root)
        elif row.memory == "in_out_counts":
            arguments, result = self._packed(row, values, counts, out)
        operands = (reduction(op),) * row.reduces + (root,) * row.rooted
        return self._collective(getattr(lib, f"nexar_{row.name}_start"), *arguments, *operands, keep=(values, result),
                                result=lambda _: result, given=given)

    def _sides(self, row, values, out, root):
        """(addresses, count and dtype; the output). The count is of one block."""
        if row.in_ == "all_at_root" and self.rank != root:
            address, elements, dtype = _arrays.array(out, True)
            return (None, address, elements, dtype), out
        address, elements, dtype = _arrays.array(values, False)
        if row.out.endswith("_at_root") and self.rank != root:
            return (address, None, elements, dtype), None
        count, rest = divmod(elements, self._blocks(row.in_))
        if rest:
            raise ValueError(f"values has {elements} elements, which {self.size} ranks cannot share evenly")
        if out is None and row.in_place != "same":
            out = np.empty((self.size, *values.shape) if row.out.startswith("all") else count, values.dtype)
        out, _, out_address, _, out_elements, _ = pair(values, out)
        wanted = count * self._blocks(row.out)
        if out_elements != wanted:
            raise ValueError(f"out has {out_elements} elements; {row.name} of {elements} on {self.size} ranks needs {wanted}")
        return (address, out_address, count, dtype), out

    def _packed(self, row, values, counts, out):
        """(addresses, counts and dtype; the output)."""
        counts = [operator.index(count) for count in counts]
        if len(counts) != self.size or min(counts) < 0 or sum(counts) >= 1 << 63:
            raise ValueError(f"counts has {len(counts)} entries; {row.name} needs one of 0 or more for each of {self.size} ranks")
        if values.size != counts[self.rank]:
            raise ValueError(f"values has {values.size} elements, counts[{self.rank}] is {counts[self.rank]}")
        if out is None:
            out = np.empty(sum(counts), values.dtype)
        out, address, out_address, _, out_elements, dtype = pair(values, out)
        if out_elements != sum(counts):
            raise ValueError(f"out has {out_elements} elements; the counts are together {sum(counts)}")
        return (address, out_address, (ctypes.c_uint64 * self.size)(*counts), dtype), out

    def _blocks(self, side):
        return self.size if side.startswith("all") else 1

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

    def __init__(self, timeout=None, match_id=0, user_data=0, priority=None, scalar=None, _hidden=False):
        self.user_data, self.hidden, self._scalar = user_data, _hidden, scalar  # an array of one element
        self._values = {"timeout_ms": milliseconds(timeout), "match_id": match_id, "priority": priority,
                        "scalar": None if scalar is None else scalar.ctypes.data}

    def options(self, key):
        return options(_library.OpOptions, lib.nexar_op_options_init, user_data=key, **self._values)
