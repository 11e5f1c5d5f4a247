"""Globs over bytes: parser, and translation to a regex. The regex does not backtrack over stars.

Source: `stringmatchlen` in util.c of Redis 7.0. The parser reproduces this function, including its corner cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, ClassVar

import regex

from oz.subjects.dialects import literals
from oz.subjects.dialects.base import CompiledPattern, Dialect, Form, Stem, Token, Wild
from oz.subjects.expressions import ANY_BYTE as _BYTE
from oz.subjects.expressions import EMPTY as _EMPTY
from oz.subjects.expressions import Bytes, Expression, Repeat, nonempty, optional, seq

MAX_PREFIXES = 16


class Glob(Enum):
    """Element that matches a variable number of bytes."""

    STAR = "star"
    """Zero or more bytes."""
    MAYBE = "maybe"
    """Zero bytes or one byte."""


ANY_BYTE = frozenset(range(256))
Element = Glob | frozenset[int]
"""Element of a glob: a star, an optional byte, or a set of bytes. A set matches exactly one byte."""


class GlobDialect(Dialect):
    """Dialect of globs. Any byte string is a valid glob."""

    form = Form.GLOB
    is_bytes = True
    wildcards = "*?["
    question: ClassVar[Element]
    """Meaning of `?`: `ANY_BYTE` in Redis, `Glob.MAYBE` in Rai MS."""

    def compile(self, text: str | bytes, *, lenient: bool = False) -> CompiledPattern:
        """Compile a glob; see `Dialect.compile`."""
        return compile_glob(self.elements(text))

    def make_regex(self, compiled: CompiledPattern) -> regex.Pattern[Any]:
        """Return the regex of a glob without wildcards; see `Dialect.make_regex`."""
        return regex.compile(literals.literal_regex(compiled.literal or b""), regex.DOTALL)

    def expression(self, text: str | bytes, compiled: CompiledPattern) -> Expression:
        """Return the expression of a glob; see `Dialect.expression`."""
        elements = self.elements(text)
        whole = seq(*(_element_expression(element) for element in elements)) if elements else _EMPTY
        # With an empty subject, the loop of stringmatchlen ends before it reads a star.
        return nonempty(whole) if all(isinstance(element, Glob) for element in elements) else whole

    def elements(self, text: str | bytes) -> list[Element]:
        """Return the elements of a glob."""
        return parse(text if isinstance(text, bytes) else text.encode(), question=self.question)

    def literal_text(self, text: bytes) -> bytes:
        """Return the glob that matches only these bytes."""
        return escape_glob(text)


def escape_glob(text: bytes) -> bytes:
    """Return the glob that matches only these bytes."""
    return regex.sub(rb"([*?\[\\])", rb"\\\1", text)


def _element_expression(element: Element) -> Expression:
    if element is Glob.STAR:
        return Repeat(_BYTE, 0, None)
    if element is Glob.MAYBE:
        return optional(_BYTE)
    assert isinstance(element, frozenset)
    return Bytes(sum(1 << byte for byte in element))


def parse(text: bytes, *, question: Element) -> list[Element]:
    """Return the elements of a glob.

    Args:
        text: text of the glob.
        question: meaning of `?`: `ANY_BYTE` in Redis, `Glob.MAYBE` in Rai MS.
    """
    elements: list[Element] = []
    at = 0
    while at < len(text):
        char = text[at : at + 1]
        at += 1
        if char == b"*":
            if not elements or elements[-1] is not Glob.STAR:
                elements.append(Glob.STAR)
        elif char == b"?":
            elements.append(question)
        elif char == b"[":
            members, at = _parse_class(text, at)
            elements.append(members)
        else:
            if char == b"\\" and at < len(text):
                char = text[at : at + 1]
                at += 1
            elements.append(frozenset(char))
    return elements


def _parse_class(text: bytes, at: int) -> tuple[frozenset[int], int]:
    """Parse a class such as `[a-c]`.

    Return its bytes and the position behind it. A class without `]` ends with the pattern.
    """
    negated = text[at : at + 1] == b"^"
    at += negated
    members: set[int] = set()
    while at < len(text) and text[at : at + 1] != b"]":
        if text[at : at + 1] == b"\\" and at + 1 < len(text):
            members.add(text[at + 1])
            at += 2
        elif text[at + 1 : at + 2] == b"-" and at + 2 < len(text):
            members.update(_byte_range(text[at], text[at + 2]))
            at += 3
        else:
            members.add(text[at])
            at += 1
    return (ANY_BYTE - members if negated else frozenset(members)), at + 1


def _byte_range(first: int, last: int) -> Iterator[int]:
    """Yield the bytes of a range.

    As in Redis, bytes are signed numbers (decision 035), and the first may exceed the last.
    """
    low, high = sorted((_signed(first), _signed(last)))
    return (value % 256 for value in range(low, high + 1))


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def compile_glob(elements: list[Element]) -> CompiledPattern:
    """Return the compiled form of a parsed glob."""
    literal = _literal(elements)
    optional = Glob.MAYBE in elements
    if literal is not None:
        return CompiledPattern(regex=None, prefixes=(literal,), literal=literal)
    return CompiledPattern(
        regex=regex.compile(to_regex(elements), regex.DOTALL),
        prefixes=prefixes(elements),
        timed=optional,
        elements=len(elements),
    )


def _literal(elements: list[Element]) -> bytes | None:
    if all(isinstance(element, frozenset) and len(element) == 1 for element in elements):
        return b"".join(bytes(element) for element in elements if isinstance(element, frozenset))
    return None


def to_regex(elements: list[Element]) -> bytes:
    """Return the regex of a glob.

    A segment consists of the elements between two stars. Its earliest match is always sufficient. Therefore an atomic
    group keeps this match, and a match with sixty stars takes no longer than with one star. A segment with an optional
    byte has no fixed length, and its match may backtrack.
    """
    if elements and all(isinstance(element, Glob) for element in elements):
        # With an empty subject, the loop of stringmatchlen ends before it reads a star.
        return b".+" if Glob.STAR in elements else b".{1,%d}" % len(elements)
    first, *rest = _segments(elements)
    parts = [_segment_regex(first)]
    for number, segment in enumerate(rest):
        if number == len(rest) - 1:
            parts.append(b".*" + _segment_regex(segment))
        elif Glob.MAYBE in segment:
            parts.append(b".*?" + _segment_regex(segment))
        else:
            parts.append(b"(?>.*?" + _segment_regex(segment) + b")")
    return b"".join(parts)


def _segments(elements: list[Element]) -> list[list[Element]]:
    segments: list[list[Element]] = [[]]
    for element in elements:
        if element is Glob.STAR:
            segments.append([])
        else:
            segments[-1].append(element)
    # Next to a star, an optional byte does not change the matches.
    for number, segment in enumerate(segments):
        while number > 0 and segment and segment[0] is Glob.MAYBE:
            del segment[0]
        while number < len(segments) - 1 and segment and segment[-1] is Glob.MAYBE:
            del segment[-1]
    return segments


def _segment_regex(segment: list[Element]) -> bytes:
    written = [_element_regex(element) for element in segment]
    return literals.join_runs(b"".join(run) for run in literals.split_runs(written))


def _element_regex(element: Element) -> bytes:
    if element is Glob.MAYBE:
        return b".?"
    assert isinstance(element, frozenset)
    if element == ANY_BYTE:
        return b"."
    if not element:
        return b"(?!)"
    if len(element) == 1:
        return regex.escape(bytes(element), special_only=True, literal_spaces=True)
    return b"[" + b"".join(_range_regex(low, high) for low, high in _ranges(element)) + b"]"


def _ranges(members: frozenset[int]) -> Iterator[tuple[int, int]]:
    starts = sorted(byte for byte in members if byte - 1 not in members)
    ends = sorted(byte for byte in members if byte + 1 not in members)
    return zip(starts, ends, strict=True)


def _range_regex(low: int, high: int) -> bytes:
    if high - low < 2:
        return b"".join(b"\\x%02x" % byte for byte in range(low, high + 1))
    return b"\\x%02x-\\x%02x" % (low, high)


def prefixes(elements: list[Element]) -> tuple[bytes, ...]:
    """Return at most `MAX_PREFIXES` prefixes of a glob. Literal bytes and small classes at its start determine them."""
    heads: list[bytes] = [b""]
    for element in elements:
        if not isinstance(element, frozenset) or not element:
            break
        if len(heads) * len(element) > MAX_PREFIXES:
            break
        heads = [head + bytes([byte]) for head in heads for byte in sorted(element)]
    return tuple(heads)


def compile_prefix(prefix: bytes) -> regex.Pattern[Any]:
    """Return the regex of a plain prefix."""
    return regex.compile(literals.literal_regex(prefix) + b".*", regex.DOTALL)


def glob_of_words(words: Sequence[Token], separator: str, *, may_be_empty: bool) -> bytes:
    """Return the glob that is nearest to a pattern of tokens.

    It may match more subjects, because a star also matches separators.

    Args:
        words: tokens of the pattern.
        separator: text between two tokens.
        may_be_empty: whether a token may be empty. If it is False, a wildcard for one token becomes `?*`, else `*`.
    """
    star = b"*" if may_be_empty else b"?*"
    written, glue = b"", b""
    for word in words:
        if word is Wild.ANY:  # This wildcard may match zero tokens. Then there is no separator either.
            written, glue = written + b"*", separator.encode() if written else b""
            continue
        if isinstance(word, Stem):
            text = escape_glob(word.text) + b"*"
        else:
            text = escape_glob(word) if isinstance(word, bytes) else star
        written, glue = written + glue + text, separator.encode()
    return written
