r"""Regular expressions as subjects, the way of the original OZ, and as they are given to the engine.

Source: OZ, "Publish/Subscribe": "a prefix (the non-wildcarded portion of the subject) … and a regex".
Matched from start to end; `$` is the very end, never before a last newline. The syntax is that of the
`regex` package, which is also the engine. It is given the same regex but for two things.

`$` is the very end of the subject, which the engine spells `\Z`; Python's `$` also holds before a last
newline. And a long literal is broken into runs, for the engine would take cubic time to search for it.

Which `$` is an anchor (and not a character of a class, escaped, part of a comment, or the end of a line under
`(?m)`), and where an item of a sequence begins, is asked of the engine's own parser. See
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
from oz.subjects.dialects.base import Compiled, Dialect, Form
from oz.subjects.dialects.literals import BREAK, RUN
from oz.subjects.expressions import Expression, Text
from oz.subjects.prefixes.literal import core, literal_prefixes, parse_tree
from oz.subjects.regexes import read_regex, regex_text

MAX_TEXT = 100_000
"""The longest regex in characters; it takes a second or two to compile a bad one."""
MAX_WEIGHT = 200_000
"""The most nodes that the engine may make of a regex, each repeat written out as often as it must occur."""
SHORT = 2 * RUN
"""A literal up to this length need not be broken, nor a regex be looked at that has none of the marks."""
MAX_LITERAL = 256
"""The longest literal that may stay in one piece, where it cannot be broken: 5 ms for search tables."""


def written_for_engine(
    text: str, flags: int, named_lists: Mapping[str, Any] | None, max_weight: int
) -> tuple[str, int]:
    r"""Return the regex with `\Z` for each `$` at an end and long literals broken up, and its weight.

    Args:
        text: the regex.
        flags: such as `regex.I`.
        named_lists: the words behind each `\L<name>`.
        max_weight: the highest weight, in elements with each repeat written out.

    Raises:
        regex.error: the text is not a regex.
        ValueError: the text or a literal is too long, the weight is too high, or the engine's parser fails or
            has changed.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"{len(text)} characters; at most {MAX_TEXT} are allowed")
    if len(text) <= SHORT and not named_lists and "$" not in text and "{" not in text:
        return text, _few(text)
    try:
        if "$" not in text and not named_lists:
            weight = _weight_if_short(text, flags)
            if weight is not None and weight <= max_weight:
                return text, weight
        before = _read(text, flags, named_lists, dollar_is_end=True)
    except regex.error:
        raise
    except Exception as error:  # whatever a private parser may raise; RecursionError by deep nesting is one
        if "$" not in text and len(text) < MAX_LITERAL:
            return text, len(text)
        raise ValueError(f"cannot tell what each $ and each literal means in {_short(text)}") from error
    if before.measures.weight > max_weight:
        rule = f"at most {max_weight} are allowed"
        raise ValueError(f"{before.measures.weight} elements with each repeat written out; {rule}")
    changes = (_replace(text, before.dollars, breaks) for breaks in _choices(before))
    for changed in changes:
        if (changed == text and "$" not in text) or _is_same(changed, flags, named_lists, before):
            return changed, before.measures.weight
    if before.measures.longest >= MAX_LITERAL:
        raise ValueError(f"a literal of {before.measures.longest} characters is too long to search for")
    raise ValueError(f"cannot tell what each $ means in {_short(text)}")


def _few(text: str) -> int:
    """Estimate the elements of a short regex: those that are not ordinary characters, and runs of these."""
    return 1 + sum(not char.isalnum() for char in text)


def _weight_if_short(text: str, flags: int) -> int | None:
    """Return the weight of a regex without a long literal, which is found sooner than what has to change."""
    tree, info, _ = parse_tree(text, flags)
    measures = measure(packed(tree, info), info)
    return measures.weight if measures.longest <= SHORT else None


@dataclass(frozen=True, slots=True)
class _Reading:
    """The result of the engine's parser: positions of `$` and of items, and the tree."""

    dollars: set[int]
    starts: list[int]
    outline: Any
    measures: Measures


