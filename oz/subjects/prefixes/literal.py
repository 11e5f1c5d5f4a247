r"""Literal prefixes of a regex, from the parse tree of the `regex` package.

Theory of operation. A ZeroMQ publisher sends a message if its first bytes equal a subscription. Therefore a regex needs
a small set of byte prefixes, and each subject that `regex.fullmatch` accepts must begin with one of the prefixes. A
prefix that is too short costs bandwidth: the publisher sends messages that the regex then rejects. A prefix that is too
long loses messages. Therefore each step may shorten a prefix, but may lengthen it only by bytes that each match must
have.

1. `parse_tree` runs the parser of the `regex` package, which is also the engine that matches the regex. A separate
   parser could disagree with the engine about flags, escapes or extensions.
2. `_HeadsReader` walks the tree and computes heads: the possible beginnings of a match (see heads.py). It joins the
   heads of a sequence, and collects the heads of branches. Look-arounds and anchors add no head, because they only
   forbid matches.
3. If there is only one head, and this head is exact, the regex may be a literal. The regex is a literal if the engine
   matches the head.
4. Open heads may be shorter than necessary, because the head of a part with variable length ends early. For example,
   each match of `(\.\.+){3}` begins with six dots, but the head has fewer. An automaton of the regex extends each head
   by the bytes that must follow.

The parser is private and may change with each release. Therefore the reader has a list of known node classes with their
attributes. If a class or an attribute is unknown, or if the parser fails or is missing, the prefix is empty. The empty
prefix loses no messages. See docs/decisions/002-prefix-from-the-engines-parse-tree.md.
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
"""Maximum number of characters in a character class that gets one head for each character. A larger class gets an open
head."""
MAX_STATES = 4_096
"""Maximum number of states in the automaton that extends heads. If the automaton needs more states, heads are not
extended."""
TIMEOUT = 0.05
"""Time limit in seconds for the match that confirms a literal."""

core: Any
try:
    core = import_module("regex._regex_core")
    _all_cases: Callable[[int, int], list[int]] = import_module("regex._regex").get_all_cases
except Exception:  # If the private modules cannot be imported, all regexes have the empty prefix.
    core = None


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Prefixes of the subjects that a regex matches.

    Attributes:
        heads: sorted prefixes. Each matching subject begins with one of the prefixes. No prefix begins with another
            prefix. `(b"",)` means that a matching subject may have any beginning.
        literal: the subject, if the regex is known to match exactly one subject; else None.
    """

    heads: tuple[bytes, ...]
    literal: bytes | None = None


_ANYTHING = Repeat(ANY_BYTE, 0, None)

EVERYTHING = Prefixes((b"",))
"""Result for a regex whose prefixes are unknown."""


def literal_prefixes(text: str, flags: int = 0, *, limit: int = 16) -> Prefixes:
    """Return at most `limit` prefixes of the subjects that a regex matches.

    The function raises no error. For a regex that the engine refuses it returns `(b"",)`.
    """
    try:
        tree, info, _ = parse_tree(text, flags)
        if info.flags & core.REVERSE:  # The engine matches this tree from its end.
            return EVERYTHING
        reader = _HeadsReader(info, max(1, limit))
        found = reader.read(tree)
        literal = _literal(text, flags, found)
        if literal is not None or not reader.can_extend:
            return Prefixes(minimal(found), literal)
        return Prefixes(_extend_heads(minimal(found), reader, tree))
    except Exception:  # A private parser may raise any error; deep nesting raises RecursionError.
        return EVERYTHING


def parse_tree(
    text: str, flags: int, source_type: Any = None, named_lists: Mapping[str, Any] | None = None
) -> tuple[Any, Any, Any]:
    """Parse a regex as `regex.compile` does. Stop before the engine optimises the tree.

    Returns:
        The parse tree, the `Info` object of the parser, and its `Source` object, an instance of `source_type`.

    Raises:
        regex.error: the text is not a regex.
        Exception: any error, because the parser is private.
    """
    if not isinstance(text, str):
        raise TypeError(f"a regex is str, not {type(text).__name__}: {text!r}")
    if core.DEFAULT_VERSION != regex.DEFAULT_VERSION:
        regex.compile(
            "", cache_pattern=False
        )  # The parser updates its default version only in a compilation that is not cached.
    # Each global flag in the text makes another pass necessary. There are fewer than 16 flags.
    for _ in range(16):
        source = (source_type or core.Source)(text)
        info = core.Info(flags, source.char_type, _AnyNamedList(named_lists or {}))
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
    raise ValueError(f"the flags of the regex {text!r} change with each pass of the parser")


