"""A pattern's regex written again for Java, where Java is certain to read it the same way.

RLIKE is Java's engine, and a search. What is written here is made from the parse tree of the engine that oz
matches with, and from few things only: characters, classes spelled out, groups, repeats, anchors, look-ahead.
All else is refused, as is what might keep Java busy for ever or overflow its stack, which ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import regex

from oz.spark.classes import ALL, Ranges, complement, known_nodes, members, merged, written
from oz.spark.parts import (
    ANYTHING,
    END,
    NEVER,
    START,
    Part,
    Unwritable,
    anchor,
    aside,
    branch,
    group,
    never,
    one,
    repeat,
    sequence,
)
from oz.subjects.pattern import Pattern
from oz.subjects.prefixes.literal import core, parse_tree

_ESCAPES = (r"\d", r"\w", r"\s")
_NEWLINE: Ranges = ((0x0A, 0x0A),)
_ALL_CHARACTERS = 0xFF
_TELLING = 2  # characters: one alone is most often the separator, and in every subject


class Characters:
    """Reads nodes that are one character.

    Attributes:
        known: the classes of such nodes.
    """

    def __init__(self, *, ascii_only: bool) -> None:
        """Start.

        Args:
            ascii_only: whether the regex has the flag ASCII, as that of a byte dialect does.
        """
        self._flags = int(regex.A if ascii_only else regex.U)
        self.known = _READERS.keys()

    def ranges(self, node: Any, case_flags: int = 0) -> Ranges:
        """Return the characters of a node.

        Raises:
            Unwritable: they are not known.
        """
        attributes, reader = _READERS.get(type(node), (frozenset(), None))
        if reader is None or not vars(node).keys() <= attributes or getattr(node, "zerowidth", False):
            raise Unwritable(f"{type(node).__name__} in a class")
        found = reader(self, node, case_flags | getattr(node, "case_flags", 0))
        return found if getattr(node, "positive", True) else complement(found)

    def _any_of_line(self, node: Any, case_flags: int) -> Ranges:
        return complement(_NEWLINE)

    def _any_of_all(self, node: Any, case_flags: int) -> Ranges:
        return ALL

    def _character(self, node: Any, case_flags: int) -> Ranges:
        return self._in_all_cases(node.value, node.value, node, case_flags)

    def _range(self, node: Any, case_flags: int) -> Ranges:
        return self._in_all_cases(node.lower, node.upper, node, case_flags)

    def _union(self, node: Any, case_flags: int) -> Ranges:
        if case_flags and not node.positive:
            raise Unwritable("[^…] under (?i)")
        return merged(ends for item in node.items for ends in self.ranges(item, case_flags))

    def _named(self, node: Any, case_flags: int) -> Ranges:
        if case_flags:
            raise Unwritable("a class such as \\w under (?i)")
        for escape in _ESCAPES:
            (meant,) = parse_tree(escape, self._flags)[0].items
            if (meant.value, meant.encoding) == (node.value, node.encoding):
                return members(escape, self._flags)
        raise Unwritable(r"a property such as \p{…}")

    def _in_all_cases(self, low: int, high: int, node: Any, case_flags: int) -> Ranges:
        if not case_flags:
            return ((low, high),)
        is_plain = case_flags == core.IGNORECASE and self._flags == regex.U and node.positive
        if not is_plain or high - low > _ALL_CHARACTERS:
            raise Unwritable("(?i) of a kind that Java does not have")
        cases = import_module("regex._regex").get_all_cases
        variants = {case for char in range(low, high + 1) for case in cases(core.UNICODE, char)}
        return merged((case, case) for case in variants)


_Reader = Callable[[Characters, Any, int], Ranges]
# The classes that are known, with all the attributes that they are known to have.
_CHARACTERS: list[tuple[str, str, _Reader]] = [
    ("Any", "positive case_flags zerowidth", Characters._any_of_line),
    ("AnyAll", "positive case_flags zerowidth", Characters._any_of_all),
    ("Character", "value positive case_flags zerowidth folded", Characters._character),
    ("Range", "lower upper positive case_flags zerowidth", Characters._range),
    ("SetUnion", "info items positive case_flags zerowidth char_width", Characters._union),
    ("Property", "value positive case_flags zerowidth encoding", Characters._named),
]
_READERS = known_nodes(_CHARACTERS)


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


_FLAGS = int(regex.V0 | regex.U | regex.A | regex.I | regex.S | regex.M | regex.X)


@dataclass(frozen=True, slots=True)
class JavaRegex:
    """What Spark needs beside the prefixes.

    Attributes:
        text: the regex for RLIKE; None where all that begins with a prefix matches.
        ending: what each match ends with; empty where that is not known.
        inside: what each match has somewhere; empty where that is not known, or would tell little.
    """

    text: str | None
    ending: str = ""
    inside: str = ""


def java_regex(pattern: Pattern) -> JavaRegex:
    """Write a pattern's regex for Java. That of a byte dialect is for bytes read as ISO-8859-1.

    Raises:
        Unwritable: Java may read it differently, or not survive it.
    """
    text: str | bytes = pattern.regex.pattern
    as_text = text if isinstance(text, str) else text.decode("latin-1")
    flags = pattern.regex.flags
    if flags & ~_FLAGS:
        raise Unwritable("a flag that Java does not have")
    try:
        tree, _, _ = parse_tree(as_text, flags)
        writer = _Writer(Characters(ascii_only=bool(flags & regex.A)))
        parts = [writer.write(item) for item in (tree.items if type(tree) is core.Sequence else [tree])]
        whole = sequence([*parts, anchor(END)])
        is_prefix = _is_prefix(parts, pattern)
    except Unwritable:
        raise
    except Exception as error:  # whatever a private parser may raise; RecursionError by deep nesting is one
        raise Unwritable(f"what is not understood ({type(error).__name__})") from None
    if is_prefix:
        return JavaRegex(None)
    whole.check_size()
    return JavaRegex(START + whole.text, *_literals(parts, is_bytes=pattern.is_bytes))


def _literals(parts: list[Part], *, is_bytes: bool) -> tuple[str, str]:
    """Find what each match ends with, and the longest text that it has in the middle."""
    parts = [part for part in parts if part.text and part.text != START]
    ends_there = len(parts)
    while ends_there and parts[ends_there - 1].text == END:
        ends_there -= 1
    runs = ["".join(run) for run in _runs(parts[:ends_there])]
    # A byte above ASCII is another text in UTF-8; and of characters some have no UTF-8.
    known = [run if (run.isascii() if is_bytes else _has_utf8(run)) else "" for run in runs[1:]]
    *middle, ending = known or [""]
    inside = max(middle, key=len, default="")
    return ending, inside if len(inside) >= _TELLING else ""


def _runs(parts: list[Part]) -> list[list[str]]:
    """Split parts at all that is no literal character; the first run is the prefix."""
    runs: list[list[str]] = [[]]
    for part in parts:
        if part.choices == 1 and part.ranges:
            runs[-1].append(chr(part.ranges[0][0]))
        else:
            runs.append([])
    return runs


def _has_utf8(text: str) -> bool:
    return not any(0xD800 <= ord(char) < 0xE000 for char in text)


def _is_prefix(parts: list[Part], pattern: Pattern) -> bool:
    """Tell whether all that begins with a prefix matches: one known character after the other, and `.*`."""
    parts = [part for part in parts if part.text]
    if parts and parts[0].text == START:
        del parts[0]
    if (
        not parts
        or parts.pop().text not in (ANYTHING, f"{ANYTHING}+")
        or not all(part.is_one for part in parts)
    ):
        return False
    encoding = "latin-1" if pattern.is_bytes else "utf-8"
    lengths = {len(prefix.decode(encoding)) for prefix in pattern.prefixes}
    choices = math.prod(part.choices for part in parts)
    return choices == len(pattern.prefixes) and lengths == {len(parts)}


class _Writer:
    """Writes nodes; what it does not know it refuses."""

    def __init__(self, characters: Characters) -> None:
        self._characters = characters

    def write(self, node: Any) -> Part:
        """Write any node."""
        if type(node) in self._characters.known:
            return one(self._characters.ranges(node))
        attributes, writer = _WRITERS.get(type(node), (frozenset(), None))
        if writer is None or not vars(node).keys() <= attributes:
            name = type(node).__name__
            raise Unwritable(_IN_WORDS.get(name, name))
        return writer(self, node)

    def sequence(self, node: Any) -> Part:
        return sequence([self.write(item) for item in node.items])

    def branch(self, node: Any) -> Part:
        return branch([self.write(item) for item in node.branches])

    def group(self, node: Any) -> Part:
        return group(self.write(node.subpattern))

    def atomic(self, node: Any) -> Part:
        return aside("(?>", self.write(node.subpattern))

    def lookahead(self, node: Any) -> Part:
        if node.behind:
            raise Unwritable("a look-behind")
        part = self.write(node.subpattern)
        if node.positive:
            return aside("(?=", part, width=0)
        if part.text == NEVER:
            return sequence([])  # not to be followed by what is never there: that always holds
        return aside("(?!", part, width=0) if part.text else never()

    def start(self, node: Any) -> Part:
        return anchor(START)

    def end(self, node: Any) -> Part:
        return anchor(END)

    def repeat(self, node: Any) -> Part:
        mark = {core.GreedyRepeat: "", core.LazyRepeat: "?", core.PossessiveRepeat: "+"}[type(node)]
        low, high = node.min_count, node.max_count
        if (low, high) == (0, None) and mark != "+" and type(node.subpattern) is core.Sequence:
            skipped = skip([self.write(item) for item in node.subpattern.items], mark)
            if skipped is not None:
                return skipped
        return repeat(self.write(node.subpattern), low, high, mark)


_NodeWriter = Callable[[_Writer, Any], Part]
# The classes that are known, with all the attributes that they are known to have.
_KNOWN: list[tuple[str, str, _NodeWriter]] = [
    ("Sequence", "items", _Writer.sequence),
    ("Branch", "branches", _Writer.branch),
    ("Group", "info group subpattern call_ref", _Writer.group),
    ("Atomic", "subpattern", _Writer.atomic),
    ("LookAround", "behind positive subpattern", _Writer.lookahead),
    ("GreedyRepeat LazyRepeat PossessiveRepeat", "subpattern min_count max_count", _Writer.repeat),
    ("StartOfString", "positive encoding", _Writer.start),
    ("EndOfString", "positive encoding", _Writer.end),
]
_WRITERS = known_nodes(_KNOWN)
_IN_WORDS = {
    "Boundary": r"\b",
    "RefGroup": "a back reference",
    "Conditional": "a conditional",
    "CallGroup": "a call of a group",
    "StringSet": "a named list",
    "Fuzzy": "an inexact part",
    "Grapheme": r"\X",
    "StartOfLine": "^ under (?m)",
    "EndOfLine": "$ under (?m)",
}
