"""Literal text in patterns: runs that are short enough for the engine, and texts that fit a length field.

For a literal that it looks for, the engine makes search tables at the first match. That takes cubic time, a
second for 1,500 characters, and no time limit holds there; so it gets to see short literals only. See
docs/decisions/011-long-literals.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import AnyStr, TypeVar

import regex

from oz.errors import PatternError, SubjectError

RUN = 32
"""The longest literal that the engine gets to see as one."""
BREAK = "(?!(?!))"
"""Always holds. The engine joins no literals across it."""

_Item = TypeVar("_Item", str, bytes, list[bytes])


def split(items: _Item) -> Iterator[_Item]:
    """Cut a sequence into runs."""
    return (items[at : at + RUN] for at in range(0, len(items), RUN))


def joined(runs: Iterable[bytes]) -> bytes:
    """Write runs of bytes one after the other."""
    return BREAK.encode().join(runs)


def literal(text: AnyStr) -> AnyStr:
    """Write a regex that matches the text and nothing else."""
    runs = [regex.escape(run, special_only=True, literal_spaces=True) for run in split(text)]
    between = BREAK if isinstance(text, str) else BREAK.encode()
    return between.join(runs)


def check_bytes(dialect: str, text: str, most: int, error: type[PatternError | SubjectError]) -> None:
    """Refuse text whose UTF-8 is longer than a dialect allows.

    Raises:
        PatternError, SubjectError: it is; `error` says which. Its position is the first character too many.
    """
    encoded = text.encode()
    if len(encoded) > most:
        position = len(encoded[:most].decode("utf-8", "ignore"))
        raise error(dialect, text, position, f"{len(encoded)} bytes; at most {most} are allowed")
