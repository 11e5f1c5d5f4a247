"""Compiled patterns.

ZeroMQ filters messages by the prefixes of a pattern. The regex checks messages that pass this filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import regex

from oz.errors import PatternError, PatternTimeout, SubjectError
from oz.subjects import dialects, relations
from oz.subjects.dialects.base import (
    CompiledPattern,
    CompiledRegex,
    Dialect,
    Regex,
    words_match,
)
from oz.subjects.dialects.regular import MAX_WEIGHT, Regular, flags_of
from oz.subjects.expressions import Expression, Text

if TYPE_CHECKING:
    from oz.subjects.translate import Translation

DEFAULT_DIALECT = "nats"

TIME_LIMIT = 0.05
"""Time limit for the match of one subject by a pattern that may backtrack, in seconds of processor time."""


LONG_PATTERN = 256
"""Maximum length in characters of a pattern that a regex matches. A longer pattern is matched word by word if its
dialect has words, because its regex is slow to compile."""

FREE_BYTES = 1_024
"""Number of bytes that `estimate_memory` subtracts for each pattern. `Limits.patterns` already bounds the number of
patterns."""


class Pattern:
    """Compiled subject pattern. `oz.compile` creates patterns. They are immutable.

    Two patterns are equal if their dialects, texts and flags are equal.

    Attributes:
        text: text of the pattern as `str`, or as `bytes` if it is not UTF-8.
        dialect: name of the pattern's dialect.
        prefixes: byte strings for ZMQ_SUBSCRIBE. Each matching subject begins with one of the prefixes. A subject that
            begins with a prefix does not always match.
        is_literal: whether the pattern is known to match exactly one subject.
    """

    __slots__ = (
        "__weakref__",
        "_compiled",
        "_dialect",
        "_regex",
        "_variant",
        "dialect",
        "is_literal",
        "prefixes",
        "text",
    )

    text: str | bytes
    dialect: str
    prefixes: tuple[bytes, ...]
    is_literal: bool

    def __init__(
        self, text: str | bytes, dialect: Dialect, compiled: CompiledPattern, variant: object = None
    ) -> None:
        """Create a pattern.

        Use `compile` instead. Patterns with equal texts but different flags differ in `variant`.
        """
        self.text = _decode_text(text)
        self.dialect = dialect.name
        self.prefixes = compiled.prefixes
        self._regex = compiled.regex
        self.is_literal = compiled.literal is not None
        self._dialect = dialect
        self._compiled = compiled
        self._variant = variant

    @property
    def regex(self) -> CompiledRegex:
        """Compiled regex that matches whole subjects.

        It matches `bytes` in a byte dialect, and `str` in a text dialect.

        In a dialect of words, the first access compiles the regex.
        """
        if self._regex is None:
            self._regex = self._dialect.make_regex(self._compiled)
        return self._regex

    @property
    def prefix(self) -> bytes:
        """Common beginning of all prefixes, for a filter that takes only one prefix."""
        first, last = min(self.prefixes), max(self.prefixes)
        length = next(
            (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None
        )
        return first[:length] if length is not None else min(first, last, key=len)

    @property
    def _is_lenient(self) -> bool:
        return self._variant == "lenient"

    @property
    def _flags(self) -> int:
        """Flags of the `regex` package with which a regex was compiled; 0 for other dialects."""
        return int(self._variant[0]) if isinstance(self._variant, tuple) else 0

    @property
    def _named_lists(self) -> tuple[Any, ...]:
        """Named lists of a regex, as pairs of a name and its words."""
        return self._variant[1] if isinstance(self._variant, tuple) else ()

    def matches(self, subject: str | bytes) -> bool:
        """Return whether a subject matches.

        Args:
            subject: text or bytes. A byte dialect encodes text as UTF-8, and a text dialect decodes bytes.

        Raises:
            SubjectError: the subject cannot be encoded or decoded.
            PatternTimeout: the match took longer than `TIME_LIMIT`. Only patterns of the dialects regex and raims.glob
                can reach the limit.
        """
        own = self._dialect.decode(subject, SubjectError)
        if self._compiled.literal is not None:
            # For a long literal the regex engine builds search tables, in cubic time (decision 011).
            return (own if isinstance(own, bytes) else own.encode()) == self._compiled.literal
        splitting = self._dialect.splitting
        if len(self.text) > LONG_PATTERN and splitting is not None:
            # A regex of thousands of words takes a tenth of a second to compile.
            tokens = self._compiled.tokens
            words = tokens if tokens is not None else self._compiled.words
            assert words is not None
            return words_match(words, splitting, own if isinstance(own, bytes) else own.encode())
        if self._dialect.is_prefix:
            return (own if isinstance(own, bytes) else own.encode()).startswith(self.prefixes[0])
        if self._compiled.timed:
            return match_within(self, own, TIME_LIMIT)
        return self.regex.fullmatch(own) is not None

    def _expression(self) -> Expression:
        """Return the pattern as an expression, which `relations` compares.

        Raises:
            Undecidable: a regex has a feature that `Expression` lacks.
        """
        literal = self._compiled.literal
        return Text(literal) if literal is not None else self._dialect.expression(self.text, self._compiled)

    def covers(self, other: Pattern) -> bool:
        """Return whether this pattern matches every subject that the other pattern matches.

        Raises:
            Undecidable: oz cannot compare the patterns. This occurs with some regexes and large globs.
        """
        return relations.covers(self, other)

    def overlaps(self, other: Pattern) -> bool:
        """Return whether both patterns match some subject.

        Raises:
            Undecidable: the relation cannot be decided.
        """
        return relations.overlaps(self, other)

    def witness(self, other: Pattern) -> str | None:
        """Return a subject that both patterns match, or None if they do not overlap.

        No other common subject has fewer characters. If no common subject is UTF-8, the text represents the bytes
        by `surrogateescape`, as `Message.subject` does.

        Raises:
            Undecidable: the relation cannot be decided.
        """
        return relations.witness(self, other)

    def translate(self, dialect: str, *, exchange: bool = False) -> Translation:
        """Return the nearest pattern of another dialect, and how its meaning differs from this pattern.

        Args:
            dialect: one of `oz.DIALECTS`.
            exchange: whether `.` becomes `/` and `/` becomes `.` in subjects.

        Raises:
            PatternError: the dialect has no similar pattern.
            ConfigurationError: no dialect has this name.
        """
        from oz.subjects.translate import translate  # It imports this module.

        return translate(self, dialect, exchange=exchange)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Pattern)
            and self.text == other.text
            and self.dialect == other.dialect
            and self._variant == other._variant
        )

    def __hash__(self) -> int:
        # The hash is not cached, because a cached hash would add a quarter to the memory of a million patterns.
        return hash((self.dialect, self.text, self._variant))

    def __repr__(self) -> str:
        return f"oz.compile({self.text!r}, {self.dialect!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        variant = self._variant
        if self.dialect == "regex":
            # `variant` has the flags that the caller gave. `regex.flags` also has flags that the text sets, such as
            # (?i).
            asked, lists = variant if isinstance(variant, tuple) else (0, ())
            return _from_regex, (self.text, asked, dict(lists))
        return _unpickle, (self.text, self.dialect, variant is not None)


def match_within(pattern: Pattern, subject: str | bytes, seconds: float) -> bool:
    """Return whether the regex of a pattern matches a subject within a time limit.

    Args:
        pattern: pattern with a regex.
        subject: subject as `str` for a text dialect, as `bytes` for a byte dialect.
        seconds: time limit in seconds of processor time. It applies only to patterns that may backtrack.

    Raises:
        PatternTimeout: the match took longer than `seconds`.
    """
    if not pattern._compiled.timed:
        # The regex of this pattern does not backtrack. A time limit would cost more time than the match.
        return pattern.regex.fullmatch(subject) is not None
    try:
        return pattern.regex.fullmatch(subject, timeout=seconds) is not None
    except (TimeoutError, MemoryError):
        # A recursive pattern raises MemoryError before the time limit.
        raise PatternTimeout(pattern.text, subject, seconds) from None


def is_timed(pattern: Pattern) -> bool:
    """Return whether the regex of a pattern may backtrack. Its match then needs a time limit."""
    return pattern._compiled.timed


PatternLike = str | bytes | Pattern | Regex
"""Types that `compile` takes."""

Patterns = PatternLike | Iterable[PatternLike]
"""Types that `subscribe` takes."""


def _decode_text(text: str | bytes) -> str | bytes:
    if isinstance(text, bytes):
        try:
            return text.decode()
        except UnicodeDecodeError:
            return text
    return text


def compile(pattern: PatternLike, dialect: str | None = None, *, lenient: bool = False) -> Pattern:
    """Compile a pattern.

    Args:
        pattern: text, `str` or `bytes`. If `dialect` is None, a `str` may begin with one of `oz.DIALECTS` and a colon,
            as in `rv:Foo.*`. A pattern compiled by `re` or `regex` always belongs to the regex dialect. A `Pattern` is
            returned unchanged.
        dialect: one of `oz.DIALECTS`. The whole text is a pattern of this dialect. If `dialect` is None, the text may
            name its dialect; the default is nats.
        lenient: whether a misplaced wildcard of the rv dialect is a literal.

    Raises:
        PatternError: the dialect does not allow the text.
        ConfigurationError: no dialect has this name.
        TypeError: the text has another type.
    """
    return compile_with_default(pattern, dialect, DEFAULT_DIALECT, lenient=lenient)


def compile_with_default(
    text: PatternLike, dialect: str | None, default: str, *, lenient: bool = False
) -> Pattern:
    """Compile a pattern. The socket, file or command of the pattern determines the default dialect.

    Args:
        text: pattern, as in `compile`.
        dialect: dialect of the whole text; None if a `str` may name its dialect before its first colon.
        default: dialect of a text that names no dialect. If `default` is `zmq`, a text cannot name a dialect, because a
            prefix may begin with any bytes.
        lenient: whether a misplaced wildcard of the rv dialect is a literal.

    Raises:
        PatternError, ConfigurationError, TypeError: for the same reasons as in `compile`.
    """
    if isinstance(text, Pattern):
        return text
    if isinstance(text, (re.Pattern, regex.Pattern)):
        return _from_regex(text.pattern, flags_of(text), getattr(text, "named_lists", None) or {})
    if dialect is None:
        dialect, text = _split_dialect(text, default)
    rules = dialects.find(dialect)
    own = rules.decode(text, PatternError)
    return Pattern(own, rules, rules.compile(own, lenient=lenient), variant="lenient" if lenient else None)


def _split_dialect(text: Any, default: str) -> tuple[str, Any]:
    if isinstance(text, str) and default != "zmq":
        name, colon, rest = text.partition(":")
        if colon and name in dialects.BY_NAME:
            return name, rest
    return default, text


def _unpickle(text: str | bytes, dialect: str, lenient: bool) -> Pattern:
    return compile(text, dialect, lenient=lenient)


def regex_with_flags(text: str | bytes, flags: int, *, max_weight: int = MAX_WEIGHT) -> Pattern:
    """Compile a pattern of the regex dialect with flags of the `regex` package.

    Args:
        text: text of the regex.
        flags: flags of the `regex` package, such as `regex.I`.
        max_weight: maximum number of nodes of the compiled regex. A repeat counts with all its copies.

    Raises:
        PatternError: the dialect does not allow the regex, or the regex has more than `max_weight` nodes.
    """
    own = dialects.find(Regular.name).decode(text, PatternError)
    return _from_regex(own, flags, {}, max_weight)


def estimate_memory(pattern: Pattern) -> int:
    """Return the estimated memory of a pattern in bytes, minus `FREE_BYTES`, but at least 0."""
    elements = pattern._compiled.elements
    bytes_taken = 1_536 + 350 * elements if elements else 600 + 8 * len(pattern.text)
    return max(0, bytes_taken - FREE_BYTES)


def _from_regex(
    text: str | bytes, flags: int, named_lists: dict[str, Any], max_weight: int = MAX_WEIGHT
) -> Pattern:
    rules = dialects.find(Regular.name)
    assert isinstance(rules, Regular)
    if isinstance(text, bytes):
        raise PatternError(rules.name, text, 0, "this regex matches bytes; compile it from a str")
    # The engine adds UNICODE and V0. They are removed, so that a compiled regex equals the same regex given as text.
    asked = flags & ~(regex.UNICODE | regex.V0)
    compiled = rules.compile_flags(text, asked, named_lists, max_weight=max_weight)
    variant = (asked, tuple(sorted((name, frozenset(words)) for name, words in named_lists.items())))
    return Pattern(text, rules, compiled, variant=variant if asked or named_lists else None)


def validate_subject(subject: str | bytes, dialect: str = DEFAULT_DIALECT) -> None:
    """Check whether a dialect allows a published subject.

    Args:
        subject: text or bytes.
        dialect: one of `oz.DIALECTS`.

    Raises:
        SubjectError: the dialect does not allow the subject.
        ConfigurationError: no dialect has this name.
    """
    rules = dialects.find(dialect)
    rules.check_subject(rules.decode(subject, SubjectError))
