"""The literal prefixes of a regex, from the parse tree of the engine that will match it.

ZeroMQ passes a message when its first bytes are those of a subscription. So a regex needs a small set of
byte prefixes, one of which starts every subject that `regex.fullmatch` takes. A prefix that is too short
passes too much, and the regex decides; a prefix that is too long loses a message.

The tree comes from the `regex` package's own parser, which is private and may change. Therefore all is a
white list: a node of an unknown class, a node with an unknown attribute, an error from the parser or a
missing parser end the prefix there. See docs/decisions/002-prefix-from-the-engines-parse-tree.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import regex

from oz.subjects.automata import Automaton
from oz.subjects.expressions import ANY_BYTE, EMPTY, Alt, Bytes, Expression, Repeat, Seq, Text, seq
from oz.subjects.prefixes.heads import (
    MAX_LENGTH,
    NOTHING,
    OPEN,
    Head,
    Heads,
    concat,
    minimal,
    repeat,
    shrink,
    union,
)

MAX_MEMBERS = 256
"""A class is spelled out up to this many characters."""
MAX_SIZE = 4_096
"""How many states there may be when heads are lengthened."""
TIMEOUT = 0.05
"""How long the engine may take, in seconds, to confirm that a literal matches."""

core: Any
try:
    core = import_module("regex._regex_core")
    _all_cases: Callable[[int, int], list[int]] = import_module("regex._regex").get_all_cases
except Exception:  # private modules: without them nothing is known, and every subject is subscribed to
    core = None


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The beginnings of the subjects of a regex.

    Attributes:
        heads: each matching subject starts with one of them; sorted, none is a prefix of another, never
            empty. `(b"",)` stands for every subject.
        literal: the one subject that matches, where there is exactly one and it is known; else None.
    """

    heads: tuple[bytes, ...]
    literal: bytes | None = None


_ANYTHING = Repeat(ANY_BYTE, 0, None)

EVERYTHING = Prefixes((b"",))
"""No prefix is known."""


def literal_prefixes(text: str, flags: int = 0, *, limit: int = 16) -> Prefixes:
    """Find at most `limit` byte prefixes, one of which starts each subject that the regex fully matches.

    It never raises: of a regex that the engine refuses it knows nothing, and says so with `(b"",)`.
    """
    try:
        tree, info, _ = parse_tree(text, flags)
        if info.flags & core.REVERSE:  # the tree is then matched from its end
            return EVERYTHING
        reader = _HeadsReader(info, max(1, limit))
        found = reader.read(tree)
        literal = _literal(text, flags, found)
        if literal is not None or not reader.may_go_on:
            return Prefixes(minimal(found), literal)
        return Prefixes(_lengthened(minimal(found), reader, tree))
    except Exception:  # whatever a private parser may raise; RecursionError by deep nesting is one
        return EVERYTHING


def parse_tree(
    text: str, flags: int, source_type: Any = None, named_lists: Mapping[str, Any] | None = None
) -> tuple[Any, Any, Any]:
    """Drive the engine's parser as `regex.compile` does, up to the tree that it would optimise.

    Returns:
        The tree, the parser's `Info` and the `Source`, which is a `source_type` if one is given.

    Raises:
        regex.error: the text is no regex.
        Exception: any other, since the parser is private.
    """
    if not isinstance(text, str):
        raise TypeError("a regex of bytes has another parser state, and heads that are not UTF-8")
    if core.DEFAULT_VERSION != regex.DEFAULT_VERSION:
        regex.compile("", cache_pattern=False)  # an uncached compile brings the new default to the parser
    for _ in range(16):  # once more for each global flag within the text; there are not so many
        source = (source_type or core.Source)(text)
        info = core.Info(flags, source.char_type, _AnyNames(named_lists or {}))
        info.guess_encoding = core.UNICODE
        source.info = info
        source.ignore_space = bool(info.flags & core.VERBOSE)
        try:
            tree = core._parse_pattern(source, info)
        except core._UnscopedFlagSet:
            flags = info.global_flags
            continue
        if not source.at_end():
            raise regex.error("unbalanced parenthesis", text, source.pos)
        tree.fix_groups(text, bool(info.flags & core.REVERSE), False)
        return tree, info, source
    raise ValueError("the flags of the regex do not settle")


