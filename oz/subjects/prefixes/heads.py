r"""Algebra of heads: the beginnings of the strings of a language.

Theory of operation. A language is a set of byte strings, such as the matches of a regex. A head is bytes and a flag. An
exact head represents one whole string. An open head represents all strings that begin with its bytes. A set of heads is
sound for a language if each string of the language is an exact head or begins with an open head. The set may also
represent strings outside of the language.

All functions keep sets sound. The heads of `ab|cd` are the union of two sets. For `(a|b)c`, each head of `a|b` is
joined to the head of `c`. Thus the heads of a regex follow from the heads of its parts. `shrink` keeps a set small: it
cuts heads to a shorter length, which makes them open. A shorter head represents more strings. Therefore the set remains
sound, but the publisher sends more messages than needed.

An example: the heads of `md\.(us|eu)\..*` grow from left to right. They are first `md.`, then `md.us` and `md.eu`, then
`md.us.` and `md.eu.`. Until then they are exact. At `.*`, behind which any text may follow, they become open. The open
heads `md.us.` and `md.eu.` are the prefixes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Head = tuple[bytes, bool]
"""Beginning of a string: its bytes, and whether these bytes are the whole string."""
Heads = frozenset[Head]

NOTHING: Heads = frozenset({(b"", True)})
"""Heads of the language with only the empty string."""
OPEN: Heads = frozenset({(b"", False)})
"""Heads of the language of all strings."""

MAX_LENGTH = 1024
"""Maximum size of a head in bytes. Without it, `a{1000000}` would have a head of a megabyte."""
SPREAD = 16
"""Factor by which a product of two sets may exceed the limit before `shrink`."""


def shrink(heads: Iterable[Head], limit: int) -> Heads:
    """Return at most `limit` heads. If there are more, all are cut to the greatest length that leaves few enough."""
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
    """Return the heads of the strings that at least one of several languages contains."""
    return shrink({head for part in parts for head in part}, limit)


def concat(left: Heads, right: Heads, limit: int) -> Heads:
    """Return the heads of strings that consist of a string of the left language and a string of the right language."""
    exact = [head for head, is_exact in left if is_exact]
    if not exact:
        return left
    right = shrink(right, max(1, SPREAD * limit // len(exact)))
    grown = {(head + more, is_exact) for head in exact for more, is_exact in right}
    grown.update(head for head in left if not head[1])
    return shrink(grown, limit)


def repeat(heads: Heads, low: int, high: int | None, limit: int) -> Heads:
    """Return the heads of `low` to `high` copies of a language. With None for `high` there is no upper limit."""
    result = NOTHING
    power, left = heads, low  # Exponentiation by squaring, because a{1000000} is legal.
    while left:
        if left & 1:
            result = concat(result, power, limit)
        left >>= 1
        power = concat(power, power, limit) if left else power
    if high == low:
        return result
    # One more copy stands for all further copies, with open heads. An empty copy adds no open head.
    once = heads if high == low + 1 else {(head, False) for head, exact in heads if head or not exact}
    return concat(result, shrink(NOTHING | once, limit), limit)


def minimal(heads: Iterable[Head]) -> tuple[bytes, ...]:
    """Return the bytes of heads as sorted prefixes. No prefix begins with another prefix."""
    return tuple(sorted(head for head, _ in _absorb((head, False) for head, _ in heads)))


def _cut(heads: Iterable[Head], length: int) -> set[Head]:
    """Cut heads to a length. A cut head is open."""
    return {head if len(head[0]) <= length else (head[0][:length], False) for head in heads}


def _absorb(heads: Iterable[Head]) -> Heads:
    """Remove each head that begins with an open head."""
    kept: list[Head] = []
    cover: bytes | None = None
    # In sorted order, the heads that begin with a head follow it. Of equal bytes the open head (False) is first.
    for head in sorted(heads):
        if cover is not None and head[0].startswith(cover):
            continue
        kept.append(head)
        if not head[1]:
            cover = head[0]
    return frozenset(kept)
