"""Choice between a link and a plain connection for one endpoint, with `filtering="auto"`.

Theory of operation
-------------------
`connect` starts a link. If the publisher does not answer on the link in time, a plain connection (SUB) connects to the
endpoint without subscriptions. The handshake of the SUB shows that a publisher listens, and the link sends HELLO again.
If the publisher does not answer this HELLO either, the SUB subscribes to the prefixes and *serves*. Therefore an oz
publisher that starts later has a link from its first message on, and never counts a SUB that ends soon.

The link continues to try. A link that answers serves at once, if the SUB has delivered no message. Otherwise the
subscriber moves from the SUB to the link in these steps, so that no message arrives twice:

1. The link has answered: the publisher has applied the subscriptions.
2. The SUB is read and closed. The subscriptions get a new revision, which the link declares.
3. The publisher's ANSWER to this revision contains a position: the number of the message that the publisher sends next.
   The SUB has delivered only earlier messages. The link reports `Gap(None, "moved")`, and delivers later messages.

Link messages before that position are discarded. Messages that were published after the close of the SUB and before
that position are lost, and the gap reports them.

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

"open" and "close" are about the SUB. "–" means no effect. The engine calls `tick` only after it has read the socket.
Therefore a WELCOME that waits in the socket is processed before the timeout.
"""

from __future__ import annotations

ASKING, PREFIX, MOVING, LINK = "asking", "prefix", "moving", "link"

ANSWER_WITHIN = 0.5
"""Seconds that the link has for its answer, from `connect` or from the handshake of the SUB."""
STANDING_WITHIN = 2.0
"""Seconds in place of `ANSWER_WITHIN`, if the TCP connection of the link is open."""
BINDS_WITHIN = 0.05
"""Seconds after the handshake of the SUB in which a refused TCP connection of the link is ignored."""


class Fallback:
    """Choice between a link and a plain connection for one endpoint.

    Methods that return a bool return whether the state has changed.

    Attributes:
        state: one of ASKING, PREFIX, MOVING and LINK.
        has_plain: whether the plain connection must be open. The plain connection serves only in the state PREFIX.
        has_delivered: whether plain connections have delivered a message since a link served last.
    """

    __slots__ = ("_is_reached", "_revision", "_stands", "_started", "has_delivered", "has_plain", "state")

    def __init__(self, now: float) -> None:
        """Start with a link that has no connection.

        Args:
            now: time in seconds.
        """
        self._started, self._stands, self._is_reached = now, False, False
        self._revision = 0
        self.state = ASKING
        self.has_plain = self.has_delivered = False

    @property
    def deadline(self) -> float:
        """Time at which the next `tick` is due, in seconds."""
        if self.state != ASKING or (self.has_plain and not self._is_reached):
            return float("inf")
        return self._started + (STANDING_WITHIN if self._stands else ANSWER_WITHIN)

    def connection_opened(self) -> None:
        """Record that the TCP connection of the link is open."""
        self._stands = True

    def refused(self, now: float) -> bool:
        """Record that the TCP connection of the link was refused. libzmq connects again after 0.1 seconds."""
        if self.state != ASKING or (self._is_reached and now < self._started + BINDS_WITHIN):
            # A publisher binds its link endpoint shortly after its plain endpoint.
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
        """Record that the handshake of the SUB is done. The link sends HELLO again and has a new deadline."""
        self._is_reached, self._started, self._stands = True, now, False

    def connection_ended(self) -> bool:
        """Record that the SUB has lost its connection; return whether the engine must open a new SUB."""
        self._is_reached = False
        is_new = self.state == PREFIX
        if is_new:
            self.state = ASKING
        return is_new

    def serve(self) -> bool:
        """Use the link, because no plain connection has delivered a message, or because the move is complete."""
        self.state, self.has_plain, self.has_delivered = LINK, False, False
        self._is_reached = False
        return True

    def move(self, revision: int) -> None:
        """Record that the plain connection has been read to its end.

        Args:
            revision: revision of the subscriptions. The link serves after the ANSWER to this revision.
        """
        self.state, self.has_plain, self._is_reached, self._revision = MOVING, False, False, revision

    def answered(self, revision: int) -> bool:
        """Record an ANSWER; return whether the move is complete, so that `Gap(None, "moved")` is due."""
        return self.state == MOVING and revision >= self._revision and self.serve()

    def ended(self) -> bool:
        """Record that the link's session has ended."""
        if self.state == PREFIX:
            return False
        self.state = ASKING
        return self._unanswered()
