"""Memory of Python objects as what the C functions take: (address, elements, dtype)."""
from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from typing import Any, Protocol, Union

import numpy as np
import numpy.typing as npt

from ._library import shown

DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int8": 4, "int32": 5, "int64": 6, "uint8": 7,
          "uint32": 8, "uint64": 9, "int16": 10, "uint16": 11, "bool": 12, "float8_e4m3fn": 13, "float8_e5m2": 14,
          "float32_int32": 15, "float64_int64": 16, "int32_int32": 17, "int64_int64": 18}
OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4, "band": 5, "bor": 6, "bxor": 7, "land": 8, "lor": 9, "lxor": 10,
       "minloc": 11, "maxloc": 12, "premul_sum": 13}


class SupportsDLPack(Protocol):
    """Tensors of other libraries, torch.Tensor among them; on the CPU."""

    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> Any: ...


Array = npt.NDArray[Any]
# A numpy array, a buffer (bytearray, array.array, memoryview, ...), or a tensor with DLPack.
Memory = Union[Array, SupportsDLPack, bytes, bytearray, memoryview, Any]
Number = Union[int, float, np.generic]
# What is copied and comes back as it was given: a number as a number, a list as a list.
Values = Union[Memory, Number, Sequence[Any]]

Sides = tuple[int, int, int]  # address, elements, nexar_dtype


def name_of(dtype: np.dtype[Any]) -> str:
    """A key of DTYPES, if the dtype is one: the names of numpy and ml_dtypes; pairs are structs of two fields."""
    if not dtype.names:
        return dtype.name
    parts = [dtype[name] for name in dtype.names]
    packed = dtype == np.dtype([(name, part) for name, part in zip(dtype.names, parts)])
    return "_".join(part.name for part in parts) if packed else "padded struct"


def array(values: Memory, write: bool, name: str = "values") -> Sides:
    """(address, elements, nexar_dtype) of memory that nexar can work on, without a copy. name: the argument's.

    ValueError: not C-contiguous, of another byte order or dtype, read-only, or on a device. TypeError: no memory."""
    if not isinstance(values, np.ndarray):
        if hasattr(values, "__dlpack__") and not _has_buffer(values):
            return _tensor(values, write, name)
        values = _buffer(values, name)
    flags, dtype = values.flags, values.dtype
    if not flags.c_contiguous:
        raise ValueError(f"{name} is not C-contiguous: give np.ascontiguousarray({name}){', a copy, which gets the result' if write else ''}")
    if not dtype.isnative:
        raise ValueError(f"{name} is of another byte order than this host's: give {name}.astype({name}.dtype.newbyteorder('='))")
    if write and not flags.writeable:
        raise ValueError(f"{name} is read-only")
    number = _plain.get(dtype)
    if number is None:
        if name_of(dtype) not in DTYPES:
            raise ValueError(f"{name} is of dtype {name_of(dtype)}; allowed: {', '.join(DTYPES)}")
        number = DTYPES[name_of(dtype)]
    return values.ctypes.data, values.size, number


# Those that numpy has: it makes a name anew whenever it is asked for one.
_plain: dict[np.dtype[Any], int] = {np.dtype(name): number for name, number in DTYPES.items()
                                    if name.rstrip("0123456789") in ("float", "int", "uint", "bool")}


BY_NUMBER = {number: dtype for dtype, number in _plain.items()}


def scalar_of(scalar: Any, dtype: np.dtype[Any] | int) -> Array:
    """premul_sum's factor, as the operation has it, of a dtype of numpy or a nexar_dtype. ValueError: not one number, or one that an
    integer dtype lacks; OverflowError: an integer that int64 lacks."""
    given = copy_of(scalar, "scalar")
    if given.size != 1:
        raise ValueError(f"scalar has {given.size} elements; allowed: one number")
    if given.dtype.kind not in "biufV":  # V: those of ml_dtypes
        raise ValueError(f"scalar is {shown(scalar)}; allowed: one number")
    if dtype == DTYPES["bfloat16"] and isinstance(dtype, int):
        return _bfloat16(given.reshape(1))
    dtype = dtype if isinstance(dtype, np.dtype) else new(0, dtype).dtype
    with np.errstate(all="ignore"):
        made: Array = given.reshape(1).astype(dtype)
    if dtype.kind in "iub" and made[0] != given.reshape(1)[0]:
        raise ValueError(f"scalar is {given.reshape(1)[0]}: no value of {name_of(dtype)}")
    return made


