"""The general way of an operation: any memory and any option, by the row of the table."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any

import numpy as np

from . import _arrays, _library, _quick
from ._library import lib, milliseconds, options
from ._requests import Persistent, Request
from ._rows import Row


class Calls:
    """What the methods of _collectives.py do. Group has the state."""
    rank: int
    size: int
    _connection: Any
    _handle: int
    _gate: bytearray  # see _quick.inside
    _dropped: dict[int, Any]  # requests to free soon: then the quick way is not taken
    _weak: Any  # a weak reference to this

    def _may_start(self) -> bool:
        """Whether the quick way may be tried for what is not waited for: also inside session.ops()."""
        return self._connection.dropped.none()  # type: ignore[no-any-return]

    def _start(self, function: Any, *arguments: Any, keep: Any, value: Any = None, made: Callable[[bytes, Any], Any] | None = None,
               hidden: bool = False, **given: Any) -> Request:
        if hidden:
            self._connection.may_block()
        wanted = _Given(**given)
        _library.check_numbers(function, self._handle, *arguments)

        def start(key: int, number: Any) -> int:
            return int(function(self._handle, *arguments, byref(wanted.options(key)), number))

        request = Request(self._connection, function.__name__, self._weak, (self, keep, wanted), value, made, wanted.user_data)
        return (request._hide() if hidden else request)._begin(start)

    def _prepare(self, function: Any, *arguments: Any, keep: Any, value: Any = None, made: Callable[[bytes, Any], Any] | None = None,
                 collective: bool = True, **given: Any) -> Persistent:
        """As _start, for x_init."""
        wanted = _Given(**given)
        _library.check_numbers(function, self._handle, *arguments)

        def prepare(key: int, number: Any) -> int:
            return int(function(self._handle, *arguments, byref(wanted.options(key)), number))

        return Persistent(self, collective, prepare, function.__name__, self._weak, (self, keep, wanted), value, made,
                          wanted.user_data)

    def _alone(self, function: Callable[[], Any]) -> Any:
        """What it gives; not while another thread is inside a collective of this group: nothing orders the two."""
        return _quick.alone(function, self._gate)

    def _blocking(self, row: Row, values: Any = None, **given: Any) -> Any:
        if isinstance(values, _arrays.COPIED) and row.memory != "data" and self._reads(row, given.get("root", 0)):
            result = getattr(self, row.name)(_arrays.copy_of(values), **given)
            return as_given(None, result) if given.get("out") is None else result
        return self._alone(lambda: self._collective(row, values, hidden=True, **given)._finish())

    def _begin(self, row: Row, *arguments: Any, **given: Any) -> Request:
        begun: Request = self._alone(lambda: self._collective(row, *arguments, **given))
        return begun

    def _init(self, row: Row, *arguments: Any, **given: Any) -> Persistent:
        given["persistent"] = True
        made: Persistent = self._collective(row, *arguments, **given)
        return made

    def _collective(self, row: Row, values: Any = None, out: Any = None, op: str = "sum", root: int = 0,
                    counts: Sequence[int] = (), send_counts: Sequence[int] = (), receive_counts: Sequence[int] = (),
                    scalar: Any = None, persistent: bool = False, **given: Any) -> Any:
        """Starts, or prepares, the collective of a row of the table."""
        if row.rooted:
            root = _library.checked(_library.Root, root)
        values, copied = _arrays.lifted(values) if self._reads(row, root) else (values, False)
        if copied and persistent:
            raise TypeError("values is a copy: a persistent operation reads its values at each start: give an array")
        if copied and row.memory == "data":
            raise TypeError(f"values is a copy: {row.name} fills memory in: give an array, or use bcast_object for Python's own")
        arguments: tuple[Any, ...] = ()
        result: Any = None
        if row.memory == "data":
            arguments, result = _arrays.array(values, self.rank != root), values
        elif row.memory == "in_out":
            arguments, result = self._sides(row, values, out, root)
        elif row.memory == "in_out_counts":
            arguments, result = self._packed(row, values, counts, out, root)
        elif row.memory == "in_out_own_counts":
            arguments, result = self._exchanged(row, values, send_counts, receive_counts, out)
        operands = (_arrays.reduction(op),) * row.reduces + (root,) * row.rooted
        if scalar is not None:
            given["scalar"] = _arrays.scalar_of(scalar, values.dtype if isinstance(values, np.ndarray) else arguments[3])
        read = values if arguments and arguments[0] is not None else None  # else this rank's values are not looked at
        kept = values, result, _arrays.held(read, None if result is read else result)
        if persistent:
            return self._prepare(getattr(lib, f"nexar_{row.name}_init"), *arguments, *operands, keep=kept, value=result, **given)
        return self._start(getattr(lib, f"nexar_{row.name}_start"), *arguments, *operands, keep=kept, value=result,
                           made=as_given if copied and out is None else None, **given)

    def _reads(self, row: Row, root: int) -> bool:
        """Whether this rank's values are looked at."""
        return not row.in_.endswith("_at_root") or row.memory == "data" or self.rank == root

    def _blocks(self, side: str, root: int) -> int:
        """Of an even side: how many blocks of `count` elements this rank has; 0: it has no such side."""
        if side.endswith("_at_root") and self.rank != root:
            return 0
        return self.size if side.startswith("all") else 1

    def _room(self, values: Any, blocks: int) -> Any:
        """An array for the result: `blocks` times as large, of shape (blocks, *values.shape); or a rank's share of it. None: the
        general way makes it, or says what is wrong."""
        if type(values) is not np.ndarray or values.dtype not in _arrays._plain:
            elements, dtype = _looked_at(values)
            if dtype is None or (blocks == 0 and elements % self.size):
                return None
            return np.empty((blocks, *_arrays.shape_of(values, elements)) if blocks > 0 else elements // self.size, dtype)
        if blocks > 0:
            return np.empty((blocks, *values.shape), values.dtype)
        return None if values.size % self.size else np.empty(values.size // self.size, values.dtype)

    def _packed_room(self, values: Any, counts: Any, own: bool = False) -> Any:
        """The same of so many elements, of this rank or of all."""
        if type(counts) is not list or len(counts) != self.size:
            return None
        plain = type(values) is np.ndarray and values.dtype in _arrays._plain
        dtype = values.dtype if plain else _looked_at(values)[1]
        try:
            return None if dtype is None else np.empty(counts[self.rank] if own else sum(counts), dtype)
        except Exception:
            return None

    def _sides(self, row: Row, values: Any, out: Any, root: int) -> tuple[tuple[Any, ...], Any]:
        """(addresses, count and dtype; the output). The count is of one block."""
        blocks_in, blocks_out = self._blocks(row.in_, root), self._blocks(row.out, root)
        if blocks_in == 0:
            address, elements, dtype = _arrays.array(needed(row, out), True, "out")
            return (None, address, elements, dtype), out
        address, elements, dtype = _arrays.array(values, False)
        if blocks_out == 0:
            return (address, None, elements, dtype), None
        count, rest = divmod(elements, blocks_in)
        if rest:
            raise ValueError(f"values has {elements} elements, which {self.size} ranks cannot share evenly")
        if out is None and row.in_place != "same":
            all_of = (self.size, *_arrays.shape_of(values, elements))
            out = _arrays.new(all_of if row.out.startswith("all") else (count,), dtype)
        out, _, out_address, _, out_elements, _ = _arrays.pair(values, out)
        wanted = count * blocks_out
        if out_elements != wanted:
            raise ValueError(f"out has {out_elements} elements; {row.name} of {elements} on {self.size} ranks needs {wanted}")
        return (address, out_address, count, dtype), out

    def _packed(self, row: Row, values: Any, given: Sequence[int], out: Any, root: int) -> tuple[tuple[Any, ...], Any]:
        """The same of an operation with a count per rank: (addresses, counts and dtype; the output)."""
        counts = self._counts(row, "counts", given)
        wanted_in, wanted_out = (self._elements(side, counts, root) for side in (row.in_, row.out))
        (address, out_address), dtype, out = of_lengths(row, values, wanted_in, out, wanted_out)
        return (address, out_address, self._list(counts), dtype), out

    def _exchanged(self, row: Row, values: Any, sent: Sequence[int], received: Sequence[int],
                   out: Any) -> tuple[tuple[Any, ...], Any]:
        """The same of one with counts of each rank's own."""
        sends, receives = self._counts(row, "send_counts", sent), self._counts(row, "receive_counts", received)
        (address, out_address), dtype, out = of_lengths(row, values, sum(sends), out, sum(receives))
        return (address, self._list(sends), out_address, self._list(receives), dtype), out

    def _counts(self, row: Row, name: str, given: Sequence[int]) -> list[int]:
        each = f"0 or more for each of {self.size} ranks"
        counts = [_library.integer(count, f"{name}[{index}]", "an integer, 0 or more")
                  for index, count in enumerate(_library.entries(given, name, f"a list of an integer of {each}"))]
        if len(counts) != self.size:
            raise ValueError(f"{name} has {len(counts)} entries; allowed for {row.name}: one of {each}")
        if min(counts) < 0:
            index = next(index for index, count in enumerate(counts) if count < 0)
            raise ValueError(f"{name}[{index}] is {counts[index]}; allowed: 0 or more")
        if sum(counts) >= 1 << 63:
            raise ValueError(f"the sum of {name} is {sum(counts)}; allowed: less than 2**63")
        return counts

    def _list(self, counts: list[int]) -> Any:
        return (ctypes.c_uint64 * self.size)(*counts)

    def _elements(self, side: str, counts: list[int], root: int) -> int | None:
        """Of a side: its elements on this rank; None: it has no such side."""
        if side.endswith("_at_root") and self.rank != root:
            return None
        return sum(counts) if side.startswith("packed") else counts[self.rank]


def as_given(_: Any, result: Any) -> Any:
    """The result of a number as a number, of a list as a list; None: this rank has none."""
    return None if result is None else result.tolist()


def _looked_at(values: Any) -> tuple[int, np.dtype[Any] | None]:
    """(elements, dtype) of memory that the quick way takes, where numpy has that dtype."""
    found = _quick.look(values)
    return (0, None) if found is NotImplemented else (found[0], _arrays.BY_NUMBER.get(found[1]))


def needed(row: Row, out: Any) -> Any:
    if out is None:
        raise ValueError(f"out is None; {row.name} needs it on every rank but the root")
    return out


def of_lengths(row: Row, values: Any, wanted_in: int | None, out: Any,
               wanted_out: int | None) -> tuple[tuple[int | None, int | None], int, Any]:
    """(addresses, dtype, output) of sides that must have so many elements; None: this rank has no such side."""
    address = out_address = None
    dtype = other = -1
    if wanted_in is not None:
        address, elements, dtype = _arrays.array(values, False)
        check_elements(row, "values", elements, wanted_in)
    if wanted_out is None:
        return (address, None), dtype, None
    if out is None and wanted_in is not None:
        out = _arrays.new((wanted_out,), dtype)
    out_address, elements, other = _arrays.array(needed(row, out), True, "out")
    check_elements(row, "out", elements, wanted_out)
    if wanted_in is not None and other != dtype:
        raise _arrays.differing(other, dtype)
    return (address, out_address), other, out


def check_elements(row: Row, what: str, elements: int, wanted: int) -> None:
    if elements != wanted:
        raise ValueError(f"{what} has {elements} elements; {row.name} with these counts needs {wanted}")


class _Given:
    """What every operation takes by name."""

    def __init__(self, timeout: float | None = None, match_id: int = 0, user_data: int = 0, priority: int | None = None,
                 scalar: Any = None, flags: int = 0) -> None:
        self.user_data, self._scalar = user_data, scalar  # an array of one element
        self._values = {} if timeout is None else {"timeout_ms": milliseconds(timeout)}
        for name, value in (("match_id", match_id), ("flags", flags)):
            self._values[name] = _library.checked(ctypes.c_uint64, value, name)
        if scalar is not None:
            self._values["scalar"] = scalar.ctypes.data
        if priority is not None:
            self._values["priority"] = _library.checked(ctypes.c_int32, priority, "priority")

    def options(self, key: int) -> _library.OpOptions:
        made = _library.OpOptions.from_buffer_copy(_DEFAULTS)
        _library.assign(made, **self._values)
        made.user_data = key
        return made


_DEFAULTS = bytes(options(_library.OpOptions, lib.nexar_op_options_init))
