"""The algebra of heads: how all strings of a language begin.

A head is bytes and whether they are *exact*. An exact head stands for one whole string; an open head stands
for every string that starts with it. A set of heads describes a language from above: each string of the
language is one of the exact heads or starts with one of the open ones. Every function here keeps that, so
whatever is made of sound sets is sound; sets are only ever made shorter to stay small.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Head = tuple[bytes, bool]
"""The bytes, and whether they are the whole string."""
Heads = frozenset[Head]

NOTHING: Heads = frozenset({(b"", True)})
"""The language of the empty string alone."""
OPEN: Heads = frozenset({(b"", False)})
"""The language of all strings: nothing is known."""

MAX_LENGTH = 1024
"""No head grows longer than this; `a{1000000}` is legal."""
SPREAD = 16
"""A product of two sets may be this many times larger than the limit before it is cut back."""


def shrink(heads: Iterable[Head], limit: int) -> Heads:
    """Cut all heads to the greatest common length that leaves at most `limit` of them."""
    kept = frozenset(_cut(heads, MAX_LENGTH))
    if len(kept) > 1:
        kept = _absorb(kept)
    if len(kept) <= limit:
        return kept
    # A cut maps heads onto fewer heads, never onto more, so the count grows with the length: bisect.
    lengths = range(max(len(head) for head, _ in kept) + 1)
    best = bisect_right(lengths, limit, key=lambda length: len(_absorb(_cut(kept, length)))) - 1
    return _absorb(_cut(kept, max(best, 0)))


def union(parts: Iterable[Heads], limit: int) -> Heads:
    """The heads of strings of any of the languages."""
    return shrink({head for part in parts for head in part}, limit)


def concat(left: Heads, right: Heads, limit: int) -> Heads:
    """The heads of a string of `left` followed by one of `right`."""
    exact = [head for head, is_exact in left if is_exact]
    if not exact:
        return left
    right = shrink(right, max(1, SPREAD * limit // len(exact)))
    grown = {(head + more, is_exact) for head in exact for more, is_exact in right}
    grown.update(head for head in left if not head[1])
    return shrink(grown, limit)


def repeat(heads: Heads, low: int, high: int | None, limit: int) -> Heads:
    """The heads of `low` to `high` (None: any number of) strings of a language, one after the other."""
    result = NOTHING
    power, left = heads, low  # of `heads`, by squaring: a{1000000} is legal
    while left:
        if left & 1:
            result = concat(result, power, limit)
        left >>= 1
        power = concat(power, power, limit) if left else power
    if high == low:
        return result
    # The rest is nothing, or one more copy. An empty copy is nothing, so it opens no head.
    once = heads if high == low + 1 else {(head, False) for head, exact in heads if head or not exact}
    return concat(result, shrink(NOTHING | once, limit), limit)


def minimal(heads: Iterable[Head]) -> tuple[bytes, ...]:
    """The heads as prefixes: sorted, and none a prefix of another."""
    return tuple(sorted(head for head, _ in _absorb((head, False) for head, _ in heads)))


def _cut(heads: Iterable[Head], length: int) -> set[Head]:
    """Shorten the heads that are longer; what is shortened is open."""
    return {head if len(head[0]) <= length else (head[0][:length], False) for head in heads}


def _absorb(heads: Iterable[Head]) -> Heads:
    """Drop every head that an open one covers."""
    kept: list[Head] = []
    cover: bytes | None = None
    # Sorted, all that start with a head follow it at once; of two alike the open one (False) is first.
    for head in sorted(heads):
        if cover is not None and head[0].startswith(cover):
            continue
        kept.append(head)
        if not head[1]:
            cover = head[0]
    return frozenset(kept)
