"""The relation of two patterns: whether one covers the other, or overlaps it.

The subjects are all byte strings, the empty one too, since any frame may come over the wire. Text dialects
take no string that is not UTF-8. What counts is `Comparable.matches`, and not what a dialect allows to be
published: `>` of nats does not cover `#` of mqtt, which takes `a//b`, and neither rv's 255 bytes nor amqp's
make a difference.

Answers are exact, or `oz.Undecidable` is raised. A subject that is given as a proof was tried on both
patterns first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from oz.errors import PatternTimeout, SubjectError, Undecidable
from oz.subjects.automata import Automaton, alone, preferring_text, shared
from oz.subjects.dialects.base import Stem, Token, Wild
from oz.subjects.expressions import Expression

Tokens = tuple[Token, ...]


class Comparable(Protocol):
    """A side of a relation: all that is asked of an `oz.Pattern`."""

    @property
    def prefixes(self) -> tuple[bytes, ...]:
        """The prefixes: every match begins with one of them."""

    @property
    def literal(self) -> bytes | None:
        """The one subject that matches, if there is just one."""

    @property
    def tokens(self) -> Tokens | None:
        """The tokens, in the dot-separated dialects."""

    def matches(self, subject: bytes, /) -> bool:
        """Tell whether a subject matches."""

    def expression(self) -> Expression:
        """Say what it means."""

    def __hash__(self) -> int:
        """Equal patterns are related once."""


def covers(pattern: Comparable, other: Comparable) -> bool:
    """Tell whether a pattern matches every subject that the other matches.

    A pattern that matches nothing is covered by all.

    Raises:
        Undecidable: it cannot be told for certain.
    """
    if pattern.tokens is not None and other.tokens is not None:
        return tokens_cover(pattern.tokens, other.tokens)
    return counterexample(pattern, other) is None


def overlaps(pattern: Comparable, other: Comparable) -> bool:
    """Tell whether some subject is matched by both.

    Raises:
        Undecidable: it cannot be told for certain.
    """
    if pattern.tokens is not None and other.tokens is not None:
        return tokens_overlap(pattern.tokens, other.tokens)
    return witness(pattern, other) is not None


def witness(pattern: Comparable, other: Comparable) -> str | None:
    """Find a subject that both match, a shortest one.

    Returns:
        The subject as text, of the fewest characters, if any such is UTF-8, and otherwise as `bytes`; None
        where the patterns do not overlap.

    Raises:
        Undecidable: it cannot be told for certain.
    """
    # Where there is none, as whenever something is granted, this tells most without regex and automaton.
    if not (prefixes_meet(pattern, other) and _may_overlap(pattern, other)):
        return None
    for one, another in ((pattern, other), (other, pattern)):
        if one.literal is not None:
            return readable(one.literal) if takes(another, one.literal) else None
    found = preferring_text(shared, automaton_of(pattern), automaton_of(other))
    return _tried(found, pattern, other, expected=True)


def counterexample(pattern: Comparable, other: Comparable) -> str | None:
    """Find a subject that the other matches and the pattern does not, a shortest one.

    Returns:
        The subject as text, of the fewest characters, if any such is UTF-8, and otherwise as `bytes`; None
        where the pattern covers the other.

    Raises:
        Undecidable: it cannot be told for certain.
    """
    if pattern == other or surely_covers(pattern, other):
        return None
    if other.literal is not None:
        return None if takes(pattern, other.literal) else readable(other.literal)
    found = preferring_text(alone, automaton_of(other), automaton_of(pattern))
    return _tried(found, pattern, other, expected=False)


@lru_cache(maxsize=512)
def automaton_of(pattern: Comparable) -> Automaton:
    """Make the automaton of a pattern; the latest are kept.

    Raises:
        Undecidable: the pattern is a regex that cannot be read, or larger than an automaton may be.
    """
    return Automaton(pattern.expression())


def tokens_cover(tokens: Tokens, other: Tokens) -> bool:
    """As `covers`, for two patterns of the dot-separated dialects, token by token."""
    for at, token in enumerate(tokens):
        if at >= len(other):
            return False
        if token is Wild.REST:
            return True
        if not _token_covers(token, other[at]):
            return False
    return len(tokens) == len(other)


def _token_covers(token: Token, other: Token) -> bool:
    if token is Wild.ONE:
        return other is not Wild.REST
    if isinstance(token, Stem):
        text = other.text if isinstance(other, Stem) else other
        return isinstance(text, bytes) and text.startswith(token.text)
    return token == other


def tokens_overlap(tokens: Tokens, other: Tokens) -> bool:
    """As `overlaps`, for two patterns of the dot-separated dialects, token by token."""
    for first, second in zip(tokens, other, strict=False):
        if first is Wild.REST or second is Wild.REST:
            return True
        if not _tokens_meet(first, second):
            return False
    return len(tokens) == len(other)


def _tokens_meet(first: Token, second: Token) -> bool:
    if isinstance(first, Wild) or isinstance(second, Wild):
        return True
    if isinstance(first, Stem) and isinstance(second, Stem):
        return first.text.startswith(second.text) or second.text.startswith(first.text)
    return _token_covers(first, second) or _token_covers(second, first)


def surely_covers(pattern: Comparable, other: Comparable) -> bool:
    """Tell whether the tokens of both say that one covers the other."""
    tokens, others = pattern.tokens, other.tokens
    return tokens is not None and others is not None and tokens_cover(tokens, others)


def _may_overlap(pattern: Comparable, other: Comparable) -> bool:
    """Tell whether the tokens of both leave it open that they overlap."""
    tokens, others = pattern.tokens, other.tokens
    return tokens is None or others is None or tokens_overlap(tokens, others)


def prefixes_meet(pattern: Comparable, other: Comparable) -> bool:
    """Tell whether a subject can begin as both do; most patterns are told apart by that."""
    return any(
        one.startswith(another) or another.startswith(one)
        for one in pattern.prefixes
        for another in other.prefixes
    )


def _tried(found: bytes | None, pattern: Comparable, other: Comparable, *, expected: bool) -> str | None:
    """Return what was found, once the patterns themselves confirm it."""
    if found is None:
        return None
    if takes(other, found) and takes(pattern, found) is expected:
        return readable(found)
    # Not reached as far as anyone knows: then the automaton of one of them is wrong, and so is any answer.
    raise Undecidable(f"{pattern!r} and {other!r} do not match {found!r} as their automata do")


def takes(pattern: Comparable, subject: bytes) -> bool:
    """Tell whether a pattern matches a subject, which may not be UTF-8.

    Raises:
        Undecidable: the pattern ran out of time.
    """
    try:
        return pattern.matches(subject)
    except SubjectError:  # not UTF-8, in a dialect of text
        return False
    except PatternTimeout as error:
        raise Undecidable(str(error)) from None


def readable(subject: bytes) -> str:
    """Return a subject as text; what is not UTF-8 by `surrogateescape`, as `Message.subject`."""
    return subject.decode(errors="surrogateescape")
