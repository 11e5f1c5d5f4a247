"""A pattern: its text compiled to prefixes for ZeroMQ and a regex for what they let through."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import regex

from oz.errors import PatternError, PatternTimeout, SubjectError
from oz.subjects import dialects, relations
from oz.subjects.dialects.base import Compiled, CompiledRegex, Dialect, Form, Regex, Splitting, Token, takes
from oz.subjects.dialects.regular import MAX_WEIGHT, Regular, flags_of
from oz.subjects.expressions import Expression, Text

DEFAULT_DIALECT = "nats"

TIME_LIMIT = 0.05
"""Seconds of processor time that a pattern which may backtrack can spend on one subject."""


LONG_WORDS = 256
"""Characters of a pattern of words beyond which it is compared word by word."""

LIGHT = 1_024
"""Bytes that any pattern may take: how many there may be is bounded by itself."""


class Pattern:
    """A compiled subject pattern. Make one with `oz.compile`; it never changes.

    Two patterns are equal when dialect and text are (and the flags, for a regex).

    Attributes:
        text: the pattern as it was given: `str`, or `bytes` where those are not UTF-8.
        dialect: the name of its dialect.
        prefixes: the byte strings for ZMQ_SUBSCRIBE. Every subject that matches starts with one of
            them; a subject that starts with one may still not match.
        is_literal: whether exactly one subject matches, and it is known which.
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
        self, text: str | bytes, dialect: Dialect, compiled: Compiled, variant: object = None
    ) -> None:
        """For `compile`; `variant` is what else tells this pattern from one with the same text."""
        self.text = _readable(text)
        self.dialect = dialect.name
        self.prefixes = compiled.prefixes
        self._regex = compiled.regex
        self.is_literal = compiled.literal is not None
        self._dialect = dialect
        self._compiled = compiled
        self._variant = variant

    @property
    def regex(self) -> CompiledRegex:
        """The compiled regex that decides, to be used with `fullmatch`.

        A byte dialect's regex takes `bytes`, a text dialect's `str`. That of a token dialect is made when
        it is first asked for.
        """
        if self._regex is None:
            self._regex = self._dialect.make_regex(self._compiled)
        return self._regex

    @property
    def prefix(self) -> bytes:
        """The common part of all prefixes: the one prefix to subscribe to, if it must be one."""
        first, last = min(self.prefixes), max(self.prefixes)
        length = next(
            (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None
        )
        return first[:length] if length is not None else min(first, last, key=len)

    @property
    def literal(self) -> bytes | None:
        """The one subject that matches, as bytes; None when there may be others."""
        return self._compiled.literal

    @property
    def tokens(self) -> tuple[Token, ...] | None:
        """The parsed tokens of a dot-separated dialect; None in the others."""
        return self._compiled.tokens

    @property
    def words(self) -> tuple[Token, ...] | None:
        """The parsed words of a dialect that splits subjects in a way of its own; None in the others."""
        return self._compiled.words

    @property
    def splitting(self) -> Splitting | None:
        """The tokens of its dialect's subjects; None where patterns have no words."""
        return self._dialect.splitting

    @property
    def is_bytes(self) -> bool:
        """Whether the dialect matches bytes rather than text."""
        return self._dialect.is_bytes

    @property
    def is_prefix(self) -> bool:
        """Whether it matches whatever begins with it, as ZeroMQ's own filter does."""
        return self._dialect.form is Form.PREFIX

    @property
    def is_lenient(self) -> bool:
        """Whether it was compiled with `lenient=True`, in the rv dialect."""
        return self._variant == "lenient"

    @property
    def flags(self) -> int:
        """The flags that a compiled regex came with, as the `regex` package counts them; 0 without."""
        return int(self._variant[0]) if isinstance(self._variant, tuple) else 0

    @property
    def named_lists(self) -> tuple[Any, ...]:
        r"""The named lists that a compiled regex came with: pairs of name and words."""
        return self._variant[1] if isinstance(self._variant, tuple) else ()

    def matches(self, subject: str | bytes) -> bool:
        """Tell whether a subject matches.

        Args:
            subject: text or bytes; a byte dialect takes the UTF-8 of text, the others decode bytes.

        Raises:
            SubjectError: the subject cannot be had in the dialect's type.
            PatternTimeout: the pattern took longer than `TIME_LIMIT`; no other dialect than regex
                and raims.glob can.
        """
        own = self._dialect.decode(subject, SubjectError)
        if self._compiled.literal is not None:
            # Not by the regex: of a long literal the engine first makes search tables, in cubic time.
            return (own if isinstance(own, bytes) else own.encode()) == self._compiled.literal
        if len(self.text) > LONG_WORDS and self.splitting is not None:
            # A regex of thousands of words takes a tenth of a second to make.
            words = self.tokens if self.tokens is not None else self.words
            assert words is not None
            return takes(words, self.splitting, own if isinstance(own, bytes) else own.encode())
        if self.is_prefix:
            return (own if isinstance(own, bytes) else own.encode()).startswith(self.prefixes[0])
        if self._compiled.timed:
            return decides(self, own, TIME_LIMIT)
        return self.regex.fullmatch(own) is not None

    def expression(self) -> Expression:
        """Say what it means, for what relates patterns.

        Raises:
            Undecidable: it is a regex that uses more than expressions can say.
        """
        literal = self._compiled.literal
        return Text(literal) if literal is not None else self._dialect.expression(self.text, self._compiled)

    def covers(self, other: Pattern) -> bool:
        """Tell whether this pattern matches every subject that the other matches; see docs/relations.md.

        Raises:
            Undecidable: it cannot be told for certain; only regexes and very involved globs are like that.
        """
        return relations.covers(self, other)

    def overlaps(self, other: Pattern) -> bool:
        """Tell whether some subject is matched by both patterns.

        Raises:
            Undecidable: it cannot be told for certain.
        """
        return relations.overlaps(self, other)

    def witness(self, other: Pattern) -> str | None:
        """Find a shortest subject that both patterns match, or None where they do not overlap.

        It has as few characters as can be. Where nothing in UTF-8 will do, its bytes come by
        `surrogateescape`, as in `Message.subject`.

        Raises:
            Undecidable: it cannot be told for certain.
        """
        return relations.witness(self, other)

    def __eq__(self, other: object) -> bool:
        """Equal when dialect, text and flags are."""
        return (
            isinstance(other, Pattern)
            and self.text == other.text
            and self.dialect == other.dialect
            and self._variant == other._variant
        )

    def __hash__(self) -> int:
        """Agree with equality."""
        # Made anew each time: kept for each of a million patterns it would take a quarter of their memory.
        return hash((self.dialect, self.text, self._variant))

    def __repr__(self) -> str:
        """Show how to make it again."""
        return f"oz.compile({self.text!r}, {self.dialect!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the call that makes it again."""
        variant = self._variant
        if self.dialect == "regex":
            # Not the regex's own flags: those that the text sets would come back as given ones.
            asked, lists = variant if isinstance(variant, tuple) else (0, ())
            return _from_regex, (self.text, asked, dict(lists))
        return _remake, (self.text, self.dialect, variant is not None)


def decides(pattern: Pattern, subject: str | bytes, seconds: float) -> bool:
    """Tell whether a pattern's regex takes a subject, which is in the dialect's own type.

    Args:
        pattern: the pattern.
        subject: the subject.
        seconds: processor time that it may take, if it can backtrack at length.

    Raises:
        PatternTimeout: it took longer.
    """
    if not pattern._compiled.timed:
        # To ask the engine for a limit costs more than such a pattern takes.
        return pattern.regex.fullmatch(subject) is not None
    try:
        return pattern.regex.fullmatch(subject, timeout=seconds) is not None
    except (TimeoutError, MemoryError):
        # A pattern that calls itself runs out of memory instead.
        raise PatternTimeout(pattern.text, subject, seconds) from None


def may_take_long(pattern: Pattern) -> bool:
    """Tell whether a pattern's regex can backtrack at length."""
    return pattern._compiled.timed


PatternLike = str | bytes | Pattern | Regex
"""What can be compiled."""

Patterns = PatternLike | Iterable[PatternLike]
"""What can be subscribed to."""


def _readable(text: str | bytes) -> str | bytes:
    if isinstance(text, bytes):
        try:
            return text.decode()
        except UnicodeDecodeError:
            return text
    return text


def compile(text: PatternLike, dialect: str | None = None, *, lenient: bool = False) -> Pattern:
    """Compile a pattern.

    Args:
        text: the pattern, `str` or `bytes`. Without `dialect`, a `str` may name one of `oz.DIALECTS` before
            its first colon, as in `rv:Foo.*`. A pattern compiled by `re` or `regex` belongs to the regex
            dialect whatever `dialect` says. A `Pattern` is returned as is.
        dialect: one of `oz.DIALECTS`; the whole text is then a pattern of that dialect. Default: the dialect
            that the text names, or nats.
        lenient: take a misplaced wildcard as a literal, in the rv dialect; no effect in the others.

    Raises:
        PatternError: the dialect does not allow the text; says where and why.
        ConfigurationError: no dialect has this name.
        TypeError: the text is none of these types.
    """
    return compile_with_default(text, dialect, DEFAULT_DIALECT, lenient=lenient)


def compile_with_default(
    text: PatternLike, dialect: str | None, default: str, *, lenient: bool = False
) -> Pattern:
    """Compile a pattern where a socket, a file or a command has a default dialect.

    Args:
        text: as for `compile`.
        dialect: the dialect of the whole text. None reads the name before the first colon of a `str`.
        default: the dialect of text that names none. With `zmq` no name is read, so that every prefix can be
            given.
        lenient: as for `compile`.

    Raises:
        PatternError, ConfigurationError, TypeError: as `compile`.
    """
    if isinstance(text, Pattern):
        return text
    if isinstance(text, (re.Pattern, regex.Pattern)):
        return _from_regex(text.pattern, flags_of(text), getattr(text, "named_lists", None) or {})
    if dialect is None:
        dialect, text = _split(text, default)
    rules = dialects.find(dialect)
    own = rules.decode(text, PatternError)
    return Pattern(own, rules, rules.compile(own, lenient=lenient), variant="lenient" if lenient else None)


def _split(text: Any, default: str) -> tuple[str, Any]:
    """Return the dialect of a text and the pattern without the name of the dialect."""
    if isinstance(text, str) and default != "zmq":
        name, colon, rest = text.partition(":")
        if colon and name in dialects.BY_NAME:
            return name, rest
    return default, text


def _remake(text: str | bytes, dialect: str, lenient: bool) -> Pattern:
    return compile(text, dialect, lenient=lenient)


def regex_with_flags(text: str | bytes, flags: int, *, max_weight: int = MAX_WEIGHT) -> Pattern:
    """Compile a pattern of the regex dialect with flags of the `regex` package.

    Args:
        text: the pattern.
        flags: such as `regex.I`.
        max_weight: the most elements, each repeat written out as often as it must occur.

    Raises:
        PatternError: the dialect does not allow it, or it has more elements.
    """
    own = dialects.find(Regular.name).decode(text, PatternError)
    return _from_regex(own, flags, {}, max_weight)


def weight_of(pattern: Pattern) -> int:
    """Estimate the bytes of memory that a pattern takes beyond the first `LIGHT`."""
    elements = pattern._compiled.elements
    bytes_taken = 1_536 + 350 * elements if elements else 600 + 8 * len(pattern.text)
    return max(0, bytes_taken - LIGHT)


def _from_regex(
    text: str | bytes, flags: int, named_lists: dict[str, Any], max_weight: int = MAX_WEIGHT
) -> Pattern:
    rules = dialects.find(Regular.name)
    assert isinstance(rules, Regular)
    if isinstance(text, bytes):
        raise PatternError(rules.name, text, 0, "this regex matches bytes; compile it from a str")
    # The engine adds flags of its own to those it was given; without them two equal patterns compare equal.
    asked = flags & ~(regex.UNICODE | regex.V0)
    compiled = rules.compile_flags(text, asked, named_lists, max_weight=max_weight)
    variant = (asked, tuple(sorted((name, frozenset(words)) for name, words in named_lists.items())))
    return Pattern(text, rules, compiled, variant=variant if asked or named_lists else None)


def validate_subject(subject: str | bytes, dialect: str = DEFAULT_DIALECT) -> None:
    """Check that a subject may be published in a dialect.

    Args:
        subject: text or bytes.
        dialect: one of `oz.DIALECTS`.

    Raises:
        SubjectError: it may not; says where and why.
        ConfigurationError: no dialect has this name.
    """
    rules = dialects.find(dialect)
    rules.check_subject(rules.decode(subject, SubjectError))
