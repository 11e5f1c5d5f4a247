"""The peers that a node misses: nobody said goodbye for them, so each is looked for again, ever less often.

A link may be cut between two nodes only, or a key be trusted later at one of them: then nobody else notices,
and nobody tells either of them again of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oz.protocol.backoff import growing
from oz.wire.discovery import Announcement

TRIES = 12
"""Times that one peer is looked for before it is forgotten: with 3 s between the first two, three hours."""

MOST = 1_024
"""Peers that are looked for; of more, those are forgotten that were missed first."""

_LONGEST = 3_600.0
"""Seconds between two tries."""


class _PeerSearch(NamedTuple):
    """The search for one peer.

    Attributes:
        peer: who.
        pauses: seconds until each further try.
        tries: how many are left.
        at: when to try, in monotonic seconds; None while it is tried.
    """

    peer: Announcement
    pauses: Iterator[float]
    tries: int
    at: float | None


class Missing:
    """The peers that one node looks for again."""

    __slots__ = ("_first", "_searches")

    def __init__(self, first: float) -> None:
        """Start with nobody.

        Args:
            first: seconds until the first try.
        """
        self._first = first
        self._searches: dict[bytes, _PeerSearch] = {}

    def __contains__(self, uuid: object) -> bool:
        """Tell whether a node is looked for."""
        return uuid in self._searches

    def miss(self, peer: Announcement, now: float) -> None:
        """Record that a peer does not answer, or does not any more."""
        if not peer.endpoints:
            # It is found by its socket in the directory, or not at all.
            return
        one = self._searches.pop(peer.uuid, None)
        if one is None:
            one = _PeerSearch(peer, growing(self._first, _LONGEST), TRIES, None)
        if one.tries:
            if len(self._searches) >= MOST:
                del self._searches[next(iter(self._searches))]
            self._searches[peer.uuid] = _PeerSearch(peer, one.pauses, one.tries - 1, now + next(one.pauses))

    def find(self, uuid: bytes) -> None:
        """Record that a node is there, or has said goodbye."""
        self._searches.pop(uuid, None)

    def due(self, now: float) -> list[Announcement]:
        """Return those whose time it is to be tried."""
        due = [one for one in self._searches.values() if one.at is not None and now >= one.at]
        for one in due:
            self._searches[one.peer.uuid] = one._replace(at=None)
        return [one.peer for one in due]

    def next_deadline(self) -> float | None:
        """Return when to call `due`, in monotonic seconds; None for never."""
        return min((one.at for one in self._searches.values() if one.at is not None), default=None)
