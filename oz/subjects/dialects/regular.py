r"""Dialect of regular expressions, with the syntax of the `regex` package.

Source: OZ, "Publish/Subscribe": "a prefix (the non-wildcarded portion of the subject) … and a regex".

Theory of operation. A pattern matches the whole subject. The `regex` package, called the engine below, compiles the
pattern. Before that, oz makes two changes:

- `$` becomes `\Z`. In oz, `$` matches only at the end of the subject. In Python, `$` also matches before a last
  newline.
- `BREAK` is inserted into long literals, because the engine builds search tables for each literal in cubic time
  (decision 011).

Only a parser can find the positions of these changes. A `$` may be an anchor, or part of a class, an escape or a
comment. Under `(?m)` it means the end of a line. A break is allowed only where an item of a sequence begins. Therefore
oz runs the engine's parser with a `Source` that records the positions (`_recording_source`). The parser is private and
may change. Therefore oz parses the rewritten text again and compares it with the original. For this comparison,
`outline` lists the contents of a parse tree without positions and breaks. If the outlines differ, oz refuses the
pattern.

A short regex can be expensive: for `a{200000}`, the engine creates a node for each copy. The weight of a regex is the
estimated number of nodes that the engine creates. oz refuses a regex with too much weight. See
docs/decisions/002-prefix-from-the-engines-parse-tree.md and docs/decisions/011-long-literals.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import regex

from oz.errors import PatternError
from oz.subjects.dialects.base import CompiledPattern, Dialect, Form
from oz.subjects.dialects.literals import BREAK, RUN
from oz.subjects.expressions import Expression, Text
from oz.subjects.prefixes.literal import core, literal_prefixes, parse_tree
from oz.subjects.regexes import read_regex, regex_text

MAX_TEXT = 100_000
"""Maximum length of a regex in characters. The worst regex of this length compiles in two seconds."""
MAX_WEIGHT = 200_000
"""Maximum weight of a regex: the number of nodes of the compiled regex. A repeat counts with all its copies."""
SHORT_LITERAL = 2 * RUN
"""Maximum length in characters of a literal without a break. If a regex is not longer, and has no `$` and no `{`, the
parser is not called."""
MAX_LITERAL = 256
"""Maximum length in characters of a literal in which no break is possible. Its search tables take 5 ms."""


def rewrite_for_engine(
    text: str, flags: int, named_lists: Mapping[str, Any] | None, max_weight: int
) -> tuple[str, int]:
    r"""Return the rewritten text of a regex, and the weight of the regex.

    Args:
        text: text of the regex.
        flags: flags of the `regex` package, such as `regex.I`.
        named_lists: words for each `\L<name>`.
        max_weight: maximum weight of the regex.

    Raises:
        regex.error: the text is not a regex.
        ValueError: the text or a literal is too long, the weight is too high, or the parser of the engine
            fails or has changed.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"{len(text):,} characters; at most {MAX_TEXT:,} are allowed")
    if len(text) <= SHORT_LITERAL and not named_lists and "$" not in text and "{" not in text:
        return text, _estimate_weight(text)
    try:
        if "$" not in text and not named_lists:
            weight = _weight_if_short(text, flags)
            if weight is not None and weight <= max_weight:
                return text, weight
        before = _read(text, flags, named_lists, dollar_is_end=True)
    except regex.error:
        raise
    except Exception as error:  # A private parser may raise any error; deep nesting raises RecursionError.
        if "$" not in text and len(text) < MAX_LITERAL:
            return text, len(text)
        raise ValueError(
            f"the parser of the installed regex package cannot locate each $ and literal of {_short_repr(text)}"
        ) from error
    if before.measures.weight > max_weight:
        rule = f"at most {max_weight:,} are allowed"
        raise ValueError(f"{before.measures.weight:,} elements with each repeat written out; {rule}")
    changes = (_replace(text, before.dollars, breaks) for breaks in _break_choices(before))
    for changed in changes:
        if (changed == text and "$" not in text) or _has_same_meaning(changed, flags, named_lists, before):
            return changed, before.measures.weight
    if before.measures.longest >= MAX_LITERAL:
        raise ValueError(
            f"a literal of {before.measures.longest} characters; at most {MAX_LITERAL - 1} are allowed here"
        )
    raise ValueError(f"the parser of the installed regex package cannot locate each $ of {_short_repr(text)}")


