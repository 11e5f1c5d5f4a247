"""When an endpoint is called anew that ZeroMQ has given up: less and less often while it refuses."""

from __future__ import annotations

from oz.transport.backoff import growing

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
"""Seconds before an endpoint is called anew."""


class Recall:
    """The calls of one endpoint, until a connection stands.

    Attributes:
        again_at: when to call it anew, in monotonic seconds; None while it is called.
    """

    __slots__ = ("_pauses", "again_at")

    def __init__(self) -> None:
        """Begin with an endpoint that is called."""
        self.again_at: float | None = None
        self._pauses = growing(_FIRST_PAUSE, _LONGEST_PAUSE)

    def plan(self, now: float) -> bool:
        """Plan to call it anew after a pause; tell whether that was not planned already."""
        if self.again_at is not None:
            return False
        self.again_at = now + next(self._pauses)
        return True

    def is_due(self, now: float) -> bool:
        """Tell whether to call it anew now; once."""
        if self.again_at is None or now < self.again_at:
            return False
        self.again_at = None
        return True
