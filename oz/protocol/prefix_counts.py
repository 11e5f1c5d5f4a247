"""Subscriptions counted by prefix: on both sides of a PUB/SUB connection."""

from __future__ import annotations

from collections.abc import Iterable


class PrefixCounter:
    """Counts how often each prefix is wanted, so that it is asked for once and dropped last."""

    __slots__ = ("_counts", "_lengths")

    def __init__(self) -> None:
        """Start with none."""
        self._counts: dict[bytes, int] = {}
        self._lengths: list[int] | None = None

    def add(self, prefixes: Iterable[bytes]) -> list[bytes]:
        """Count prefixes in; return those that were not wanted before."""
        new = []
        for prefix in prefixes:
            count = self._counts.get(prefix, 0)
            self._counts[prefix] = count + 1
            if count == 0:
                new.append(prefix)
                self._lengths = None
        return new

    def remove(self, prefixes: Iterable[bytes]) -> list[bytes]:
        """Count prefixes out; return those that nobody wants any more. An unknown one is passed over."""
        gone = []
        for prefix in prefixes:
            count = self._counts.get(prefix, 0)
            if count > 1:
                self._counts[prefix] = count - 1
            elif count == 1:
                del self._counts[prefix]
                gone.append(prefix)
                self._lengths = None
        return gone

    def has(self, prefix: bytes) -> bool:
        """Tell whether a prefix is wanted."""
        return prefix in self._counts

    def matches(self, subject: bytes) -> bool:
        """Tell whether a subject begins with any of the prefixes."""
        if not self._counts:
            return False
        if self._lengths is None:
            self._lengths = sorted({len(prefix) for prefix in self._counts})
        return any(subject[:length] in self._counts for length in self._lengths)

    def count(self, subject: bytes | None = None) -> int:
        """Count the interests that a subject matches, or all of them."""
        if subject is None:
            return sum(self._counts.values())
        if len(self._counts) <= len(subject):
            return sum(count for prefix, count in self._counts.items() if subject.startswith(prefix))
        starts = (subject[:length] for length in range(len(subject) + 1))
        return sum(self._counts.get(start, 0) for start in starts)


class PeerInterest(PrefixCounter):
    """The plain interest that reaches a publisher in subscription frames.

    Source: ZeroMQ RFC 29 (publish-subscribe): a frame of 1 and a prefix subscribes, 0 unsubscribes.
    """

    __slots__ = ()

    def learn(self, frame: bytes) -> None:
        """Take in one frame from an XPUB socket; what is no subscription is passed over."""
        if frame[:1] == b"\x01":
            self.add((frame[1:],))
        elif frame[:1] == b"\x00":
            self.remove((frame[1:],))
