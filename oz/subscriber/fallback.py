"""Choice between a link and a plain connection for one endpoint, with `filtering="auto"`.

Theory of operation
-------------------
`connect` starts a link. If the link does not answer in time, a plain connection (SUB) serves the
subscriptions that need no link. The link goes on trying. When it answers, it takes over: from then on plain
messages are discarded, so that no message arrives twice. Messages of the link before its ANSWER are discarded
too while the plain connection serves. The number of messages in between is unknown: `Gap(None, "moved")`,
unless the plain connection has delivered nothing.

========================= ================ ================= ===================== ======================
event                     ASKING           PREFIX            MOVING                LINK
========================= ================ ================= ===================== ======================
TCP connection stands     wait 2 s         –                 –                     –
TCP connection is refused open; PREFIX     –                 –                     –
time is over              open; PREFIX     –                 –                     –
WELCOME                   –                MOVING            –                     –
ANSWER                    LINK             –                 close, Gap; LINK      –
session ended             open; PREFIX     –                 PREFIX                open; PREFIX
origin has another link   LINK             close; LINK       close; LINK           –
========================= ================ ================= ===================== ======================

"open" and "close" concern the plain connection. The engine calls `tick` only after the socket was read, so
that a WELCOME that waits in the socket counts first.
"""

from __future__ import annotations

ASKING, PREFIX, MOVING, LINK = "asking", "prefix", "moving", "link"

ANSWER_WITHIN = 0.5
"""Seconds after `connect` within which a link answers."""
STANDING_WITHIN = 2.0
"""Seconds after `connect`, if the TCP connection of the link stands."""


class Fallback:
    """State of one endpoint. Methods return whether the state has changed.

    Attributes:
        state: ASKING, PREFIX, MOVING or LINK.
        has_plain: whether the plain connection is to be open.
        has_delivered: whether the plain connection has delivered a message since it was opened.
    """

    __slots__ = ("_stands", "_started", "has_delivered", "has_plain", "state")

    def __init__(self, now: float) -> None:
        """Start with a link that has no connection.

        Args:
            now: in seconds.
        """
        self._started, self._stands = now, False
        self.state = ASKING
        self.has_plain = self.has_delivered = False

    @property
    def deadline(self) -> float:
        """Time of the next `tick` in seconds."""
        if self.state != ASKING:
            return float("inf")
        return self._started + (STANDING_WITHIN if self._stands else ANSWER_WITHIN)

    def stands(self) -> None:
        """Record that the TCP connection of the link stands."""
        self._stands = True

    def _open(self) -> bool:
        self.state = PREFIX
        if self.has_plain:
            return False
        self.has_plain, self.has_delivered = True, False
        return True

    def refused(self) -> bool:
        """Record that the TCP connection of the link was refused."""
        return self.state == ASKING and self._open()

    def tick(self, now: float) -> bool:
        """Open the plain connection if the time is over."""
        return now >= self.deadline and self._open()

    def welcomed(self) -> None:
        """Record the WELCOME of the link."""
        if self.state == PREFIX:
            self.state = MOVING

    def answered(self) -> bool:
        """Record the ANSWER of the link; return whether `Gap(None, "moved")` is due."""
        if self.state not in (ASKING, MOVING):
            return False
        is_moved = self.state == MOVING and self.has_delivered
        self.state, self.has_plain = LINK, False
        return is_moved

    def ended(self) -> bool:
        """Record the end of the session of the link."""
        return self._open()

    def duplicate(self) -> None:
        """Record that another link of the subscriber reaches the same publisher."""
        self.state, self.has_plain = LINK, False
