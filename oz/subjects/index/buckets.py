"""Buckets of patterns with the same prefix, for globs, regexes and plain prefixes.

A search matches the patterns of a bucket one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oz.errors import PatternTimeout
from oz.subjects.index.words import Entry, Leaf, add_entry, remove_entry
from oz.subjects.pattern import TIME_LIMIT, Pattern

# To save memory, a bucket with one entry is the entry itself. Otherwise it is a dict, in which each pattern has one
# leaf, so that a search matches each pattern only one time.
_Bucket = Entry | dict[Pattern, Leaf]
Match = Callable[[Pattern, Leaf, Any], bool]
"""Function that returns whether a pattern matches. Its arguments are the pattern, the leaf with the pattern's values,
and a subject as text or bytes."""

STRIKES = 10
"""Number of timeouts in a row after which the index skips a pattern for most subjects."""
RETRY = 50
"""After `STRIKES` timeouts, a pattern is matched only with each 50th subject, so that it does not stall the index."""


class PrefixBuckets:
    """Buckets of patterns, one for each distinct prefix.

    Attributes:
        match: function that returns whether a pattern matches a subject, or raises PatternTimeout. If it is None, each
            match has a time limit of `TIME_LIMIT` seconds.
    """

    __slots__ = ("_buckets", "_lengths", "_strikes", "match")

    def __init__(self) -> None:
        self.match: Match | None = None
        self._buckets: dict[bytes, _Bucket] = {}
        self._lengths: dict[int, int] = {}
        self._strikes: dict[Pattern, int] = {}

    def __bool__(self) -> bool:
        return bool(self._buckets)

    def add(self, pattern: Pattern, entry: Entry) -> bool:
        """Add an entry of a pattern. Return whether the entry is new."""
        return all(self._add_to_bucket(prefix, pattern, entry) for prefix in pattern.prefixes)

    def _add_to_bucket(self, prefix: bytes, pattern: Pattern, entry: Entry) -> bool:
        bucket = self._buckets.get(prefix)
        if bucket is None:
            self._buckets[prefix] = entry
            self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
            return True
        if not isinstance(bucket, dict):
            bucket = self._buckets[prefix] = {_pattern_of(bucket): bucket}
        return add_entry(bucket, pattern, entry)

    def discard(self, pattern: Pattern, entry: Entry) -> bool:
        """Remove an entry of a pattern. Return whether the entry existed."""
        return all(self._remove_from_bucket(prefix, pattern, entry) for prefix in pattern.prefixes)

    def _remove_from_bucket(self, prefix: bytes, pattern: Pattern, entry: Entry) -> bool:
        bucket = self._buckets.get(prefix)
        if isinstance(bucket, dict):
            if not remove_entry(bucket, pattern, entry):
                return False
            if bucket:
                return True
        elif bucket != entry:
            return False
        del self._buckets[prefix]
        self._strikes.pop(pattern, None)
        self._lengths[len(prefix)] -= 1
        if not self._lengths[len(prefix)]:
            del self._lengths[len(prefix)]
        return True

    def walk(self, subject: bytes, text: str | None, found: list[Leaf]) -> tuple[Pattern, ...]:
        """Append the leaves of all matching patterns to `found`.

        Args:
            subject: subject as bytes.
            text: subject as text. None if the subject is not UTF-8; then no pattern of a text dialect matches.
            found: list to which the leaves are appended.

        Returns:
            The patterns whose match timed out, and the patterns that were skipped after too many timeouts.
        """
        match = self.match or self._matches
        timed_out: list[Pattern] = []
        for length in self._lengths:
            if length > len(subject):
                # The slice would be shorter than this length, and would find the bucket of a shorter prefix a second
                # time.
                continue
            bucket = self._buckets.get(subject[:length])
            if bucket is None:
                continue
            for pattern, leaf in _leaves_of(bucket):
                own: Any = subject if pattern._dialect.is_bytes else text
                try:
                    if own is not None and (pattern._dialect.is_prefix or match(pattern, leaf, own)):
                        found.append(leaf)
                except PatternTimeout:
                    timed_out.append(pattern)
        return tuple(timed_out)

    def _matches(self, pattern: Pattern, leaf: Leaf, subject: Any) -> bool:
        """Return whether a pattern matches, and count its timeouts.

        Raises:
            PatternTimeout: the match timed out, or the pattern was skipped after too many timeouts.
        """
        if pattern not in self._strikes:
            try:
                return pattern.matches(subject)
            except PatternTimeout:
                self._strikes[pattern] = 1
                raise
        strikes = self._strikes[pattern] = self._strikes[pattern] + 1
        if strikes > STRIKES and strikes % RETRY:
            raise PatternTimeout(pattern.text, subject, TIME_LIMIT)
        matches = pattern.matches(subject)
        del self._strikes[pattern]
        return matches


def _pattern_of(entry: Entry) -> Pattern:
    return entry[0] if isinstance(entry, tuple) else entry


def _leaves_of(bucket: _Bucket) -> Any:
    return bucket.items() if type(bucket) is dict else ((_pattern_of(bucket), bucket),)  # type: ignore[arg-type]
