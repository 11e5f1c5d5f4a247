"""The connections that hold up what several of them share, and are ended for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from oz.protocol.publisher.accounts import Peer

TOO_LONG = 1.0
"""Seconds for which more may wait for several connections than may for one."""

LOOK_EVERY = 0.1
"""Seconds between two looks at who takes nothing meanwhile."""


class SlowPeers:
    """Finds who holds up what several connections share: those that take next to nothing for a second."""

    __slots__ = ("_first", "_handed", "_looked_at", "_since")

    def __init__(self) -> None:
        """Start without suspicion."""
        self._first: dict[Peer, int] = {}
        self._handed = 0
        self._since = self._looked_at = inf

    def calm(self) -> None:
        """Record that no more waits than may."""
        self._since = inf

    def find(
        self,
        now: float,
        size: int,
        peers: Callable[[], Iterable[Peer]],
        taken: Callable[[Iterable[Peer]], Mapping[Peer, int]],
    ) -> list[Peer]:
        """Record that too much waits; return the connections that are to be ended for that.

        Args:
            now: monotonic seconds.
            size: bytes of the message that is handed over.
            peers: gives those that may be it.
            taken: gives the bytes taken so far by those of some for which something waits; 0 where nobody
                knows.
        """
        if self._since == inf:
            self._since = self._looked_at = now
            self._first, self._handed = dict(taken(peers())), 0
            return []
        self._handed += size
        if now - self._looked_at < LOOK_EVERY:
            return []
        self._looked_at = now
        still = taken(self._first)
        self._first = {one: self._first[one] for one in still}
        if now - self._since < TOO_LONG:
            return []
        self._since = inf
        # Whoever has taken half of what there was is slow, and is not what it waits for.
        return [one for one, first in self._first.items() if still[one] - first < self._handed / 2]
