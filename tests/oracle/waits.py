"""Each way of waiting for requests."""
import time
from ctypes import byref, c_uint64

from harness import cabi

lib = cabi.lib


def until_ended(numbers, local, session):
    """Waits until all of them have ended, one way or another."""
    left, how = list(numbers), local.choice(("test", "wait", "any", "some", "all"))
    while left:
        patience, index, ended = local.choice((0, 1, 50, 500)), c_uint64(), c_uint64()
        if how == "test":
            cabi.poll(session)
            left = pending(left)
            time.sleep(0.0002 if left else 0)  # sleep: between two looks
        elif how == "wait":
            if lib.nexar_request_wait(left[0], patience, None) not in (cabi.PENDING, cabi.INTERRUPTED):
                left.pop(0)
        elif how == "any":
            if lib.nexar_request_wait_any(cabi.requests(*left), len(left), patience, byref(index), None) == 0:
                left.pop(index.value)
            else:
                left = pending(left)
        elif how == "some":
            places = (c_uint64 * len(left))()
            if lib.nexar_request_wait_some(cabi.requests(*left), c_uint64(len(left)), cabi.c_int64(patience), places,
                                           byref(ended), None, c_uint64(0)) == 0:
                left = [each for place, each in enumerate(left) if place not in places[:ended.value]]
            else:
                left = pending(left)
        elif lib.nexar_request_wait_all(cabi.requests(*left), len(left), patience, None, 0) != cabi.PENDING:
            left = pending(left)


def pending(requests):
    """A poll of another thread may have found the end of a persistent one, which the waits pass over then."""
    return [each for each in requests if lib.nexar_request_test(each, None) == cabi.PENDING]
