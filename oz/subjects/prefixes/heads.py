r"""Algebra of heads: the beginnings of the strings of a language.

Theory of operation. A language is a set of byte strings, such as the strings that a regex matches. A head is a byte
string with a flag. An exact head represents only its own byte string. An open head represents all strings that begin
with its bytes. A set of heads is sound for a language if it represents each string of the language. A sound set may
also represent strings outside of the language.

All functions return sound sets. The heads of a regex follow from the heads of its parts. The heads of `ab|cd` are the
union of the heads of `ab` and `cd`. For `(a|b)c`, each head of `a|b` is joined to the head of `c`. `shrink` limits the
size of a set: it cuts heads to a shorter length, which makes them open. A shorter head represents more strings.
Therefore the smaller set is still sound, but the publisher sends more messages than needed.

An example: the heads of `md\.(us|eu)\..*` grow from left to right. First there is one exact head, `md.`. The group
makes two exact heads, `md.us` and `md.eu`, and the next dot makes `md.us.` and `md.eu.`. The final `.*` matches any
text, so that both heads become open. Their bytes `md.us.` and `md.eu.` are the prefixes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Head = tuple[bytes, bool]
"""Bytes at the beginning of a string, and whether these bytes are the whole string."""
Heads = frozenset[Head]

NOTHING: Heads = frozenset({(b"", True)})
"""Heads of the language that contains only the empty string."""
OPEN: Heads = frozenset({(b"", False)})
"""Heads of the language of all strings."""

MAX_LENGTH = 1024
"""Maximum size of a head in bytes. Without this limit, `a{1000000}` would have a head of a megabyte."""
SPREAD = 16
"""Before `shrink`, a product of two sets may have this number times the maximum number of heads."""


def shrink(heads: Iterable[Head], limit: int) -> Heads:
    """Return at most `limit` heads.

    If there are more heads, all heads are cut to the same length: the greatest length with which at most `limit` heads
    remain.
    """
    kept = frozenset(_cut(heads, MAX_LENGTH))
    if len(kept) > 1:
        kept = _absorb(kept)
    if len(kept) <= limit:
        return kept
    # A bisection finds the length, because the number of heads grows with the length of the cut.
    lengths = range(max(len(head) for head, _ in kept) + 1)
    best = bisect_right(lengths, limit, key=lambda length: len(_absorb(_cut(kept, length)))) - 1
    return _absorb(_cut(kept, max(best, 0)))


def union(parts: Iterable[Heads], limit: int) -> Heads:
    """Return the heads of the union of several languages."""
    return shrink({head for part in parts for head in part}, limit)


def concat(left: Heads, right: Heads, limit: int) -> Heads:
    """Return the heads of all concatenations of a string of the left language and a string of the right language."""
    exact = [head for head, is_exact in left if is_exact]
    if not exact:
        return left
    right = shrink(right, max(1, SPREAD * limit // len(exact)))
    grown = {(head + more, is_exact) for head in exact for more, is_exact in right}
    grown.update(head for head in left if not head[1])
    return shrink(grown, limit)


def repeat(heads: Heads, low: int, high: int | None, limit: int) -> Heads:
    """Return the heads of `low` to `high` repetitions of a language. If `high` is None, there is no upper limit."""
    result = NOTHING
    power, left = heads, low  # Exponentiation by squaring, because a{1000000} is legal.
    while left:
        if left & 1:
            result = concat(result, power, limit)
        left >>= 1
        power = concat(power, power, limit) if left else power
    if high == low:
        return result
    # One more copy with open heads represents all further copies. An empty copy adds no open head.
    once = heads if high == low + 1 else {(head, False) for head, exact in heads if head or not exact}
    return concat(result, shrink(NOTHING | once, limit), limit)


def minimal(heads: Iterable[Head]) -> tuple[bytes, ...]:
    """Return the bytes of the heads as sorted prefixes. A prefix that begins with another prefix is left out."""
    return tuple(sorted(head for head, _ in _absorb((head, False) for head, _ in heads)))


def _cut(heads: Iterable[Head], length: int) -> set[Head]:
    return {head if len(head[0]) <= length else (head[0][:length], False) for head in heads}


def _absorb(heads: Iterable[Head]) -> Heads:
    kept: list[Head] = []
    cover: bytes | None = None
    # In sorted order, a head precedes all heads that begin with it. If the bytes are equal, the open head (False)
    # precedes the exact head.
    for head in sorted(heads):
        if cover is not None and head[0].startswith(cover):
            continue
        kept.append(head)
        if not head[1]:
            cover = head[0]
    return frozenset(kept)