def _estimate_weight(text: str) -> int:
    """Return the estimated weight of a short regex: 1 plus the number of special characters."""
    return 1 + sum(not char.isalnum() for char in text)


def _weight_if_short(text: str, flags: int) -> int | None:
    tree, info, _ = parse_tree(text, flags)
    measures = measure(pack_tree(tree, info), info)
    return measures.weight if measures.longest <= SHORT_LITERAL else None


@dataclass(frozen=True, slots=True)
class _ParseResult:
    """Result of the parser.

    `dollars` holds the positions of the anchors `$`, and `starts` the positions of the items.
    """

    dollars: set[int]
    starts: list[int]
    outline: Any
    measures: Measures


def _read(
    text: str, flags: int, named_lists: Mapping[str, Any] | None, *, dollar_is_end: bool
) -> _ParseResult:
    tree, info, source = parse_tree(text, flags, _recording_source(), named_lists)
    # This call is first, because `pack_tree` changes the tree.
    facts = outline(tree, dollar_is_end=dollar_is_end)
    return _ParseResult(source.dollars, sorted(source.starts), facts, measure(pack_tree(tree, info), info))


def _break_choices(before: _ParseResult) -> Iterator[list[int]]:
    """Yield lists of positions for breaks, to be tried in this order.

    The empty list is the last, if no literal is too long.
    """
    # The engine joins items to literals. With a break before each RUN-th item, no literal has more than RUN items.
    breaks = before.starts[RUN::RUN]
    if before.measures.longest > SHORT_LITERAL and before.measures.is_literal and breaks:
        yield breaks
    if before.measures.longest < MAX_LITERAL:
        yield []


def _has_same_meaning(
    changed: str, flags: int, named_lists: Mapping[str, Any] | None, before: _ParseResult
) -> bool:
    r"""Return whether the rewritten text parses as the original with `\Z` in place of each anchor `$`."""
    try:
        after = _read(changed, flags, named_lists, dollar_is_end=False)
    except Exception:  # A private parser may raise any error, also regex.error.
        return False
    return after.outline == before.outline and after.measures.longest < MAX_LITERAL


def _replace(text: str, dollars: set[int], breaks: list[int]) -> str:
    before = set(breaks)
    return "".join(
        (BREAK if at in before else "") + (r"\Z" if at in dollars else char) for at, char in enumerate(text)
    )


