"""Expressions: regular expressions over bytes. The patterns of every dialect are translated to expressions.

An expression represents a set of byte strings. A character of a text dialect becomes its UTF-8 bytes. Therefore a
pattern of a text dialect can be compared with a pattern of a byte dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

Ranges = tuple[tuple[int, int], ...]
"""First and last code point of each range. The ranges are sorted, and no two ranges touch."""


@dataclass(frozen=True, slots=True)
class Text:
    """Literal bytes."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Bytes:
    """One byte out of a set. Byte n is in the set if bit n of the mask is 1."""

    mask: int


@dataclass(frozen=True, slots=True)
class Chars:
    """UTF-8 of one character out of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Seq:
    """Concatenation."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Alternation. An alternation without items matches no string."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Sequence of `minimum` to `maximum` copies of an expression. If `maximum` is None, there is no upper limit."""

    item: Expression
    minimum: int
    maximum: int | None


Expression = Text | Bytes | Chars | Seq | Alt | Repeat

ANY_BYTE = Bytes((1 << 256) - 1)
EMPTY = Text(b"")
_ALL_CHARS: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))


def seq(*items: Expression) -> Expression:
    """Return the concatenation of expressions."""
    return items[0] if len(items) == 1 else Seq(items)


def joined(parts: Sequence[Expression], separator: Expression) -> Expression:
    """Return the concatenation of parts with a separator between them."""
    return seq(*[item for part in parts for item in (separator, part)][1:])


def optional(item: Expression) -> Expression:
    """Return an expression that matches the item or the empty string."""
    return Repeat(item, 0, 1)


def ranges_of(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Return sorted and merged ranges of code points. Surrogates are left out, because they have no UTF-8."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(
        (max(low, first), min(high, last))
        for low, high in joined
        for first, last in _ALL_CHARS
        if max(low, first) <= min(high, last)
    )


def complement(ranges: Ranges) -> Ranges:
    """Return the ranges of all characters that are not in the given ranges."""
    ends = [-1, *(end for pair in ranges for end in pair), 0x110000]
    gaps = ((ends[at] + 1, ends[at + 1] - 1) for at in range(0, len(ends), 2))
    return ranges_of(gap for gap in gaps if gap[0] <= gap[1])


def chars_but(excluded: str) -> Chars:
    """Return the set of all characters except those in a text."""
    return Chars(complement(ranges_of((ord(char), ord(char)) for char in excluded)))


ANY_CHAR = chars_but("")
ANY_TEXT = Repeat(ANY_CHAR, 0, None)


def nullable(expression: Expression) -> bool:
    """Return whether an expression matches the empty string."""
    match expression:
        case Text(value):
            return not value
        case Seq(items):
            return all(nullable(item) for item in items)
        case Alt(items):
            return any(nullable(item) for item in items)
        case Repeat(item, minimum, _):
            return minimum == 0 or nullable(item)
    return False


def nonempty(expression: Expression) -> Expression:
    """Return an expression that matches the same strings as another expression, except the empty string."""
    if not nullable(expression):
        return expression
    match expression:
        case Seq(items):
            heads = [(nonempty(item), items[at + 1 :]) for at, item in enumerate(items)]
            tails = [seq(head, *rest) for head, rest in heads if head != Alt(())]
            return tails[0] if len(tails) == 1 else Alt(tuple(tails))
        case Alt(items):
            return Alt(tuple(nonempty(item) for item in items))
        case Repeat(item, _, maximum):
            return Alt(()) if maximum == 0 else Repeat(nonempty(item), 1, maximum)
    return Alt(())


@lru_cache(maxsize=256)
def utf8(ranges: Ranges) -> Expression:
    """Return a set of characters as an expression of bytes."""
    tree: _Tree = {}
    for low, high in ranges:
        for path in _paths(low, high):
            node = tree
            for step in path:
                node = node.setdefault(step, {})
    return _expression(tree)


_Tree = dict[tuple[int, int], "_Tree"]
_Path = list[tuple[int, int]]


def _expression(tree: _Tree) -> Expression:
    masks: dict[Expression, int] = {}
    for (low, high), following in tree.items():
        rest = _expression(following) if following else EMPTY
        masks[rest] = masks.get(rest, 0) | ((1 << (high + 1)) - (1 << low))
    items = [Bytes(mask) if rest is EMPTY else Seq((Bytes(mask), rest)) for rest, mask in masks.items()]
    return items[0] if len(items) == 1 else Alt(tuple(items))


def _paths(low: int, high: int) -> list[_Path]:
    """Split a range of characters into sequences of byte ranges.

    A sequence has one range for each byte of the UTF-8.
    """
    for border in (0x7F, 0x7FF, 0xFFFF):
        if low <= border < high:  # All characters of one sequence have the same number of UTF-8 bytes.
            return [*_paths(low, border), *_paths(border + 1, high)]
    # Behind the first byte that varies, each byte must have the full range 80 to BF.
    for bits in (6, 12, 18):
        block = (1 << bits) - 1
        if high > 0x7F and low & ~block != high & ~block:
            if low & block:
                return [*_paths(low, low | block), *_paths((low | block) + 1, high)]
            if high & block != block:
                return [*_paths(low, (high & ~block) - 1), *_paths(high & ~block, high)]
    return [list(zip(chr(low).encode(), chr(high).encode(), strict=True))]
