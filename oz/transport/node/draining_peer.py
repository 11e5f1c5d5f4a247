"""A peer that is gone: a node listens to it for a while, as its last messages are on their way."""

from __future__ import annotations

from oz.wire.discovery import Announcement

LOOK_EVERY = 0.5
"""Seconds between two looks at whether anything has come."""

LOOKS = 4
"""Looks in a row at which nothing new had come, after which nothing more does. Not seconds: a process that
stood still itself has not read yet what had come to it."""

LONGEST = 60.0
"""Seconds for which a peer that is not linked any more is listened to at most, though something comes."""


class DrainingPeer:
    """One publisher of a peer that is gone.

    Attributes:
        peer: whose it is.
        endpoint: where it was connected to.
    """

    __slots__ = ("_ends_at", "_heard_at", "_look_at", "_misses", "endpoint", "peer")

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
        self._heard_at = heard_at
        self._misses = 0
        self._look_at = now + LOOK_EVERY
        self._ends_at = now + LONGEST

    def next_deadline(self) -> float:
        """Return when `is_over` looks next, in monotonic seconds."""
        return self._look_at

    def is_over(self, heard_at: int, now: float) -> bool:
        """Tell whether nothing more comes, as far as one can know.

        Args:
            heard_at: when it was heard last.
            now: monotonic seconds.
        """
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_EVERY
        self._misses = self._misses + 1 if heard_at == self._heard_at else 0
        self._heard_at = heard_at
        return self._misses >= LOOKS or now >= self._ends_at
