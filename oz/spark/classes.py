r"""Sets of characters as ranges, and how Java is told of them.

A class such as `\w` is not the same in two engines, nor in two versions of Unicode. So Java is never given
its name: it gets the characters themselves, as the engine of oz counts them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

import regex

from oz.subjects.prefixes.literal import core

Ranges = tuple[tuple[int, int], ...]
"""First and last character of each range; sorted, apart from each other."""

ALL: Ranges = ((0, sys.maxunicode),)
"""Every character."""

_LAST_ASCII = 0x7F
_MANY = 16


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges and join those that touch."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    return tuple(_gaps(ranges))


def _gaps(ranges: Ranges) -> Iterator[tuple[int, int]]:
    start = 0
    for low, high in ranges:
        if start < low:
            yield start, low - 1
        start = high + 1
    if start <= sys.maxunicode:
        yield start, sys.maxunicode


@cache
def members(escape: str, flags: int) -> Ranges:
    r"""Return the characters that the engine takes for a class such as `\w`: it is asked for each."""
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    runs = regex.compile(f"{escape}+", flags).finditer(every)
    return tuple((run.start(), run.end() - 1) for run in runs)


def written(ranges: Ranges) -> str:
    """Write a class for Java."""
    if ranges == ALL:
        return r"[\s\S]"
    others = complement(ranges)
    if len(others) < len(ranges):
        return f"[^{_body(others)}]"
    return f"[{_body(ranges)}]"


def _body(ranges: Ranges) -> str:
    if len(ranges) <= _MANY:
        return "".join(map(_range, ranges))
    # Java tries one range after the other: keep it from trying hundreds of them on an ASCII character.
    low = [(first, min(last, _LAST_ASCII)) for first, last in ranges if first <= _LAST_ASCII]
    high = [(max(first, _LAST_ASCII + 1), last) for first, last in ranges if last > _LAST_ASCII]
    return f"{''.join(map(_range, low))}[\\x{{80}}-\\x{{10ffff}}&&[{''.join(map(_range, high))}]]"


def _range(ends: tuple[int, int]) -> str:
    low, high = ends
    return character(low) if low == high else f"{character(low)}-{character(high)}"


def character(value: int) -> str:
    """Write one character for Java, in a class or out of it."""
    if not 0x21 <= value <= 0x7E:
        return f"\\x{{{value:x}}}"
    char = chr(value)
    return char if char.isalnum() else f"\\{char}"


_T = TypeVar("_T")


def known_nodes(known: Iterable[tuple[str, str, _T]]) -> dict[Any, tuple[frozenset[str], _T]]:
    """Look the classes up by their names, as far as this version of the engine has them.

    Args:
        known: names of classes, names of all their attributes, and what belongs to them.
    """
    return {
        getattr(core, name): (frozenset(attributes.split()) | {"_key"}, value)
        for names, attributes, value in known
        for name in names.split()
        if hasattr(core, name)
    }
