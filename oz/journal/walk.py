"""Walking through the messages of a segment, whole or damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from oz.journal.stamp import CONTINUATION, MARK, MAX_HEAD, PREFIX, Stamp, read_stamp

_AHEAD = 1 << 18
MOST_BODY = 1 << 31
"""Longer bodies are refused before they are read: a payload has 1 GiB at most."""


class Frame(NamedTuple):
    """One message of a segment: where it is, and what its stamp says."""

    position: int
    head: int
    stamp: Stamp

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.position + self.head + self.stamp.body


class Hole(NamedTuple):
    """A stretch of a segment that means nothing.

    Attributes:
        position: where it begins.
        end: the byte after it.
        reason: what is wrong with it, in words.
    """

    position: int
    end: int
    reason: str


class ReadAhead:
    """A file that is read a piece at a time, somewhat ahead of what is asked for."""

    def __init__(self, descriptor: int, ahead: int = _AHEAD) -> None:
        """Read from a descriptor, which stays the caller's, and `ahead` bytes at least."""
        self.descriptor = descriptor
        self._ahead = ahead
        self._start = 0
        self._piece = b""

    @property
    def size(self) -> int:
        """The size of the file now."""
        return os.fstat(self.descriptor).st_size

    def at(self, position: int, length: int) -> bytes:
        """Read bytes, fewer where the file ends."""
        skip = position - self._start
        if skip < 0 or skip + length > len(self._piece):
            self._piece = self.fresh(position, max(length, self._ahead))
            self._start, skip = position, 0
        return self._piece[skip : skip + length]

    def fresh(self, position: int, length: int) -> bytes:
        """Read bytes past what is kept; fewer where the file ends."""
        pieces = []
        while length > 0 and (piece := os.pread(self.descriptor, length, position)):
            pieces.append(piece)
            position += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def forget(self) -> None:
        """Read anew what may have changed since."""
        self._piece = b""


def head_at(source: ReadAhead, position: int, salt: int) -> Frame | Hole | None:
    """Read a message's head and check it; not its body.

    Returns:
        The message; None at the end of the segment; a `Hole` that goes on to an unknown end when what is
        there is no message.
    """
    prefix = source.at(position, PREFIX.size)
    if not prefix:
        return None
    if len(prefix) < PREFIX.size:
        return Hole(position, position, "it ends within a message")
    mark, length = PREFIX.unpack(prefix)
    if mark == CONTINUATION and length == 0:
        return None
    if mark != CONTINUATION or not 0 < length <= MAX_HEAD or length % 8:
        return Hole(position, position, "no message begins here")
    head = source.at(position, PREFIX.size + length)
    if len(head) < PREFIX.size + length:
        return Hole(position, position, "it ends within a message")
    stamp = read_stamp(head, salt)
    if stamp is None:
        return Hole(position, position, "the checksum of a message's head differs")
    if stamp.body > MOST_BODY:
        return Hole(position, position, f"a message of {stamp.body} bytes, which nobody writes")
    return Frame(position, len(head), stamp)


def body_fault(source: ReadAhead, frame: Frame) -> str | None:
    """Check a message's body; what is wrong with it, in words."""
    read = source.at if frame.stamp.body <= _AHEAD else source.fresh
    body = read(frame.position + frame.head, frame.stamp.body)
    if len(body) < frame.stamp.body:
        return "it ends within a message"
    return None if crc32(body) == frame.stamp.body_crc else "the checksum of a message's body differs"


def survey(source: ReadAhead, position: int, salt: int, offset: int) -> Iterator[Frame | Hole]:
    """Go through a segment and check every byte.

    Args:
        source: the segment.
        position: where its first batch begins.
        salt: what the checksums start from.
        offset: the offset of its first record.

    Yields:
        Each intact batch, offsets ascending, and what lies between them. A `Hole` that is last reaches to the
        end of the file.
    """
    while (found := _intact(source, position, salt, offset)) is not None:
        if isinstance(found, Hole):
            following = _next_intact(source, position, salt, offset)
            if following is None or (following.position, following.stamp.first) != (position, offset):
                yield Hole(position, source.size if following is None else following.position, found.reason)
            # Otherwise it was being written at the first look.
            if following is None:
                return
            found = following
        yield found
        position, offset = found.end, found.stamp.end


def _intact(source: ReadAhead, position: int, salt: int, offset: int) -> Frame | Hole | None:
    found = head_at(source, position, salt)
    if not isinstance(found, Frame):
        return found
    if found.stamp.first != offset:
        return Hole(position, position, f"offset {found.stamp.first} where {offset} should be")
    fault = body_fault(source, found)
    return Hole(position, position, fault) if fault else found


def _next_intact(source: ReadAhead, position: int, salt: int, offset: int) -> Frame | None:
    """Find the next batch that is whole, by the stamp in it."""
    size = source.size
    while position < size:
        piece = source.fresh(position, _AHEAD + MAX_HEAD)
        for mark in MARK.finditer(piece):
            if int(mark[2], 16) and int(mark[1], 16) >= offset:
                found = _around(source, position + mark.start(), salt)
                if found is not None and found.stamp.first >= offset:
                    return found
        position += _AHEAD
    return None


def _around(source: ReadAhead, mark: int, salt: int) -> Frame | None:
    """Find the message whose stamp is at `mark`."""
    start = max(0, mark - MAX_HEAD)
    before = source.fresh(start, mark - start)
    at = len(before)
    while (at := before.rfind(b"\xff\xff\xff\xff", 0, at)) >= 0:
        found = head_at(source, start + at, salt)
        if isinstance(found, Frame) and found.position + found.head > mark:
            return found if body_fault(source, found) is None else None
    return None