def _bfloat16(number: Array) -> Array:
    """Its bits, rounded to the nearest, as numpy has no such dtype: of tensors."""
    with np.errstate(all="ignore"):
        wide = number.astype(np.float32)
    bits = wide.view(np.uint32)
    odd = bits >> np.uint32(16) & np.uint32(1)
    made: Array = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    return made if not np.isnan(wide[0]) else np.array([0x7FC0], np.uint16)


def pair(values: Memory, out: Memory | None) -> tuple[Memory, int, int, int, int, int]:
    """The same for input and output; an out of None is the input itself."""
    if out is None or out is values:
        address, count, dtype = array(values, True)
        return values, address, address, count, count, dtype
    address, count, dtype = array(values, False)
    out_address, out_count, out_dtype = array(out, True, "out")
    if dtype != out_dtype:
        raise differing(out_dtype, dtype)
    return out, address, out_address, count, out_count, dtype


def differing(out: int, values: int) -> ValueError:
    """The dtypes of the two sides of an operation differ."""
    return ValueError(f"out is of dtype {list(DTYPES)[out]}, and values is of dtype {list(DTYPES)[values]}; allowed: one dtype")


def new(shape: int | tuple[int, ...], dtype: int) -> Array:
    """An array for a result of that nexar_dtype."""
    name = list(DTYPES)[dtype]
    try:
        return np.empty(shape, _PAIRS.get(name, name))
    except TypeError:
        raise ValueError(f"numpy has no {name}: give out") from None
    except ValueError as error:
        raise ValueError(f"out is None, and numpy makes no array of shape {shape} and dtype {name} ({error}); allowed: what memory has") from None


_PAIRS: dict[str, Any] = {f"{value}_{index}": [("value", value), ("index", index)] for value, index in (
    ("float32", "int32"), ("float64", "int64"), ("int32", "int32"), ("int64", "int64"))}


def shape_of(values: Memory, elements: int) -> tuple[int, ...]:
    """Its own shape; of a buffer without one, its length."""
    return tuple(getattr(values, "shape", (elements,)))


def reduction(name: str) -> int:
    if not isinstance(name, str) or name not in OPS:
        raise ValueError(f"op is {shown(name)}; allowed: {', '.join(OPS)}")
    return OPS[name]


# ---- Numbers and lists ----

COPIED = list, float, int, tuple, bool, np.generic
ARRAYS: set[type] = {np.ndarray}  # types that are none of those: numpy's, and once one was seen torch's


def lifted(values: Values, name: str = "values") -> tuple[Any, bool]:
    """(the values as memory, whether that is a copy of a number or a list)."""
    kind = type(values)
    if kind in ARRAYS:
        return values, False
    return (copy_of(values, name), True) if kind is list or isinstance(values, COPIED) else (values, False)


def copy_of(values: Any, name: str = "values") -> Array:
    """Of a number or a list, with numpy's types. OverflowError: an integer that int64 lacks, of which numpy would make another type."""
    if type(values) is int and not -1 << 63 <= values < 1 << 63:
        raise OverflowError(f"{name} is {values}, which is no value of int64: give a float, or an array of the dtype that you mean")
    return _numbers(values, name)


def _numbers(values: Any, name: str) -> Array:
    try:
        return np.array(values)
    except (TypeError, ValueError) as error:  # of lists that differ in length
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name} is {shown(values)}, of which numpy makes no array ({error}); allowed: a number, or lists of one length") from None


# ---- Buffers ----

def _has_buffer(values: Any) -> bool:
    try:
        memoryview(values).release()
    except (TypeError, BufferError, ValueError):
        return False
    return True


def held(*memories: Any) -> list[Any]:
    """What keeps the memory of these objects as it is: a buffer that is exported cannot be resized."""
    holders: list[Any] = []
    for memory in memories:
        if isinstance(memory, np.ndarray) or memory is None:
            continue
        if _has_buffer(memory):
            holders.append(memoryview(memory))
        elif hasattr(memory, "__dlpack__"):
            holders.append(_capsule(memory, "values")[0])  # which has given one before
    return holders


