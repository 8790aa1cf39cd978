"""The C functions themselves: what the Python binding has no need to call, and what a test wants to see unadorned."""
import ctypes
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p

from nexar import _library
from nexar._errors import check, error_of  # noqa: F401
from nexar._library import Completion, Error, GroupOptions, OpOptions, SessionOptions, lib

PENDING = 1
INVALID_ARGUMENT, BAD_STATE, CLOSED, TABLE_FULL, NO_MEMORY, INTERRUPTED = -101, -102, -106, -201, -202, -203
DEFAULT, NONE = -1, -2  # time-outs

_options, _end = POINTER(OpOptions), POINTER(Completion)
for _name, _arguments in {
        **{name: [*arguments, _options] for name, arguments in _library.operations.items()},
        **{name: [*_library.operations[name], _end, _options] for name in ("recv", "recvv", "probe", "mrecv")},
        "sendrecv": [c_void_p, *[c_void_p, c_uint64, c_int32, c_uint32, c_uint64] * 2, _end, _options],
        "sendrecv_replace": [c_void_p, c_void_p, c_uint64, c_int32, *[c_uint32, c_uint64] * 2, _end, _options],
        "group_open": [c_void_p, POINTER(GroupOptions), POINTER(c_void_p)],
        "request_wait_all": [POINTER(c_uint64), c_uint64, c_int64, c_void_p, c_uint64]}.items():
    getattr(lib, f"nexar_{_name}").argtypes = _arguments
lib.nexar_perror.argtypes, lib.nexar_perror.restype = [c_char_p], None


def name_of(status):
    return lib.nexar_status_name(status).decode()


def of(session):
    """Its handle."""
    return session._connection.handle


def completion():
    return Completion(struct_size=ctypes.sizeof(Completion), status=77)


PRIORITIES = (-1, 0, 1, 2)  # the operation's own, critical, realtime, bulk


def op_options(timeout_ms=DEFAULT, match_id=0, user_data=0, priority=-1):
    return OpOptions(ctypes.sizeof(OpOptions), priority, timeout_ms, match_id, user_data, 0)


def session_options(**given):
    return _library.options(SessionOptions, lib.nexar_session_options_init, **given)


def group_options(**given):
    return _library.options(GroupOptions, lib.nexar_group_options_init, **given)


def last_error():
    error = Error(struct_size=ctypes.sizeof(Error))
    check(lib.nexar_last_error(byref(error)))
    return error


def requests(*numbers):
    return (c_uint64 * len(numbers))(*numbers)


def started(function, group, *arguments, options=None):
    """The number of a request, from nexar_<function>_start."""
    number = c_uint64()
    check(getattr(lib, f"nexar_{function}_start")(group._handle, *arguments, options and byref(options), byref(number)))
    return number.value


def end(number, timeout_ms=20000):
    """(status, Completion) of a request, waited for and freed."""
    last = completion()
    status = lib.nexar_request_wait(number, timeout_ms, byref(last))
    assert status != PENDING, "it is still pending"
    assert lib.nexar_request_free(number) == 0
    return status, last


def poll(session, capacity=8):
    """(status, Completions)"""
    ended, count = (Completion * capacity)(), c_uint64()
    status = lib.nexar_session_poll(of(session), ended, ctypes.sizeof(Completion), capacity, byref(count))
    return status, ended[:count.value]
