r"""Regexes as expressions, from the parse tree of the engine that will match them, and back.

As in prefix.py the parser is private, so all is a white list: characters, sets, `.`, sequences, branches,
groups, greedy and lazy repeats, and anchors where they say nothing new. A look-around, a back-reference, a
possessive repeat, or whatever else there may be, ends in `oz.Undecidable`. Which characters are the same in
another case, and which are in `\w`, `\d` or `\s`, is asked of the engine.
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
    """Write a regex as an expression.

    Args:
        text: the regex.
        flags: those it was compiled with.

    Raises:
        Undecidable: it uses more than an expression can say.
    """
    flags &= ~int(regex.DEBUG)
    try:
        if flags & _UNREADABLE_FLAGS:
            raise Undecidable("its flags change what the syntax means")
        tree, info, _ = parse_tree(text, flags)
        return _ExpressionReader(info).read(tree, start=True, end=True)
    except Undecidable as error:
        raise Undecidable(f"regex {text!r}: {error}") from None
    except Exception as error:  # whatever a private parser may raise; RecursionError by deep nesting is one
        raise Undecidable(f"regex {text!r} cannot be read: {error}") from error


class _ExpressionReader:
    """Reads nodes. `start` and `end` say that a node begins or ends the subject."""

    def __init__(self, info: Any) -> None:
        self._ascii = bool(info.flags & core.ASCII)
        self._branches = 0
        self._cases: set[bool] = set()
        self._negated = False

    def read(self, node: Any, *, start: bool, end: bool) -> Expression:
        name = _known(node)
        if name in _CHARACTERS:
            return Chars(self._members(node))
        if name == "StartOfString" and start and node.positive:
            return EMPTY
        if name in _ENDS and end and node.positive:
            return EMPTY
        reader = _READERS.get(name)
        if reader is None:
            raise Undecidable(f"{name} stands where it cannot be compared")
        return reader(self, node, start, end)

    def sequence(self, node: Any, start: bool, end: bool) -> Expression:
        """Read items; what stands before the first that takes characters still begins the subject."""
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

    def any_at_all(self, node: Any, start: bool, end: bool) -> Expression:
        return ANY_CHAR

    def _members(self, node: Any) -> Ranges:
        """List the characters of a character, range, property or set."""
        items = list(_flat(node))
        kinds = {_known(item) for item in items}
        cases = node.case_flags
        for item in items:
            cases |= item.case_flags
        if cases & ~int(core.IGNORECASE):
            raise Undecidable("case-folding to several characters cannot be compared")
        self._check_negated(node, bool(cases))
        if any(
            (item.encoding == core.ASCII_ENCODING) != self._ascii
            for item in items
            if _known(item) == "Property"
        ):
            raise Undecidable("flags for a part of it cannot be compared")
        if "Property" in kinds or (cases and not self._is_few(node, items)):
            return _asked(_spelled(node, items), bool(cases), self._ascii)
        if cases:
            return self._in_any_case(node, items)
        found = ranges_of(_ends(item) for item in items)
        return found if node.positive else complement(found)

    def _check_negated(self, node: Any, cases: bool) -> None:
        """Refuse what the engine mistakes as it joins sets: `[^a]|[^s]` refuses an s, `[^b.]?(?i:k)` a B."""
        self._negated |= not node.positive
        self._cases.add(cases)
        if not node.positive and self._branches:
            raise Undecidable("a negated set cannot be compared within a branch")
        if self._negated and len(self._cases) > 1:
            raise Undecidable("a negated set cannot be compared where case counts in places")

    def _is_few(self, node: Any, items: list[Any]) -> bool:
        return bool(node.positive) and sum(high - low + 1 for low, high in map(_ends, items)) <= MAX_MEMBERS

    def _in_any_case(self, node: Any, items: list[Any]) -> Ranges:
        members = chain.from_iterable(range(low, high + 1) for low, high in map(_ends, items))
        all_cases = import_module("regex._regex").get_all_cases
        candidates = {case for member in members for case in all_cases(core.UNICODE, member)}
        flags = regex.V0 | regex.I | (regex.A if self._ascii else 0)
        fits = regex.compile(_spelled(node, items), flags).fullmatch
        return ranges_of((code, code) for code in candidates if fits(chr(code)))


def _flat(node: Any) -> Iterable[Any]:
    """List what a set is made of, and the sets in it."""
    if _known(node) != "SetUnion":
        yield node
        return
    for item in node.items:
        nested = _known(item) == "SetUnion"
        if nested and not item.positive:
            raise Undecidable("a set without some of its characters cannot be compared")
        if not nested and type(item).__name__ != "Property" and not item.positive:
            raise Undecidable("a set without some of its characters cannot be compared")
        yield from _flat(item)


def _ends(item: Any) -> tuple[int, int]:
    return (item.lower, item.upper) if type(item).__name__ == "Range" else (item.value, item.value)


def _spelled(node: Any, items: list[Any]) -> str:
    """Write a set again, for the engine to say what is in it."""
    inside = "".join(_spelled_item(item) for item in items)
    # A property alone carries its own sign.
    positive = node.positive or type(node).__name__ == "Property"
    return f"[{'' if positive else '^'}{inside}]"


def _spelled_item(item: Any) -> str:
    if type(item).__name__ == "Property":
        escape = _escapes().get((item.encoding, item.value, item.positive))
        if escape is None:
            raise Undecidable(r"a property other than \w, \d and \s cannot be compared")
        return escape
    low, high = _ends(item)
    return f"\\U{low:08x}-\\U{high:08x}"


@lru_cache(maxsize=1)
def _escapes() -> dict[tuple[int, int, bool], str]:
    """Return the escape for each property that is known, as the parser numbers them."""
    known: dict[tuple[int, int, bool], str] = {}
    for flags in (regex.A, regex.U, 0):
        for escape in (r"\w", r"\W", r"\d", r"\D", r"\s", r"\S"):
            tree, _, _ = parse_tree(escape, int(flags))
            [item] = tree.items
            known[item.encoding, item.value, item.positive] = escape
    return known


@lru_cache(maxsize=64)
def _asked(text: str, ignore_case: bool, ascii_only: bool) -> Ranges:
    """Ask the engine which of all characters are in a set."""
    flags = regex.V0 | (regex.I if ignore_case else 0) | (regex.A if ascii_only else 0)
    everything = "".join(map(chr, chain(range(0xD800), range(0xE000, 0x110000))))
    runs = (found[0] for found in regex.finditer(f"{text}+", everything, flags))
    return ranges_of((ord(run[0]), ord(run[-1])) for run in runs)


_ENDS = ("EndOfString", "EndOfStringLine")
# The classes that are known, with all the attributes that they are known to have.
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
    "EndOfStringLine": "positive encoding",  # a `$`, which is the very end in oz
}
_READERS: dict[str, Callable[[_ExpressionReader, Any, bool, bool], Expression]] = {
    "Sequence": _ExpressionReader.sequence,
    "Branch": _ExpressionReader.branch,
    "Group": _ExpressionReader.group,
    "GreedyRepeat": _ExpressionReader.repeat,
    "LazyRepeat": _ExpressionReader.repeat,
    "Any": _ExpressionReader.any_but_newline,
    "AnyAll": _ExpressionReader.any_at_all,
}


def _known(node: Any) -> str:
    """Name the class of a node, if it is just what this module knows it to be."""
    name = type(node).__name__
    known = _ATTRIBUTES.get(name)
    if known is None or type(node) is not getattr(core, name, None):
        raise Undecidable(f"{name} cannot be compared")
    if not vars(node).keys() <= {*known.split(), "_key"} or getattr(node, "zerowidth", False):
        raise Undecidable(f"{name} has more to it than is known")
    return name


def regex_text(expression: Expression) -> str:
    """Write an expression as a regex, as near as characters come where it is about bytes.

    Raises:
        UnicodeDecodeError: it has literal bytes that are not UTF-8, which no regex of text can match.
    """
    return f"(?s){_regex(expression)}"


def _regex(expression: Expression) -> str:
    match expression:
        case Text(value):
            return regex.escape(value.decode(), special_only=True, literal_spaces=True)
        case Bytes(mask):
            return _class(_as_characters(mask))
        case Chars(ranges):
            return _class(ranges)
        case Seq(items):
            return "".join(_grouped(item) if isinstance(item, Alt) else _regex(item) for item in _run(items))
        case Alt(items):
            return "|".join(map(_regex, items))
        case Repeat(item, 1, 1):
            return _grouped(item)
        case Repeat(item, least, most):
            sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
            return _grouped(item) + (sign or f"{{{least},{'' if most is None else most}}}")


def _grouped(item: Expression) -> str:
    one = isinstance(item, (Bytes, Chars))
    return _regex(item) if one else f"(?:{_regex(item)})"


def _run(items: Sequence[Expression]) -> list[Expression]:
    """Join what is literal: a character may be several bytes."""
    joined: list[Expression] = []
    for item in items:
        if isinstance(item, Bytes) and item.mask.bit_count() == 1:
            item = Text(bytes([item.mask.bit_length() - 1]))
        if isinstance(item, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].value + item.value)
        else:
            joined.append(item)
    return joined


def _as_characters(mask: int) -> Ranges:
    """Take bytes above ASCII for characters: all of them for all others, and some for none."""
    high = [(0x80, 0x10FFFF)] if mask >> 128 == ANY_BYTE.mask >> 128 else []
    return ranges_of([*((byte, byte) for byte in range(128) if mask >> byte & 1), *high])


def _class(ranges: Ranges) -> str:
    if ranges == ANY_CHAR.ranges:
        return "."
    if not ranges:
        return r"[^\x00-\U0010ffff]"  # not [^\s\S]: the engine takes that for any character
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
