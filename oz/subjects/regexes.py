r"""Translation of regexes to expressions, and of expressions to regexes.

Theory of operation. `_ExpressionReader` walks the parse tree of the `regex` package, the engine that also matches the
regex. The engine's parser is private and may change with each release. Therefore the reader accepts only known classes
of nodes with known attributes: characters, sets, `.`, sequences, branches, groups, greedy and lazy repeats, and
redundant anchors. All other nodes, such as look-arounds, back-references and possessive repeats, raise `Undecidable`.
Permissions rely on `covers`, and an error in this module would make its result wrong.

A set with `\w`, `\d`, `\s` or case-insensitive characters depends on the Unicode tables of the engine. The reader finds
the members of this set by a match: it writes the set as a regex, and matches this regex with all characters.

The anchor `^` is redundant at the start of the subject, and `$` at the end. In the methods of the reader, `start` and
`end` are True if the node is at the start or at the end of the subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import chain
from typing import Any

import regex

from oz.errors import Undecidable
from oz.subjects.expressions import (
    ANY_BYTE,
    ANY_CHAR,
    EMPTY,
    Alt,
    Bytes,
    Chars,
    Expression,
    Ranges,
    Repeat,
    Seq,
    Text,
    chars_but,
    complement,
    ranges_of,
    seq,
)
from oz.subjects.prefixes.literal import MAX_MEMBERS, core, parse_tree

_UNREADABLE_FLAGS = int(regex.V1 | regex.REVERSE | regex.LOCALE | regex.WORD)


def read_regex(text: str, flags: int) -> Expression:
    """Return the expression of a regex.

    Args:
        text: text of the regex.
        flags: flags of the compiled regex.

    Raises:
        Undecidable: the regex has a feature that `Expression` lacks.
    """
    flags &= ~int(regex.DEBUG)
    try:
        if flags & _UNREADABLE_FLAGS:
            raise Undecidable("the flags V1, REVERSE, LOCALE and WORD cannot be compared")
        tree, info, _ = parse_tree(text, flags)
        return _ExpressionReader(info).read(tree, start=True, end=True)
    except Undecidable as error:
        raise Undecidable(f"regex {text!r}: {error}") from None
    except Exception as error:  # A private parser may raise any error; deep nesting raises RecursionError.
        raise Undecidable(f"regex {text!r} cannot be read: {error}") from error


class _ExpressionReader:
    def __init__(self, info: Any) -> None:
        self._ascii = bool(info.flags & core.ASCII)
        self._branches = 0
        self._cases: set[bool] = set()
        self._negated = False

    def read(self, node: Any, *, start: bool, end: bool) -> Expression:
        name = _checked_class_name(node)
        if name in _CHARACTERS:
            return Chars(self._members(node))
        if name == "StartOfString" and start and node.positive:
            return EMPTY
        if name in _ENDS and end and node.positive:
            return EMPTY
        reader = _READERS.get(name)
        if reader is None:
            raise Undecidable(f"{name} cannot be compared in this position")
        return reader(self, node, start, end)

    def sequence(self, node: Any, start: bool, end: bool) -> Expression:
        items = list(node.items)
        while items and start and type(items[0]).__name__ == "StartOfString" and items[0].positive:
            del items[0]
        while items and end and type(items[-1]).__name__ in _ENDS and items[-1].positive:
            del items[-1]
        last = len(items) - 1
        read = [
            self.read(item, start=start and at == 0, end=end and at == last) for at, item in enumerate(items)
        ]
        return seq(*read) if read else EMPTY

    def branch(self, node: Any, start: bool, end: bool) -> Expression:
        self._branches += 1
        read = tuple(self.read(each, start=start, end=end) for each in node.branches)
        self._branches -= 1
        return Alt(read)

    def group(self, node: Any, start: bool, end: bool) -> Expression:
        return self.read(node.subpattern, start=start, end=end)

    def repeat(self, node: Any, start: bool, end: bool) -> Expression:
        once = node.max_count == 1
        item = self.read(node.subpattern, start=start and once, end=end and once)
        return Repeat(item, node.min_count, node.max_count)

    def any_but_newline(self, node: Any, start: bool, end: bool) -> Expression:
        return chars_but("\n")

    def any_character(self, node: Any, start: bool, end: bool) -> Expression:
        return ANY_CHAR

    def _members(self, node: Any) -> Ranges:
        items = list(_flatten(node))
        kinds = {_checked_class_name(item) for item in items}
        cases = node.case_flags
        for item in items:
            cases |= item.case_flags
        if cases & ~int(core.IGNORECASE):
            raise Undecidable("case-folding to several characters cannot be compared")
        self._check_negated(node, bool(cases))
        if any(
            (item.encoding == core.ASCII_ENCODING) != self._ascii
            for item in items
            if _checked_class_name(item) == "Property"
        ):
            raise Undecidable("flags for a part of a regex cannot be compared")
        if "Property" in kinds or (cases and not self._is_small(node, items)):
            return _find_members(_set_source(node, items), bool(cases), self._ascii)
        if cases:
            return self._in_any_case(node, items)
        found = ranges_of(_bounds(item) for item in items)
        return found if node.positive else complement(found)

    def _check_negated(self, node: Any, cases: bool) -> None:
        """Refuse negated sets that the engine merges wrongly: in its matches, `[^a]|[^s]` rejects an s."""
        self._negated |= not node.positive
        self._cases.add(cases)
        if not node.positive and self._branches:
            raise Undecidable("a negated set cannot be compared within a branch")
        if self._negated and len(self._cases) > 1:
            raise Undecidable("a negated set cannot be compared in a regex that is case-insensitive in parts")

    def _is_small(self, node: Any, items: list[Any]) -> bool:
        return bool(node.positive) and sum(high - low + 1 for low, high in map(_bounds, items)) <= MAX_MEMBERS

    def _in_any_case(self, node: Any, items: list[Any]) -> Ranges:
        members = chain.from_iterable(range(low, high + 1) for low, high in map(_bounds, items))
        all_cases = import_module("regex._regex").get_all_cases
        candidates = {case for member in members for case in all_cases(core.UNICODE, member)}
        flags = regex.V0 | regex.I | (regex.A if self._ascii else 0)
        fits = regex.compile(_set_source(node, items), flags).fullmatch
        return ranges_of((code, code) for code in candidates if fits(chr(code)))


def _flatten(node: Any) -> Iterable[Any]:
    if _checked_class_name(node) != "SetUnion":
        yield node
        return
    for item in node.items:
        nested = _checked_class_name(item) == "SetUnion"
        if nested and not item.positive:
            raise Undecidable("a set without some of its characters cannot be compared")
        if not nested and type(item).__name__ != "Property" and not item.positive:
            raise Undecidable("a set without some of its characters cannot be compared")
        yield from _flatten(item)


def _bounds(item: Any) -> tuple[int, int]:
    return (item.lower, item.upper) if type(item).__name__ == "Range" else (item.value, item.value)


def _set_source(node: Any, items: list[Any]) -> str:
    inside = "".join(_item_source(item) for item in items)
    # The escape of a negated property, such as \W, already contains the negation.
    positive = node.positive or type(node).__name__ == "Property"
    return f"[{'' if positive else '^'}{inside}]"


def _item_source(item: Any) -> str:
    if type(item).__name__ == "Property":
        escape = _escapes().get((item.encoding, item.value, item.positive))
        if escape is None:
            raise Undecidable(r"a property other than \w, \d and \s cannot be compared")
        return escape
    low, high = _bounds(item)
    return f"\\U{low:08x}-\\U{high:08x}"


@lru_cache(maxsize=1)
def _escapes() -> dict[tuple[int, int, bool], str]:
    r"""Return the escape of each known property, such as `\d`.

    The keys are the numbers that the parser gives a property.
    """
    known: dict[tuple[int, int, bool], str] = {}
    for flags in (regex.A, regex.U, 0):
        for escape in (r"\w", r"\W", r"\d", r"\D", r"\s", r"\S"):
            tree, _, _ = parse_tree(escape, int(flags))
            [item] = tree.items
            known[item.encoding, item.value, item.positive] = escape
    return known


@lru_cache(maxsize=64)
def _find_members(text: str, ignore_case: bool, ascii_only: bool) -> Ranges:
    flags = regex.V0 | (regex.I if ignore_case else 0) | (regex.A if ascii_only else 0)
    everything = "".join(map(chr, chain(range(0xD800), range(0xE000, 0x110000))))
    runs = (found[0] for found in regex.finditer(f"{text}+", everything, flags))
    return ranges_of((ord(run[0]), ord(run[-1])) for run in runs)


_ENDS = ("EndOfString", "EndOfStringLine")
# Known classes of nodes, each with all of its known attributes.
_CHARACTERS = {
    "Character": "value positive case_flags zerowidth folded",
    "Range": "lower upper positive case_flags zerowidth",
    "SetUnion": "info items positive case_flags zerowidth char_width",
    "Property": "value positive case_flags zerowidth encoding",
}
_ATTRIBUTES = _CHARACTERS | {
    "Sequence": "items",
    "Branch": "branches",
    "Group": "info group subpattern call_ref",
    "GreedyRepeat": "subpattern min_count max_count",
    "LazyRepeat": "subpattern min_count max_count",
    "Any": "",
    "AnyAll": "positive zerowidth case_flags",
    "StartOfString": "positive encoding",
    "EndOfString": "positive encoding",
    # Before the parser runs, oz restricts `$` to the end of the subject.
    "EndOfStringLine": "positive encoding",
}
_READERS: dict[str, Callable[[_ExpressionReader, Any, bool, bool], Expression]] = {
    "Sequence": _ExpressionReader.sequence,
    "Branch": _ExpressionReader.branch,
    "Group": _ExpressionReader.group,
    "GreedyRepeat": _ExpressionReader.repeat,
    "LazyRepeat": _ExpressionReader.repeat,
    "Any": _ExpressionReader.any_but_newline,
    "AnyAll": _ExpressionReader.any_character,
}


def _checked_class_name(node: Any) -> str:
    name = type(node).__name__
    known = _ATTRIBUTES.get(name)
    if known is None or type(node) is not getattr(core, name, None):
        raise Undecidable(f"{name} cannot be compared")
    if not vars(node).keys() <= {*known.split(), "_key"} or getattr(node, "zerowidth", False):
        raise Undecidable(f"{name} has attributes that this version of oz does not know")
    return name


def regex_text(expression: Expression) -> str:
    """Return the text of a regex for an expression. A set of bytes becomes the nearest set of characters.

    Raises:
        UnicodeDecodeError: the expression has literal bytes that are not UTF-8.
    """
    return f"(?s){_regex(expression)}"


def _regex(expression: Expression) -> str:
    match expression:
        case Text(value):
            return regex.escape(value.decode(), special_only=True, literal_spaces=True)
        case Bytes(mask):
            return _class(_characters_of(mask))
        case Chars(ranges):
            return _class(ranges)
        case Seq(items):
            return "".join(
                _group_text(item) if isinstance(item, Alt) else _regex(item) for item in _join_literals(items)
            )
        case Alt(items):
            return "|".join(map(_regex, items))
        case Repeat(item, 1, 1):
            return _group_text(item)
        case Repeat(item, minimum, maximum):
            sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((minimum, maximum))
            return _group_text(item) + (sign or f"{{{minimum},{'' if maximum is None else maximum}}}")


def _group_text(item: Expression) -> str:
    is_single = isinstance(item, (Bytes, Chars))
    return _regex(item) if is_single else f"(?:{_regex(item)})"


def _join_literals(items: Sequence[Expression]) -> list[Expression]:
    """Merge adjacent literals, because the UTF-8 of one character may continue in the next literal."""
    joined: list[Expression] = []
    for item in items:
        if isinstance(item, Bytes) and item.mask.bit_count() == 1:
            item = Text(bytes([item.mask.bit_length() - 1]))
        if isinstance(item, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].value + item.value)
        else:
            joined.append(item)
    return joined


def _characters_of(mask: int) -> Ranges:
    """Return a set of bytes as a set of characters.

    If the set has all bytes above ASCII, the result has all characters above ASCII.
    """
    high = [(0x80, 0x10FFFF)] if mask >> 128 == ANY_BYTE.mask >> 128 else []
    return ranges_of([*((byte, byte) for byte in range(128) if mask >> byte & 1), *high])


def _class(ranges: Ranges) -> str:
    if ranges == ANY_CHAR.ranges:
        return "."
    if not ranges:
        return r"[^\x00-\U0010ffff]"  # The engine reads [^\s\S] as any character.
    others = complement(ranges)
    if len(others) < len(ranges):
        return f"[^{_members(others)}]"
    return f"[{_members(ranges)}]"


def _members(ranges: Ranges) -> str:
    ends = ((_member(low), _member(high)) for low, high in ranges)
    return "".join(low if low == high else f"{low}-{high}" for low, high in ends)


def _member(code: int) -> str:
    char = chr(code)
    if not char.isprintable():
        return f"\\U{code:08x}"
    return f"\\{char}" if char in r"\]^-[&|~" else char
