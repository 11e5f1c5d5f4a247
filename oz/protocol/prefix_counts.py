"""Subscriptions counted by prefix: on both sides of a PUB/SUB connection.

Keys are subscriptions too, and what is sent on them begins with the key. So a plain subscription to what a
key begins with, which is the empty one or a zero byte, is replaced by all that may begin a subject.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oz.wire.keys import OWN


class PrefixCounter:
    """Counts how often each prefix is wanted, so that it is asked for once and dropped last.

    Attributes:
        counts: how often each is.
    """

    __slots__ = ("_lengths", "counts")

    def __init__(self) -> None:
        """Start with none."""
        self.counts: dict[bytes, int] = {}
        self._lengths: list[int] | None = None

    def add(self, prefixes: Iterable[bytes]) -> list[bytes]:
        """Count prefixes in; return those that were not wanted before."""
        new = []
        for prefix in prefixes:
            count = self.counts.get(prefix, 0)
            self.counts[prefix] = count + 1
            if count == 0:
                new.append(prefix)
                self._lengths = None
        return new

    def remove(self, prefixes: Iterable[bytes]) -> list[bytes]:
        """Count prefixes out; return those that nobody wants any more. An unknown one is passed over."""
        gone = []
        for prefix in prefixes:
            count = self.counts.get(prefix, 0)
            if count > 1:
                self.counts[prefix] = count - 1
            elif count == 1:
                del self.counts[prefix]
                gone.append(prefix)
                self._lengths = None
        return gone

    def has(self, prefix: bytes) -> bool:
        """Tell whether a prefix is wanted."""
        return prefix in self.counts

    def matches(self, subject: bytes) -> bool:
        """Tell whether a subject begins with any of the prefixes."""
        if not self.counts:
            return False
        if self._lengths is None:
            self._lengths = sorted({len(prefix) for prefix in self.counts})
        return any(subject[:length] in self.counts for length in self._lengths)

    def count(self, subject: bytes | None = None) -> int:
        """Count the interests that a subject matches, or all of them."""
        if subject is None:
            return sum(self.counts.values())
        if len(self.counts) <= len(subject):
            return sum(count for prefix, count in self.counts.items() if subject.startswith(prefix))
        starts = (subject[:length] for length in range(len(subject) + 1))
        return sum(self.counts.get(start, 0) for start in starts)


ALL_PLAIN = tuple(bytes((first,)) for first in range(1, 256)) + tuple(
    bytes((0, second)) for second in range(256) if second != OWN[1]
)
"""What stands for the empty subscription: all that may begin a subject, but not what begins a key."""

_ALL_PLAIN = frozenset(ALL_PLAIN)

_ZERO = b"\x00"
_PLAIN_ZERO = tuple(one for one in ALL_PLAIN if one[:1] == _ZERO)
"""What stands for the subscription to a zero byte, which would let the keys through too."""

UNREACHABLE = (b"", b"\x00")
"""The subjects that no key in `ALL_PLAIN` begins."""


class KeyChanges(NamedTuple):
    """The keys to set in ZeroMQ for the connection that a key came from."""

    wanted: tuple[bytes, ...] = ()
    dropped: tuple[bytes, ...] = ()


NOTHING = KeyChanges()


class PlainInterest(PrefixCounter):
    """The plain subscriptions that a publisher has learned of.

    Source: ZeroMQ RFC 29 (publish-subscribe): a frame of 1 and a prefix subscribes, 0 unsubscribes.
    """

    __slots__ = ()

    def learn(self, frame: bytes) -> None:
        """Take in one frame from an XPUB socket; what is no subscription is passed over."""
        if frame[:1] == b"\x01":
            self.add((frame[1:],))
        elif frame[:1] == b"\x00":
            self.remove((frame[1:],))

    def keys(self, key: bytes, *, comes: bool) -> KeyChanges:
        """Say what a subscription that was learned just now means for ZeroMQ.

        What stands for the empty one may be asked for by itself too, and over which connections is not
        known. So it is rather kept too long: a subscriber passes over what it did not ask for.
        """
        stands_for = (key,) if key not in UNREACHABLE else _PLAIN_ZERO if key else ALL_PLAIN
        if comes:
            return KeyChanges(wanted=stands_for)
        kept = {one for one in stands_for if self.has(one)}
        if self.has(b""):
            kept |= _ALL_PLAIN
        if self.has(_ZERO):
            kept.update(_PLAIN_ZERO)
        return KeyChanges(dropped=tuple(one for one in stands_for if one not in kept))
