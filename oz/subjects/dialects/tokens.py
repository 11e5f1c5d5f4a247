"""Base of the dialects whose patterns are non-empty tokens with dots between them.

Sources: NATS subject rules; TIBCO Rendezvous Concepts, "Subject Names". The dialects differ in their rules for invalid
text, and for a wildcard character inside a longer token.
"""

from __future__ import annotations

from abc import abstractmethod
from types import MappingProxyType
from typing import Any

import regex

from oz.errors import PatternError, SubjectError
from oz.subjects.dialects import literals
from oz.subjects.dialects.base import (
    CompiledPattern,
    Dialect,
    Form,
    Splitting,
    Stem,
    Token,
    Wild,
    encode_word,
)
from oz.subjects.expressions import Expression, Repeat, Seq, Text, chars_but, joined

SEPARATOR = "."
_DOT = Text(b".")
_CHAR = chars_but(SEPARATOR)
_TOKEN = Repeat(_CHAR, 1, None)


def _split(subject: bytes) -> list[bytes] | None:
    tokens = subject.split(b".")
    return None if b"" in tokens else tokens


class TokenDialect(Dialect):
    """Dialect of non-empty tokens, with `*` for one token and a last `>` for one or more tokens."""

    form = Form.WORDS
    separator = SEPARATOR
    splitting = Splitting(_split)
    spelling = MappingProxyType({Wild.ONE: "*", Wild.REST: ">", Wild.ANY: ">"})

    def compile(self, text: str | bytes, *, lenient: bool = False) -> CompiledPattern:
        """Parse the tokens and compute the prefix; see `Dialect.compile`."""
        assert isinstance(text, str)
        self.check_pattern_text(text)
        tokens = self.parse(text, lenient=lenient)
        literal = text.encode() if all(isinstance(token, bytes) for token in tokens) else None
        return CompiledPattern(
            regex=None,
            prefixes=(literal if literal is not None else prefix(tokens),),
            literal=literal,
            tokens=tokens,
        )

    def make_regex(self, compiled: CompiledPattern) -> regex.Pattern[Any]:
        """Return the regex of the tokens; see `Dialect.make_regex`."""
        assert compiled.tokens is not None
        return regex.compile(to_regex(compiled.tokens))

    def expression(self, text: str | bytes, compiled: CompiledPattern) -> Expression:
        """Return the expression of a pattern; see `Dialect.expression`."""
        return joined([_token_expression(token) for token in compiled.tokens or ()], _DOT)

    def check_pattern_text(self, text: str) -> None:
        """Raise PatternError for a pattern that is too long or has a forbidden character."""

    @abstractmethod
    def partial(self, token: str, position: int, text: str) -> Token:
        """Return the token for a text that contains a wildcard character and other characters.

        Raises:
            PatternError: the dialect does not allow the token.
        """

    def parse(self, text: str, *, lenient: bool = False) -> tuple[Token, ...]:
        """Return the tokens of a pattern.

        Raises:
            PatternError: a token is empty, or the position of a wildcard is not allowed.
        """
        self.check_tokens(text, PatternError)
        parts = text.split(SEPARATOR)
        tokens: list[Token] = []
        position = 0
        for number, part in enumerate(parts):
            tokens.append(self._token(part, position, text, last=number == len(parts) - 1))
            position += len(part) + 1
        return tuple(tokens)

    def _token(self, part: str, position: int, text: str, *, last: bool) -> Token:
        if part == "*":
            return Wild.ONE
        if part == ">":
            if last:
                return Wild.REST
            raise PatternError(self.name, text, position, "'>' is only allowed as the last token")
        if "*" in part or ">" in part:
            return self.partial(part, position, text)
        return encode_word(part)

    def check_tokens(self, text: str, error: type[PatternError | SubjectError] = SubjectError) -> None:
        """Raise `error` for a subject or pattern with an empty token."""
        position = 0
        for part in text.split(SEPARATOR):
            if not part:
                raise error(self.name, text, position, "a token must not be empty")
            position += len(part) + 1

    def check_no_wildcard(self, subject: str) -> None:
        """Raise SubjectError for a subject with a token `*` or `>`."""
        position = 0
        for part in subject.split(SEPARATOR):
            if part in ("*", ">"):
                rule = f"{part!r} is a wildcard; messages are published to a full subject"
                raise SubjectError(self.name, subject, position, rule)
            position += len(part) + 1


def _token_expression(token: Token) -> Expression:
    if isinstance(token, bytes):
        return Text(token)
    if isinstance(token, Stem):
        return Seq((Text(token.text), Repeat(_CHAR, 0, None)))
    return _TOKEN if token is Wild.ONE else Seq((_TOKEN, Repeat(Seq((_DOT, _TOKEN)), 0, None)))


def to_regex(tokens: tuple[Token, ...]) -> str:
    """Return the regex for the tokens of a pattern. The regex does not backtrack, because each repeat is possessive.

    The literals between two wildcards are joined before `literal_regex` cuts them into runs.
    """
    written: list[str] = []
    literal: list[str] = []
    for token in tokens:
        text, wild = _token_parts(token)
        literal.append(text)
        if wild:
            written += literals.literal_regex(SEPARATOR.join(literal)), wild
            literal = [""]  # The next literal begins with a separator.
    return "".join(written) + literals.literal_regex(SEPARATOR.join(literal))


def _token_parts(token: Token) -> tuple[str, str]:
    """Return the literal text of a token, and the regex of its wildcard."""
    if token is Wild.ONE:
        return "", r"[^.]++"
    if token is Wild.REST:
        return "", r"[^.]++(?:\.[^.]++)*+"
    if isinstance(token, Stem):
        return token.text.decode(), r"[^.]*+"
    assert isinstance(token, bytes)
    return token.decode(), ""


def prefix(tokens: tuple[Token, ...]) -> bytes:
    """Return the tokens before the first wildcard.

    A separator follows the tokens, because a wildcard matches at least one token. If the wildcard is a stem, its text
    follows the separator.
    """
    literal: list[bytes] = []
    for token in tokens:
        if isinstance(token, bytes):
            literal.append(token)
        else:
            literal.append(token.text if isinstance(token, Stem) else b"")
            break
    return SEPARATOR.encode().join(literal)
