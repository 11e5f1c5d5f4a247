"""Base class of the dialects: compilation, expressions, spelling of translations, and checks of subjects.

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
    """Wildcard of a pattern of words."""

    ONE = "one"
    """Exactly one token."""
    REST = "rest"
    """One or more tokens, to the end of the subject."""
    ANY = "any"
    """Zero or more tokens. In amqp it may have any position, in mqtt only the last."""


@dataclass(frozen=True, slots=True)
class Stem:
    """Token that begins with `text`, such as `foo*` of kubemq."""

    text: bytes


Token = bytes | Wild | Stem


class Form(Enum):
    """Form of the patterns of a dialect."""

    WORDS = "words"
    """Words with a separator between them."""
    GLOB = "glob"
    """Bytes with wildcards that also match separators."""
    REGEX = "regex"
    LITERAL = "literal"
    """No wildcards."""
    PREFIX = "prefix"
    """Prefix of the matching subjects."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """Rules for splitting a subject into words. Dialects with the same rules share one object.

    Attributes:
        split: returns the words; None for a subject that no pattern with a wildcard matches.
        is_reserved: returns whether no wildcard matches the first word.
    """

    split: Callable[[bytes], list[bytes] | None]
    is_reserved: Callable[[bytes], bool] = lambda subject: False


def words_match(words: Sequence[Token], way: Splitting, subject: bytes) -> bool:
    """Return whether the words of a pattern match a subject.

    Args:
        words: of the pattern.
        way: rules for splitting of its dialect.
        subject: the subject.
    """
    own = way.split(subject)
    if own is None or (way.is_reserved(subject) and not isinstance(words[0], bytes)):
        return False
    at = position = 0
    # For a retry: index behind the last wildcard for any number of words, and the position of the next word for it.
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
            # The last such wildcard matches one more word. Earlier wildcards keep their shortest match.
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
"""Error for surrogates that represent no byte. U+DC80 to U+DCFF represent bytes, by `surrogateescape`."""


@lru_cache(maxsize=16_384)
def encode_word(word: str) -> bytes:
    """Return the UTF-8 of a word of a pattern. Equal words are one object.

    In an index of many patterns this saves memory, and time for comparisons, because the words fit into the
    cache of the processor.
    """
    return word.encode()


class Regex(Protocol):
    """Pattern that was compiled by `re` or `regex`."""

    @property
    def pattern(self) -> Any:
        """Text, `str` or `bytes`."""

    @property
    def flags(self) -> int:
        """Flags, with the numbers of its package."""


class CompiledRegex(Regex, Protocol):
    """Type of a compiled regex, for type checkers without the types of the `regex` package."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """Numbers of the named groups."""

    # These methods return a match object of the `regex` package, or None.
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
        regex: for `fullmatch`. None if `Dialect.make_regex` compiles it at the first access, because an index
            of a million patterns needs no regexes.
        prefixes: each matching subject begins with one of them. None of them is a prefix of another.
        literal: the only subject that matches, if it is known.
        tokens: tokens of the pattern in a dialect with dots between non-empty tokens.
        words: words of the pattern in a dialect with other rules for splitting.
        timed: whether a match needs a time limit, because the regex may backtrack.
        elements: estimate of the nodes of the compiled regex; 0 without `regex`.
    """

    regex: regex.Pattern[Any] | None
    prefixes: tuple[bytes, ...]
    literal: bytes | None = None
    tokens: tuple[Token, ...] | None = None
    words: tuple[Token, ...] | None = None
    timed: bool = False
    elements: int = 0


class Dialect(ABC):
    """Syntax of patterns, and rules for subjects. Text dialects use `str`, byte dialects `bytes`."""

    name: ClassVar[str]
    form: ClassVar[Form]
    is_bytes: ClassVar[bool] = False
    separator: ClassVar[str | None] = None
    """Separator of words."""
    splitting: ClassVar[Splitting | None] = None
    """Rules for splitting subjects; None in a dialect without words."""
    wildcards: ClassVar[str] = "*>"
    """Characters of wildcards."""
    spelling: ClassVar[Mapping[Wild, str]] = MappingProxyType({})
    """Text of each wildcard, or of the nearest wildcard."""
    has_inner_any: ClassVar[bool] = False
    """Whether `Wild.ANY` is allowed before the last word."""

    @property
    def is_prefix(self) -> bool:
        """Whether a pattern matches all subjects that begin with it, as a ZeroMQ subscription does."""
        return self.form is Form.PREFIX

    @abstractmethod
    def compile(self, text: str | bytes, *, lenient: bool = False) -> CompiledPattern:
        """Parse a pattern and compile it.

        Args:
            text: the pattern in the type of the dialect, see `decode`.
            lenient: whether a misplaced wildcard is a literal; only rv uses it.

        Raises:
            PatternError: the dialect does not allow the pattern.
        """

    @abstractmethod
    def expression(self, text: str | bytes, compiled: CompiledPattern) -> Expression:
        """Return the expression of a pattern with a wildcard, for `oz.subjects.relations`.

        Raises:
            Undecidable: the pattern has a feature that expressions lack.
        """

    def make_regex(self, compiled: CompiledPattern) -> regex.Pattern[Any]:
        """Return the regex of a pattern that `compile` left without one."""
        assert compiled.regex is not None, f"{self.name} compiles each regex at once"
        return compiled.regex

    def check_subject(self, subject: str | bytes) -> None:  # noqa: B027 - byte dialects allow any subject
        """Check a subject by the rules for publishers.

        Raises:
            SubjectError: the dialect does not allow the subject.
        """

    def subject_advice(self, subject: str | bytes) -> str | None:
        """Return the advice on a legal but unwise subject, or None."""
        return None

    def literal_text(self, text: bytes) -> str | bytes:
        """Return the pattern that matches only one subject."""
        return text

    def stem_text(self, text: str) -> str:
        """Return the word for a stem, or the nearest wildcard."""
        return self.spelling[Wild.ONE]

    def words_text(self, words: Sequence[Token]) -> str:
        """Return a pattern of words. A wildcard that the dialect lacks becomes the nearest wildcard.

        Raises:
            PatternError: the dialect allows a wildcard for any number of words only at the end.
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
        """Return text in the type of the dialect, by UTF-8 and `surrogateescape`.

        Args:
            text: `str` or `bytes`.
            error: class of the error.

        Raises:
            PatternError, SubjectError: the text cannot be converted.
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
