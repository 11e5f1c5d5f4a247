"""The entries that an index keeps where a pattern ends, in as little memory as they take.

Most patterns have one value, and often that is the pattern itself. So an entry is a pattern, or a pattern and
its value; a leaf is the only entry, or a dict where there are several.

Patterns that are not words are kept by their prefixes: only those that a subject begins with are tried.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from oz.errors import PatternTimeout
from oz.subjects.pattern import TIME_LIMIT, Pattern

Entry = Pattern | tuple[Pattern, Hashable]
Leaf = Entry | dict[Entry, Any]
"""The only entry, or the values by their entries."""


def entry_of(pattern: Pattern, value: Hashable) -> Entry:
    """Make the entry of a pattern and its value; None stands for the pattern itself."""
    return pattern if value is None else (pattern, value)


def value_of(entry: Entry) -> Any:
    """Return the value of an entry."""
    return entry[1] if type(entry) is tuple else entry


def put(container: dict[Any, Any], key: Any, entry: Entry) -> bool:
    """Add an entry to the leaf under a key; tell whether it is new."""
    leaf: Leaf | None = container.get(key)
    if leaf is None:
        container[key] = entry
        return True
    if type(leaf) is dict:
        if entry in leaf:
            return False
        leaf[entry] = value_of(entry)
        return True
    if leaf == entry:
        return False
    assert not isinstance(leaf, dict)
    container[key] = {leaf: value_of(leaf), entry: value_of(entry)}
    return True


def holds(leaf: Leaf | None, entry: Entry) -> bool:
    """Tell whether an entry is in a leaf."""
    return entry in leaf if type(leaf) is dict else leaf == entry


def take(container: dict[Any, Any], key: Any, entry: Entry) -> bool:
    """Take an entry out of the leaf under a key, and an empty leaf out of its dict; tell if it was there."""
    leaf: Leaf | None = container.get(key)
    if leaf is None or not holds(leaf, entry):
        return False
    if type(leaf) is dict and len(leaf) > 1:
        del leaf[entry]
        if len(leaf) == 1:
            container[key] = next(iter(leaf))
    else:
        del container[key]
    return True


def values_of(leaves: Iterable[Leaf]) -> tuple[Any, ...]:
    """Return the values of all entries in some leaves."""
    values: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is dict:
            values.extend(leaf.values())  # type: ignore[union-attr]
        else:
            values.append(leaf[1] if kind is tuple else leaf)  # type: ignore[index]
    return tuple(values)


# One entry alone is its own bucket; otherwise each pattern has its leaf, so that it is tried once.
_Bucket = Entry | dict[Pattern, Leaf]


STRIKES = 10
"""So often in a row may a pattern run out of time and still be tried on every new subject."""
RETRY = 50
"""After that it is tried on each 50th only: a hostile pattern must not stall those it is indexed with."""


class PrefixBuckets:
    """Globs, regexes and plain prefixes, in one bucket for each distinct prefix."""

    __slots__ = ("_buckets", "_lengths", "_strikes")

    def __init__(self) -> None:
        """Start empty."""
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