def _short_repr(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


def _recording_source() -> Any:
    """Return a `Source` class that records the positions of the items and of the anchors `$`.

    An instance records only characters that `parse_sequence` reads. Classes, escapes and comments are read by other
    functions of the parser.
    """
    sequence_code = core.parse_sequence.__code__

    class RecordingSource(core.Source):  # type: ignore[misc]
        def __init__(self, string: str) -> None:
            super().__init__(string)
            self.dollars: set[int] = set()
            self.starts: set[int] = set()

        def get(self, override_ignore: bool = False) -> str:
            char: str = super().get(override_ignore)
            if sys._getframe(1).f_code is sequence_code:
                self._record(char)
            return char

        def _record(self, char: str) -> None:
            # A break before a quantifier or at the end of a group would change the meaning.
            if char and char not in "?*+{)|":
                self.starts.add(self.pos - 1)
            if char == "$" and not self.info.flags & core.MULTILINE:  # With (?m) a $ is the end of a line.
                self.dollars.add(self.pos - 1)

    return RecordingSource


# Attributes that an outline leaves out: positions in the text, and values that follow from other attributes.
_PLACES = frozenset({"_key", "info", "position", "call_ref"})
_ENDS = {"EndOfStringLine": "EndOfString", "EndOfStringLineU": "EndOfString"}


def outline(tree: Any, *, dollar_is_end: bool = False) -> list[Any]:
    r"""Return the contents of a parse tree as a list, for a comparison. Positions and breaks are left out.

    Args:
        tree: parse tree, before `pack_tree`.
        dollar_is_end: whether a `$` counts as `\Z`.
    """
    facts: list[Any] = []
    waiting: list[Any] = [tree]
    while waiting:  # This is a loop, because a tree may be too deep for recursion.
        node = waiting.pop()
        if isinstance(node, list | tuple):
            items = [item for item in node if not _is_break(item)]
            facts.append(len(items))
            waiting.extend(items)
        elif isinstance(node, dict):
            facts.append(tuple(node))
            waiting.extend(node.values())
        elif type(node) is core.Character:
            facts.append(node._key)
        elif isinstance(node, core.RegexBase):
            name = type(node).__name__
            facts.append(_ENDS.get(name, name) if dollar_is_end else name)
            waiting.append({key: value for key, value in vars(node).items() if key not in _PLACES})
        else:
            facts.append(node)
    return facts


def _is_break(node: Any) -> bool:
    """Return whether a node is `BREAK`: a negative look-ahead that contains only an empty negative look-ahead."""
    inner = _forbidden(node)
    return inner is not None and len(inner) == 1 and _forbidden(inner[0]) == []


def _forbidden(node: Any) -> list[Any] | None:
    if type(node) is not core.LookAround or node.behind or node.positive:
        return None
    items: list[Any] | None = getattr(node.subpattern, "items", None)
    return items


def pack_tree(tree: Any, info: Any) -> Any:
    """Join adjacent characters of a tree to strings, as the engine does before it compiles. This changes the tree."""
    if not info.flags & (core.ASCII | core.LOCALE | core.UNICODE):
        info.flags |= core.UNICODE
    return tree.optimise(info, bool(info.flags & core.REVERSE)).pack_characters(info)


@dataclass(frozen=True, slots=True)
class Measures:
    """Cost of a tree for the engine, after `pack_tree`.

    Attributes:
        weight: estimated number of nodes that the engine creates. A repeat with a minimum of n counts as n + 1 copies
            of its contents. A group that is called in another direction or from a fuzzy part is copied for each call.
        longest: length in characters of the longest literal that gets search tables. Literals in fuzzy parts get none.
        is_literal: whether each literal matches only its own text. False with fuzzy matching, and with full
            case-folding, in which `ß` matches `ss`.
    """

    weight: int
    longest: int
    is_literal: bool


def measure(tree: Any, info: Any) -> Measures:
    """Return the measures of a packed tree."""
    calls = {(call.group, reverse, fuzzy) for call, reverse, fuzzy in info.group_calls}
    nodes = list(_exact_nodes(tree))
    strings = [node for node in nodes if isinstance(node, core.String)]
    return Measures(
        weight=_weight(tree) * (1 + len(calls)),
        longest=max((len(string.folded_characters) for string in strings), default=0),
        is_literal=not any(type(node) is core.Fuzzy for node in nodes)
        and not any(string.case_flags & core.FULLCASE for string in strings),
    )


def _exact_nodes(tree: Any) -> Iterator[Any]:
    """Yield all nodes of a tree. Of a fuzzy part, yield only the top node."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if type(node) is not core.Fuzzy:
            waiting.extend(_children(node))


def _weight(node: Any) -> int:
    if isinstance(node, core.String):
        return 1 + len(node.characters) // 16
    inside: int = sum(map(_weight, _children(node)))
    times: int = getattr(node, "min_count", 0) + 1
    return 1 + inside * times


def _children(node: Any) -> list[Any]:
    found: list[Any] = []
    for name, value in vars(node).items():
        if isinstance(value, core.RegexBase):
            found.append(value)
        elif name != "_key" and isinstance(value, list | tuple | set | frozenset):
            found.extend(item for item in value if isinstance(item, core.RegexBase))
    return found


# These flags have the same number in `re` and `regex`. The number of re.A is V1 in `regex`, and the number of re.DEBUG
# is A.
_SHARED_FLAGS = int(regex.I | regex.L | regex.M | regex.S | regex.U | regex.X)


def flags_of(pattern: re.Pattern[str] | regex.Pattern[str]) -> int:
    """Return the flags of a compiled regex as flags of the `regex` package."""
    if isinstance(pattern, regex.Pattern):
        return pattern.flags
    return (pattern.flags & _SHARED_FLAGS) | (int(regex.A) if pattern.flags & re.A else 0)


class Regular(Dialect):
    """Dialect of regular expressions."""

    name = "regex"
    form = Form.REGEX
    wildcards = "*+?[(|"

    def compile(self, text: str | bytes, *, lenient: bool = False) -> CompiledPattern:
        """Compile a regex without flags; see `Dialect.compile`."""
        assert isinstance(text, str)
        return self.compile_flags(text, 0)

    def expression(self, text: str | bytes, compiled: CompiledPattern) -> Expression:
        """Return the expression of a regex; see `Dialect.expression`."""
        assert isinstance(text, str)
        assert compiled.regex is not None
        return read_regex(text, compiled.regex.flags)

    def literal_text(self, text: bytes) -> str:
        """Return a regex that matches only this text."""
        return regex_text(Text(text)).removeprefix("(?s)")

    def compile_flags(
        self,
        text: str,
        flags: int,
        named_lists: Mapping[str, Any] | None = None,
        *,
        max_weight: int = MAX_WEIGHT,
    ) -> CompiledPattern:
        r"""Compile a regex with flags of the `regex` package. Some flags of `re` have other numbers.

        Args:
            text: text of the regex.
            flags: flags of the `regex` package, such as `regex.I`.
            named_lists: words for each `\L<name>`.
            max_weight: maximum number of nodes of the compiled regex. A repeat counts with all its copies.

        Raises:
            PatternError: the `regex` package refuses the text, or `rewrite_for_engine` refuses it.
        """
        try:
            exact, elements = self._for_engine(text, flags, named_lists, max_weight)
            self._refuse_unbounded_lookbehind(text, flags)
            compiled = regex.compile(exact, flags, **(named_lists or {}))
        except regex.error as error:
            raise PatternError(self.name, text, getattr(error, "pos", None) or 0, str(error)) from None
        # Some releases of the engine raise AttributeError for `(?i)[^\w\W]`.
        except (RecursionError, OverflowError, ValueError, MemoryError, AttributeError) as error:
            if isinstance(error, PatternError):
                raise
            raise PatternError(self.name, text, 0, f"the regex engine refuses it: {error}") from None
        found = literal_prefixes(exact, flags)
        return CompiledPattern(
            regex=compiled,
            prefixes=found.heads,
            literal=found.literal,
            timed=found.literal is None,
            elements=elements,
        )

    def _for_engine(
        self, text: str, flags: int, named_lists: Mapping[str, Any] | None, max_weight: int
    ) -> tuple[str, int]:
        try:
            return rewrite_for_engine(text, flags, named_lists, max_weight)
        except ValueError as error:
            raise PatternError(self.name, text, 0, str(error)) from None

    def _refuse_unbounded_lookbehind(self, text: str, flags: int) -> None:
        """Refuse a look-behind of variable width. Python's `re`, POSIX and Java do not have it (decision 035).

        Java matters because Spark queries match the same pattern with Java's regexes.
        """
        if "(?<=" not in text and "(?<!" not in text:
            return
        try:
            re.compile(text, flags & _SHARED_FLAGS)
        except re.error as error:
            if "look-behind" in error.msg:
                raise PatternError(self.name, text, error.pos or 0, error.msg) from None
        except (ValueError, RecursionError, OverflowError):
            return