class _AnyNames(dict[str, tuple[str, ...]]):
    r"""Has every named list, `\L<name>`; one that is not given has nothing in it."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> tuple[str, ...]:
        return ()


def _literal(text: str, flags: int, heads: Heads) -> bytes | None:
    """The only head, if it is exact and the engine confirms that nothing of zero width forbids it."""
    ((head, exact), *more) = heads
    subject = head.decode() if exact and not more else None
    if subject is None or ("$" in text and subject[-1:].isspace()):
        return None  # a `$` before a last newline holds in the engine, while in oz it is the very end
    try:
        matched = regex.fullmatch(text, subject, flags & ~regex.DEBUG, timeout=TIMEOUT)
    except TimeoutError:
        return None
    return head if matched else None


def _lengthened(heads: tuple[bytes, ...], reader: _HeadsReader, tree: Any) -> tuple[bytes, ...]:
    """Add to each head what every subject that starts with it goes on with.

    An open head knows nothing of what follows it: two dots or more, three times, would be three dots only.
    """
    try:
        automaton = reader.automaton(tree)
    except Exception:  # too deep for recursion, or too large
        return heads
    return heads if automaton is None else tuple(_forced(head, automaton) for head in heads)


def _forced(head: bytes, automaton: Automaton) -> bytes:
    """Go on from a head while there is one way only."""
    states = {0}
    for byte in head:
        states = {to for state in states for mask, to in automaton.closed(state)[1] if mask >> byte & 1}
    while states and len(head) < MAX_LENGTH:
        closed = [automaton.closed(state) for state in states]
        moves = [move for _, found in closed for move in found]
        first = moves[0][0] if moves else 0
        if (
            any(ends for ends, _ in closed)
            or first.bit_count() != 1
            or any(mask != first for mask, _ in moves)
        ):
            break
        head += bytes((first.bit_length() - 1,))
        states = {to for _, to in moves}
    return head


class _HeadsReader:
    """Reads heads from nodes; what it does not know is open."""

    def __init__(self, info: Any, limit: int) -> None:
        self._limit = limit
        # Group calls and nested groups of one name can set a group elsewhere than at its parentheses.
        plain = not info.group_calls and not info.private_groups
        self._times_defined = info.open_group_count if plain else {}
        self._captured: dict[int, Heads] = {}
        self.may_go_on = False
        """Whether an open head may be followed by more that is known."""

    def read(self, node: Any) -> Heads:
        """The heads of any node."""
        attributes, reader = _READERS.get(type(node), (frozenset(), None))
        if reader is None or not vars(node).keys() <= attributes:
            return OPEN
        return reader(self, node)

    def automaton(self, tree: Any) -> Automaton | None:
        """Make an automaton that takes all that a tree matches, and may take more; None if it were large.

        The tree has been read before: what its groups hold is known.
        """
        expression = self._expression(tree)
        return Automaton(expression) if _size(expression) <= MAX_SIZE else None

    def _expression(self, node: Any) -> Expression:
        attributes, reader = _READERS.get(type(node), (frozenset(), None))
        if reader is None or not vars(node).keys() <= attributes:
            return _ANYTHING
        if reader is _HeadsReader.sequence:
            return seq(*map(self._expression, node.items)) if node.items else EMPTY
        if reader is _HeadsReader.branch:
            return Alt(tuple(map(self._expression, node.branches)))
        if reader in (_HeadsReader.atomic, _HeadsReader.group):
            return self._expression(node.subpattern)
        if reader is _HeadsReader.repeated:
            return Repeat(self._expression(node.subpattern), node.min_count, node.max_count)
        return _any_of(
            self._members(node, node.case_flags) if reader is _HeadsReader.characters else reader(self, node)
        )

    def sequence(self, node: Any) -> Heads:
        heads = NOTHING
        for item in node.items:
            heads = concat(heads, self.read(item), self._limit)
            if not any(exact for _, exact in heads):
                break
        return heads

    def branch(self, node: Any) -> Heads:
        return union([self.read(branch) for branch in node.branches], self._limit)

    def atomic(self, node: Any) -> Heads:
        return self.read(node.subpattern)  # it matches less than a plain group, never more

    def group(self, node: Any) -> Heads:
        heads = self.read(node.subpattern)
        if self._times_defined.get(node.group) == 1:
            self._captured[node.group] = heads
        return heads

    def reference(self, node: Any) -> Heads:
        """One exact head is all that its group can hold; if the group is unset the reference fails."""
        heads = self._captured.get(node.group, OPEN)
        is_known = len(heads) == 1 and all(exact for _, exact in heads) and not node.case_flags
        return heads if is_known else OPEN

    def repeated(self, node: Any) -> Heads:
        heads = self.read(node.subpattern)
        self.may_go_on |= node.max_count != node.min_count and any(head for head, _ in heads)
        return repeat(heads, node.min_count, node.max_count, self._limit)

    def zero_width(self, node: Any) -> Heads:
        return NOTHING  # it can only forbid

    def characters(self, node: Any) -> Heads:
        """A character, a range or a set of them."""
        return shrink(self._members(node, node.case_flags), self._limit)

    def _members(self, node: Any, case_flags: int) -> Heads:
        attributes, _ = _READERS.get(type(node), (frozenset(), None))
        if not vars(node).keys() <= attributes or not node.positive or node.zerowidth:
            return OPEN
        case_flags |= node.case_flags
        if type(node) is core.SetUnion:
            return frozenset().union(*(self._members(item, case_flags) for item in node.items))
        if type(node) is core.Range:
            return _range_heads(node.lower, node.upper, case_flags)
        if type(node) is core.Character:
            return _range_heads(node.value, node.value, case_flags)
        return OPEN


def _any_of(heads: Heads) -> Expression:
    """Write heads as an expression; what is open may go on in any way."""
    single = [head[0] for head, is_exact in heads if is_exact and len(head) == 1]
    others: list[Expression] = [Bytes(sum(1 << byte for byte in single))] if single else []
    for head, is_exact in heads:
        if not is_exact:
            others.append(seq(Text(head), _ANYTHING))
        elif len(head) != 1:
            others.append(Text(head))
    return others[0] if len(others) == 1 else Alt(tuple(others))


def _size(expression: Expression) -> int:
    """Estimate how many states an automaton would have."""
    match expression:
        case Text(value):
            return len(value)
        case Repeat(item, least, most):
            return 1 + _size(item) * max(1, least, most or 0)
        case Seq(items) | Alt(items):
            return 1 + sum(map(_size, items))
    return 1


def _range_heads(lower: int, upper: int, case_flags: int) -> Heads:
    """The characters from `lower` to `upper` as UTF-8."""
    if lower <= 0xDFFF and upper >= 0xD800:
        return OPEN  # lone surrogates have no UTF-8
    if upper - lower < MAX_MEMBERS:
        if not case_flags:
            return frozenset((chr(member).encode(), True) for member in range(lower, upper + 1))
        if case_flags == core.IGNORECASE:  # and no other: full case-folding matches several characters
            return frozenset(_variants(range(lower, upper + 1)))
    elif not case_flags:
        return frozenset({(_common(chr(lower).encode(), chr(upper).encode()), False)})
    return OPEN


def _variants(members: range) -> set[Head]:
    """The members in each case that the engine takes for the same."""
    return {
        (chr(variant).encode(), True) for member in members for variant in _all_cases(core.UNICODE, member)
    }


def _common(first: bytes, last: bytes) -> bytes:
    """The common part of two ends; UTF-8 sorts as its characters do, so all between them share it."""
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]


_ANCHORS = (
    "StartOfString EndOfString EndOfStringLine EndOfStringLineU StartOfLine StartOfLineU EndOfLine "
    "EndOfLineU Boundary DefaultBoundary StartOfWord EndOfWord DefaultStartOfWord DefaultEndOfWord"
)
_REPEATS = "GreedyRepeat LazyRepeat PossessiveRepeat"
_ClassReader = Callable[[_HeadsReader, Any], Heads]
# The classes that are known, with all the attributes that they are known to have.
_KNOWN: list[tuple[str, str, _ClassReader]] = [
    ("Sequence", "items", _HeadsReader.sequence),
    ("Branch", "branches", _HeadsReader.branch),
    ("Atomic", "subpattern", _HeadsReader.atomic),
    ("Group", "info group subpattern call_ref", _HeadsReader.group),
    ("RefGroup", "info group position case_flags", _HeadsReader.reference),
    (_REPEATS, "subpattern min_count max_count", _HeadsReader.repeated),
    ("Character", "value positive case_flags zerowidth folded", _HeadsReader.characters),
    ("Range", "lower upper positive case_flags zerowidth", _HeadsReader.characters),
    ("SetUnion", "info items positive case_flags zerowidth char_width", _HeadsReader.characters),
    ("LookAround", "behind positive subpattern", _HeadsReader.zero_width),
    (_ANCHORS, "positive encoding", _HeadsReader.zero_width),
]
_READERS: dict[Any, tuple[frozenset[str], _ClassReader]] = {
    getattr(core, name): (frozenset(attributes.split()) | {"_key"}, reader)
    for names, attributes, reader in _KNOWN
    for name in names.split()
    if hasattr(core, name)
}
