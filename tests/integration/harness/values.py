"""Data that differs per rank and position, and what the collectives must make of it, by numpy alone.

Values are whole and small, so that every sum is exact whatever its order; the types that numpy lacks are arrays of
unsigned integers here, of a class for each.
"""
import nexar
import numpy as np

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64", "float16", "bfloat16")


class BFloat16(np.ndarray):
    pass


class Float8E4M3FN(np.ndarray):
    pass


class Float8E5M2(np.ndarray):
    pass


LACKING = {"bfloat16": (BFloat16, "uint16"), "float8_e4m3fn": (Float8E4M3FN, "uint8"), "float8_e5m2": (Float8E5M2, "uint8")}
_array = nexar._arrays.array


def _array_of_any_type(array, write, *name):
    address, count, dtype = _array(array, write, *name)
    names = [name for name, (kind, _) in LACKING.items() if isinstance(array, kind)]
    return address, count, nexar.DTYPES[names[0]] if names else dtype


nexar._arrays.array = _array_of_any_type


def storage(dtype):
    return np.dtype(LACKING[dtype][1] if dtype in LACKING else dtype)


def typed(array, dtype):
    """A view that nexar takes for an array of this type."""
    return array.view(LACKING[dtype][0] if dtype in LACKING else np.ndarray)


def narrow(values, dtype):
    """float64 or integer values, rounded once to the type."""
    if dtype == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        return typed(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16), dtype)
    if dtype == "float16":  # as the reductions do: through float32
        return values.astype(np.float32).astype(np.float16)
    return values.astype(dtype)


def element(dtype, op, rank, count, salt=0):
    """The input of a rank, as int64: exact in the type, and so is every sum and product of 8 ranks."""
    i = np.arange(count, dtype=np.int64) + salt
    if op == "prod":
        return np.array([1, 2, 1, -1], np.int64)[(i * 5 + rank * 3) % 4] if dtype not in INTEGERS else i * 3 + rank + 1
    wide = dtype in ("float32", "float64", "int32", "uint32", "int64", "uint64")
    return (i * 1009 + rank * 7919) % 100003 if wide else (i * 7 + rank * 13) % 23


def given(dtype, op, rank, count, salt=0):
    return narrow(element(dtype, op, rank, count, salt), dtype)


def reduced(dtype, op, size, count, salt=0):
    """What a reduction of `size` ranks must give, to the last bit."""
    inputs = [element(dtype, op, rank, count, salt) for rank in range(size)]
    if dtype in INTEGERS:
        with np.errstate(over="ignore"):
            inputs = [values.astype(dtype) for values in inputs]
            if op == "avg":
                total = np.add.reduce(inputs, dtype=dtype)
                return total // np.dtype(dtype).type(size) if total.dtype.kind == "u" else trunc_div(total, size)
            function = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
            return function.reduce(inputs, dtype=dtype)
    function = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    total = function.reduce([values.astype(np.float64) for values in inputs])
    if op == "avg":
        total = total / size if dtype == "float64" else total.astype(np.float32) / np.float32(size)
    return narrow(total, dtype)


def trunc_div(total, size):
    return (np.abs(total.astype(np.int64)) // size * np.sign(total.astype(np.int64))).astype(total.dtype)


def check(have, want, what):
    """Equal to the last bit."""
    have, want = np.asarray(have).ravel(), np.asarray(want).ravel()
    if have.size != want.size:
        raise AssertionError(f"{what}: {have.size} elements, want {want.size}")
    raw = f"u{have.dtype.itemsize}"
    bad = np.flatnonzero(have.view(raw) != want.view(raw))
    if bad.size:
        at = bad[0]
        raise AssertionError(f"{what}: {bad.size} of {have.size} wrong, first at {at}: {have[at]!r}, want {want[at]!r}")
