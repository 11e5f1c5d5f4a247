"""Bounds of what a reader makes of MessagePack: a byte may stand for an object that takes 64 in memory.

msgpack bounds the length of each array and map, but not how many there are in all. Where that could take
much memory it is counted before anything is made.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgpack

from oz.errors import ProtocolError

FREE = 262_144
"""Bytes below which nothing is counted: 16 MiB in memory at the worst."""

MAX_DEPTH = 16
"""Arrays and maps within each other, where they are counted."""

_SHORT, _LONG = Struct(">H"), Struct(">I")
_WIDTHS = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 1),
    0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9,
    0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18,
}  # fmt: skip
_PREFIXED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_TYPED = range(0xC7, 0xCA)


def unpack_bounded(packed: memoryview, most_containers: int, most_items: int, **options: Any) -> Any:
    """Read one MessagePack value.

    Args:
        packed: all of it.
        most_containers: arrays and maps that it may hold, itself included.
        most_items: values that it may hold in all.
        options: for `msgpack.unpackb`.

    Raises:
        ProtocolError: it holds more, or is cut short.
        Exception: whatever msgpack raises.
    """
    if len(packed) > FREE:
        try:
            _count(packed, most_containers, most_items)
        except (IndexError, ValueError) as error:
            raise ProtocolError(f"a MessagePack value is malformed or too much: {error}") from None
    return msgpack.unpackb(packed, **options)


def _count(packed: memoryview, containers: int, items: int) -> None:
    """Go through a value without making it.

    Raises:
        ValueError: it holds too much.
        IndexError: it is cut short.
    """
    at, left = 0, [1]
    while left:
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        items -= 1
        at, inside = _step(packed, at)
        if inside is not None:
            containers -= 1
            left.append(inside)
            if containers < 0 or len(left) > MAX_DEPTH:
                raise ValueError("too many arrays and maps, or too deep ones")
        # An array says how long it is before anything in it has come.
        if items < (inside or 0):
            raise ValueError("too many values")


def _step(packed: memoryview, at: int) -> tuple[int, int | None]:
    """Pass over one value, of an array or a map its beginning; return what is in that."""
    mark = packed[at]
    if mark <= 0x7F or mark >= 0xE0:
        return at + 1, None
    if mark <= 0x8F:
        return at + 1, 2 * (mark & 0x0F)
    if mark <= 0x9F:
        return at + 1, mark & 0x0F
    if mark <= 0xBF:
        return at + 1 + (mark & 0x1F), None
    width = _WIDTHS.get(mark)
    if width is not None:
        return at + width, None
    width = _PREFIXED.get(mark)
    if width is not None:
        size = int.from_bytes(packed[at + 1 : at + 1 + width], "big")
        return at + 1 + width + size + (mark in _TYPED), None
    if mark == 0xC1:
        raise ValueError("a byte that MessagePack never uses")
    unpack = _SHORT if mark in (0xDC, 0xDE) else _LONG
    if at + 1 + unpack.size > len(packed):
        raise IndexError("cut short")
    (count,) = unpack.unpack_from(packed, at + 1)
    return at + 1 + unpack.size, count * (2 if mark in (0xDE, 0xDF) else 1)
