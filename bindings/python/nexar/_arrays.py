"""numpy arrays as what the C functions take: (address, elements, dtype)."""
import numpy as np

DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int8": 4, "int32": 5, "int64": 6, "uint8": 7,
          "uint32": 8, "uint64": 9, "int16": 10, "uint16": 11}
OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}


def array(values, write):
    """(address, elements, nexar_dtype) of an array that nexar can work on."""
    if not isinstance(values, np.ndarray) or not values.flags.c_contiguous or not values.dtype.isnative:
        raise ValueError("want a C-contiguous numpy array in native byte order")
    if write and not values.flags.writeable:
        raise ValueError("the array is read-only")
    if values.dtype.name not in DTYPES:
        raise ValueError(f"dtype {values.dtype.name} is not one of {', '.join(DTYPES)}")
    return values.ctypes.data, values.size, DTYPES[values.dtype.name]


def pair(values, out):
    """The same for input and output; an out of None is the input itself."""
    out = values if out is None else out
    address, count, dtype = array(values, False)
    out_address, out_count, out_dtype = array(out, True)
    if dtype != out_dtype:
        raise ValueError(f"the arrays' dtypes differ: {values.dtype.name} and {out.dtype.name}")
    return out, address, out_address, count, out_count, dtype


def reduction(name):
    if name not in OPS:
        raise ValueError(f"op {name!r} is not one of {', '.join(OPS)}")
    return OPS[name]
