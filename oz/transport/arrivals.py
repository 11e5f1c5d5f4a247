"""The arrivals at a listener with keys: who comes without one is told of, as no authenticator hears of it.

Whoever does not know the key of a listener tries those that it trusts. That looks as if it had no key itself,
but for one thing: it comes in a moment later. So those who failed are told of when nobody has.
"""

from __future__ import annotations

from oz.transport.credentials import Credentials
from oz.transport.handshakes import Handshake, Outcome, is_clear, reason

PATIENCE = 3.0
"""Seconds in which whoever looks for the key of a listener has found it."""

_MOST = 1_024
"""Failures that are kept meanwhile; of more the newest are told at once."""


class Arrivals:
    """The arrivals at one socket."""

    __slots__ = ("_credentials", "_doubtful", "_look_at")

    def __init__(self, credentials: Credentials) -> None:
        """Begin with nobody.

        Args:
            credentials: of the listener; it counts and logs who is refused.
        """
        self._credentials = credentials
        self._doubtful: list[Handshake] = []
        self._look_at = 0.0

    def take(self, one: Handshake, now: float) -> None:
        """Take in what has become of an arrival.

        Args:
            one: the handshake with it.
            now: monotonic seconds.
        """
        if one.outcome is Outcome.ADMITTED:
            self._doubtful.clear()
        elif one.outcome in (Outcome.REFUSED, Outcome.ENDED):
            # It has a key, and the authenticator has told of it; or it was there.
            return
        elif is_clear(one) or len(self._doubtful) >= _MOST:
            self._tell(one)
        else:
            if not self._doubtful:
                self._look_at = now + PATIENCE
            self._doubtful.append(one)

    def look(self, now: float) -> None:
        """Tell of those who have failed while nobody has come in.

        Args:
            now: monotonic seconds.
        """
        if self._doubtful and now >= self._look_at:
            failed, self._doubtful = self._doubtful, []
            for one in failed:
                self._tell(one)

    def _tell(self, one: Handshake) -> None:
        self._credentials.turn_away(one.where, reason(one))
