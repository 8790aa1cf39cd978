"""The inputs of each rank, drawn from seed, step and rank, so that every process knows those of all; and types as bits.

An array has the type's own numpy dtype where there is one; bfloat16, the 8-bit floats and bool are unsigned integers.
"""
import numpy as np

from harness import nexar

from .program import INTEGERS, PAIRS, SMALL_FLOATS, TURN

STORAGE = {name: np.dtype(name) for name in (*INTEGERS, "float32", "float64", "float16")}
STORAGE |= {"bfloat16": np.dtype("uint16"), "bool": np.dtype("uint8"), **{name: np.dtype("uint8") for name in SMALL_FLOATS}}
STORAGE |= {name: np.dtype([("value", name.split("_")[0]), ("index", name.split("_")[1])]) for name in PAIRS}
NUMBER = nexar.DTYPES

# Of floats as bits: what exceeds INFINITE without its sign is NaN; QUIET is the one that results have.
INFINITE = {"float32": 0x7F800000, "float64": 0x7FF0000000000000, "float16": 0x7C00, "bfloat16": 0x7F80,
            "float8_e4m3fn": 0x7E, "float8_e5m2": 0x7C}
QUIET = {"float32": 0x7FC00000, "float64": 0x7FF8000000000000, "float16": 0x7E00, "bfloat16": 0x7FC0,
         "float8_e4m3fn": 0x7F, "float8_e5m2": 0x7E}


def bits(array):
    return array.view(f"u{array.dtype.itemsize}")


def is_nan(raw, dtype):
    sign = raw.dtype.type(1 << (8 * raw.dtype.itemsize - 1))
    return (raw & ~sign) > raw.dtype.type(INFINITE[dtype])


def widened(array, dtype):
    """float32 of a float below it; float32 and float64 as they are."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if dtype == "float16" else array


def narrowed(values, dtype):
    """Finite float32 values (float64 for float64), rounded to nearest even."""
    if dtype == "bfloat16":
        raw = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
        return ((raw + 0x7FFF + (raw >> 16 & 1)) >> 16).astype(np.uint16)
    return np.asarray(values).astype(STORAGE[dtype])


def generator(seed, step, rank):
    return np.random.default_rng([seed, step.number, rank])


def given(seed, step, rank, elements):
    """The input of a rank of the step's group."""
    rng, dtype, storage = generator(seed, step, rank), step.dtype, STORAGE[step.dtype]
    raw = np.frombuffer(rng.bytes(elements * storage.itemsize), storage).copy()
    if step.kind == "messages" or not step.row.reduces:
        return raw
    if dtype in PAIRS:
        return pairs(rng, dtype, elements)
    if dtype == "bool":
        return rng.choice(np.array([0, 0, 1, 2, 255], np.uint8), elements)
    if dtype in INTEGERS:
        return rng.integers(0 if dtype[0] == "u" else -10, 11, elements).astype(dtype) if step.op == "avg" else raw
    if step.op in ("min", "max"):
        view = bits(raw)
        view[is_nan(view, dtype)] = QUIET[dtype]
        view[rng.random(elements) < 0.1] = 0
        view[rng.random(elements) < 0.1] = 1 << (8 * storage.itemsize - 1)  # -0
        return raw
    return narrowed(floats(rng, step, elements).astype(np.float64 if dtype == "float64" else np.float32), dtype)


def floats(rng, step, elements):
    """exact: small whole numbers, whose sums and products of 12 ranks have at most the 8 bits of a bfloat16."""
    if step.op == "prod":
        return rng.choice([1.0, 2.0, 1.0, -1.0] if step.exact else rng.uniform(0.5, 2, 64) * rng.choice((-1, 1), 64), elements)
    if step.exact:
        return rng.integers(-6, 7, elements) if step.op == "premul_sum" else rng.integers(-20, 21, elements)
    return rng.standard_normal(elements) * np.exp2(rng.integers(-4, 5, elements))


def pairs(rng, dtype, elements):
    """Few different values, so that many are equal; of floats, zeros of both signs and NaN among them."""
    array = np.zeros(elements, STORAGE[dtype])
    values = [-1, 0, 0, 3] if dtype.startswith("int") else [-1.5, 0.0, -0.0, 2.0, np.inf, np.nan]
    array["value"] = rng.choice(values, elements)
    array["index"] = rng.integers(-2, 3, elements)
    if not dtype.startswith("int"):
        kind = dtype.split("_")[0]
        raw = array["value"].copy().view(f"u{STORAGE[kind].itemsize}")
        raw[is_nan(raw, kind)] = QUIET[kind]
        array["value"] = raw.view(kind)
    return array


def scalar(seed, step, rank):
    """A rank's own factor of premul_sum, as an array of one element: the same in all turns of a step, as a persistent operation
    has it from its init."""
    rng = np.random.default_rng([seed, step.number % TURN, rank, 1])
    if step.dtype in INTEGERS:
        return rng.integers(0, 120, 1).astype(step.dtype)
    value = float(rng.integers(-3, 4)) if step.exact else rng.uniform(-2, 2)
    return narrowed(np.array([value], np.float64 if step.dtype == "float64" else np.float32), step.dtype)
