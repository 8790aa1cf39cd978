"""libnexar_c: where it is, its structs, its functions' arguments."""
from __future__ import annotations

import ctypes
import enum
import math
import operator
import os
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, TypeVar

from ._loading import load
from ._rows import ROWS

ABI = (0, 2)  # until 1.0 each 0.N is an ABI of its own
PENDING, BAD_STATE, NOT_FOUND, CLOSED, BAD_HANDLE, TABLE_FULL, INTERRUPTED = 1, -102, -104, -106, -107, -201, -203
ANY_SOURCE, ANY_TAG, RANK_AUTO, COLOUR_UNDEFINED = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF
NO_TIMEOUT = math.inf
FLAG_DETERMINISTIC, FLAG_F32_PARTIALS = 1, 2
DEFAULT_MS, NONE_MS = -1, -2


class Error(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("code", c_int32), ("error_class", c_int32), ("system_errno", c_int32),
                ("rank", c_int64), ("other_rank", c_int64), ("sequence", c_uint64), ("epoch", c_uint32),
                ("pid", c_uint32), ("reserved", c_uint32), ("lost_count", c_uint32), ("lost_ranks", c_uint32 * 32),
                ("op", c_char * 24), ("group", c_char * 129), ("node", c_char * 65), ("host", c_char * 256),
                ("text", c_char * 512), ("reserved_text", c_char * 38)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("slots", c_uint32), ("socket_path", c_char_p),
                ("connect_timeout_ms", c_int64), ("daemon_unresponsive_ms", c_int64), ("scratch_limit", c_uint64),
                ("spin_us", c_int64)]


class SessionStats(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32)] + [(name, c_uint64) for name in (
        "operations", "bytes_copied", "scratch_bytes", "regions", "doorbells", "waits_ready", "waits_spun",
        "waits_yielded", "waits_slept")]


class AllocOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("flags", c_uint64)]


class GroupOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("size", c_uint32), ("rank", c_uint32), ("on_failure", c_uint32),
                ("name", c_char_p), ("job_secret", c_char_p), ("timeout_ms", c_int64),
                ("collective_timeout_ms", c_int64), ("barrier_timeout_ms", c_int64), ("rpc_timeout_ms", c_int64),
                ("user_data", c_uint64), ("flags", c_uint64)]


class ChildOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("timeout_ms", c_int64), ("match_id", c_uint64),
                ("collective_timeout_ms", c_int64), ("barrier_timeout_ms", c_int64), ("rpc_timeout_ms", c_int64),
                ("user_data", c_uint64)]


class GroupMember(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("rank", c_uint32), ("pid", c_uint32), ("local_rank", c_uint32),
                ("local_size", c_uint32), ("reserved", c_uint32), ("node", ctypes.c_char * 65),
                ("host", ctypes.c_char * 256), ("reserved_text", ctypes.c_char * 7)]


class CreateOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("tag", c_uint64), ("timeout_ms", c_int64),
                ("collective_timeout_ms", c_int64), ("barrier_timeout_ms", c_int64), ("rpc_timeout_ms", c_int64),
                ("user_data", c_uint64)]


class GroupInfo(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("epoch", c_uint32), ("rank", c_uint32), ("size", c_uint32),
                ("nodes", c_uint32), ("on_failure", c_uint32), ("id", c_uint64 * 3), ("parent_id", c_uint64 * 3),
                ("collective_timeout_ms", c_int64), ("barrier_timeout_ms", c_int64), ("rpc_timeout_ms", c_int64),
                ("name", c_char * 129), ("parent_name", c_char * 129), ("reserved_text", c_char * 6),
                ("plan_version", c_uint32), ("plan_lanes", c_uint32), ("plan_chunk_bytes", c_uint32), ("plan_shards", c_uint32),
                ("plan_segment_bytes", c_uint64), ("plan_small_bytes_max", c_uint64), ("plan_doubling_bytes_max", c_uint64)]


