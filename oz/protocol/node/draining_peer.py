"""A publisher of a peer that is gone, which is listened to until nothing more comes of it."""

from __future__ import annotations

from oz.wire.discovery import Announcement

DRAIN_EVERY = 0.5
"""Seconds between two looks at whether anything has come of a peer that is gone."""

DRAINED_AFTER = 4
"""Looks in a row at which nothing new had come, after which nothing more does. Not seconds: a process that
stood still itself has not read yet what had come to it."""

LONGEST_DRAIN = 60.0
"""Seconds for which a peer that is not linked any more is listened to at most, though something comes."""


class DrainingPeer:
    """One publisher of a peer that is gone: its last messages are on their way.

    Attributes:
        peer: whose it is.
        endpoint: where it was connected to.
        next_look: when `is_over` looks next, in monotonic seconds.
    """

    __slots__ = ("_ends_at", "_heard_at", "_misses", "endpoint", "next_look", "peer")

    def __init__(self, peer: Announcement, endpoint: str, heard_at: int, now: float) -> None:
        """Begin to listen for what is left.

        Args:
            peer: whose publisher it is.
            endpoint: where it was connected to.
            heard_at: when it was heard last.
            now: monotonic seconds.
        """
        self.peer = peer
        self.endpoint = endpoint
        self.next_look = now + DRAIN_EVERY
        self._heard_at = heard_at
        self._misses = 0
        self._ends_at = now + LONGEST_DRAIN

    def is_over(self, heard_at: int, now: float) -> bool:
        """Tell whether nothing more comes, as far as one can know.

        Args:
            heard_at: when it was heard last.
            now: monotonic seconds.
        """
        if now < self.next_look:
            return False
        self.next_look = now + DRAIN_EVERY
        self._misses = self._misses + 1 if heard_at == self._heard_at else 0
        self._heard_at = heard_at
        return self._misses >= DRAINED_AFTER or now >= self._ends_at
