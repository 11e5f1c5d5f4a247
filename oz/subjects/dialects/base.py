"""The base of every dialect: compiled patterns, their meaning and spelling, and a check of subjects.

A dialect is one file here and a line in `oz.subjects.dialects`. Whatever else oz must know of it, it says.
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
    """A token of a hierarchical pattern that is not literal text."""

    ONE = "one"
    """Exactly one token."""
    REST = "rest"
    """One or more tokens, to the end of the subject."""
    ANY = "any"
    """Zero or more tokens; anywhere in amqp, last in mqtt."""


@dataclass(frozen=True, slots=True)
class Stem:
    """A token that begins with `text`; anything, or nothing, may follow within the token."""

    text: bytes


Token = bytes | Wild | Stem


class Form(Enum):
    """The form of the patterns of a dialect."""

    WORDS = "words"
    """Of words with a separator between them."""
    GLOB = "glob"
    """Of bytes, with stars that stop nowhere."""
    REGEX = "regex"
    LITERAL = "literal"
    """They have no wildcards."""
    PREFIX = "prefix"
    """They match what begins with them."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """The way a dialect takes a subject apart. Dialects that do so alike share one object.

    Attributes:
        split: gives the words; None for what no pattern with a wildcard matches.
        is_reserved: tells whether no wildcard takes the first word.
    """

    split: Callable[[bytes], list[bytes] | None]
    is_reserved: Callable[[bytes], bool] = lambda subject: False


def takes(words: Sequence[Token], way: Splitting, subject: bytes) -> bool:
    """Tell whether the words of a pattern take a subject.

    Args:
        words: those of the pattern.
        way: how its dialect takes a subject apart.
        subject: the subject.
    """
    own = way.split(subject)
    if own is None or (way.is_reserved(subject) and not isinstance(words[0], bytes)):
        return False
    at = position = 0
    # Where the last wildcard for any number of words ends, and the word that it takes next.
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
            # It takes one word more. An earlier one need not: the earliest place is as good as any.
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
"""What is wrong with text that stands for no bytes. U+DC80 to U+DCFF do: `surrogateescape` makes them."""


@lru_cache(maxsize=16_384)
def encoded(word: str) -> bytes:
    """Encode a word of a pattern. Equal words become one object: words repeat, and patterns are many.

    It saves memory, and time where they are compared, since fewer objects stay in the processor's cache.
    """
    return word.encode()


class Regex(Protocol):
    """A pattern compiled by `re` or `regex`."""

    @property
    def pattern(self) -> Any:
        """Its text, `str` or `bytes`."""

    @property
    def flags(self) -> int:
        """Its flags, as the `regex` package counts them."""


class CompiledRegex(Regex, Protocol):
    """The type of a compiled regex, also for type checkers without the types of the `regex` package."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The numbers of its named groups."""

    # What these find is a match of the `regex` package, or None.
    def fullmatch(self, string: Any, *, timeout: float | None = None) -> Any:
        """Match all of a subject."""

    def match(self, string: Any, *, timeout: float | None = None) -> Any:
        """Match the beginning of a subject."""

    def search(self, string: Any, *, timeout: float | None = None) -> Any:
        """Find the first place in a subject that matches."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The parts that a dialect makes of a pattern's text.

    Attributes:
        regex: decides; to be used with `fullmatch`. None: `Dialect.make_regex` makes it when it is asked
            for, since an index of a million patterns never does.
        prefixes: every matching subject starts with one of them; none is a prefix of another.
        literal: the one subject that matches, where there is just one and it is known.
        tokens: the pattern as dot-separated tokens, where the dialect has them; none of a subject's
            is empty.
        words: the same for dialects that split a subject in ways of their own.
        timed: whether the regex may need a time limit, because it can backtrack at length.
        elements: about how many nodes the engine makes of the regex; 0 where it is made later.
    """

    regex: regex.Pattern[Any] | None
    prefixes: tuple[bytes, ...]
    literal: bytes | None = None
    tokens: tuple[Token, ...] | None = None
    words: tuple[Token, ...] | None = None
    timed: bool = False
    elements: int = 0


class Dialect(ABC):
    """One set of subject rules. Text dialects speak `str`, byte dialects `bytes`."""

    name: ClassVar[str]
    form: ClassVar[Form]
    is_bytes: ClassVar[bool] = False
    separator: ClassVar[str | None] = None
    """What stands between words."""
    splitting: ClassVar[Splitting | None] = None
    """How an index takes subjects apart; None where patterns have no words."""
    wildcards: ClassVar[str] = "*>"
    """Characters that may be meant as wildcards."""
    spelling: ClassVar[Mapping[Wild, str]] = MappingProxyType({})
    """How each wildcard is written, or the nearest that there is."""
    has_inner_any: ClassVar[bool] = False
    """Whether `Wild.ANY` may stand before the last word."""

    @abstractmethod
    def compile(self, text: str | bytes, *, lenient: bool = False) -> Compiled:
        """Parse a pattern and compile it.

        Args:
            text: the pattern, already in the dialect's own type (`decode` does that).
            lenient: take a misplaced wildcard as a literal where the dialect knows that mode.

        Raises:
            PatternError: the dialect does not allow the pattern.
        """

    @abstractmethod
    def expression(self, text: str | bytes, compiled: Compiled) -> Expression:
        """Say what a pattern with a wildcard means, for what relates patterns.

        Raises:
            Undecidable: it uses more than expressions can say.
        """

    def make_regex(self, compiled: Compiled) -> regex.Pattern[Any]:
        """Make the regex that `compile` left for later, if the dialect leaves any."""
        assert compiled.regex is not None, f"{self.name} leaves no regex for later"
        return compiled.regex

    def check_subject(self, subject: str | bytes) -> None:  # noqa: B027 - most byte dialects allow anything
        """Refuse what may not be published.

        Raises:
            SubjectError: the dialect does not allow the subject.
        """

    def subject_advice(self, subject: str | bytes) -> str | None:
        """Say why a legal subject is unwise, or nothing."""
        return None

    def literal_text(self, text: bytes) -> str | bytes:
        """Write the pattern that matches one subject only."""
        return text

    def stem_text(self, text: str) -> str:
        """Write the word that begins with a text, or the nearest that there is."""
        return self.spelling[Wild.ONE]

    def words_text(self, words: Sequence[Token]) -> str:
        """Write a pattern of words, with the nearest wildcard where the dialect lacks one.

        Raises:
            PatternError: any number of words stands where the dialect has no wildcard for it.
            UnicodeDecodeError: a word is not UTF-8.
        """
        separator = self.separator or ""
        written: list[str] = []
        for at, word in enumerate(words):
            if word is Wild.ANY and not self.has_inner_any and at < len(words) - 1:
                rule = "it has no wildcard for any number of tokens before the last"
                raise PatternError(self.name, separator.join([*written, "#", "…"]), 0, rule)
            if isinstance(word, Wild):
                written.append(self.spelling[word])
            else:
                written.append(
                    self.stem_text(word.text.decode()) if isinstance(word, Stem) else word.decode()
                )
        return separator.join(written)

    def decode(self, text: object, error: type[PatternError | SubjectError]) -> str | bytes:
        """Bring text into the dialect's own type: UTF-8 both ways, and `surrogateescape` for what is not.

        Raises:
            PatternError, SubjectError: the text cannot be had in that type; `error` says which.
            TypeError: neither `str` nor `bytes`.
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
                self.name, text, bad.start, "bytes are read as UTF-8 here, and these are not"
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