def _buffer(values: Any, name: str) -> Array:
    """An array over the memory of an object with the buffer protocol or numpy's __array_interface__."""
    if _has_buffer(values):
        return np.asarray(memoryview(values))
    if hasattr(values, "__array_interface__"):
        return np.asarray(values)
    raise TypeError(f"{name} is {shown(values)}; allowed: an array, a buffer, or a tensor with DLPack")


# ---- DLPack (dlpack.h, version 0: what __dlpack__ gives to who names no version) ----

class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_CPU_DEVICES = (1, 3, 11, 13)  # kDLCPU, and host memory of CUDA, ROCm, and CUDA managed
_KINDS = {(0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 16): "uint16",
          (1, 32): "uint32", (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
          (4, 16): "bfloat16", (6, 8): "bool"}
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def _tensor(values: Any, write: bool, name: str) -> Sides:
    """Of a tensor whose memory the caller keeps."""
    _check_device(values, name)
    if write and getattr(values, "readonly", False):
        raise ValueError(f"{name} is read-only")
    if is_negated(values):
        raise ValueError(f"{name} has the negative bit set: use its resolve_neg()")
    capsule, dtype = _capsule(values, name)
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    kind = _KINDS.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if kind is None:
        raise ValueError(f"{name} is of DLPack type {(tensor.code, tensor.bits, tensor.lanes)}; allowed: {', '.join(_KINDS.values())}")
    step, contiguous = 1, True
    for i in reversed(range(tensor.ndim)):
        contiguous &= not tensor.strides or shape[i] <= 1 or tensor.strides[i] == step
        step *= shape[i]
    if not contiguous and step > 0:
        raise ValueError(f"{name} is not contiguous: use its contiguous()")
    if step > 0 and not tensor.data:
        raise ValueError(f"{name} is a tensor without memory")
    if step > 0 and not shares(type(values)):
        again, _ = _capsule(values, name)  # while the first one is there
        if _DLTensor.from_address(_pointer_of(again, b"dltensor")).data != tensor.data:
            raise ValueError(f"{name} is a tensor that gives a copy at each export, not its memory: give an array, as numpy.from_dlpack "
                             "makes")
    return (tensor.data or 0) + tensor.byte_offset, math.prod(shape), DTYPES[dtype or kind]


def shares(kind: type) -> dict[Any, int]:
    """Of torch.Tensor, which gives its own memory and has no `readonly`: its dtypes, with their numbers. Empty of all other types, which
    are asked twice."""
    torch: Any = sys.modules.get("torch")
    if kind is not getattr(torch, "Tensor", None):
        return {}
    ARRAYS.add(kind)
    return {getattr(torch, name): number for name, number in DTYPES.items() if name in _KINDS.values() and hasattr(torch, name)}


def is_negated(values: Any) -> bool:
    """Of a tensor of torch whose values are its memory's with the other sign, as of z.conj().imag."""
    return bool(shares(type(values))) and bool(values.is_neg())


def _check_device(values: Any, name: str) -> None:
    device = tuple(values.__dlpack_device__())
    if device[0] not in _CPU_DEVICES:
        raise ValueError(f"{name} is on DLPack device {device}, not on the CPU: copy it there")


def _capsule(values: Any, name: str) -> tuple[Any, str]:
    """(what __dlpack__ gives, the dtype where that says another)."""
    try:
        return values.__dlpack__(), ""
    except (RuntimeError, BufferError, TypeError) as refused:
        if _is_truth(values):
            return values.view(sys.modules["torch"].uint8).__dlpack__(), "bool"
        raise _without_memory(name, refused) from refused


def _without_memory(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name} is a tensor that gives no memory: {error}")


def _is_truth(values: Any) -> bool:
    """Of torch before 2.1, which exports no bool tensors: a byte each."""
    return str(getattr(values, "dtype", "")) == "torch.bool"


def refused(values: Any, error: Exception, name: str) -> None:
    """What _native gets from __dlpack__(), raised as above; not raised where its bytes will do."""
    _check_device(values, name)
    if not isinstance(error, (RuntimeError, BufferError, TypeError)):
        raise error
    if not _is_truth(values):
        raise _without_memory(name, error) from error
