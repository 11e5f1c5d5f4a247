"""Topics: who subscribed to what, as a trie of libzmq knows it."""

from __future__ import annotations

from collections.abc import Iterator

from oz.testing.pipes import End

MOST_FOUND = 256
"""Beginnings of frames of which it is remembered who gets them."""


class Sizes:
    """The lengths that topics have: a frame is looked up by these, and not held against all topics.

    Attributes:
        counts: how many topics have each length.
    """

    __slots__ = ("counts",)

    def __init__(self) -> None:
        """Create an index without topics."""
        self.counts: dict[int, int] = {}

    def add(self, topic: bytes) -> None:
        """Count a topic."""
        size = len(topic)
        self.counts[size] = self.counts.get(size, 0) + 1

    def remove(self, topic: bytes) -> None:
        """Count a topic no more."""
        size = len(topic)
        self.counts[size] -= 1
        if not self.counts[size]:
            del self.counts[size]


class Topics:
    """Topics and the pipes of their subscribers."""

    def __init__(self) -> None:
        """Create an index without subscribers."""
        self._ends: dict[bytes, dict[End, None]] = {}
        self._sizes = Sizes()
        self._longest = 0
        self._found: dict[bytes, dict[End, None]] = {}

    def __len__(self) -> int:
        """Return the number of topics with subscribers."""
        return len(self._ends)

    def add(self, topic: bytes, end: End) -> bool:
        """Add a subscriber of a topic; return whether it is the first one."""
        ends = self._ends.get(topic)
        if ends is None:
            self._ends[topic] = {end: None}
            self._sizes.add(topic)
            self._longest = max(self._longest, len(topic))
        else:
            ends[end] = None
        self._found.clear()
        return ends is None

    def remove(self, topic: bytes, end: End) -> bool:
        """Remove a subscriber of a topic; return whether others remain."""
        ends = self._ends.get(topic)
        if ends is None:
            return False
        ends.pop(end, None)
        self._found.clear()
        if not ends:
            del self._ends[topic]
            self._sizes.remove(topic)
        return bool(ends)

    def remove_end(self, end: End) -> Iterator[tuple[bytes, bool]]:
        """Remove a subscriber; yield its topics in order, each with whether no subscriber remains."""
        for topic in sorted(topic for topic, ends in self._ends.items() if end in ends):
            yield topic, not self.remove(topic, end)

    def match(self, first: bytes) -> dict[End, None]:
        """Return the subscribers of a message by its first frame."""
        begins = first[: self._longest]
        found = self._found.get(begins)
        if found is None:
            found = {}
            for size in self._sizes.counts:
                if (ends := self._ends.get(first[:size])) is not None:
                    found = found | ends if found else ends
            if len(self._found) >= MOST_FOUND:
                self._found.clear()
            self._found[begins] = found
        return found
