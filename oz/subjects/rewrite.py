r"""In the regex dialect `$` is the very end of the subject, which the engine spells `\Z`.

Python's `$` also holds before a last newline. Which `$` of a text is an anchor (and not a character of a
class, escaped, part of a comment, or the end of a line under `(?m)`) is asked of the engine's own parser.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import regex

from oz.subjects.prefix import core, parse_tree


def dollar_means_end(text: str, flags: int = 0) -> str:
    r"""Write `\Z` for each `$` that is the end of the subject or before its last newline.

    Raises:
        regex.error: the text is no regex.
        ValueError: the engine's parser is not as this module knows it, or gives up.
    """
    if "$" not in text:
        return text
    try:
        before, positions = _parse(text, flags)
        after, rest = _parse(changed := _replace(text, positions), flags)
    except regex.error:
        raise
    except Exception as error:  # whatever a private parser may raise; RecursionError by deep nesting is one
        raise ValueError(f"cannot tell what each $ means in {text!r}") from error
    # Certain, not likely: no such node may be left, and all else must have stayed what it was.
    if rest or after != _as_ends(before):
        raise ValueError(f"cannot tell what each $ means in {text!r}")
    return changed


def _parse(text: str, flags: int) -> tuple[Counter[str], set[int]]:
    tree, _, source = parse_tree(text, flags, _watching_source())
    return _count(tree), source.dollars


def _watching_source() -> Any:
    """A source that remembers where the parser of a sequence took a `$` for the end of the subject.

    Other parsers take one from a class, an escape or a comment, or to look ahead and put it back.
    """
    sequence_code = core.parse_sequence.__code__

    class Watching(core.Source):  # type: ignore[misc]
        def __init__(self, string: str) -> None:
            super().__init__(string)
            self.dollars: set[int] = set()

        def get(self, override_ignore: bool = False) -> str:
            char: str = super().get(override_ignore)
            is_anchor = char == "$" and sys._getframe(1).f_code is sequence_code
            if is_anchor and not self.info.flags & core.MULTILINE:  # under (?m) it is the end of a line
                self.dollars.add(self.pos - 1)
            return char

    return Watching


def _replace(text: str, positions: set[int]) -> str:
    return "".join(r"\Z" if at in positions else char for at, char in enumerate(text))


def _count(tree: Any) -> Counter[str]:
    """How many nodes of each class a tree has, whatever the classes are."""
    found: Counter[str] = Counter()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting.extend(node.values())
        elif isinstance(node, core.RegexBase):
            found[type(node).__name__] += 1
            waiting.extend(value for name, value in vars(node).items() if name not in ("_key", "info"))
    return found


def _as_ends(found: Counter[str]) -> Counter[str]:
    ends = found.copy()
    ends["EndOfString"] += ends.pop("EndOfStringLine", 0) + ends.pop("EndOfStringLineU", 0)
    return +ends
