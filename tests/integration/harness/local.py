"""The session socket's messages (proto/local_protocol.h), where a test speaks them itself."""
import struct

from . import cabi

REFUSED = 3


def refusal(message):
    """The status by which the daemon refused a handshake."""
    magic, kind, code = struct.unpack_from("<IIi", message)
    assert kind == REFUSED, f"message {kind} of the daemon, want {REFUSED} (refused)"
    return cabi.name_of(code)
