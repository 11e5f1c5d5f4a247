"""Relations of two patterns: whether one covers the other, and whether they overlap.

Here a subject is any byte string, because a socket may receive any frame. Relations follow `Pattern.matches`. They
ignore the rules by which a dialect checks published subjects, such as the limit of 255 bytes in rv and amqp. An
example: `>` of nats does not cover `#` of mqtt, because only `#` matches `a//b`.

The functions return exact results or raise `oz.Undecidable`. For most pairs of patterns, the tokens, literals or
prefixes decide without an automaton. Before a function returns a witness, it checks the witness with `matches` of both
patterns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from oz.errors import PatternTimeout, SubjectError, Undecidable
from oz.subjects.automata import Automaton, find_common, find_difference, find_text
from oz.subjects.dialects.base import Stem, Token, Wild

if TYPE_CHECKING:
    from oz.subjects.pattern import Pattern

Tokens = tuple[Token, ...]


def covers(pattern: Pattern, other: Pattern) -> bool:
    """Return whether a pattern matches every subject that the other pattern matches.

    A pattern that matches no subject is covered by every pattern.

    Raises:
        Undecidable: the relation cannot be decided.
    """
    if pattern._compiled.tokens is not None and other._compiled.tokens is not None:
        return tokens_cover(pattern._compiled.tokens, other._compiled.tokens)
    return counterexample(pattern, other) is None


def overlaps(pattern: Pattern, other: Pattern) -> bool:
    """Return whether both patterns match some subject.

    Raises:
        Undecidable: the relation cannot be decided.
    """
    if pattern._compiled.tokens is not None and other._compiled.tokens is not None:
        return tokens_overlap(pattern._compiled.tokens, other._compiled.tokens)
    return witness(pattern, other) is not None


def witness(pattern: Pattern, other: Pattern) -> str | None:
    """Return a shortest subject that both patterns match, or None if they do not overlap.

    No other common subject has fewer characters. If no common subject is UTF-8, the text represents the bytes by
    `surrogateescape`.

    Raises:
        Undecidable: the relation cannot be decided.
    """
    # This check is cheap. Permissions compare each pattern with each rule, and most pairs differ in their prefixes or
    # tokens.
    if not (prefixes_overlap(pattern, other) and _tokens_may_overlap(pattern, other)):
        return None
    for exact, another in ((pattern, other), (other, pattern)):
        if exact._compiled.literal is not None:
            return (
                subject_text(exact._compiled.literal)
                if matches_subject(another, exact._compiled.literal)
                else None
            )
    found = find_text(find_common, automaton_of(pattern), automaton_of(other))
    return _verify(found, pattern, other, expected=True)


def counterexample(pattern: Pattern, other: Pattern) -> str | None:
    """Return a shortest subject that only the other pattern matches, or None if this pattern covers the other.

    The subject is text as in `witness`.

    Raises:
        Undecidable: the relation cannot be decided.
    """
    if pattern == other or covers_by_tokens(pattern, other):
        return None
    if other._compiled.literal is not None:
        return (
            None
            if matches_subject(pattern, other._compiled.literal)
            else subject_text(other._compiled.literal)
        )
    found = find_text(find_difference, automaton_of(other), automaton_of(pattern))
    return _verify(found, pattern, other, expected=False)


@lru_cache(maxsize=512)
def automaton_of(pattern: Pattern) -> Automaton:
    """Return the automaton of a pattern.

    Raises:
        Undecidable: the pattern is a regex with a feature that `Expression` lacks, or its automaton is too large.
    """
    return Automaton(pattern._expression())


def tokens_cover(tokens: Tokens, other: Tokens) -> bool:
    """Return whether a pattern covers another pattern. Both are token sequences of dialects without empty tokens."""
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
    """Return whether two patterns overlap. Both are token sequences of dialects without empty tokens."""
    for first, second in zip(tokens, other, strict=False):
        if first is Wild.REST or second is Wild.REST:
            return True
        if not _token_overlaps(first, second):
            return False
    return len(tokens) == len(other)


def _token_overlaps(first: Token, second: Token) -> bool:
    if isinstance(first, Wild) or isinstance(second, Wild):
        return True
    if isinstance(first, Stem) and isinstance(second, Stem):
        return first.text.startswith(second.text) or second.text.startswith(first.text)
    return _token_covers(first, second) or _token_covers(second, first)


def covers_by_tokens(pattern: Pattern, other: Pattern) -> bool:
    """Return whether both patterns have tokens, and the tokens of `pattern` cover the tokens of `other`."""
    tokens, others = pattern._compiled.tokens, other._compiled.tokens
    return tokens is not None and others is not None and tokens_cover(tokens, others)


def _tokens_may_overlap(pattern: Pattern, other: Pattern) -> bool:
    tokens, others = pattern._compiled.tokens, other._compiled.tokens
    return tokens is None or others is None or tokens_overlap(tokens, others)


def prefixes_overlap(pattern: Pattern, other: Pattern) -> bool:
    """Return whether a prefix of one pattern begins with a prefix of the other."""
    return any(
        prefix.startswith(another) or another.startswith(prefix)
        for prefix in pattern.prefixes
        for another in other.prefixes
    )


def _verify(found: bytes | None, pattern: Pattern, other: Pattern, *, expected: bool) -> str | None:
    if found is None:
        return None
    if matches_subject(other, found) and matches_subject(pattern, found) is expected:
        return subject_text(found)
    # No known pair of patterns reaches this line. If a pair does, an automaton is wrong, and no result is safe.
    raise Undecidable(f"{pattern!r} and {other!r} match {found!r} in another way than their automata")


def matches_subject(pattern: Pattern, subject: bytes) -> bool:
    """Return whether a pattern matches a subject. A pattern of a text dialect matches only UTF-8.

    Raises:
        Undecidable: the match exceeded its time limit.
    """
    try:
        return pattern.matches(subject)
    except SubjectError:
        return False
    except PatternTimeout as error:
        raise Undecidable(str(error)) from None


def subject_text(subject: bytes) -> str:
    """Return a subject as text. `surrogateescape` represents bytes that are not UTF-8."""
    return subject.decode(errors="surrogateescape")
