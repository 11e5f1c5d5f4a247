"""Choice between a link and a plain connection for one endpoint, with `filtering="auto"`.

Theory of operation
-------------------
`connect` starts a link. If the link does not answer in time, a plain connection (SUB) connects to the endpoint
without subscriptions. Its handshake shows that a publisher listens, and the link sends HELLO again. If the link does
not answer this HELLO either, the SUB gets the prefixes and *serves*. So an oz publisher that starts later has a link
from its first message on, and never counts a SUB that ends soon.

The link continues to try. If it answers while the SUB serves and the SUB has delivered nothing, the link serves at
once. Otherwise the change has these steps, so that no message arrives twice:

1. The link has answered: the publisher has applied the subscriptions.
2. The SUB is read and closed. The subscriptions get a new revision, which the link declares.
3. The ANSWER of this revision has the position of the next message of the publisher. The SUB delivered only
   earlier messages. The link delivers later messages, after `Gap(None, "moved")`.

Messages of the link before that position are discarded. Messages between the end of the SUB and that position
are lost; the gap reports them.

========================= ==================== ====================== ==================== ======================
event                     ASKING               PREFIX                 MOVING               LINK
========================= ==================== ====================== ==================== ======================
TCP connection opens      wait 2 s             –                      –                    –
TCP connection is refused no SUB: open it;     –                      –                    –
                          its handshake is
                          done: PREFIX
time is over              same                 –                      –                    –
handshake of the SUB      ask the link again   ask the link again     –                    –
end of its connection     no time is over      a new SUB; ASKING      –                    –
WELCOME                   nothing delivered:   –                      –                    –
                          close; LINK; else
                          close; MOVING
message of the link       –                    nothing delivered:     discard              deliver
                                               close; LINK; else
                                               discard
ANSWER                    –                    nothing delivered:     of the new revision: –
                                               close; LINK; else      Gap; LINK
                                               close; MOVING
session ended             as refused           –                      open; ASKING         open; ASKING
origin has another link   close; LINK          close; LINK            LINK                 –
========================= ==================== ====================== ==================== ======================

"open" and "close" concern the SUB. The engine calls `tick` only after the socket was read, so that a WELCOME that
waits in the socket counts first.
"""

from __future__ import annotations

ASKING, PREFIX, MOVING, LINK = "asking", "prefix", "moving", "link"

ANSWER_WITHIN = 0.5
"""Seconds after `connect`, or after the handshake of the SUB, within which a link answers."""
STANDING_WITHIN = 2.0
"""Seconds as `ANSWER_WITHIN`, if the TCP connection of the link is open."""
BINDS_WITHIN = 0.05
"""Seconds after the handshake of the SUB for which a refusal of the link is ignored."""


class Fallback:
    """State of one endpoint. Methods return whether the state has changed.

    Attributes:
        state: ASKING, PREFIX, MOVING or LINK.
        has_plain: whether the plain connection must be open. The plain connection serves in PREFIX only.
        has_delivered: whether plain connections have delivered a message since the last link.
    """

    __slots__ = ("_is_reached", "_revision", "_stands", "_started", "has_delivered", "has_plain", "state")

    def __init__(self, now: float) -> None:
        """Start with a link that has no connection.

        Args:
            now: in seconds.
        """
        self._started, self._stands, self._is_reached = now, False, False
        self._revision = 0
        self.state = ASKING
        self.has_plain = self.has_delivered = False

    @property
    def deadline(self) -> float:
        """Time of the next `tick` in seconds."""
        if self.state != ASKING or (self.has_plain and not self._is_reached):
            return float("inf")
        return self._started + (STANDING_WITHIN if self._stands else ANSWER_WITHIN)

    def connection_opened(self) -> None:
        """Record that the TCP connection of the link is open."""
        self._stands = True

    def refused(self, now: float) -> bool:
        """Record that the TCP connection of the link was refused. libzmq tries again a tenth of a second later."""
        if self.state != ASKING or (self._is_reached and now < self._started + BINDS_WITHIN):
            # A publisher binds its link endpoint just after its endpoint.
            return False
        return self._unanswered()

    def tick(self, now: float) -> bool:
        """Open the plain connection, or let it serve, if the timeout has passed."""
        return now >= self.deadline and self._unanswered()

    def _unanswered(self) -> bool:
        if self._is_reached:
            self.state = PREFIX
            return True
        if self.has_plain:
            return False
        self.has_plain = True
        return True

    def handshake_done(self, now: float) -> None:
        """Record the handshake of the plain connection: a publisher listens, and the link sends HELLO again."""
        self._is_reached, self._started, self._stands = True, now, False

    def connection_ended(self) -> bool:
        """Record that the SUB has lost its connection; return whether a new one is due."""
        self._is_reached = False
        is_new = self.state == PREFIX
        if is_new:
            self.state = ASKING
        return is_new

    def serve(self) -> bool:
        """Use the link: no plain connection has delivered a message, or the move is done."""
        self.state, self.has_plain, self.has_delivered = LINK, False, False
        self._is_reached = False
        return True

    def move(self, revision: int) -> None:
        """Record that the plain connection has been read to its end.

        Args:
            revision: of the declaration after which the link serves.
        """
        self.state, self.has_plain, self._is_reached, self._revision = MOVING, False, False, revision

    def answered(self, revision: int) -> bool:
        """Record an ANSWER; return whether the link serves from now on and `Gap(None, "moved")` is due."""
        return self.state == MOVING and revision >= self._revision and self.serve()

    def ended(self) -> bool:
        """Record the end of the session of the link."""
        if self.state == PREFIX:
            return False
        self.state = ASKING
        return self._unanswered()
