"""What each rank's output must be, by numpy alone: bit for bit where the operation fixes the bits (what only moves, integers,
min and max, pairs, scans, and sums that are exact in every order); else a value, and how far from it a result may be.

The distance. A sum of n floats is rounded at most n - 1 times, whichever way it is split over nodes and ranks, each time by at
most u (half a unit in the last place of 1) times the magnitude of a partial sum, which is at most S, the sum of magnitudes. The
factors (1 + u) ** (n - 1) and the rounding of 16-bit types through float32 are covered by one more: n u S. avg divides once
more. A product of n: n u times its magnitude. Below the smallest normal number each rounding costs up to half of the
smallest subnormal.
"""
import functools

import numpy as np

from .data import INFINITE, QUIET, STORAGE, bits, given, is_nan, narrowed, scalar, widened
from .program import FLAG_DETERMINISTIC, FLAG_F32_PARTIALS, INTEGERS, PAIRS

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TINY = {"float32": 2.0**-149, "float64": 2.0**-1074, "float16": 2.0**-24, "bfloat16": 2.0**-133}
LOGICAL = ("land", "lor", "lxor")
TRUTH = {"min": "and", "band": "and", "land": "and", "max": "or", "bor": "or", "lor": "or", "bxor": "xor", "lxor": "xor"}


def expected(seed, step, rank):
    """(array, distance) of the rank's output; distance None: bit for bit. None: it has no output."""
    row, size = step.row, step.group.size
    elements = step.elements(row.out, rank)
    if elements is None:
        return None

    def input_of(other):
        return given(seed, step, other, step.elements(row.in_, other))

    if step.kind == "exclusive_scan" and rank == 0:
        return identity(step.op, step.dtype, elements), None
    if row.reduces:
        ranks = {"scan": range(rank + 1), "exclusive_scan": range(rank)}.get(step.kind, range(size))
        part = step.block(rank) if row.in_place == "block_of_in" else slice(None)
        factors = [scalar(seed, step, other) for other in ranks] if step.op == "premul_sum" else None
        return folded(step, [input_of(other)[part] for other in ranks], factors, "scan" in step.kind)
    if step.kind == "broadcast":
        return input_of(step.root), None
    if step.kind in ("scatter", "scatterv"):
        return input_of(step.root)[step.block(rank)], None
    if step.kind == "all_to_allv":
        parts = [input_of(other)[sum(row[:rank]):sum(row[:rank + 1])] for other, row in enumerate(step.blocks)]
    else:
        part = step.block(rank) if step.kind == "all_to_all" else slice(None)
        parts = [input_of(other)[part] for other in range(size)]
    return np.concatenate(parts), None


def identity(op, dtype, elements):
    """What rank 0 of an exclusive scan gets, as include/nexar.h has it."""
    result = np.zeros(elements, STORAGE[dtype])
    if dtype in PAIRS:
        value, index = dtype.split("_")
        result["value"] = identity("min" if op == "minloc" else "max", value, elements)
        result["index"] = np.iinfo(index).max
    elif dtype == "bool":
        result[:] = TRUTH[op] == "and"
    elif op in ("prod", "land"):
        result[:] = 1 if dtype in INTEGERS else narrowed(np.ones(1, np.float64 if dtype == "float64" else np.float32), dtype)
    elif op == "band":
        bits(result)[:] = np.iinfo(bits(result).dtype).max
    elif op in ("min", "max") and dtype in INTEGERS:
        result[:] = np.iinfo(dtype).max if op == "min" else np.iinfo(dtype).min
    elif op in ("min", "max"):
        sign = 0 if op == "min" else 1 << (8 * result.itemsize - 1)
        bits(result)[:] = INFINITE[dtype] | sign  # of float8_e4m3fn the largest number
    return result


def folded(step, inputs, factors, in_order):
    dtype, op = step.dtype, step.op
    if op == "premul_sum":
        inputs, op = [multiplied(x, factor, dtype) for x, factor in zip(inputs, factors)], "sum"
    if dtype == "bool" or op in LOGICAL:
        return truth(inputs, TRUTH[op]), None
    if len(inputs) == 1:
        return inputs[0], None
    if dtype in PAIRS:
        return located(inputs, op, dtype), None
    if dtype in INTEGERS:
        return whole(inputs, op, dtype), None
    if op in ("min", "max"):
        return extreme(inputs, op, dtype), None
    if in_order and op != "avg":
        return one_by_one(inputs, op, dtype), None
    if step.flags & FLAG_DETERMINISTIC and not in_order:
        return along_tree(inputs, op, dtype), None
    if step.exact:
        return summed_exactly(inputs, op, dtype), None
    wide = step.flags & FLAG_F32_PARTIALS and not in_order and dtype != "float64"
    return rounded_once(inputs, op, dtype) if wide else within(inputs, op, dtype)


def along_tree(inputs, op, dtype):
    """docs/protocol/partials.md: the ranks are split at the largest power of two below their number; float32, or float64."""
    def root(values):
        if len(values) == 1:
            return values[0]
        half = 1 << (len(values) - 1).bit_length() - 1
        return (np.multiply if op == "prod" else np.add)(root(values[:half]), root(values[half:]))

    with np.errstate(all="ignore"):
        total = root([widened(x, dtype) for x in inputs])
        if op == "avg":
            total = total / total.dtype.type(len(inputs))
        result = narrowed(total, dtype)
    bits(result)[np.isnan(total)] = QUIET[dtype]
    return result


