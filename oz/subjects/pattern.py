"""Compiled patterns: prefixes for the filter of ZeroMQ, and a regex for messages that pass the filter."""

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
"""Maximum length in characters of a pattern of words that is matched by a regex. A longer pattern is matched word by
word, because its regex is slow to compile."""

FREE_BYTES = 1_024
"""Memory of a pattern that `estimate_memory` leaves out, in bytes: `Limits.patterns` bounds the number of patterns."""


class Pattern:
    """Compiled subject pattern. `oz.compile` creates patterns. They are immutable.

    Two patterns are equal if their dialects, texts and flags are equal.

    Attributes:
        text: text of the pattern as `str`, or as `bytes` if it is not UTF-8.
        dialect: name of the pattern's dialect.
        prefixes: byte strings for ZMQ_SUBSCRIBE. Each matching subject begins with one of them. A subject
            that begins with a prefix does not always match.
        is_literal: whether exactly one subject matches, and this subject is known.
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
        """Create a pattern; `compile` calls this. Patterns with equal text but different flags differ in `variant`."""
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
        """Compiled regex that matches whole subjects: `bytes` in a byte dialect, `str` in a text dialect.

        The first access compiles the regex of a dialect of words.
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
        """Whether the pattern was compiled with `lenient=True`, in the rv dialect."""
        return self._variant == "lenient"

    @property
    def _flags(self) -> int:
        """Flags of a compiled regex, with the numbers of the `regex` package; 0 for other patterns."""
        return int(self._variant[0]) if isinstance(self._variant, tuple) else 0

    @property
    def _named_lists(self) -> tuple[Any, ...]:
        """Named lists of a compiled regex: pairs of name and words."""
        return self._variant[1] if isinstance(self._variant, tuple) else ()

    def matches(self, subject: str | bytes) -> bool:
        """Return whether a subject matches.

        Args:
            subject: text or bytes. A byte dialect encodes text as UTF-8, and a text dialect decodes bytes.

        Raises:
            SubjectError: the subject cannot be encoded or decoded.
            PatternTimeout: the match took longer than `TIME_LIMIT`. Only patterns of regex and raims.glob can reach
                the limit.
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
        """Return the expression of the pattern, for `relations`.

        Raises:
            Undecidable: a regex has a feature that expressions lack.
        """
        literal = self._compiled.literal
        return Text(literal) if literal is not None else self._dialect.expression(self.text, self._compiled)

    def covers(self, other: Pattern) -> bool:
        """Return whether this pattern matches every subject that the other pattern matches; see docs/subjects.md.

        Raises:
            Undecidable: the relation cannot be decided, for some regexes and large globs.
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
        """Return the nearest pattern of another dialect, with its relation to this pattern.

        Args:
            dialect: one of `oz.DIALECTS`.
            exchange: whether `.` and `/` are exchanged in subjects.

        Raises:
            PatternError: the dialect has no similar pattern.
            ConfigurationError: no dialect has this name.
        """
        from oz.subjects.translate import translate  # It imports this module.

        return translate(self, dialect, exchange=exchange)

    def __eq__(self, other: object) -> bool:
        """Compare dialect, text and flags."""
        return (
            isinstance(other, Pattern)
            and self.text == other.text
            and self.dialect == other.dialect
            and self._variant == other._variant
        )

    def __hash__(self) -> int:
        """Return a hash of dialect, text and flags."""
        # The hash is not kept, because the hashes of a million patterns would add a quarter to their memory.
        return hash((self.dialect, self.text, self._variant))

    def __repr__(self) -> str:
        """Return the call of `oz.compile` that creates an equal pattern."""
        return f"oz.compile({self.text!r}, {self.dialect!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments of `compile`."""
        variant = self._variant
        if self.dialect == "regex":
            # The flags of the compiled regex also contain flags that its text sets, such as (?i).
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
        # A match with a time limit costs more than the match of such a pattern.
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
        pattern: text, `str` or `bytes`. Without `dialect`, a `str` may name one of `oz.DIALECTS` before
            its first colon, as in `rv:Foo.*`. A pattern compiled by `re` or `regex` always belongs to the
            regex dialect. A `Pattern` is returned unchanged.
        dialect: one of `oz.DIALECTS`, for the whole text. The default is the dialect that the text names. Without
            such a name, it is nats.
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
    """Compile a pattern where a socket, a file or a command has a default dialect.

    Args:
        text: pattern as for `compile`.
        dialect: dialect of the whole text; None to read the name before the first colon of a `str`.
        default: dialect of text that names no dialect. If this default is `zmq`, no name is read, because a prefix
            may begin with any bytes.
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
    """Return the dialect of a text and the pattern without the name of the dialect."""
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
        max_weight: maximum number of nodes of the compiled regex, with each repeat written out.

    Raises:
        PatternError: the dialect does not allow the regex, or the regex has more than `max_weight` nodes.
    """
    own = dialects.find(Regular.name).decode(text, PatternError)
    return _from_regex(own, flags, {}, max_weight)


def estimate_memory(pattern: Pattern) -> int:
    """Return the estimated memory of a pattern in bytes, without the first `FREE_BYTES`."""
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
    # The engine adds these two flags. Without them, equal patterns compare equal.
    asked = flags & ~(regex.UNICODE | regex.V0)
    compiled = rules.compile_flags(text, asked, named_lists, max_weight=max_weight)
    variant = (asked, tuple(sorted((name, frozenset(words)) for name, words in named_lists.items())))
    return Pattern(text, rules, compiled, variant=variant if asked or named_lists else None)


def validate_subject(subject: str | bytes, dialect: str = DEFAULT_DIALECT) -> None:
    """Check a subject by the rules of a dialect for publishers.

    Args:
        subject: text or bytes.
        dialect: one of `oz.DIALECTS`.

    Raises:
        SubjectError: the dialect does not allow the subject.
        ConfigurationError: no dialect has this name.
    """
    rules = dialects.find(dialect)
    rules.check_subject(rules.decode(subject, SubjectError))