class _AnyNamedList(dict[str, tuple[str, ...]]):
    r"""Named lists for `\L<name>`. An unknown name has an empty list."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> tuple[str, ...]:
        return ()


def _literal(text: str, flags: int, heads: Heads) -> bytes | None:
    """Return the head if it is the only head, it is exact, and the engine matches it; else None."""
    ((head, exact), *more) = heads
    subject = head.decode() if exact and not more else None
    if subject is None or ("$" in text and subject[-1:].isspace()):
        return None  # In the engine, `$` also matches before a last newline. In oz it does not.
    try:
        matched = regex.fullmatch(text, subject, flags & ~regex.DEBUG, timeout=TIMEOUT)
    except TimeoutError:
        return None
    return head if matched else None


def _extend_heads(heads: tuple[bytes, ...], reader: _HeadsReader, tree: Any) -> tuple[bytes, ...]:
    """Extend each open head by the bytes that follow it in every matching subject."""
    try:
        automaton = reader.automaton(tree)
    except Exception:  # For example, the tree is too deep for recursion, or the automaton is too large.
        return heads
    return heads if automaton is None else tuple(_extend_head(head, automaton) for head in heads)


def _extend_head(head: bytes, automaton: Automaton) -> bytes:
    """Append bytes to a head while exactly one byte can follow."""
    states = {0}
    for byte in head:
        states = {to for state in states for mask, to in automaton.expand_state(state)[1] if mask >> byte & 1}
    while states and len(head) < MAX_LENGTH:
        closed = [automaton.expand_state(state) for state in states]
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
    def __init__(self, info: Any, limit: int) -> None:
        self._limit = limit
        # If the regex calls a group or repeats a group name, text outside of its parentheses can also set the group.
        plain = not info.group_calls and not info.private_groups
        self._times_defined = info.open_group_count if plain else {}
        self._captured: dict[int, Heads] = {}
        self.can_extend = False
        """Whether the automaton may extend open heads."""

    def read(self, node: Any) -> Heads:
        """Return the heads of a node."""
        attributes, reader = _READERS.get(type(node), (frozenset(), None))
        if reader is None or not vars(node).keys() <= attributes:
            return OPEN
        return reader(self, node)

    def automaton(self, tree: Any) -> Automaton | None:
        """Return an automaton that accepts all matches of a tree, and perhaps more strings.

        Return None if it is too large.

        Call `read` with the tree first, because `read` records the heads of the groups.
        """
        expression = self._expression(tree)
        return Automaton(expression) if _count_states(expression) <= MAX_STATES else None

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
        return _heads_expression(
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
        # An atomic group matches only strings that the group without atomicity matches too.
        return self.read(node.subpattern)

    def group(self, node: Any) -> Heads:
        heads = self.read(node.subpattern)
        if self._times_defined.get(node.group) == 1:
            self._captured[node.group] = heads
        return heads

    def reference(self, node: Any) -> Heads:
        """Return the heads of a back-reference.

        If the group has one head, and this head is exact, the reference has the same head. Otherwise it has an open
        head. A reference to a group that did not match fails, so that no string is missing.
        """
        heads = self._captured.get(node.group, OPEN)
        is_known = len(heads) == 1 and all(exact for _, exact in heads) and not node.case_flags
        return heads if is_known else OPEN

    def repeated(self, node: Any) -> Heads:
        heads = self.read(node.subpattern)
        self.can_extend |= node.max_count != node.min_count and any(head for head, _ in heads)
        return repeat(heads, node.min_count, node.max_count, self._limit)

    def zero_width(self, node: Any) -> Heads:
        return NOTHING  # A node of zero width can only forbid a match.

    def characters(self, node: Any) -> Heads:
        """Return the heads of a character, a range or a set."""
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


def _heads_expression(heads: Heads) -> Expression:
    """Return heads as an expression. An open head is followed by any bytes."""
    single = [head[0] for head, is_exact in heads if is_exact and len(head) == 1]
    others: list[Expression] = [Bytes(sum(1 << byte for byte in single))] if single else []
    for head, is_exact in heads:
        if not is_exact:
            others.append(seq(Text(head), _ANYTHING))
        elif len(head) != 1:
            others.append(Text(head))
    return others[0] if len(others) == 1 else Alt(tuple(others))


def _count_states(expression: Expression) -> int:
    """Return the estimated number of states of an automaton."""
    match expression:
        case Text(value):
            return len(value)
        case Repeat(item, minimum, maximum):
            return 1 + _count_states(item) * max(1, minimum, maximum or 0)
        case Seq(items) | Alt(items):
            return 1 + sum(map(_count_states, items))
    return 1


def _range_heads(lower: int, upper: int, case_flags: int) -> Heads:
    if lower <= 0xDFFF and upper >= 0xD800:
        return OPEN  # Surrogates have no UTF-8.
    if upper - lower < MAX_MEMBERS:
        if not case_flags:
            return frozenset((chr(member).encode(), True) for member in range(lower, upper + 1))
        # FULLCASE is another flag: one character can then match several characters.
        if case_flags == core.IGNORECASE:
            return frozenset(_variants(range(lower, upper + 1)))
    elif not case_flags:
        return frozenset({(_common_prefix(chr(lower).encode(), chr(upper).encode()), False)})
    return OPEN


def _variants(members: range) -> set[Head]:
    """Return the heads of the characters of a range, and of all characters that differ from them only in case."""
    return {
        (chr(variant).encode(), True) for member in members for variant in _all_cases(core.UNICODE, member)
    }


def _common_prefix(first: bytes, last: bytes) -> bytes:
    """Return the common prefix of the UTF-8 of two characters.

    The UTF-8 of any character between these two characters has this prefix too.
    """
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
# Known classes of nodes, each with all of its known attributes.
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
