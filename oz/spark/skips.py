r"""A repeat of whole words, as the `#` of amqp needs it, without a group that repeats.

Java calls itself at each turn of such a group, and so overflows on a subject of 2,000 words. But where words
are skipped one by one, the places to stop at can be said without counting: before or behind a separator.
"""

from __future__ import annotations

from oz.spark.classes import complement, written
from oz.spark.parts import ANYTHING, END, Part

_WAYS = 9.0


def skip(parts: list[Part], mark: str) -> Part | None:
    r"""Write `(?:\.[^.]*+)*` or `(?:[^.]*+\.)*` so that Java needs no turns; None if it is neither.

    Args:
        parts: what the group repeats, any number of times.
        mark: nothing for a greedy repeat, `?` for a lazy one.
    """
    if len(parts) != 2:
        return None
    first, second = parts
    if _is_word(second, behind=first):
        # Each turn is possessive and so ends before a separator or at the very end, but for no turn at all.
        dot = first.text
        return _maybe(f"{dot}{ANYTHING}{mark}(?={dot}|{END})", mark)
    if _is_word(first, behind=second):
        return _maybe(f"{ANYTHING}{mark}{second.text}", mark)
    return None


def _is_word(part: Part, *, behind: Part) -> bool:
    """Tell whether a part takes all up to the next separator."""
    is_separator = behind.ranges is not None and behind.choices == 1
    return is_separator and part.text == written(complement(behind.ranges or ())) + "*+"


def _maybe(text: str, mark: str) -> Part:
    return Part(f"(?:{text})?{mark}", nodes=8, ways=_WAYS, can_be_empty=True)