def rounded_once(inputs, op, dtype):
    """The distance of float32, and one rounding to the type."""
    value, distance = within(inputs, op, "float32", dtype)
    return value, distance + UNIT[dtype] * (np.abs(value) + distance) + TINY[dtype]


def multiplied(values, factor, dtype):
    with np.errstate(over="ignore"):
        product = widened(values, dtype) * widened(factor, dtype)
    return product if dtype in INTEGERS else narrowed(product, dtype)


def truth(inputs, how):
    function = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[how]
    return function.reduce([x != 0 for x in inputs]).astype(inputs[0].dtype)


def whole(inputs, op, dtype):
    kind = np.dtype(dtype)
    function = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
                "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}[op]
    with np.errstate(over="ignore"):
        total = function.reduce(inputs, dtype=kind)
    if op != "avg":
        return total
    return (np.abs(total.astype(np.int64)) // len(inputs) * np.sign(total.astype(np.int64))).astype(kind)


def extreme(inputs, op, dtype):
    """By the order of the bits: -0 before +0; any NaN makes the one NaN."""
    raw = [bits(x) for x in inputs]
    sign = raw[0].dtype.type(1 << (8 * raw[0].dtype.itemsize - 1))
    keys = [np.where(x & sign, ~x, x | sign) for x in raw]
    key = (np.minimum if op == "min" else np.maximum).reduce(keys)
    result = np.where(key & sign, key ^ sign, ~key).astype(raw[0].dtype)
    result[np.logical_or.reduce([is_nan(x, dtype) for x in raw])] = QUIET[dtype]
    return result.view(inputs[0].dtype)


def located(inputs, op, dtype):
    best = inputs[0]
    for other in inputs[1:]:
        best = np.where(precedes(other, best, op, dtype), other, best)
    return best


def precedes(a, b, op, dtype):
    """NaN before all numbers, then the value, then the lower index, then the zero's sign."""
    x, y, lower = a["value"], b["value"], a["index"] < b["index"]
    same = a["index"] == b["index"]
    if dtype.startswith("int"):
        return np.where(x == y, lower, x < y if op == "minloc" else x > y)
    nan_x, nan_y = np.isnan(x), np.isnan(y)
    with np.errstate(invalid="ignore"):
        further = x < y if op == "minloc" else x > y
    sign = np.signbit(x) & ~np.signbit(y) if op == "minloc" else ~np.signbit(x) & np.signbit(y)
    tie = lower | (same & sign)
    return np.where(nan_x | nan_y, nan_x & (~nan_y | lower), np.where(x == y, tie, further))


def one_by_one(inputs, op, dtype):
    """In rank order, each step rounded to the type."""
    function, total = {"sum": np.add, "prod": np.multiply}[op], inputs[0]
    for other in inputs[1:]:
        total = narrowed(function(widened(total, dtype), widened(other, dtype)), dtype)
    return total


def summed_exactly(inputs, op, dtype):
    wide = [widened(x, dtype).astype(np.float64) for x in inputs]
    # Not by numpy's reduce, which may begin with +0: a sum is -0 only where all of its terms are.
    total = functools.reduce(np.multiply if op == "prod" else np.add, wide)
    if op == "avg":
        total = total / len(inputs) if dtype == "float64" else total.astype(np.float32) / np.float32(len(inputs))
    return narrowed(total if dtype == "float64" else total.astype(np.float32), dtype)


def within(inputs, op, dtype, of_inputs=None):
    wide = np.longdouble if dtype == "float64" else np.float64
    exact = [widened(x, of_inputs or dtype).astype(wide) for x in inputs]
    n = len(inputs)
    if op == "prod":
        value = np.multiply.reduce(exact)
        return value, n * UNIT[dtype] * np.abs(value) + n * TINY[dtype]
    value, magnitude = np.add.reduce(exact), np.add.reduce([np.abs(x) for x in exact])
    if op == "avg":
        return value / n, (n + 1) * UNIT[dtype] * magnitude / n + n * TINY[dtype]
    return value, n * UNIT[dtype] * magnitude + n * TINY[dtype]


def difference(have, want, distance, dtype):
    """None, or what is wrong."""
    if have.size != want.size:
        return f"{have.size} elements, want {want.size}"
    if distance is None:
        rows = (have.tobytes(), want.tobytes())
        if rows[0] == rows[1]:
            return None
        width = have.dtype.itemsize
        a, b = (np.frombuffer(row, np.uint8).reshape(-1, width) for row in rows)
        bad = np.flatnonzero((a != b).any(axis=1))
    else:
        error = np.abs(widened(have, dtype).astype(want.dtype) - want)
        bad = np.flatnonzero(~(error <= distance))
        if not bad.size:
            return None
    return f"{bad.size} of {have.size} wrong, first at {bad[0]}, last at {bad[-1]}: {have[bad[0]]!r}, want {want[bad[0]]!r}"
