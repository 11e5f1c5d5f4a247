"""Base class of the dialects. A dialect compiles patterns, writes translated patterns, and checks subjects.

To add a dialect, add one file to this package and one line to `oz.subjects.dialects`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import regex

from oz.errors import PatternError, SubjectError
from oz.subjects.expressions import Expression


class Wild(Enum):
    """Wildcard in a pattern that consists of words. Token is another name for a word."""

    ONE = "one"
    """Exactly one token."""
    REST = "rest"
    """One or more tokens, to the end of the subject."""
    ANY = "any"
    """Zero or more tokens. In amqp this wildcard may have any position, and in mqtt only the last position."""


@dataclass(frozen=True, slots=True)
class Stem:
    """Wildcard for one token that begins with `text`, such as `foo*` of kubemq."""

    text: bytes


Token = bytes | Wild | Stem


class Form(Enum):
    """Kind of patterns that a dialect has."""

    WORDS = "words"
    """Words with a separator between them."""
    GLOB = "glob"
    """Byte string with wildcards. A wildcard may match any byte."""
    REGEX = "regex"
    LITERAL = "literal"
    """No wildcards."""
    PREFIX = "prefix"
    """Byte string that matches all subjects that begin with it."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """Rules for splitting a subject into words. Dialects with the same rules share one object.

    Attributes:
        split: function that returns the words of a subject, or None if no pattern with a wildcard can match the
            subject.
        is_reserved: function that returns True if no wildcard may match the first word of a subject.
    """

    split: Callable[[bytes], list[bytes] | None]
    is_reserved: Callable[[bytes], bool] = lambda subject: False


def words_match(words: Sequence[Token], way: Splitting, subject: bytes) -> bool:
    """Return whether the words of a pattern match a subject.

    Args:
        words: words of the pattern.
        way: rules for splitting subjects in the dialect of the pattern.
        subject: subject in bytes.
    """
    own = way.split(subject)
    if own is None or (way.is_reserved(subject) and not isinstance(words[0], bytes)):
        return False
    at = position = 0
    # For a retry: pattern index behind the last `Wild.ANY`, and position of the next subject word that this wildcard
    # may match.
    behind, retry = -1, 0
    while position < len(own):
        word = words[at] if at < len(words) else None
        if word is Wild.REST:
            return True
        if word is Wild.ANY:
            at, behind, retry = at + 1, at + 1, position
        elif word is not None and _takes_one(word, own[position]):
            at, position = at + 1, position + 1
        elif behind >= 0:
            # The last `Wild.ANY` matches one more word. Earlier wildcards keep their shortest match.
            retry += 1
            at, position = behind, retry
        else:
            return False
    return all(word is Wild.ANY for word in words[at:])


def _takes_one(word: Token, own: bytes) -> bool:
    if isinstance(word, Stem):
        return own.startswith(word.text)
    return word is Wild.ONE or word == own


LONE_SURROGATE = "a lone surrogate has no UTF-8 form, so it cannot be sent"
"""Error text for a surrogate outside of U+DC80 to U+DCFF. Surrogates in this range represent bytes, by
`surrogateescape`."""


@lru_cache(maxsize=16_384)
def encode_word(word: str) -> bytes:
    """Return a word as UTF-8. Equal words give the same bytes object.

    Shared objects save memory in an index of many patterns. Comparisons become faster too, because the words fit into
    the processor's cache.
    """
    return word.encode()


class Regex(Protocol):
    """Regex that was compiled by `re` or `regex`."""

    @property
    def pattern(self) -> Any:
        """Text of the regex, `str` or `bytes`."""

    @property
    def flags(self) -> int:
        """Flags. Their numbers are defined by the package that compiled the regex."""


class CompiledRegex(Regex, Protocol):
    """Compiled regex of the `regex` package. Type checkers do not need the types of the package."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """Group number of each named group."""

    # The methods below return a match object of the `regex` package, or None.
    def fullmatch(self, string: Any, *, timeout: float | None = None) -> Any:
        """Match the whole subject."""

    def match(self, string: Any, *, timeout: float | None = None) -> Any:
        """Match the beginning of a subject."""

    def search(self, string: Any, *, timeout: float | None = None) -> Any:
        """Search for the first match in a subject."""


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """Result of the compilation of a pattern.

    Attributes:
        regex: compiled regex that matches the whole subject. None if `Dialect.make_regex` compiles the regex later, at
            the first access: an index of a million patterns needs no regexes.
        prefixes: byte strings. Each matching subject begins with one of the prefixes. No prefix begins with another
            prefix.
        literal: the subject, if the pattern is known to match exactly one subject; else None.
        tokens: tokens of the pattern, if its dialect is a `TokenDialect`; else None.
        words: words of the pattern, if its dialect has words but is no `TokenDialect`; else None.
        timed: whether the regex may backtrack, so that a match needs a time limit.
        elements: estimated number of nodes of the compiled regex; 0 without a regex.
    """

    regex: regex.Pattern[Any] | None
    prefixes: tuple[bytes, ...]
    literal: bytes | None = None
    tokens: tuple[Token, ...] | None = None
    words: tuple[Token, ...] | None = None
    timed: bool = False
    elements: int = 0


class Dialect(ABC):
    """Syntax of patterns, and rules for subjects.

    Patterns and subjects are `str` in a text dialect, and `bytes` in a byte dialect.
    """

    name: ClassVar[str]
    form: ClassVar[Form]
    is_bytes: ClassVar[bool] = False
    separator: ClassVar[str | None] = None
    """Separator of words; None in a dialect without words."""
    splitting: ClassVar[Splitting | None] = None
    """Rules for splitting subjects; None in a dialect without words."""
    wildcards: ClassVar[str] = "*>"
    """Characters that may be wildcards in a pattern."""
    spelling: ClassVar[Mapping[Wild, str]] = MappingProxyType({})
    """Text of each wildcard. If the dialect lacks a wildcard, this is the text of the nearest wildcard."""
    has_inner_any: ClassVar[bool] = False
    """Whether `Wild.ANY` is allowed before the last word."""

    @property
    def is_prefix(self) -> bool:
        """Whether a pattern matches all subjects that begin with the pattern's text, as a ZeroMQ subscription does."""
        return self.form is Form.PREFIX

    @abstractmethod
    def compile(self, text: str | bytes, *, lenient: bool = False) -> CompiledPattern:
        """Parse a pattern and compile it.

        Args:
            text: pattern, `str` in a text dialect and `bytes` in a byte dialect; see `decode`.
            lenient: whether a misplaced wildcard is a literal. Only rv uses this argument.

        Raises:
            PatternError: the dialect does not allow the pattern.
        """

    @abstractmethod
    def expression(self, text: str | bytes, compiled: CompiledPattern) -> Expression:
        """Return the expression of a pattern that has wildcards. `oz.subjects.relations` compares expressions.

        Raises:
            Undecidable: the pattern has a feature that `Expression` lacks.
        """

    def make_regex(self, compiled: CompiledPattern) -> regex.Pattern[Any]:
        """Return the compiled regex of a pattern. A dialect whose `compile` returns no regex overrides this method."""
        assert compiled.regex is not None, f"{self.name} compiles each regex at once"
        return compiled.regex

    def check_subject(self, subject: str | bytes) -> None:  # noqa: B027 - byte dialects allow any subject
        """Check a subject that a program publishes.

        Raises:
            SubjectError: the dialect does not allow the subject.
        """

    def subject_advice(self, subject: str | bytes) -> str | None:
        """Return the advice on a legal but unwise subject; None without advice."""
        return None

    def literal_text(self, text: bytes) -> str | bytes:
        """Return the pattern that matches only the subject `text`."""
        return text

    def stem_text(self, text: str) -> str:
        """Return the spelling of a `Stem`, or of the nearest wildcard if the dialect has no stems."""
        return self.spelling[Wild.ONE]

    def words_text(self, words: Sequence[Token]) -> str:
        """Return the text of a pattern. If the dialect lacks a wildcard, the text has the nearest wildcard.

        Raises:
            PatternError: a wildcard for any number of words is not at the end, and the dialect allows it only at the
                end.
            UnicodeDecodeError: a word is not UTF-8.
        """
        separator = self.separator or ""
        written: list[str] = []
        for at, word in enumerate(words):
            if word is Wild.ANY and not self.has_inner_any and at < len(words) - 1:
                rule = f"{self.name} has a wildcard for any number of tokens only at the end"
                raise PatternError(self.name, separator.join([*written, "#", "…"]), 0, rule)
            if isinstance(word, Wild):
                written.append(self.spelling[word])
            else:
                written.append(
                    self.stem_text(word.text.decode()) if isinstance(word, Stem) else word.decode()
                )
        return separator.join(written)

    def decode(self, text: object, error: type[PatternError | SubjectError]) -> str | bytes:
        """Convert text by UTF-8 to the type of the dialect: `str` for a text dialect, `bytes` for a byte dialect.

        Args:
            text: pattern or subject, `str` or `bytes`. `surrogateescape` represents bytes that are not UTF-8.
            error: class of the error if the text cannot be converted.

        Raises:
            PatternError, SubjectError: the text cannot be converted. The class is `error`.
            TypeError: the text has another type.
        """
        if isinstance(text, (bytes, bytearray, memoryview)):
            return bytes(text) if self.is_bytes else self._decoded(bytes(text), error)
        if isinstance(text, str):
            encoded, is_text = self._encoded(text, error)
            if self.is_bytes:
                return encoded
            return text if is_text else self._decoded(encoded, error)
        raise TypeError(f"a subject or pattern is str or bytes, not {type(text).__name__}: {text!r}")

    def _decoded(self, text: bytes, error: type[PatternError | SubjectError]) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError as bad:
            raise error(
                self.name, text, bad.start, "the bytes are not UTF-8, which this dialect needs"
            ) from None

    def _encoded(self, text: str, error: type[PatternError | SubjectError]) -> tuple[bytes, bool]:
        try:
            return text.encode(), True
        except UnicodeEncodeError:
            pass
        try:
            return text.encode(errors="surrogateescape"), False
        except UnicodeEncodeError as bad:
            raise error(self.name, text, bad.start, LONE_SURROGATE) from None
