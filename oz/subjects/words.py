"""Patterns of words and subjects compared word by word, without a regex."""

from __future__ import annotations

from collections.abc import Sequence

from oz.subjects.dialects.base import Splitting, Stem, Token, Wild


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
