"""The stamp in each Arrow message: what it holds, and checksums that Arrow itself has not.

A stamp is text of fixed width in the metadata of a message, where other readers ignore it. Two checksums: one
over the message's head, stamp included, so that a batch can be skipped by its stamp alone; one over its body.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple
from zlib import crc32

KEY = b"oz.stamp"
PREFIX = struct.Struct("<Ii")
"""What precedes every Arrow message: the continuation mark, and the length of the head that follows."""
CONTINUATION = 0xFFFFFFFF
MAX_HEAD = 1 << 16
"""Longer heads are taken for damage; one of this schema has about 1,500 bytes."""

_FORMAT = b"oz1 %016x %08x %016x %016x %016x %08x "
_HEAD_CRC = b"%08x"
_LONG, _SHORT = rb"([0-9a-f]{16})", rb"([0-9a-f]{8})"
MARK = re.compile(b" ".join([b"oz1", _LONG, _SHORT, _LONG, _LONG, _LONG, _SHORT, _SHORT]))
"""A stamp, wherever it is found."""
_NO_CRC = b"00000000"


class Stamp(NamedTuple):
    """The metadata of an Arrow message.

    Attributes:
        first: the offset of its first record.
        rows: how many records it has; 0 in the head of a segment.
        min_ns: the earliest time in it.
        max_ns: the latest.
        body: the length of its body in bytes.
        body_crc: the CRC-32 of the body.
    """

    first: int
    rows: int
    min_ns: int
    max_ns: int
    body: int = 0
    body_crc: int = 0

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.first + self.rows

    def text(self) -> bytes:
        """Write it, without the head's checksum."""
        first, rows, min_ns, max_ns, body, body_crc = self
        return _FORMAT % (first, rows, min_ns & _ALL, max_ns & _ALL, body, body_crc) + _NO_CRC


_ALL = (1 << 64) - 1
_WIDTH = len(Stamp(0, 0, 0, 0).text())


def stamp_message(message: bytearray | memoryview, stamp: Stamp, salt: int) -> None:
    """Put the stamp with its checksums where the message has room for it.

    Args:
        message: one encapsulated Arrow message whose metadata has a stamp, complete or not.
        stamp: first, rows and times; body and checksum are worked out here.
        salt: what the head's checksum starts from.
    """
    _, length = PREFIX.unpack_from(message)
    head = PREFIX.size + length
    found = MARK.search(message, 0, head)
    assert found is not None
    at = found.start()
    with memoryview(message) as view:
        body_crc = crc32(view[head:])
    whole = stamp._replace(body=len(message) - head, body_crc=body_crc)
    message[at : at + _WIDTH] = whole.text()
    with memoryview(message) as view:
        checksum = crc32(view[:head], salt)
    message[at + _WIDTH - 8 : at + _WIDTH] = _HEAD_CRC % checksum


def read_stamp(head: bytes, salt: int) -> Stamp | None:
    """Read the stamp of a message and check its head.

    Args:
        head: the prefix and the metadata of an Arrow message.
        salt: what the checksum started from.

    Returns:
        The stamp, or None when there is none or the checksum differs.
    """
    found = MARK.search(head)
    if found is None:
        return None
    numbers = [int(group, 16) for group in found.groups()]
    end = found.end()
    if crc32(head[: end - 8] + _NO_CRC + head[end:], salt) != numbers.pop():
        return None
    first, rows, min_ns, max_ns, body, body_crc = numbers
    return Stamp(first, rows, _signed(min_ns), _signed(max_ns), body, body_crc)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
