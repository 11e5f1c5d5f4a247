"""Fuzz targets: each reads any bytes, and raises only the error that its reader documents."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

from oz.configuration.resolution import survey
from oz.errors import PatternError, PatternTimeout, ProtocolError, SubjectError
from oz.journal.records import unpack_headers
from oz.subjects.dialects import BY_NAME
from oz.subjects.spelling import FLAGGED, LENIENT, restore
from oz.wire import datagrams, links

_DIALECTS = (*BY_NAME, LENIENT, FLAGGED)
_KINDS = (links.HELLO, links.WELCOME, links.DECLARE, links.ANSWER, links.PING, links.ACK, links.BYE)


def read_pattern(data: bytes) -> None:
    """Compile a pattern of the dialect whose number comes first, and match what follows a zero byte."""
    text, _, subject = data[1:].partition(b"\0")
    try:
        pattern = restore(_DIALECTS[data[0] % len(_DIALECTS)] if data else "", text)
    except (PatternError, ProtocolError):
        return
    for item in (subject, text, pattern.prefix + subject):
        with suppress(SubjectError, PatternTimeout):
            if pattern.matches(item):
                assert item.startswith(pattern.prefixes), (pattern, item, pattern.prefixes)


def read_link(data: bytes) -> None:
    """Read a frame of a link, as it is and as each kind of control frame; and a card."""
    for frame in (data, *(bytes((kind,)) + data for kind in _KINDS)):
        with suppress(ProtocolError):
            links.decode_control(frame)
    with suppress(ProtocolError):
        links.decode_card(data)


def read_batch(data: bytes) -> None:
    """Read a head and the body behind it."""
    for frame in (data, bytes((links.JOINED,)) + data):
        with suppress(ProtocolError):
            head = links.decode_head(frame)
            links.decode_body(frame[links.HEAD_BYTES :], head.count)


def read_datagram(data: bytes) -> None:
    """Read a packet of a multicast publisher."""
    with suppress(ProtocolError):
        datagrams.decode(data)


def read_settings(data: bytes) -> None:
    """Read a file of settings, and describe its faults."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        with patch.dict(os.environ, {"OZ_CONFIG": file.name}):
            found = survey()
    assert all(str(fault) for fault in found.faults)


def read_headers(data: bytes) -> None:
    """Read the headers of a record."""
    unpack_headers(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "patterns": read_pattern,
    "links": read_link,
    "batches": read_batch,
    "datagrams": read_datagram,
    "settings": read_settings,
    "headers": read_headers,
}
