"""Literals in a regex, cut into runs that are short enough for the engine. The module also checks lengths in bytes.

At the first match, the `regex` package builds search tables for each literal. This takes cubic time, one second for
1,500 characters, and the time limit for a match does not stop it. Therefore oz writes `BREAK` between the runs of a
literal. See docs/decisions/011-long-literals.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import AnyStr, TypeVar

import regex

from oz.errors import PatternError, SubjectError

RUN = 32
"""Maximum number of characters in one literal of the engine."""
BREAK = "(?!(?!))"
"""Assertion that always holds. The engine does not join the literals before and behind it."""

_Item = TypeVar("_Item", str, bytes, list[bytes])


def split_runs(items: _Item) -> Iterator[_Item]:
    """Yield the runs of a sequence."""
    return (items[at : at + RUN] for at in range(0, len(items), RUN))


def join_runs(runs: Iterable[bytes]) -> bytes:
    """Return runs of bytes with breaks between them."""
    return BREAK.encode().join(runs)


def literal_regex(text: AnyStr) -> AnyStr:
    """Return a regex that matches only the text."""
    runs = [regex.escape(run, special_only=True, literal_spaces=True) for run in split_runs(text)]
    between = BREAK if isinstance(text, str) else BREAK.encode()
    return between.join(runs)


def check_length(dialect: str, text: str, max_bytes: int, error: type[PatternError | SubjectError]) -> None:
    """Raise `error` for text with more than `max_bytes` of UTF-8. The error names the first character beyond them."""
    encoded = text.encode()
    if len(encoded) > max_bytes:
        position = len(encoded[:max_bytes].decode("utf-8", "ignore"))
        raise error(dialect, text, position, f"{len(encoded)} bytes; at most {max_bytes} are allowed")