class Priority(enum.IntEnum):
    """Which of one's own operations is next where several wait; None: the operation's own."""
    CRITICAL = 0
    REALTIME = 1
    BULK = 2


class OpOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("priority", c_int32), ("timeout_ms", c_int64), ("match_id", c_uint64),
                ("user_data", c_uint64), ("flags", c_uint64), ("scalar", c_void_p)]


class Completion(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("status", c_int32), ("request", c_uint64), ("user_data", c_uint64),
                ("group", c_void_p), ("sequence", c_uint64), ("bytes", c_uint64), ("tag", c_uint64),
                ("source", c_uint32), ("epoch", c_uint32)]


_NO_END = bytes(Completion(struct_size=ctypes.sizeof(Completion), status=PENDING))


def no_end() -> Completion:
    """For the library to write into: pending."""
    return Completion.from_buffer_copy(_NO_END)


class Piece(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("count", c_uint64)]


_RANGES: dict[Any, tuple[int, int]] = {c_uint32: (0, 2**32 - 1), c_uint64: (0, 2**64 - 1), c_int32: (-2**31, 2**31 - 1),
                                       c_int64: (-2**63, 2**63 - 1)}


def shown(value: Any) -> str:
    """A wrong argument, as an error names it: itself, or its type where that is long, or has no text."""
    try:
        text = repr(value)
    except Exception:  # whatever the object's own method raises
        text = ""
    return text if 0 < len(text) <= 40 and text.isprintable() and text[0] != "<" else f"of type {type(value).__name__}"


def integer(value: Any, what: str, allowed: str) -> int:
    """The value; TypeError: it is no integer."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {shown(value)}; allowed: {allowed}") from None


def entries(values: Any, what: str, allowed: str) -> list[Any]:
    """Of what is listed; TypeError: nothing is."""
    try:
        return list(values)
    except TypeError:
        raise TypeError(f"{what} is {shown(values)}; allowed: {allowed}") from None


def checked(kind: Any, value: Any, what: str = "") -> int:
    """The value, if the C type has it: ctypes itself takes what is left of a number after cutting it. what: the argument's name."""
    low, high = _RANGES[kind if kind in _RANGES else kind.__base__]
    try:
        number = operator.index(value)
        if low <= number <= high:
            return number
        error: type[Exception] = ValueError
    except TypeError:
        error = TypeError
    what = what or kind.what
    allowed = _ALLOWED.get(what) or getattr(kind, "allowed", f"an integer, {low} to {high}")
    raise error(f"{what} is {shown(value)}; allowed: {allowed}")


_ALLOWED = {"priority": "nexar.Priority.CRITICAL, REALTIME or BULK, or None: the operation's own",
            "flags": "nexar.FLAG_DETERMINISTIC, nexar.FLAG_F32_PARTIALS, both (|), or 0: none",
            "size": "an integer, 1 to 4096", "slots": "a power of two from 16 to 4096, or None: 256",
            "match_id": "an integer, 0 to 2**64 - 1; 0: none"}


class Rank(c_uint32):
    what, allowed = "rank", "an integer, 0 to the group's size - 1"


class Root(c_uint32):
    what, allowed = "root", Rank.allowed


class To(c_uint32):
    what, allowed = "to", Rank.allowed


class Source(c_uint32):
    what, allowed = "source", f"{Rank.allowed}, or nexar.ANY_SOURCE"


class SentTag(c_uint64):
    what, allowed = "tag", "an integer, 0 to 2**64 - 2"


class Tag(c_uint64):
    what, allowed = "tag", f"{SentTag.allowed}, or nexar.ANY_TAG"


def check_numbers(function: Any, *arguments: Any) -> None:
    """An error for a rank or a tag that no C type has. Before the call: what Python code raises within one of ctypes, of a signal's
    handler, too, would be an ArgumentError."""
    for kind, value in zip(function.argtypes, arguments):
        if hasattr(kind, "what"):
            checked(kind, value)


