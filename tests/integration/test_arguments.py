"""Every argument of every function of include/nexar.h, wrong in each way that there is, one at a time: the call is refused with
the status of the header, the text says what is wrong, nothing is written, and the group works on.

The functions are read from the header, so that a new one is tested as it comes; a parameter of a new kind needs a line in
`wrong_values` below. Errors that depend on several ranks, or on a moment, are in test_bad_input.py and test_abi.py.
"""
import ctypes
import mmap
import os
import pathlib
import re
from ctypes import byref, c_int32, c_int64, c_uint32, c_uint64, c_void_p

from harness import *
from nexar import _library

PARTS = pathlib.Path(__file__).resolve().parents[2] / "include/nexar"
HEADER = "".join(part.read_text() for part in sorted(PARTS.glob("*.h")))
COUNT, SIZE = 3, 1  # elements of each call, ranks of the group
WILD = 0xDEAD0008  # no handle, and no address
VALUES = {"nexar_status": c_int32, "nexar_dtype": c_int32, "nexar_reduce_op": c_int32, "nexar_request": c_uint64,
          "nexar_message": c_uint64, "uint32_t": c_uint32, "uint64_t": c_uint64, "int64_t": c_int64, "int": ctypes.c_int}
UNTOUCHED = 0x5A5A5A5A5A5A5A5A
raw = ctypes.CDLL(_library.lib._name)  # with argument types of its own


def functions():
    """{name: (what it returns, [(type, name) of a parameter])}"""
    found = {}
    text = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
    for returns, name, parameters in re.findall(r"NEXAR_API\s+(?:NEXAR_MUST_CHECK\s+)?([^;()]*?)(nexar_\w+)\(([^;]*?)\);", text):
        words = [re.fullmatch(r"(.*?)(\w+)", each.strip(), re.DOTALL).groups() for each in parameters.split(",")]
        found[name] = (returns.strip(), [(re.sub(r"\s+", "", kind.replace("const ", "")), word) for kind, word in words if kind])
    return found


def struct_of(kind):
    """The class of nexar._library for a pointer to a struct that begins with its size; None: it is none."""
    name = "".join(word.title() for word in kind.removeprefix("nexar_").removesuffix("*").split("_"))
    found = getattr(_library, name, None)
    return found if kind.endswith("*") and found and found._fields_[0][0] == "struct_size" else None


def made(kind, **fields):
    """With its defaults, where it has some, and with `fields` set."""
    struct = struct_of(kind)
    value = struct(struct_size=ctypes.sizeof(struct))
    if is_options(kind):
        getattr(raw, f"{kind[:-1]}_init")(byref(value), c_uint64(ctypes.sizeof(value)))
    for name, given in fields.items():
        setattr(value, name, given)
    return value


def is_options(kind):
    return kind.endswith("_options*")


# Fields of options that are wrong: {type: [(what, fields, status)]}. NO_MESSAGE: of collectives only.
INVALID, UNSUPPORTED, BAD_HANDLE = "INVALID_ARGUMENT", "UNSUPPORTED", "BAD_HANDLE"
FIELDS = {"nexar_op_options*": [("priority", {"priority": 9}, INVALID), ("time-out", {"timeout_ms": -3}, INVALID),
                                ("flags", {"flags": 1 << 40}, INVALID)],
          "nexar_session_options*": [("slots", {"slots": 17}, INVALID), ("few slots", {"slots": 8}, INVALID), ("many slots", {"slots": 8192}, INVALID),
                                     ("connect time-out", {"connect_timeout_ms": 0}, INVALID), ("spin", {"spin_us": 2_000_000}, INVALID),
                                     ("daemon time-out", {"daemon_unresponsive_ms": 0}, INVALID)],
          "nexar_group_options*": [("size 0", {"size": 0}, INVALID), ("size", {"size": 4097}, INVALID), ("rank", {"rank": 1}, INVALID),
                                   ("name", {"name": b"x" * 129}, INVALID), ("no name", {"name": b""}, INVALID),
                                   ("secret", {"job_secret": b"short"}, INVALID), ("time-out", {"timeout_ms": -9}, INVALID),
                                   ("collectives' time-out", {"collective_timeout_ms": 0}, INVALID),
                                   ("barriers' time-out", {"barrier_timeout_ms": 0}, INVALID)],
          "nexar_child_options*": (of_children := [
              ("time-out 0", {"timeout_ms": 0}, INVALID), ("time-out", {"timeout_ms": -9}, INVALID),
              ("collectives' time-out", {"collective_timeout_ms": 0}, INVALID), ("barriers' time-out", {"barrier_timeout_ms": -9}, INVALID)]),
          "nexar_create_options*": of_children,
          "nexar_alloc_options*": [("flags", {"flags": 1 << 40}, INVALID)]}


