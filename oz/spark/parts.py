r"""Parts of a regex in Java's words, and what each may cost Java.

Java backtracks without a time limit, and calls itself for each element of a pattern and for each turn of a
group: a deep enough call ends not the query but the process. So each part counts both, and what is too much
is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from oz.spark.classes import Ranges, character, merged, written

START = r"\A"
END = r"\z"
r"""The very end: `$` and `\Z` hold before other line ends too in Java."""
NEVER = "(?!)"
ANYTHING = r"[\s\S]*"

MAX_NODES = 400
"""So many elements leave most of Java's stack free."""
MAX_WAYS = 32.0
"""Bits: in as many ways as four repeats can share 256 characters a pattern may be tried, and in no more."""
MAX_TURNS = 16
"""How often a group may repeat, a possessive one apart: that repeats in a loop."""
MAX_LENGTH = 1000
"""The longest counted repeat of a character."""

_LOOP = 8.0


class Unwritable(Exception):
    """What Java may read differently, or not survive; the text says what it is."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a regex.

    Attributes:
        text: what Java gets.
        nodes: how many elements it has, counted repeats written out.
        ways: in how many ways it might match one subject, in bits.
        inside: the same of what is tried once and for all, in atomic groups and look-ahead.
        can_be_empty: whether it may match nothing.
        ranges: which character, where it is exactly one.
        first: which characters it may begin with; None where that is not known.
        loop: which characters it takes as many of as there are, where it is such a repeat.
        ends_in_loop: whether it ends with such a repeat.
    """

    text: str
    nodes: int = 1
    ways: float = 0.0
    inside: float = 0.0
    can_be_empty: bool = False
    ranges: Ranges | None = None
    first: Ranges | None = None
    loop: Ranges | None = None
    ends_in_loop: bool = False

    @property
    def is_one(self) -> bool:
        """Whether it is exactly one character."""
        return self.ranges is not None

    @property
    def choices(self) -> int:
        """The number of different characters that it may be."""
        return sum(high - low + 1 for low, high in self.ranges or ())

    def check_size(self) -> None:
        """Refuse what is too much for Java."""
        if self.nodes > MAX_NODES:
            raise Unwritable(f"{self.nodes} elements, which its stack might not hold")
        if self.ways + self.inside > MAX_WAYS:
            raise Unwritable("repeats that may keep it busy for ever")


def one(ranges: Ranges) -> Part:
    """Write one character out of a set."""
    is_literal = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return Part(character(ranges[0][0]) if is_literal else written(ranges), ranges=ranges, first=ranges)


def anchor(text: str) -> Part:
    """Write what only looks where it stands."""
    return Part(text, nodes=2, can_be_empty=True, first=() if text == END else None)


def never() -> Part:
    """Write what matches nowhere."""
    return Part(NEVER)


def sequence(parts: list[Part]) -> Part:
    """Write one part after the other."""
    if len(parts) == 1:
        return parts[0]
    parts = _with_quick_loops(parts)
    # Java makes one element of a run of literal characters.
    in_run = sum(1 for left, right in pairwise(parts) if left.choices == right.choices == 1)
    return Part(
        "".join(part.text for part in parts),
        nodes=sum(part.nodes for part in parts) - in_run,
        ways=sum(part.ways for part in parts),
        inside=max((part.inside for part in parts), default=0.0),
        can_be_empty=all(part.can_be_empty for part in parts),
        first=_first(parts),
        ends_in_loop=bool(parts) and parts[-1].ends_in_loop,
    )


def _with_quick_loops(parts: list[Part]) -> list[Part]:
    """Let Java run through characters, where nothing else could match what it came back for.

    It is twice as quick with `X+` as with `X++`, which say the same where no X can follow.
    """
    made = list(parts)
    for at, part in enumerate(parts[:-1]):
        after = None if part.loop is None else _first(parts[at + 1 :])
        if part.loop is not None and after is not None and not _overlap(part.loop, after):
            made[at] = _quick(part)
    return made


