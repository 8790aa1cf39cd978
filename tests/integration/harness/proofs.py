"""Admission to a group by proof, as docs/protocol/rendezvous.md states it ([R19]): written from that page, so that the
daemon's implementation has another one to agree with."""
import hashlib
import hmac
import struct


def group_key(name, secret):
    """What every member of a job can compute. The 8 bytes: instance 0."""
    secret = secret.encode()
    return hashlib.sha256(b"nexar-group-v2" + struct.pack("<I", len(secret)) + secret + bytes(8) + name.encode()).digest()


def proof_key(name, secret):
    """HKDF-SHA256 (RFC 5869), one block."""
    extracted = hmac.digest(b"nexar-proof-v2", secret.encode(), "sha256")
    return hmac.digest(extracted, group_key(name, secret) + b"\1", "sha256")


def _text(text):
    return struct.pack("<I", len(text)) + text


def _numbers(fields, layout):
    """layout: names of fields and their formats, in order."""
    return b"".join(struct.pack("<" + kind, int(fields.get(name, 0))) for name, kind in layout)


def _members(table):
    out, lines = [struct.pack("<I", len(table["list"]))], {}
    for member in table["list"]:
        at = member["node"]
        line = bytes(table["nodes"][at]) + _numbers(table["incarnations"][at], [("counter", "Q"), ("nonce", "Q")]) + \
            struct.pack("<Q", int(table["features"][at])) + bytes(table["nonces"][at])
        is_new = line not in lines
        out.append(struct.pack("<I", lines.setdefault(line, len(lines))) + line * is_new)
        out.append(_numbers(member, [("number", "Q"), ("rank", "I"), ("pid", "I")]))
    return b"".join(out)


def transcript(prepare):
    """Of a GroupPrepare as the hostile member prints it."""
    return b"".join([
        _text(b"nexar-prepare-v2"), _numbers(prepare["group"], [("creator", "Q"), ("incarnation", "Q"), ("counter", "Q")]),
        _numbers(prepare, [("epoch", "I")]), bytes(prepare["key"]), _text(prepare["name"].encode()),
        _members(prepare["members"]),
        _numbers(prepare["plan"], [("version", "I"), ("smallBytesMax", "Q"), ("doublingBytesMax", "Q"), ("chunkBytes", "Q"),
                                   ("segmentBytes", "Q"), ("lanes", "I"), ("bulkShards", "H")]),
        _numbers(prepare["timeouts"], [("collective", "q"), ("barrier", "q"), ("rpc", "q")])])


def tag(prepare, secret, node, incarnation):
    """What this node answers to the prepare. `node`: its id in hex."""
    stated = hashlib.sha256(transcript(prepare)).digest() + bytes.fromhex(node) + struct.pack("<QQ", *incarnation)
    return hmac.digest(proof_key(prepare["name"], secret), stated, "sha256")