class Place:
    """What the calls need that are right but for one thing."""

    def __init__(self, me):
        self.session, self.me = me.session(), me
        self.group = me.group(self.session)
        self.block = self.session.alloc(1024, np.float64)
        self.at = self.block.ctypes.data
        self.counts, self.ranks = (c_uint64 * SIZE)(COUNT), (c_uint32 * COUNT)()
        self.pieces = (_library.Piece * 2)((self.at, 1), (self.at + 8, COUNT - 1))
        self.pending = cabi.started("recv", self.group, self.at + 4096, COUNT, 1, 0, 77)
        self.requests, self.out = (c_uint64 * 1)(self.pending), (c_uint64 * 64)()
        self.message, self.freed = self.set_apart(78), {"nexar_request": cabi.started("barrier", self.group)}
        cabi.end(self.freed["nexar_request"])
        self.freed["nexar_message"] = self.set_apart(79)
        cabi.check(cabi.lib.nexar_message_free(self.group._handle, self.freed["nexar_message"]))
        session, other = me.session(), me.group(self.session, name="other", size=1, rank=0)
        self.fd = os.memfd_create("arguments", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, 4096)
        self.mapped = np.frombuffer(mmap.mmap(self.fd, 4096), np.uint8)
        self.closed = {"nexar_session*": session._connection.handle, "nexar_group*": other._handle}
        cabi.check(cabi.lib.nexar_group_free(other._handle))
        cabi.check(cabi.lib.nexar_session_close(session._connection.handle))

    def set_apart(self, tag):
        """The number of a message from this rank to itself."""
        message = c_uint64()
        cabi.started("send", self.group, self.at, COUNT, 1, 0, tag)
        cabi.check(cabi.lib.nexar_mprobe(self.group._handle, 0, tag, byref(message), None, None))
        return message.value

    def right(self, function, kind, name):
        """A value that may be."""
        number = {"count": 1 if re.search("request|create", function) else COUNT, "send_count": COUNT, "receive_count": COUNT, "piece_count": 2,
                  "dtype": 1, "send_dtype": 1, "receive_dtype": 1, "op": 0, "root": 0, "to": 0, "from": 0, "rank": 0, "colour": 0,
                  "key": 0, "tag": 5, "send_tag": 5, "receive_tag": 6, "bytes": 4096, "offset": 0, "size": 65,
                  "capacity": 1, "stride": ctypes.sizeof(_library.Completion), "timeout_ms": 1, "status": 0}
        if function == "nexar_register_memfd" and name in ("address", "fd"):
            return self.fd if name == "fd" else self.mapped.ctypes.data
        if kind in VALUES and name in number:
            return number[name]
        if struct_of(kind):
            return made(kind, **(self.options(kind, function) if is_options(kind) else {}))
        return {"nexar_session*": self.session._connection.handle, "nexar_group*": self.group._handle, "nexar_request": self.pending,
                "nexar_message": self.message, "uint64_t*": self.out,
                "nexar_piece*": self.pieces, "nexar_request*": self.requests if name == "requests" else self.out,
                "uint32_t*": self.ranks if name == "ranks" else self.out, "char*": ctypes.create_string_buffer(200),
                "void*": self.at + 2048 * (name == "out"), "int*": self.out}.get(kind, self.out) if "counts" not in name else self.counts

    def options(self, kind, function):
        if kind == "nexar_op_options*":
            return {"timeout_ms": 1 if is_message(function) else 5000}
        if kind == "nexar_group_options*":
            return {"size": 1, "rank": 0, "name": b"another", "job_secret": b"0123456789abcdef", "timeout_ms": 100}
        return {"socket_path": self.me.node.socket.as_posix().encode()} if kind == "nexar_session_options*" else {}


