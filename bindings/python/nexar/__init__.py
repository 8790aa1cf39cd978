"""nexar for Python: the C library libnexar_c, for numpy arrays, buffers, tensors and Python's own objects.

    import nexar
    with nexar.Session() as session, session.group() as group:   # who and how many: from the environment
        x = session.alloc(1000, "float32")                       # memory that is reduced in place
        x[:] = group.rank
        group.all_reduce(x)                                      # the sum, on every rank

include/nexar.h is the manual; this package only says what Python adds:

Times are seconds, the same everywhere: None is the default (of an operation: what its group agreed on for its kind; of
a wait: as long as the operation takes), nexar.NO_TIMEOUT none at all, 0 does not wait (a collective refuses it).

Every operation has a blocking form and a _start form that returns a Request. Both take, by name, timeout= (the
operation's own deadline: when it passes, the operation ends, and the error names who is late), match_id= (collectives: a
number that must be the same on all ranks, or all get MISMATCH), priority= (a nexar.Priority) and user_data= (comes back
in the Completion).

Every collective, send and recv has an x_init, too: it prepares the operation once, and returns a Persistent, whose start() is
cheap. session.ops() submits many operations as one.

While anything waits, other threads run and Ctrl-C works: it cancels the operation of a blocking form, on all ranks of
the group, and raises KeyboardInterrupt. A wait for a Request leaves that pending.

An exception that ends the program aborts its groups, and the other ranks read its text; so does one that leaves the `with` of a
group or session, also in another thread, and sys.exit(3) there. (Of sys.exit outside a `with` Python reports nothing: the
others read that the process has ended.)

Failures are nexar.Error, in classes by what one can do about them; ValueError and TypeError say what this package does
not take. Linux on 64-bit machines only, as the library.
"""
from ._arrays import DTYPES, OPS
from ._errors import (CallError, Error, GroupError, NexarSystemError, OpenError, OperationError, RecoverableError,
                      RetryError, SessionError, TimedOut)
from ._group import Group
from ._library import (ANY_SOURCE, ANY_TAG, FLAG_DETERMINISTIC, FLAG_F32_PARTIALS, NO_TIMEOUT, RANK_AUTO, Priority,
                       shard, version)
from ._messages import Message
from ._requests import Completion, Persistent, Request, start_all
from ._session import Session
from ._several import test_any, test_some, wait_all, wait_any, wait_some

__version__ = version()
__all__ = ["ANY_SOURCE", "ANY_TAG", "CallError", "Completion", "DTYPES", "Error", "FLAG_DETERMINISTIC",
           "FLAG_F32_PARTIALS", "Group", "GroupError", "Message", "NO_TIMEOUT", "NexarSystemError", "OPS", "OpenError",
           "OperationError", "Persistent", "Priority", "RANK_AUTO", "RecoverableError", "Request", "RetryError", "Session",
           "SessionError", "TimedOut", "shard", "start_all", "test_any", "test_some", "wait_all", "wait_any", "wait_some"]