_session = _group = _memory = c_void_p
_count = _request = _message = c_uint64
_dtype = _op = c_int32
_options, _started = POINTER(OpOptions), POINTER(c_uint64)
_memory_of: dict[str, list[Any]] = {"nothing": [], "data": [_memory, _count, _dtype], "in_out": [_memory, _memory, _count, _dtype],
              "in_out_counts": [_memory, _memory, POINTER(_count), _dtype],
              "in_out_own_counts": [_memory, POINTER(_count), _memory, POINTER(_count), _dtype]}
operations: dict[str, list[Any]] = {
    **{row.name: [_group, *_memory_of[row.memory], *[_op] * row.reduces, *[Root] * row.rooted] for row in ROWS.values()},
    "send": [_group, _memory, _count, _dtype, To, SentTag],
    "recv": [_group, _memory, _count, _dtype, Source, Tag],
    "sendv": [_group, POINTER(Piece), _count, _dtype, To, SentTag],
    "recvv": [_group, POINTER(Piece), _count, _dtype, Source, Tag],
    "probe": [_group, Source, Tag],
    "mrecv": [_group, _message, _memory, _count, _dtype],
}
_signatures: dict[str, list[Any]] = {
    # name: argument types; all return nexar_status
    "last_error": [POINTER(Error)],
    "error_line": [POINTER(Error), c_char_p, c_uint64, POINTER(c_uint64)],
    "session_open": [POINTER(SessionOptions), POINTER(_session)],
    "session_close": [_session],
    "session_fd": [_session, POINTER(c_int)],
    "session_poll": [_session, POINTER(Completion), c_uint64, c_uint64, POINTER(c_uint64)],
    "session_node": [_session, c_char_p, c_uint64],
    "session_stats_get": [_session, POINTER(SessionStats)],
    "alloc": [_session, c_uint64, POINTER(AllocOptions), POINTER(_memory)],
    "free": [_session, _memory],
    "register_memfd": [_session, _memory, c_uint64, c_int, c_uint64],
    "unregister": [_session, _memory],
    "group_options_from_env": [POINTER(GroupOptions), c_uint64],
    "group_open_start": [_session, POINTER(GroupOptions), _started],
    "group_split_start": [_group, c_uint32, c_int64, POINTER(ChildOptions), _started],
    "group_dup_start": [_group, POINTER(ChildOptions), _started],
    "group_create_start": [_group, POINTER(c_uint32), c_uint64, POINTER(CreateOptions), _started],
    "group_info_get": [_group, POINTER(GroupInfo)],
    "group_member_get": [_group, Rank, POINTER(GroupMember)],
    "group_translate": [_group, POINTER(c_uint32), c_uint64, _group, POINTER(c_uint32)],
    "group_free": [_group],
    "group_abort": [_group, c_char_p],
    "group_rank": [_group, POINTER(c_uint32)],
    "group_size": [_group, POINTER(c_uint32)],
    "group_epoch": [_group, POINTER(c_uint32)],
    "group_node": [_group, Rank, c_char_p, c_uint64],
    "mprobe": [_group, Source, Tag, POINTER(_message), POINTER(Completion), _options],
    "message_free": [_group, _message],
    "request_test": [_request, POINTER(Completion)],
    "request_wait": [_request, c_int64, POINTER(Completion)],
    "request_test_any": [POINTER(c_uint64), c_uint64, POINTER(c_uint64), POINTER(Completion)],
    "request_wait_any": [POINTER(c_uint64), c_uint64, c_int64, POINTER(c_uint64), POINTER(Completion)],
    "request_cancel": [_request],
    "request_free": [_request],
    "status_class": [c_int32],
    "shard": [c_uint64, c_uint32, c_uint32, POINTER(c_uint64), POINTER(c_uint64)],
    "request_wait_some": [POINTER(c_uint64), c_uint64, c_int64, POINTER(c_uint64), POINTER(c_uint64), POINTER(Completion),
                          c_uint64],
    "request_start": [_request],
    "request_start_all": [POINTER(c_uint64), c_uint64],
    "ops_begin": [_session],
    "ops_end": [_session],
    "ops_drop": [_session],
    **{f"{name}_start": [*arguments, _options, _started] for name, arguments in operations.items()},
    **{f"{name}_init": [*operations[name], _options, _started] for name in [*ROWS, "send", "recv"]},
}