def is_message(function):
    return re.search(r"send|recv|probe", function) is not None


def wrong_values(place, function, kind, name):
    """[(what, value, status)] for one parameter; None: there is no rule for it."""
    if kind in ("nexar_session*", "nexar_group*"):
        return [("NULL", None, BAD_HANDLE), ("wild", WILD, BAD_HANDLE), ("closed", place.closed[kind], "CLOSED")]
    if kind in ("nexar_request", "nexar_message"):
        return [("0", 0, BAD_HANDLE), ("never one", 1 << 60 | 12345, BAD_HANDLE), ("freed", place.freed[kind], BAD_HANDLE)]
    if kind == "nexar_request*" and name == "requests":
        empty = [("none of them", (c_uint64 * 1)(0), INVALID)] if "all" not in function else []
        return [("NULL", None, INVALID), ("never one", (c_uint64 * 1)(1 << 60 | 12345), BAD_HANDLE), *empty]
    if is_options(kind):
        return [("NULL", None, INVALID)] if function.endswith("from_env") else wrong_options(place, function, kind)
    if struct_of(kind):
        sizes = [] if name in ("completions", "ended") else [(f"of size {size}", made(kind, struct_size=size), INVALID) for size in (0, 3)]
        return sizes + ([] if name in ("completion", "completions") else [("NULL", None, INVALID)])
    if kind in VALUES:
        return wrong_number(function, kind, name)
    if kind.endswith("*"):
        return wrong_pointer(function, kind, name)
    return None


def wrong_options(place, function, kind):
    usual = place.options(kind, function)
    bad = [(f"of size {size}", made(kind, struct_size=size), INVALID) for size in (0, 3)]
    bad += [(what, made(kind, **{**usual, **fields}), status) for what, fields, status in FIELDS[kind]]
    if kind == "nexar_op_options*":
        bad.append(("match_id of a message", made(kind, match_id=5), INVALID) if is_message(function)
                   else ("time-out 0", made(kind, timeout_ms=0), INVALID))
        bad.append(("scalar", made(kind, scalar=WILD), INVALID))
    return bad


def wrong_number(function, kind, name):
    if function == "nexar_shard":  # arithmetic: of any count, and any number of ranks but none
        return {"size": [("0", 0, INVALID)], "rank": [("far beyond", (1 << 32) - 2, INVALID)]}.get(name, [])
    if name.endswith("dtype"):
        return [("unknown", 99, INVALID), ("negative", -1, INVALID)]
    if name == "op":
        lacks = [("mean, which it has not", nexar.OPS["avg"], INVALID)] if "exclusive" in function else []
        return [("unknown", 99, INVALID), ("negative", -1, INVALID), ("of bits", nexar.OPS["bor"], INVALID),
                ("without its scalar", nexar.OPS["premul_sum"], INVALID), *lacks]
    if name in ("root", "to", "from", "rank"):
        return [("beyond the group", SIZE, INVALID), ("far beyond", (1 << 32) - 2, INVALID)]
    if name in ("tag", "send_tag"):
        return [("any", (1 << 64) - 1, INVALID)] if "send" in function and name != "receive_tag" else []
    if "count" in name:
        if "request" in function:
            return [("too many", 4097, INVALID)] + ([("none", 0, INVALID)] if "all" not in function else [])
        return [("too many", 1 << 61, INVALID), ("largest", (1 << 64) - 1, INVALID)]
    if name == "stride":
        return [("0", 0, INVALID)]
    if name == "timeout_ms":
        return [("negative", -3, INVALID)]
    if name == "size":
        return [] if function == "nexar_error_line" else [("0", 0, INVALID), ("too small", 3, INVALID)]
    if name == "bytes":
        return [("none", 0, INVALID)]
    return {"capacity": [], "colour": [], "key": [], "receive_tag": [], "fd": [("closed", -1, INVALID), ("no memory", 0, UNSUPPORTED)], "offset": [("odd", 3, INVALID)]}.get(name)