def _read(text: str, flags: int, named_lists: Mapping[str, Any] | None, *, dollar_is_end: bool) -> _Reading:
    tree, info, source = parse_tree(text, flags, _watching_source(), named_lists)
    said = outline(tree, dollar_is_end=dollar_is_end)  # first, for packing changes the tree
    return _Reading(source.dollars, sorted(source.starts), said, measure(packed(tree, info), info))


def _choices(before: _Reading) -> Iterator[list[int]]:
    """Return the places for breaks, and then none, as far as either may do."""
    # Whatever the items are: between two breaks there are at most so many characters then, however the engine
    # joins them.
    breaks = before.starts[RUN::RUN]
    if before.measures.longest > SHORT and before.measures.is_literal and breaks:
        yield breaks
    if before.measures.longest < MAX_LITERAL:
        yield []


def _is_same(changed: str, flags: int, named_lists: Mapping[str, Any] | None, before: _Reading) -> bool:
    """Certain, not likely: no such `$` may be left, and all else must have stayed what it was."""
    try:
        after = _read(changed, flags, named_lists, dollar_is_end=False)
    except Exception:  # as in `written_for_engine`, and regex.error too
        return False
    return after.outline == before.outline and after.measures.longest < MAX_LITERAL


def _replace(text: str, dollars: set[int], breaks: list[int]) -> str:
    before = set(breaks)
    return "".join(
        (BREAK if at in before else "") + (r"\Z" if at in dollars else char) for at, char in enumerate(text)
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


def _watching_source() -> Any:
    """A source that remembers where the parser of a sequence took an item, and where a `$` for the end.

    Other parsers take characters from a class, an escape or a comment, or to look ahead and put them back.
    """
    sequence_code = core.parse_sequence.__code__

    class Watching(core.Source):  # type: ignore[misc]
        def __init__(self, string: str) -> None:
            super().__init__(string)
            self.dollars: set[int] = set()
            self.starts: set[int] = set()

        def get(self, override_ignore: bool = False) -> str:
            char: str = super().get(override_ignore)
            if sys._getframe(1).f_code is sequence_code:
                self._note(char)
            return char

        def _note(self, char: str) -> None:
            # What stands before a quantifier belongs to it, and behind the last item there is none to part.
            if char and char not in "?*+{)|":
                self.starts.add(self.pos - 1)
            if char == "$" and not self.info.flags & core.MULTILINE:  # under (?m) it is the end of a line
                self.dollars.add(self.pos - 1)

    return Watching


# Where in the text a node stands, what it belongs to, and what follows from the rest.
_PLACES = frozenset({"_key", "info", "position", "call_ref"})
_ENDS = {"EndOfStringLine": "EndOfString", "EndOfStringLineU": "EndOfString"}


def outline(tree: Any, *, dollar_is_end: bool = False) -> list[Any]:
    r"""List all that a tree says, to be compared: without places in the text, and without any BREAK.

    Args:
        tree: the tree, not packed.
        dollar_is_end: take each `$` for a `\Z`.
    """
    said: list[Any] = []
    waiting: list[Any] = [tree]
    while waiting:  # not by recursion: the parser may have gone deep
        node = waiting.pop()
        if isinstance(node, list | tuple):
            items = [item for item in node if not _is_break(item)]
            said.append(len(items))
            waiting.extend(items)
        elif isinstance(node, dict):
            said.append(tuple(node))
            waiting.extend(node.values())
        elif type(node) is core.Character:
            said.append(node._key)
        elif isinstance(node, core.RegexBase):
            name = type(node).__name__
            said.append(_ENDS.get(name, name) if dollar_is_end else name)
            waiting.append({key: value for key, value in vars(node).items() if key not in _PLACES})
        else:
            said.append(node)
    return said


def _is_break(node: Any) -> bool:
    """Whether a node is `BREAK`: not to be followed by not to be followed by nothing."""
    inner = _forbidden(node)
    return inner is not None and len(inner) == 1 and _forbidden(inner[0]) == []


def _forbidden(node: Any) -> list[Any] | None:
    if type(node) is not core.LookAround or node.behind or node.positive:
        return None
    items: list[Any] | None = getattr(node.subpattern, "items", None)
    return items


def packed(tree: Any, info: Any) -> Any:
    """Join the characters of a tree to strings, in place, as the engine does before it compiles."""
    if not info.flags & (core.ASCII | core.LOCALE | core.UNICODE):
        info.flags |= core.UNICODE
    return tree.optimise(info, bool(info.flags & core.REVERSE)).pack_characters(info)


@dataclass(frozen=True, slots=True)
class Measures:
    """The cost of a packed tree for the engine.

    Attributes:
        weight: the nodes that the engine makes. It writes a repeat out as often as it must occur and once
            more; and a group that is called from another direction or from a fuzzy part, once more for each.
        longest: the length of the longest literal that it may search for; in a fuzzy part it does not.
        is_literal: whether each literal matches in one way only: none is fuzzy, and none has characters that
            match others together, as `ss` and `ß` under full case-folding.
    """

    weight: int
    longest: int
    is_literal: bool


def measure(tree: Any, info: Any) -> Measures:
    """Take the measures of a packed tree."""
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
    """Return all nodes of a tree but those in fuzzy parts, of which it gives the top only."""
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


# These have one number in both packages; re.A and re.DEBUG mean V1 and A to regex.
_SHARED_FLAGS = int(regex.I | regex.L | regex.M | regex.S | regex.U | regex.X)


def flags_of(pattern: re.Pattern[str] | regex.Pattern[str]) -> int:
    """Return the flags of a compiled pattern as `regex` counts them."""
    if isinstance(pattern, regex.Pattern):
        return pattern.flags
    return (pattern.flags & _SHARED_FLAGS) | (int(regex.A) if pattern.flags & re.A else 0)


class Regular(Dialect):
    """The regex dialect."""

    name = "regex"
    form = Form.REGEX
    wildcards = "*+?[(|"

    def compile(self, text: str | bytes, *, lenient: bool = False) -> Compiled:
        """Compile a regex without flags; see `Dialect.compile`."""
        assert isinstance(text, str)
        return self.compile_flags(text, 0)

    def expression(self, text: str | bytes, compiled: Compiled) -> Expression:
        """Read the regex; see `Dialect.expression`."""
        assert isinstance(text, str)
        assert compiled.regex is not None
        return read_regex(text, compiled.regex.flags)

    def literal_text(self, text: bytes) -> str:
        """Escape what means something in a regex."""
        return regex_text(Text(text)).removeprefix("(?s)")

    def compile_flags(
        self,
        text: str,
        flags: int,
        named_lists: Mapping[str, Any] | None = None,
        *,
        max_weight: int = MAX_WEIGHT,
    ) -> Compiled:
        r"""Compile a regex with flags of `regex` (not of `re`: some have other numbers there).

        Args:
            text: the regex.
            flags: such as `regex.I`.
            named_lists: the words behind each `\L<name>`.
            max_weight: the most elements, each repeat written out as often as it must occur.

        Raises:
            PatternError: the `regex` package does not take it, or its meaning cannot be had exactly.
        """
        try:
            exact, elements = self._for_engine(text, flags, named_lists, max_weight)
            self._refuse_unbounded_lookbehind(text, flags)
            compiled = regex.compile(exact, flags, **(named_lists or {}))
        except regex.error as error:
            raise PatternError(self.name, text, getattr(error, "pos", None) or 0, str(error)) from None
        # The last is a defect of the engine: some releases raise it for `(?i)[^\w\W]`.
        except (RecursionError, OverflowError, ValueError, MemoryError, AttributeError) as error:
            if isinstance(error, PatternError):
                raise
            raise PatternError(self.name, text, 0, f"the regex engine refuses it: {error}") from None
        found = literal_prefixes(exact, flags)
        return Compiled(
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
            return written_for_engine(text, flags, named_lists, max_weight)
        except ValueError as error:
            raise PatternError(self.name, text, 0, str(error)) from None

    def _refuse_unbounded_lookbehind(self, text: str, flags: int) -> None:
        """Refuse a look-behind of no fixed width: only this engine knows it, not re, POSIX or Java.

        The same pattern must mean the same in a Spark query, and the vectors call it invalid.
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
