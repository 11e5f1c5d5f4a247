"""Literals in a regex, cut into short runs. The module also checks lengths in bytes.

At the first match, the `regex` package builds search tables for each literal. The tables take cubic time: one second
for 1,500 characters. The time limit of a match does not apply to the tables. Therefore oz cuts a long literal into
runs, and writes `BREAK` between them. See docs/decisions/011-long-literals.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import AnyStr, TypeVar

import regex

from oz.errors import PatternError, SubjectError

RUN = 32
"""Maximum number of characters in one run."""
BREAK = "(?!(?!))"
"""Assertion that is always true. The engine does not join the literals before and behind this assertion."""

_Item = TypeVar("_Item", str, bytes, list[bytes])


def split_runs(items: _Item) -> Iterator[_Item]:
    """Split a sequence into runs of at most `RUN` items."""
    return (items[at : at + RUN] for at in range(0, len(items), RUN))


def join_runs(runs: Iterable[bytes]) -> bytes:
    """Join runs of bytes with `BREAK` between them."""
    return BREAK.encode().join(runs)


def literal_regex(text: AnyStr) -> AnyStr:
    """Return a regex that matches only the text."""
    runs = [regex.escape(run, special_only=True, literal_spaces=True) for run in split_runs(text)]
    between = BREAK if isinstance(text, str) else BREAK.encode()
    return between.join(runs)


def check_length(dialect: str, text: str, max_bytes: int, error: type[PatternError | SubjectError]) -> None:
    """Raise `error` if the UTF-8 of a text has more than `max_bytes` bytes.

    The error names the first character beyond the limit.
    """
    encoded = text.encode()
    if len(encoded) > max_bytes:
        position = len(encoded[:max_bytes].decode("utf-8", "ignore"))
        raise error(dialect, text, position, f"{len(encoded)} bytes; at most {max_bytes} are allowed")
