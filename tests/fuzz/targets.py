"""What is fuzzed: each takes any bytes, and lets nothing out but the error that its reader is to raise."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from fuzz.settings_targets import read_forwarder, read_settings, read_told
from oz.errors import PatternError, PatternTimeout, ProtocolError, SubjectError
from oz.wire import batch, datagrams, discovery, keys, positions
from oz.wire.announcement import unpack_announcement
from oz.wire.declared import restore
from oz.wire.keys import Declared


def read_pattern(data: bytes) -> None:
    """Compile a pattern of the dialect whose number comes first, and try it on what follows a zero byte."""
    text, _, subject = data[1:].partition(b"\0")
    try:
        pattern = restore(Declared(data[0] if data else 0, text))
    except (PatternError, ProtocolError):
        return
    for one in (subject, text, pattern.prefix + subject):
        with suppress(SubjectError, PatternTimeout):
            if pattern.matches(one):
                assert one.startswith(pattern.prefixes), (pattern, one, pattern.prefixes)


def read_key(data: bytes) -> None:
    """Read a key in every way, and write again what was read."""
    for kind in (b"", keys.DECLARATION, keys.PATTERN, keys.STREAM):
        key = kind + data
        with suppress(ProtocolError):
            keys.parse_stream(key)
        with suppress(ProtocolError):
            found = keys.parse_pattern(key)
            assert not kind or kind != keys.PATTERN or keys.pattern_key(found) == key
        with suppress(ProtocolError):
            assert keys.parse_declaration(keys.parse_declaration(key).encode()).encode()
        with suppress(ProtocolError):
            keys.may_carry(key)


def read_batch(data: bytes) -> None:
    """Read a frame of a publisher, the short way and the long one."""
    for frame in (data, keys.STREAM + data, keys.PATTERN + data):
        with suppress(ProtocolError):
            batch.read_lone(frame)
        with suppress(ProtocolError):
            size = batch.key_size(frame)
            head = batch.parse_head(frame, size)
            at = size + batch.HEAD_SIZE
            if head.flags & batch.CONTROL:
                batch.parse_control(frame, at)
                continue
            if head.flags & batch.LAST_VALUES:
                batch.parse_chunk(frame, at)
                at += batch.CHUNK_FIELD
            positions.parse_positions(frame, at, head.position, head.width, head.count)
            at += head.width * (head.count - 1)
            batch.parse_body(frame, at, head.count)


def read_datagram(data: bytes) -> None:
    """Read a packet of a multicast publisher."""
    with suppress(ProtocolError):
        datagrams.decode(data)


def read_announcement(data: bytes) -> None:
    """Read what a node says of itself."""
    with suppress(ProtocolError):
        unpack_announcement(data)


def read_naming(data: bytes) -> None:
    """Read what goes to a name server, and what comes from one."""
    for unpack in (discovery.unpack_request, discovery.unpack_reply):
        with suppress(ProtocolError):
            unpack(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "patterns": read_pattern,
    "keys": read_key,
    "batches": read_batch,
    "datagrams": read_datagram,
    "announcements": read_announcement,
    "naming": read_naming,
    "settings": read_settings,
    "forwarders": read_forwarder,
    "told": read_told,
}
