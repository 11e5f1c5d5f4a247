"""Patterns that are not tokens, kept by their prefixes: only those a subject begins with are tried."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from oz.errors import PatternTimeout
from oz.subjects.pattern import Pattern

_Bucket = dict[Pattern, dict[Hashable, Any]]


class PrefixBuckets:
    """Globs, regexes and plain prefixes, in one bucket for each distinct prefix."""

    __slots__ = ("_buckets", "_lengths")

    def __init__(self) -> None:
        """Start empty."""
        self._buckets: dict[bytes, _Bucket] = {}
        self._lengths: dict[int, int] = {}

    def leaf(self, pattern: Pattern) -> dict[Hashable, Any]:
        """Give the values kept for a pattern, a new dict if there are none."""
        leaf = self.find_leaf(pattern)
        if leaf is None:
            leaf = {}
            for prefix in pattern.prefixes:
                if prefix not in self._buckets:
                    self._buckets[prefix] = {}
                    self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
                self._buckets[prefix][pattern] = leaf
        return leaf

    def find_leaf(self, pattern: Pattern) -> dict[Hashable, Any] | None:
        """Give the values kept for a pattern, if there are any."""
        return self._buckets.get(pattern.prefixes[0], {}).get(pattern)

    def prune(self, pattern: Pattern) -> None:
        """Take a pattern out of its buckets when it has no values left."""
        if self.find_leaf(pattern):
            return
        for prefix in pattern.prefixes:
            bucket = self._buckets.get(prefix, {})
            bucket.pop(pattern, None)
            if not bucket and self._buckets.pop(prefix, None) is not None:
                self._lengths[len(prefix)] -= 1
                if not self._lengths[len(prefix)]:
                    del self._lengths[len(prefix)]

    def walk(self, subject: bytes, text: str | None, values: list[Any]) -> tuple[Pattern, ...]:
        """Add the values of all patterns that match.

        Args:
            subject: the subject as bytes.
            text: the same as text; None when it is not UTF-8, and then no text dialect matches.
            values: what is found is appended here.

        Returns:
            The patterns that ran out of time.
        """
        timed_out: list[Pattern] = []
        for length in self._lengths:
            if length > len(subject):
                continue  # a slice that stops short would find the bucket of a shorter prefix again
            bucket = self._buckets.get(subject[:length])
            if bucket is None:
                continue
            for pattern, leaf in bucket.items():
                own = subject if pattern.is_bytes else text
                try:
                    if own is not None and (pattern.dialect == "zmq" or pattern.matches(own)):
                        values.extend(leaf.values())
                except PatternTimeout:
                    timed_out.append(pattern)
        return tuple(timed_out)
