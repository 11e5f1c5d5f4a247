"""Patterns that have to be tried one by one, in buckets by the prefixes that they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oz.errors import PatternTimeout
from oz.subjects.index.budget import Attempt, Budget
from oz.subjects.index.words import Entry, Leaf, put, take
from oz.subjects.pattern import TIME_LIMIT, Pattern, decides

# One entry alone is its own bucket; otherwise each pattern has its leaf, so that it is tried once.
_Bucket = Entry | dict[Pattern, Leaf]


STRIKES = 10
"""So often in a row may a pattern run out of time and still be tried on every new subject."""
RETRY = 50
"""After that it is tried on each 50th only: a hostile pattern must not stall those it is indexed with."""


class PrefixBuckets:
    """Globs, regexes and plain prefixes, in one bucket for each distinct prefix.

    Attributes:
        budget: how long they may take, if that is to be kept to.
    """

    __slots__ = ("_buckets", "_lengths", "_strikes", "budget")

    def __init__(self) -> None:
        """Start empty."""
        self.budget: Budget | None = None
        self._buckets: dict[bytes, _Bucket] = {}
        self._lengths: dict[int, int] = {}
        self._strikes: dict[Pattern, int] = {}

    def __bool__(self) -> bool:
        """Tell whether there is any pattern."""
        return bool(self._buckets)

    def add(self, pattern: Pattern, entry: Entry) -> bool:
        """Add an entry of a pattern; tell whether it is new."""
        return all(self._put(prefix, pattern, entry) for prefix in pattern.prefixes)

    def _put(self, prefix: bytes, pattern: Pattern, entry: Entry) -> bool:
        bucket = self._buckets.get(prefix)
        if bucket is None:
            self._buckets[prefix] = entry
            self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
            return True
        if not isinstance(bucket, dict):
            bucket = self._buckets[prefix] = {_pattern_of(bucket): bucket}
        return put(bucket, pattern, entry)

    def discard(self, pattern: Pattern, entry: Entry) -> bool:
        """Take an entry of a pattern out; tell whether it was there."""
        return all(self._take(prefix, pattern, entry) for prefix in pattern.prefixes)

    def _take(self, prefix: bytes, pattern: Pattern, entry: Entry) -> bool:
        bucket = self._buckets.get(prefix)
        if isinstance(bucket, dict):
            if not take(bucket, pattern, entry):
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
        """Find the leaves of all patterns that match.

        Args:
            subject: the subject as bytes.
            text: the same as text; None when it is not UTF-8, and then no text dialect matches.
            found: what is found is appended here.

        Returns:
            The patterns that ran out of time, or that did so too often and were not tried.
        """
        if self.budget is not None:
            return self._walk_within(self.budget, subject, text, found)
        timed_out: list[Pattern] = []
        for length in self._lengths:
            if length > len(subject):
                continue  # a slice that stops short would find the bucket of a shorter prefix again
            bucket = self._buckets.get(subject[:length])
            if bucket is None:
                continue
            for pattern, leaf in _leaves_of(bucket):
                own: Any = subject if pattern.is_bytes else text
                try:
                    if own is not None and (pattern.is_prefix or self._matches(pattern, own)):
                        found.append(leaf)
                except PatternTimeout:
                    timed_out.append(pattern)
        return tuple(timed_out)

    def _candidates(self, subject: bytes) -> Iterator[tuple[Pattern, Leaf]]:
        """Return the patterns with a prefix that a subject begins with, and their leaves."""
        for length in self._lengths:
            bucket = self._buckets.get(subject[:length]) if length <= len(subject) else None
            if bucket is not None:
                yield from _leaves_of(bucket)

    def _walk_within(
        self, budget: Budget, subject: bytes, text: str | None, found: list[Leaf]
    ) -> tuple[Pattern, ...]:
        """Do as `walk` does within a budget."""
        timed_out: list[Pattern] = []
        clock, limit = budget.clock, budget.most
        slice_time = budget.begin()
        began = started = clock()
        tried: list[Attempt] = []
        for pattern, leaf in self._candidates(subject):
            own: Any = subject if pattern.is_bytes else text
            if own is None:
                continue
            if pattern.is_prefix:
                found.append(leaf)
                continue
            if budget.is_tight:
                limit = budget.limit(leaf)
                if not limit:
                    continue
                began = clock()
            try:
                if decides(pattern, own, limit):
                    found.append(leaf)
            except PatternTimeout:
                timed_out.append(pattern)
            now = clock()
            tried.append((pattern, leaf, began, now))
            began = now
            if now - started >= slice_time:
                slice_time = budget.spend(tried)
                tried, began = [], clock()
                started = began
        budget.end(tried)
        return tuple(timed_out)

    def _matches(self, pattern: Pattern, subject: Any) -> bool:
        """Try a pattern, unless it has run out of time too often.

        Raises:
            PatternTimeout: it ran out of time, or was not tried.
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
