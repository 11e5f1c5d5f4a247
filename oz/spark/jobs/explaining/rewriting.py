"""Patterns of tokens, and what they become when the subjects have their tokens in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oz.subjects.dialects import find
from oz.subjects.dialects.base import Token, Wild
from oz.subjects.pattern import Pattern


@dataclass(frozen=True, slots=True)
class TokenPattern:
    """A pattern to which the order of tokens matters: it has literals and wildcards, each a whole token.

    Attributes:
        pattern: the pattern.
        front: its tokens, without a last one that stands for any number.
        tail: that last one, if there is one.
    """

    pattern: Pattern
    front: tuple[Token, ...]
    tail: Wild | None

    @classmethod
    def of(cls, pattern: Pattern) -> TokenPattern | None:
        """Take a pattern apart; None when it is not of tokens, or their order does not matter to it."""
        tokens = pattern.tokens or pattern.words
        if not tokens or pattern.is_literal:
            return None
        last = tokens[-1]
        tail = last if last is Wild.REST or last is Wild.ANY else None
        front = tokens[:-1] if tail else tokens
        is_plain = all(isinstance(token, bytes) or token is Wild.ONE for token in front)
        if not is_plain or not any(isinstance(token, bytes) for token in front):
            return None
        return cls(pattern, front, tail if isinstance(tail, Wild) else None)

    @property
    def separator(self) -> str:
        """The text between its tokens."""
        return find(self.pattern.dialect).separator or "."

    def at_depth(self, depth: int) -> list[str | None] | None:
        """Return its literals for subjects of so many tokens, None for a wildcard.

        Returns:
            As many as there are tokens; None when it matches no such subject.
        """
        least = len(self.front) + (self.tail is Wild.REST)
        if depth < least or (depth > least and self.tail is None):
            return None
        literals: list[str | None] = [
            token.decode() if isinstance(token, bytes) else None for token in self.front
        ]
        return literals + [None] * (depth - len(literals))

    def rewritten(self, order: Sequence[int]) -> str:
        """Write it for subjects whose tokens are in another order.

        Args:
            order: for each place the present position of the token that comes there, from 0.
        """
        count = len(self.front)
        words = [self.front[at] if at < count else Wild.ONE for at in order]
        if self.tail is not None:
            while words and order[len(words) - 1] >= count:
                words.pop()
            if len(words) < len(order):
                words.append(self.tail)
        return find(self.pattern.dialect).words_text(words)


def reordered(subject: str, order: Sequence[int], separator: str) -> str:
    """Put the tokens of a subject in another order."""
    tokens = subject.split(separator)
    return separator.join(tokens[at] for at in order)
