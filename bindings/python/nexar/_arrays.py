"""numpy arrays as what the C functions take: (address, elements, dtype)."""
import numpy as np

DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int8": 4, "int32": 5, "int64": 6, "uint8": 7,
          "uint32": 8, "uint64": 9, "int16": 10, "uint16": 11, "bool": 12, "float8_e4m3fn": 13, "float8_e5m2": 14,
          "float32_int32": 15, "float64_int64": 16, "int32_int32": 17, "int64_int64": 18}
OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4, "band": 5, "bor": 6, "bxor": 7, "land": 8, "lor": 9, "lxor": 10,
       "minloc": 11, "maxloc": 12, "premul_sum": 13}


def name_of(dtype):
    """A key of DTYPES, if the dtype is one: the names of numpy and ml_dtypes; pairs are structs of two fields."""
    if not dtype.names:
        return dtype.name
    parts = [dtype[name] for name in dtype.names]
    packed = dtype == np.dtype([(name, part) for name, part in zip(dtype.names, parts)])
    return "_".join(part.name for part in parts) if packed else "padded struct"


def array(values, write):
    """(address, elements, nexar_dtype) of an array that nexar can work on."""
    if not isinstance(values, np.ndarray) or not values.flags.c_contiguous or not values.dtype.isnative:
        raise ValueError("want a C-contiguous numpy array in native byte order")
    if write and not values.flags.writeable:
        raise ValueError("the array is read-only")
    if name_of(values.dtype) not in DTYPES:
        raise ValueError(f"dtype {name_of(values.dtype)} is not one of {', '.join(DTYPES)}")
    return values.ctypes.data, values.size, DTYPES[name_of(values.dtype)]


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
