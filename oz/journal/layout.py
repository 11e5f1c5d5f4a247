"""The layout of Arrow's messages and footers, read before Arrow does what they say.

A compressed buffer begins with the size that it has without compression, and Arrow makes room for that: a few
kilobytes can claim, and fill, all memory. Arrow's flatbuffers are read here as far as is needed to see that.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from oz.journal.stamp import PREFIX

MOST_DECODED = 64 << 20
"""Bytes that a batch may take without compression, or else so many times what it takes with it:"""
MOST_TIMES = 64

_RECORD_BATCH = 3  # in Arrow's union of messages
_MAGIC = b"ARROW1"
_BLOCK = struct.Struct("<qi4xq")
_BUFFER = _NODE = struct.Struct("<qq")
_LONG = struct.Struct("<q")


class Block(NamedTuple):
    """A batch, as the footer of a file has it: where it is, and how long its head and its body are."""

    position: int
    head: int
    body: int


class _Table:
    """A table of a flatbuffer."""

    def __init__(self, data: bytes | memoryview, at: int) -> None:
        self._data, self._at = data, at
        vtable = at - _number("<i", data, at)
        size = _number("<H", data, vtable)
        self._fields = [_number("<H", data, vtable + place) for place in range(4, size, 2)]

    def at(self, field: int) -> int | None:
        """Return the place of a field; None when it is not there."""
        place = self._fields[field] if field < len(self._fields) else 0
        return self._at + place if place else None

    def table(self, field: int) -> _Table | None:
        """Follow a field to another table."""
        at = self.at(field)
        return None if at is None else _Table(self._data, at + _number("<I", self._data, at))

    def structs(self, field: int, layout: struct.Struct) -> list[tuple[int, ...]]:
        """Read a vector of structs."""
        at = self.at(field)
        if at is None:
            return []
        at += _number("<I", self._data, at)
        count = _number("<I", self._data, at)
        end = at + 4 + count * layout.size
        if end > len(self._data):
            raise ValueError("a list that is longer than what it is in")
        return list(layout.iter_unpack(self._data[at + 4 : end]))


def _number(form: str, data: bytes | memoryview, at: int) -> int:
    if at < 0:
        raise ValueError("a place before the beginning")
    number: int = struct.unpack_from(form, data, at)[0]
    return number


class Layout(NamedTuple):
    """The layout of a batch, as its head tells it.

    Attributes:
        columns: number of columns.
        decoded: how many bytes it takes once it is decoded.
    """

    columns: int
    decoded: int


def layout_of(message: bytes | memoryview, head: int) -> Layout:
    """Read the layout of a batch.

    Args:
        message: all of it, from the continuation mark on.
        head: how many bytes of it are its head; the others are its body.

    Raises:
        ValueError: it is no batch, or reaches beyond its bytes.
    """
    try:
        batch = _batch(message[:head])
        columns = len(batch.structs(1, _NODE))
        if batch.at(3) is None:
            return Layout(columns, len(message) - head)
        buffers = batch.structs(2, _BUFFER)
        return Layout(columns, sum(_decoded(message, head, *place) for place in buffers if place[1]))
    except (struct.error, IndexError) as error:
        raise ValueError("its head ends too early") from error


def _batch(head: bytes | memoryview) -> _Table:
    flat = head[PREFIX.size :]
    message = _Table(flat, _number("<I", flat, 0))
    kind, batch = message.at(1), message.table(2)
    if kind is None or batch is None or flat[kind] != _RECORD_BATCH:
        raise ValueError("it is no batch of records")
    return batch


def _decoded(message: bytes | memoryview, head: int, offset: int, size: int) -> int:
    if offset < 0 or size < _LONG.size or head + offset + size > len(message):
        raise ValueError("a buffer that reaches beyond its bytes")
    claimed = int(_LONG.unpack_from(message, head + offset)[0])
    if claimed < -1:
        raise ValueError("a buffer of negative size")
    return size if claimed < 0 else claimed  # -1: it is not compressed


def refuse_a_bomb(decoded: int, body: int) -> None:
    """Refuse a batch that takes far more memory than its bytes in the file can hold.

    Args:
        decoded: what its layout says.
        body: how many bytes its body has.

    Raises:
        ValueError: it does.
    """
    if decoded > max(MOST_DECODED, MOST_TIMES * body):
        raise ValueError(f"its {body} bytes would take {decoded} bytes of memory")


def blocks_in(data: bytes) -> list[Block]:
    """Read which batches a footer names.

    Args:
        data: what follows the last batch of a file, to its end.

    Raises:
        ValueError: there is no footer, or it ends too early.
    """
    try:
        length, magic = struct.unpack_from("<I6s", data, len(data) - 10)
        if magic != _MAGIC or length > len(data) - 10:
            raise ValueError("it does not end as an Arrow file does")
        flat = data[len(data) - 10 - length : len(data) - 10]
        return [Block(*one) for one in _Table(flat, _number("<I", flat, 0)).structs(3, _BLOCK)]
    except (struct.error, IndexError) as error:
        raise ValueError("its footer ends too early") from error
