"""What frames mean, as JSON can hold it: for frames that earlier versions sent, in tests/compat."""

import dataclasses
from contextlib import suppress

from oz.errors import ProtocolError
from oz.protocol.node.presence import from_text
from oz.wire import datagram
from oz.wire.batch import (
    CHUNK_FIELD,
    CONTROL,
    LAST_VALUES,
    key_size,
    parse_body,
    parse_chunk,
    parse_control,
    parse_head,
)
from oz.wire.codec import MsgpackCodec, NodeCodec
from oz.wire.discovery import unpack_reply, unpack_request
from oz.wire.keys import OVERFLOWS, POLICIES, DeliveryOptions, parse_declaration, parse_pattern, parse_stream

KEYS = {b"\x001S": parse_stream, b"\x001P": parse_pattern, b"\x001D": parse_declaration}
NODES = NodeCodec(MsgpackCodec())
LONG = 1000
"""Bytes from which a payload of one byte again and again is told by its size."""


def plain(value):
    """Write a value as JSON can hold it, without the names of the classes."""
    if isinstance(value, DeliveryOptions):
        # What users write for these may be called otherwise later; the numbers stay.
        overflow, policy = OVERFLOWS.index(value.overflow), POLICIES.index(value.policy)
        return [value.is_shared, value.group, policy, overflow, value.limit]
    if dataclasses.is_dataclass(value):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        # One without a key is what it was before there were any.
        return [plain(one) for one in (fields[:-1] if getattr(value, "key", "") is None else fields)]
    if isinstance(value, bytes):
        return as_bytes(value)
    if isinstance(value, dict):
        return [[plain(key), plain(one)] for key, one in value.items()]
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, str) else value


def as_bytes(value):
    """Write bytes: as digits, or what they repeat and how often."""
    is_long = len(value) > LONG and len(set(value)) == 1
    return {"repeated": value[:1].hex(), "size": len(value)} if is_long else {"hex": value.hex()}


def from_bytes(told):
    """Read what `as_bytes` wrote."""
    return bytes.fromhex(told["hex"]) if "hex" in told else bytes.fromhex(told["repeated"]) * told["size"]


def of_upward(frames):
    """Tell what a subscriber, or a node of its name server, says."""
    if len(frames) == 1 and frames[0][:1] in (b"\0", b"\1"):
        begins, key = frames[0][0] == 1, frames[0][1:]
        parse = KEYS.get(key[:3])
        return {"begins": begins, "key": plain(parse(key) if parse else key)}
    return {"asks": plain(unpack_request(frames[-1]))}


def of_downward(frames):
    """Tell what a publisher, or a name server, says."""
    if frames[0][:2] != b"\x001":
        with suppress(ProtocolError):
            return {"answers": plain(unpack_reply(frames[-1]))}
        return {"plain": plain(frames)}
    size = key_size(frames[0])
    head = parse_head(frames[0], size)
    told = {"flags": head.flags, "origin": head.origin.hex(), "epoch": head.epoch}
    told |= {"sequence": head.sequence, "count": head.count, "large": [len(one) for one in frames[1:]]}
    at = size + head.size
    if head.flags & CONTROL:
        return told | {"control": plain(parse_control(frames[0], at))}
    if head.flags & LAST_VALUES:
        told["chunk"] = parse_chunk(frames[0], at)
        at += CHUNK_FIELD
    body = parse_body(frames[0], at, head.count)
    return told | {
        "body": plain(body),
        "nodes": [of_node(one) for one in zip(body[::2], body[1::2], strict=True)],
    }


def of_node(message):
    """Tell what nodes say to each other with a message; None where it is none of theirs."""
    subject, payload = message
    if not isinstance(payload, bytes) or not payload.startswith(b"\xc1"):
        return None
    told = NODES.decode(payload)
    if isinstance(told, str) and subject.startswith(b"_OZ."):
        return plain([from_text(one) for one in told.replace(".", " ").split()])
    return plain(told)


def of_multicast(frames):
    """Tell what a publisher says to a multicast group: each frame is by itself."""
    [frame] = frames
    prefix, head, at = datagram.parse(frame)
    told = {"prefix": plain(prefix), "flags": head.flags, "origin": head.origin.hex()}
    told |= {"epoch": head.epoch, "sequence": head.sequence, "count": head.count}
    if head.flags & CONTROL:
        return told | {"control": plain(datagram.parse_control(frame, at))}
    return told | {"messages": plain(datagram.parse_messages(frame, prefix, at, head))}
