"""Subjects of AMQP topic exchanges: words with dots between them. A word may be empty.

Sources: AMQP 0-9-1, section 3.1.3.3, "The Topic Exchange Type"; RabbitMQ, "Topics" (tutorial 5); answers of a RabbitMQ
server in tests/vectors. If the standard and RabbitMQ differ, oz follows RabbitMQ: any short string may be a routing key
or a binding key, and words may be empty. The empty key has no words.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import regex

from oz.errors import PatternError, SubjectError
from oz.subjects.dialects import literals
from oz.subjects.dialects.base import CompiledPattern, Dialect, Form, Splitting, Token, Wild, encode_word
from oz.subjects.dialects.literals import check_length
from oz.subjects.expressions import (
    ANY_CHAR,
    ANY_TEXT,
    Expression,
    Repeat,
    Seq,
    Text,
    chars_but,
    nonempty,
    optional,
    seq,
)

SEPARATOR = "."
MAX_BYTES = 255
"""Maximum size in bytes of a short string, because its length field has one byte (AMQP 0-9-1, section 4.2.5.3)."""

_END_OF_WORD = r"(?=\.|\Z)"


_DOT = Text(b".")
_WORD = Repeat(chars_but(SEPARATOR), 0, None)


def _words(subject: bytes) -> list[bytes]:
    # The empty routing key has no words.
    return subject.split(b".") if subject else []


class Amqp(Dialect):
    """AMQP dialect.

    `*` matches one word, and `#` matches zero or more words. Inside a longer word, both are literals.
    """

    name = "amqp"
    form = Form.WORDS
    separator = SEPARATOR
    splitting = Splitting(_words)
    wildcards = "*#"
    spelling = MappingProxyType({Wild.ONE: "*", Wild.REST: "*.#", Wild.ANY: "#"})
    has_inner_any = True

    def compile(self, text: str | bytes, *, lenient: bool = False) -> CompiledPattern:
        """Parse the words and compute the prefix; see `Dialect.compile`."""
        assert isinstance(text, str)
        check_length(self.name, text, MAX_BYTES, PatternError)
        parsed = parse(text)
        literal = text.encode() if all(isinstance(word, bytes) for word in parsed) else None
        start = literal if literal is not None else prefix(parsed)
        return CompiledPattern(regex=None, prefixes=(start,), literal=literal, words=parsed)

    def make_regex(self, compiled: CompiledPattern) -> regex.Pattern[Any]:
        """Return the regex of a binding key; see `Dialect.make_regex`."""
        assert compiled.words is not None
        return regex.compile(to_regex(compiled.words), regex.DOTALL)

    def expression(self, text: str | bytes, compiled: CompiledPattern) -> Expression:
        """Return the expression of a binding key; see `Dialect.expression`."""
        words = compiled.words or ()
        if words == (Wild.ANY,):
            return ANY_TEXT
        if [word for word in words if word is not Wild.ANY] == [Wild.ONE] and len(words) > 1:
            return Repeat(ANY_CHAR, 1, None)
        starts_open = words[0] is Wild.ANY
        first, *others = words[1:] if starts_open else words
        items = [optional(Seq((ANY_TEXT, _DOT)))] if starts_open else []
        items.append(_word_expression(first))
        for word in others:
            items += [optional(Seq((_DOT, ANY_TEXT)))] if word is Wild.ANY else [_DOT, _word_expression(word)]
        return nonempty(seq(*items))

    def check_subject(self, subject: str | bytes) -> None:
        """Check the length of a routing key. `*` and `#` are allowed."""
        assert isinstance(subject, str)
        check_length(self.name, subject, MAX_BYTES, SubjectError)


def parse(text: str) -> tuple[Token, ...]:
    """Return the words of a binding key. Adjacent words `#` become one `#`, which has the same meaning."""
    parsed: list[Token] = []
    for part in text.split(SEPARATOR) if text else ():
        word: Token = Wild.ONE if part == "*" else Wild.ANY if part == "#" else encode_word(part)
        if word is not Wild.ANY or parsed[-1:] != [Wild.ANY]:
            parsed.append(word)
    return tuple(parsed)


def _word_expression(word: Token) -> Expression:
    return Text(word) if isinstance(word, bytes) else _WORD


def to_regex(parsed: tuple[Token, ...]) -> str:
    """Return the regex for the words of a pattern. A match takes quadratic time in the worst case.

    A segment, the words between two `#`, has a fixed number of words. Therefore its earliest match is sufficient, and
    an atomic group keeps this match. With atomic groups, the match of a pattern with sixty `#` takes no longer than
    with one `#`. The segment behind the last `#` is matched at the end of the subject.
    """
    first, *rest = _segments(parsed)
    required = [word for word in parsed if word is not Wild.ANY]
    # A pattern for one possibly empty word must not match the empty key, which has no words.
    written = [r"(?!\Z)" if required in ([Wild.ONE], [b""]) else "", _words_regex(first)]
    skipped, glue = (r"(?:\.[^.]*+)*", r"\.") if first else (r"(?:[^.]*+\.)*", "")
    for segment in rest[:-1]:
        written.append(f"(?>{skipped}?{glue}{_words_regex(segment)}{_END_OF_WORD})")
        skipped, glue = r"(?:\.[^.]*+)*", r"\."
    for segment in rest[-1:]:
        if segment:
            written.append(f"{skipped}{glue}{_words_regex(segment)}")
        else:
            written.append(r"(?:\..*+)?+" if glue else ".*+")
    return "".join(written)


def _segments(parsed: Sequence[Token]) -> list[list[Token]]:
    segments: list[list[Token]] = [[]]
    for word in parsed:
        if word is Wild.ANY:
            segments.append([])
        else:
            segments[-1].append(word)
    return segments


def _words_regex(segment: list[Token]) -> str:
    written: list[str] = []
    literal: list[str] = []
    for word in segment:
        if isinstance(word, bytes):
            literal.append(word.decode())
        else:
            written += literals.literal_regex(SEPARATOR.join([*literal, ""])), "[^.]*+"
            literal = [""]  # The next literal begins with a separator.
    return "".join(written) + literals.literal_regex(SEPARATOR.join(literal))


def prefix(parsed: tuple[Token, ...]) -> bytes:
    """Return the words before the first wildcard.

    A separator follows if each matching subject has a separator there.
    """
    count = next(at for at, word in enumerate(parsed) if not isinstance(word, bytes))
    literal = [word for word in parsed[:count] if isinstance(word, bytes)]
    # `a.#` also matches `a`. Therefore its prefix has no separator. The pattern `.#` is an exception: it does not match
    # the empty key.
    more = any(word is not Wild.ANY for word in parsed[count:])
    if literal and (more or literal == [b""]):
        literal.append(b"")
    return SEPARATOR.encode().join(literal)
