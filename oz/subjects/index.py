"""Many patterns against one subject: a trie for tokens, buckets by prefix for the rest, and a cache."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from oz.errors import PatternTimeout, SubjectError
from oz.subjects.buckets import PrefixBuckets
from oz.subjects.dialects.tokens import SEPARATOR
from oz.subjects.pattern import TIME_LIMIT, Pattern
from oz.subjects.trie import Leaf, TokenTrie

CACHE_SIZE = 65_536
"""How many subjects an index remembers the answer for."""

_SEPARATOR = SEPARATOR.encode()


class Found(NamedTuple):
    """What an index says of one subject."""

    values: tuple[Any, ...]
    """The values of the patterns that match, in no particular order."""
    timed_out: tuple[Pattern, ...]
    """The patterns that ran out of time; whether they match is not known."""


class PatternIndex:
    """Finds the values of all patterns that match a subject. Patterns of all dialects mix.

    Each pair of pattern and value is kept once: adding it again changes nothing. Looking a subject up
    does not visit patterns that cannot match: tokens walk a trie, other patterns are looked up by the
    lengths of the prefixes that there are, and the last `CACHE_SIZE` subjects are remembered.
    """

    __slots__ = ("_buckets", "_cache", "_cache_size", "_count", "_literals", "_trie")

    def __init__(self, *, cache_size: int = CACHE_SIZE) -> None:
        """Start empty.

        Args:
            cache_size: how many subjects to remember the answer for; 0 for an owner with its own cache.
        """
        self._cache_size = cache_size
        self._trie = TokenTrie()
        self._literals: dict[bytes, Leaf] = {}
        self._buckets = PrefixBuckets()
        self._cache: dict[str | bytes, Found] = {}
        self._count = 0

    def __len__(self) -> int:
        """Count the pairs of pattern and value."""
        return self._count

    def add(self, pattern: Pattern, value: Hashable = None) -> None:
        """Add a pattern.

        Args:
            pattern: a compiled pattern of any dialect.
            value: what `match` gives for it; the pattern itself when None.
        """
        if pattern.literal is not None:
            leaf = self._literals.setdefault(pattern.literal, {})
        elif pattern.tokens is not None:
            leaf = self._trie.leaf(pattern.tokens)
        else:
            leaf = self._buckets.leaf(pattern)
        if (pattern, value) not in leaf:
            leaf[(pattern, value)] = pattern if value is None else value
            self._count += 1
            self._cache.clear()

    def discard(self, pattern: Pattern, value: Hashable = None) -> None:
        """Take a pair of pattern and value out, if it is there."""
        leaf = self._find_leaf(pattern)
        if leaf is None or (pattern, value) not in leaf:
            return
        del leaf[(pattern, value)]
        self._count -= 1
        self._cache.clear()
        if not leaf:
            self._prune(pattern)

    def match(self, subject: str | bytes) -> Sequence[Any]:
        """Find the values of all patterns that match a subject, in no particular order.

        Args:
            subject: text or bytes. Bytes that are not UTF-8 match no pattern of a text dialect.

        Raises:
            PatternTimeout: a pattern ran out of time, so that the whole answer is not known.
            SubjectError: text with a lone surrogate, which has no bytes.
        """
        found = self._cache.get(subject)
        if found is None:
            found = self.find(subject)
        if found[1]:
            raise PatternTimeout(found[1][0].text, subject, TIME_LIMIT)
        return found[0]

    def find(self, subject: str | bytes) -> Found:
        """Find what `match` finds, and report patterns that ran out of time beside it."""
        found = self._cache.get(subject)
        if found is None:
            found = self._search(subject if isinstance(subject, bytes) else _encoded(subject))
            if self._cache_size:
                if len(self._cache) >= self._cache_size:
                    # A dict gives its keys in the order they came: the first is the oldest.
                    del self._cache[next(iter(self._cache))]
                self._cache[subject] = found
        return found

    def _search(self, subject: bytes) -> Found:
        values: list[Any] = []
        leaf = self._literals.get(subject)
        if leaf is not None:
            values.extend(leaf.values())
        text = _decoded(subject)
        if text is not None and self._trie:
            tokens = subject.split(_SEPARATOR)
            # No token of a dot-separated dialect is empty, so nothing there matches such a subject.
            if b"" not in tokens:
                self._trie.walk(tokens, values)
        timed_out = self._buckets.walk(subject, text, values)
        return Found(tuple(values), timed_out)

    def _find_leaf(self, pattern: Pattern) -> Leaf | None:
        if pattern.literal is not None:
            return self._literals.get(pattern.literal)
        if pattern.tokens is not None:
            return self._trie.find_leaf(pattern.tokens)
        return self._buckets.find_leaf(pattern)

    def _prune(self, pattern: Pattern) -> None:
        if pattern.literal is not None:
            del self._literals[pattern.literal]
        elif pattern.tokens is not None:
            self._trie.prune(pattern.tokens)
        else:
            self._buckets.prune(pattern)


def _encoded(subject: str) -> bytes:
    try:
        return subject.encode()
    except UnicodeEncodeError as bad:
        rule = "a lone surrogate has no UTF-8 form, so it cannot be sent"
        raise SubjectError("any", subject, bad.start, rule) from None


def _decoded(subject: bytes) -> str | None:
    try:
        return subject.decode()
    except UnicodeDecodeError:
        return None