def _load() -> ctypes.CDLL:
    loaded = load(ABI, [f"nexar_{function}" for function in _signatures])
    loaded.nexar_version_text.restype = c_char_p
    for function, arguments in _signatures.items():
        getattr(loaded, "nexar_" + function).argtypes = arguments
        getattr(loaded, "nexar_" + function).restype = c_int32
    for name, struct in {"session": SessionOptions, "alloc": AllocOptions, "group": GroupOptions, "child": ChildOptions,
                         "create": CreateOptions, "op": OpOptions}.items():
        init = getattr(loaded, f"nexar_{name}_options_init")
        init.argtypes, init.restype = [POINTER(struct), c_uint64], None
    loaded.nexar_status_name.argtypes, loaded.nexar_status_name.restype = [c_int32], c_char_p
    loaded.nexar_dtype_size.argtypes, loaded.nexar_dtype_size.restype = [c_int32], c_uint64
    return loaded


lib = _load()


def shard(count: int, size: int, rank: int) -> tuple[int, int]:
    """Where a rank's share of count elements begins, and its length: the first count % size ranks have one more. The
    lengths of all ranks are the counts of reduce_scatterv and all_gatherv."""
    for kind, value, name in ((c_uint64, count, "count"), (c_uint32, size, "size"), (c_uint32, rank, "rank")):
        checked(kind, value, name)
    offset, length = c_uint64(), c_uint64()
    if lib.nexar_shard(count, size, rank, ctypes.byref(offset), ctypes.byref(length)) != 0:
        raise ValueError(f"rank {rank} of {size}: a size is 1 to 4096, and a rank below it")
    return offset.value, length.value


def version() -> str:
    """Of the library that is loaded."""
    return str(lib.nexar_version_text().decode())


def milliseconds(seconds: float | None, what: str = "timeout") -> int:
    """A time-out as the library counts it: none is NO_TIMEOUT, and what is not 0 does not become 0. what: the argument's name."""
    if seconds is None:
        return DEFAULT_MS
    try:
        if seconds == NO_TIMEOUT:
            return NONE_MS
        if 0 <= seconds < _SECONDS_END:
            return 0 if seconds == 0 else max(1, round(seconds * 1000))
        error: type[Exception] = ValueError
    except (TypeError, ValueError):  # ValueError: an array
        error = TypeError
    raise error(f"{what} is {shown(seconds)}; allowed: None, 0, a positive number of seconds below 9e15, or nexar.NO_TIMEOUT") from None


_SECONDS_END = 9e15  # 64 bits of milliseconds have it


_Struct = TypeVar("_Struct", bound=ctypes.Structure)


def options(struct: type[_Struct], init: Any, **values: Any) -> _Struct:
    """The struct as `init` leaves it, with those values that are not None."""
    result = struct()
    init(byref(result), ctypes.sizeof(struct))
    assign(result, **values)
    return result


def assign(struct: ctypes.Structure, **values: Any) -> None:
    kinds: dict[str, Any] = {field[0]: field[1] for field in struct._fields_}
    for name, value in values.items():
        if value is None:
            continue
        if kinds[name] is c_char_p:
            if not isinstance(value, (str, bytes, os.PathLike)):
                raise TypeError(f"{name} is of type {type(value).__name__}; allowed: text or bytes")
            value = os.fsencode(value)
            if b"\0" in value:  # C ends a text there: it would take the beginning for all of it
                raise ValueError(f"{name} has a zero byte; allowed: text or bytes without one")
        elif kinds[name] in _RANGES:
            value = checked(kinds[name], value, name)
        setattr(struct, name, value)