def wrong_pointer(function, kind, name):
    if function in ("nexar_free", "nexar_unregister"):
        return [("NULL", None, "NOT_FOUND"), ("of nobody", WILD, "NOT_FOUND")]
    if name in ("in", "out", "data", "counts", "send_counts", "receive_counts", "pieces", "ranks", "request", "child", "group", "index", "offset",
                "ended", "count", "indices", "text", "rank", "size", "epoch", "fd", "message", "address"):
        return [("NULL", None, INVALID)]
    return {"reason": [], "length": []}.get(name)


# What the daemon finds is the status of the request, which has been started.
LATER = (("nexar_mrecv_start", "message"),)
# Whose right call would end what the others need, or needs a request of its own.
NOT_CALLED = ("nexar_request_start", "nexar_request_start_all", "nexar_session_close", "nexar_group_free", "nexar_group_abort",
              "nexar_free", "nexar_unregister", "nexar_request_free", "nexar_request_cancel", "nexar_mrecv", "nexar_mrecv_start",
              "nexar_message_free")


def call(function, parameters, values):
    """Its status in words."""
    def given(kind, value):
        if kind in VALUES:
            return VALUES[kind](value)
        return value if value is None or isinstance(value, ctypes.Array) else c_void_p(value) if isinstance(value, int) else byref(value)

    return cabi.name_of(getattr(raw, function)(*(given(kind, value) for (kind, _), value in zip(parameters, values))))


def refused(place, function, parameters):
    """What was not as it must be."""
    bad = []
    for index, (kind, name) in enumerate(parameters):
        rules = wrong_values(place, function, kind, name)
        if rules is None:
            bad.append(f"{function}: no rule for a wrong {kind} {name}: add one to wrong_values()")
            continue
        for what, value, status in rules:
            values = [place.right(function, *each) for each in parameters]
            values[index] = value
            ctypes.memset(place.out, 0x5A, ctypes.sizeof(place.out))
            got = call(function, parameters, values)
            if (function, name) in LATER and got == "OK":
                got = cabi.name_of(cabi.end(place.out[0])[0])
                place.out[0] = UNTOUCHED
            if got != status:
                bad.append(f"{function}, {name} {what}: {got}, not {status}")
            elif not cabi.last_error().text and function != "nexar_last_error":
                bad.append(f"{function}, {name} {what}: no text")
            elif any(word != UNTOUCHED for word in place.out):
                bad.append(f"{function}, {name} {what}: it has written")
    return bad


def provoke(me):
    place, bad, tried = Place(me), [], 0
    for function, (returns, parameters) in functions().items():
        if returns != "nexar_status" or not parameters:
            continue
        tried += 1
        bad += refused(place, function, parameters)
        if function in NOT_CALLED:
            continue
        values = [place.right(function, *each) for each in parameters]
        got = call(function, parameters, values)  # else the refusals above may have had another cause
        if got in (INVALID, BAD_HANDLE, UNSUPPORTED):
            bad.append(f"{function} with nothing wrong: {got}: {cabi.last_error().text}")
    equal(place.group.all_reduce(4), 4, "the group works on")
    return bad, tried


def makes_nothing_of_nothing(me):
    """Functions without a status: NULL, sizes that are too small, and what they do not know."""
    for function, (returns, parameters) in functions().items():
        if function.endswith("_init") and returns == "void":
            for size in (0, 3):
                getattr(raw, function)(None, c_uint64(size))
                block = (c_uint64 * 32)(*[UNTOUCHED] * 32)
                getattr(raw, function)(byref(block), c_uint64(size))
                equal(set(block), {UNTOUCHED}, f"memory after {function} of a struct of {size} bytes")
        elif "char*" in returns and parameters:
            getattr(raw, function).restype = ctypes.c_char_p
            equal(getattr(raw, function)(c_int32(-77777)), b"UNKNOWN", function)
    equal(raw.nexar_dtype_size(c_int32(99)), 0, "the size of an unknown type")
    raw.nexar_perror(None)
    return "nothing"


def test_functions_without_a_status_take_anything(cluster):
    equal(run([cluster[1]], makes_nothing_of_nothing), ["nothing"], "what they do")


def test_every_wrong_argument_of_every_function_is_refused(cluster):
    (bad, tried), = run([cluster[1]], provoke)
    assert not bad, "\n".join(bad)
    assert tried >= 80, f"only {tried} functions were found in the header"


main(globals(), nodes=1)