def _quick(part: Part) -> Part:
    """Write what ends in a loop without the mark that keeps Java from coming back."""
    return replace(part, text=part.text[:-1], loop=None, ends_in_loop=False)


def _first(parts: list[Part]) -> Ranges | None:
    """Tell which characters may come first; None where that is not known."""
    found: list[tuple[int, int]] = []
    for part in parts:
        if part.first is None:
            return None
        found += part.first
        if not part.can_be_empty or part.text == END:
            return merged(found)
    return None


def _overlap(one: Ranges, other: Ranges) -> bool:
    return any(low <= end and start <= high for low, high in one for start, end in other)


def branch(parts: list[Part]) -> Part:
    """Write alternatives."""
    return Part(
        f"(?:{'|'.join(part.text for part in parts)})",
        nodes=2 + max(part.nodes for part in parts),
        ways=math.log2(sum(2.0**part.ways for part in parts)),
        inside=max(part.inside for part in parts),
        can_be_empty=any(part.can_be_empty for part in parts),
    )


def group(part: Part) -> Part:
    """Write a group; what it captures is nobody's business."""
    return (
        part
        if part.is_one
        else replace(part, text=f"(?:{part.text})", nodes=part.nodes + 1, loop=None, ends_in_loop=False)
    )


def aside(opening: str, part: Part, *, width: int | None = None) -> Part:
    """Write an atomic group or a look-ahead (`width=0`): Java does not come back to try it differently."""
    empty = part.can_be_empty or width == 0
    return Part(f"{opening}{part.text})", part.nodes + 2, 0.0, part.ways + part.inside, empty)


def repeat(part: Part, low: int, high: int | None, mark: str) -> Part:
    """Write a repeat.

    Args:
        part: what is repeated.
        low: at least so often.
        high: at most so often; None: without a limit.
        mark: nothing for a greedy repeat, `?` for a lazy one, `+` for a possessive one.
    """
    if max(low, high or 0) > MAX_LENGTH:
        raise Unwritable(f"a repeat of more than {MAX_LENGTH}")
    if part.is_one:
        return _repeat_one(part, low, high, mark)
    if part.can_be_empty:
        raise Unwritable("a repeat of what may be empty")
    if mark == "+":
        return _repeat_possessively(part, low, high)
    if high is None or high > MAX_TURNS:
        raise Unwritable(f"a group that may repeat more than {MAX_TURNS} times")
    ways = part.ways * high + math.log2(high - low + 1)
    text = f"(?:{part.text}){_count(low, high)}{mark}"
    return Part(text, (part.nodes + 3) * max(high, 1), ways, part.inside, low == 0)


def _repeat_one(part: Part, low: int, high: int | None, mark: str) -> Part:
    ways = 0.0 if mark == "+" or high == low else _LOOP
    if high is not None:
        ways = min(ways, math.log2(high - low + 1))
    # Java takes stack for X{2,} wherever characters of one and of two UTF-16 units take turns; not for X*.
    split = high is None and low > 1
    text = f"{part.text}{{{low}}}{part.text}*{mark}" if split else f"{part.text}{_count(low, high)}{mark}"
    loop = part.ranges if mark == "+" and high is None else None
    return Part(
        text, 2, ways, can_be_empty=low == 0, first=part.ranges, loop=loop, ends_in_loop=loop is not None
    )


def _repeat_possessively(part: Part, low: int, high: int | None) -> Part:
    # In Java each turn stands once it has matched. With two turns needed, this engine would come back.
    if low > 1:
        raise Unwritable("a possessive repeat of a group, twice or more")
    inner = _quick(part) if part.ends_in_loop else part  # a turn stands anyway
    text = f"(?:{inner.text}){_count(low, high)}+"
    return Part(text, part.nodes + 3, 0.0, part.ways + part.inside, low == 0, first=part.first)


def _count(low: int, high: int | None) -> str:
    if (low, high) in _SHORT:
        return _SHORT[low, high]
    return f"{{{low},{high}}}" if low != high else f"{{{low}}}"


_SHORT: dict[tuple[int, int | None], str] = {(0, None): "*", (1, None): "+", (0, 1): "?"}
