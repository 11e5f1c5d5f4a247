"""AMQP topic exchanges: words split by dots, which may be empty.

Source: AMQP 0-9-1, section 3.1.3.3, "The Topic Exchange Type"; RabbitMQ, "Topics" (tutorial 5), and its own
answers in tests/vectors. Where the two differ RabbitMQ decides: any short string is a routing key or a
binding key, and words may be empty; but the empty key has no words, rather than an empty one.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import regex

from oz.errors import PatternError, SubjectError
from oz.subjects.dialects import literals
from oz.subjects.dialects.base import Compiled, Dialect, Form, Splitting, Token, Wild, encoded
from oz.subjects.dialects.literals import check_bytes
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
"""What fits the one byte of length before a short string (AMQP 0-9-1, section 4.2.5.3)."""

_END_OF_WORD = r"(?=\.|\Z)"


_DOT = Text(b".")
_WORD = Repeat(chars_but(SEPARATOR), 0, None)


def _words(subject: bytes) -> list[bytes]:
    # The empty routing key has no words.
    return subject.split(b".") if subject else []


class Amqp(Dialect):
    """`*` is one word, `#` zero or more of them anywhere; inside a longer word both are ordinary."""

    name = "amqp"
    form = Form.WORDS
    separator = SEPARATOR
    splitting = Splitting(_words)
    wildcards = "*#"
    spelling = MappingProxyType({Wild.ONE: "*", Wild.REST: "*.#", Wild.ANY: "#"})
    has_inner_any = True

    def compile(self, text: str | bytes, *, lenient: bool = False) -> Compiled:
        """Parse the words; see `Dialect.compile`."""
        assert isinstance(text, str)
        check_bytes(self.name, text, MAX_BYTES, PatternError)
        parsed = parse(text)
        literal = text.encode() if all(isinstance(word, bytes) for word in parsed) else None
        start = literal if literal is not None else prefix(parsed)
        return Compiled(regex=None, prefixes=(start,), literal=literal, words=parsed)

    def make_regex(self, compiled: Compiled) -> regex.Pattern[Any]:
        """Write the regex of a parsed binding key; see `Dialect.make_regex`."""
        assert compiled.words is not None
        return regex.compile(to_regex(compiled.words), regex.DOTALL)

    def expression(self, text: str | bytes, compiled: Compiled) -> Expression:
        """Words may be empty, but the subject without characters has none; `#` is any number of them."""
        words = compiled.words or ()
        if words == (Wild.ANY,):
            return ANY_TEXT
        if [word for word in words if word is not Wild.ANY] == [Wild.ONE] and len(words) > 1:
            return Repeat(ANY_CHAR, 1, None)
        starts_open = words[0] is Wild.ANY
        first, *others = words[1:] if starts_open else words
        items = [optional(Seq((ANY_TEXT, _DOT)))] if starts_open else []
        items.append(_meaning(first))
        for word in others:
            items += [optional(Seq((_DOT, ANY_TEXT)))] if word is Wild.ANY else [_DOT, _meaning(word)]
        return nonempty(seq(*items))

    def check_subject(self, subject: str | bytes) -> None:
        """Refuse too many bytes; anything else is a routing key, `*` and `#` included."""
        assert isinstance(subject, str)
        check_bytes(self.name, subject, MAX_BYTES, SubjectError)


def parse(text: str) -> tuple[Token, ...]:
    """Split a binding key into its words; of a run of `#` one is kept, since it means the same."""
    parsed: list[Token] = []
    for part in text.split(SEPARATOR) if text else ():
        word: Token = Wild.ONE if part == "*" else Wild.ANY if part == "#" else encoded(part)
        if word is not Wild.ANY or parsed[-1:] != [Wild.ANY]:
            parsed.append(word)
    return tuple(parsed)


def _meaning(word: Token) -> Expression:
    return Text(word) if isinstance(word, bytes) else _WORD


def to_regex(parsed: tuple[Token, ...]) -> str:
    """Write the words as a regex that takes quadratic time at worst.

    Between two `#` stands a fixed number of words, so the earliest place for them is as good as any other,
    and is kept (an atomic group): sixty `#` cost no more than one. The words behind the last `#` are looked
    for from the end on.
    """
    first, *rest = _segments(parsed)
    required = [word for word in parsed if word is not Wild.ANY]
    # The empty key has no words: where one word is needed that may be empty, there must be a dot.
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
    """Split at each `#`."""
    segments: list[list[Token]] = [[]]
    for word in parsed:
        if word is Wild.ANY:
            segments.append([])
        else:
            segments[-1].append(word)
    return segments


def _words_regex(segment: list[Token]) -> str:
    """Write words of which each is one literal or any one word."""
    written: list[str] = []
    literal: list[str] = []
    for word in segment:
        if isinstance(word, bytes):
            literal.append(word.decode())
        else:
            written += literals.literal(SEPARATOR.join([*literal, ""])), "[^.]*+"
            literal = [""]  # a separator follows, if anything does
    return "".join(written) + literals.literal(SEPARATOR.join(literal))


def prefix(parsed: tuple[Token, ...]) -> bytes:
    """Join the words before the first wildcard, with a separator where one is sure to follow them."""
    count = next(at for at, word in enumerate(parsed) if not isinstance(word, bytes))
    literal = [word for word in parsed[:count] if isinstance(word, bytes)]
    # `a.#` takes `a` too; but `.#` does not take the empty key, which has no words.
    more = any(word is not Wild.ANY for word in parsed[count:])
    if literal and (more or literal == [b""]):
        literal.append(b"")
    return SEPARATOR.encode().join(literal)
