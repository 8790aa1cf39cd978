"""Where libnexar_c is, and whether it is the one that this package was made for. What is wrong is an ImportError that says what
was tried, what was found, what is wanted, and what to do."""
from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Iterable

_HERE = os.path.dirname(os.path.abspath(__file__))
_PREFIXES = os.path.join(_HERE, "../../../.."), "/usr/local", "/usr"


def load(abi: tuple[int, int], functions: Iterable[str]) -> ctypes.CDLL:
    """$NEXAR_LIBRARY; else the library of the prefix that this file is installed in; else the loader's choice, and last
    where `cmake --install` puts it by default."""
    named, wanted = os.environ.get("NEXAR_LIBRARY"), ".".join(map(str, abi))
    file = f"libnexar_c.so.{wanted}"
    refused = []
    for name in [named] if named else [*_in(_PREFIXES[0], file), file, *_in(_PREFIXES[1], file)]:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            refused.append(f"  {name}: {_reason(name, error)}")
            continue
        _check(library, name, abi, functions)
        return library
    todo = (f"NEXAR_LIBRARY names it: correct that to the path of a {file}, or unset it" if named else
            f"install nexar {wanted}, or set NEXAR_LIBRARY to the path of its {file}")
    raise ImportError("\n".join([f"libnexar_c {wanted}, which the package nexar at {_HERE} needs, cannot be loaded. Tried:",
                                 *refused, *_others(file), f"What to do: {todo}."]))


def _in(prefix: str, file: str) -> list[str]:
    """lib, lib64, lib/<architecture>: not all below, which may be the whole system."""
    return [os.path.normpath(path) for part in ("lib", "lib64", "lib/*") for path in sorted(glob.glob(f"{prefix}/{part}/{file}"))]


def _reason(name: str, error: OSError) -> str:
    text = str(error).removeprefix(f"{name}: ")
    return text if os.sep in name else f"{text} (by the loader: LD_LIBRARY_PATH, ldconfig)"


def _others(file: str) -> list[str]:
    """Libraries of other versions that are installed."""
    found = {path for prefix in _PREFIXES for path in _in(prefix, "libnexar_c.so.*.*") if not path.endswith(f"/{file}")}
    versions = sorted(path for path in found if path.rpartition("/libnexar_c.so.")[2].count(".") == 1)
    return [f"Of other versions there is: {', '.join(versions)}"] if versions else []


def _check(library: ctypes.CDLL, name: str, abi: tuple[int, int], functions: Iterable[str]) -> None:
    wanted = ".".join(map(str, abi))
    try:
        version, text = library.nexar_version, library.nexar_version_text
    except AttributeError:
        raise ImportError(f"{name} is no libnexar_c: it has no nexar_version. The package nexar at {_HERE} needs libnexar_c "
                          f"{wanted}: set NEXAR_LIBRARY to its path, or unset it") from None
    version.restype, text.restype = ctypes.c_uint32, ctypes.c_char_p
    found = text().decode(errors="replace")
    todo = (f"install both from one tree (cmake --install; the package is in share/nexar/python, or pip install bindings/python), "
            f"or set NEXAR_LIBRARY to the path of a libnexar_c.so.{wanted}")
    if (version() >> 16, version() >> 8 & 0xFF) != abi:
        raise ImportError(f"{name} is libnexar_c version {found}; the package nexar at {_HERE} needs {wanted}: {todo}")
    missing = [each for each in functions if not hasattr(library, each)]
    if missing:
        raise ImportError(f"{name} is libnexar_c version {found}, but older than the package nexar at {_HERE}: it lacks "
                          f"{missing[0]}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}. What to do: {todo}")
