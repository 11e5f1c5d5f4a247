"""Choice between a link and a plain connection for one endpoint, with `filtering="auto"`.

Theory of operation
-------------------
`connect` starts a link. If the publisher does not answer on the link in time, a SUB connects to the endpoint, without
subscriptions. The handshake of the SUB shows that a publisher is listening, and then the link sends HELLO again. If the
publisher does not answer this HELLO, it has no links: the SUB subscribes to the prefixes and *serves*. By this order,
an oz publisher that starts later has a link from its first message on, and does not count the SUB as a subscriber.

While the SUB serves, the link continues to send HELLO. When the publisher answers and the SUB has delivered no message,
the link serves at once. If the SUB has delivered messages, the subscriber moves from the SUB to the link in these
steps, so that no message arrives twice:

1. The publisher has answered on the link, and has applied the subscriptions.
2. The subscriber reads the waiting messages of the SUB and closes it. The subscriptions get a new revision, which the
   link declares.
3. The ANSWER to this revision contains the position of the next message of the publisher. The SUB can have delivered
   only earlier messages. The link reports `Gap(None, "moved")`, and delivers the messages from this position on.

Messages that arrive on the link before step 3 are discarded. Messages that were published between steps 2 and 3 are
lost, and the gap reports the loss.

========================= ==================== ====================== ==================== ======================
event                     ASKING               PREFIX                 MOVING               LINK
========================= ==================== ====================== ==================== ======================
TCP connection opens      timeout is 2 s       –                      –                    –
TCP connection is refused no SUB: open SUB;    –                      –                    –
                          handshake of SUB
                          done: PREFIX
timeout                   as if refused        –                      –                    –
handshake of SUB done     send HELLO again     send HELLO again       –                    –
SUB loses its connection  stop the timeout     open a new SUB; ASKING –                    –
WELCOME                   nothing delivered:   –                      –                    –
                          close SUB; LINK;
                          else: close SUB;
                          MOVING
message of the link       –                    nothing delivered:     discard              deliver
                                               close SUB; LINK;
                                               else: discard
ANSWER                    –                    nothing delivered:     of the new revision: –
                                               close SUB; LINK;       Gap; LINK
                                               else: close SUB;
                                               MOVING
session ended             as if refused        –                      open SUB; ASKING     open SUB; ASKING
origin has another link   close SUB; LINK      close SUB; LINK        LINK                 –
========================= ==================== ====================== ==================== ======================

"–" means no effect. "Nothing delivered" means that the SUB has delivered no message. The engine calls `tick` only after
it has read the socket. Therefore a WELCOME that waits in the socket is processed before the timeout.
"""

from __future__ import annotations

ASKING, PREFIX, MOVING, LINK = "asking", "prefix", "moving", "link"

ANSWER_WITHIN = 0.5
"""Timeout in seconds for the answer on the link. It begins at `connect`, and again when the handshake of the SUB is
done."""
STANDING_WITHIN = 2.0
"""Timeout in seconds instead of `ANSWER_WITHIN`, if the TCP connection of the link is open."""
BINDS_WITHIN = 0.05
"""For this number of seconds after the handshake of the SUB, a refused TCP connection of the link is ignored."""


class Fallback:
    """State machine that chooses between a link and a plain connection (SUB) for one endpoint.

    Methods that return a bool return whether the state has changed.

    Attributes:
        state: one of ASKING, PREFIX, MOVING and LINK.
        has_plain: whether the SUB must be open. The SUB serves only in the state PREFIX.
        has_delivered: whether a SUB has delivered a message since a link served last.
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
        """Record that the TCP connection of the link was refused. After 0.1 seconds, libzmq connects again."""
        if self.state != ASKING or (self._is_reached and now < self._started + BINDS_WITHIN):
            # The publisher may just be starting: it binds its link endpoint shortly after its plain endpoint.
            return False
        return self._unanswered()

    def tick(self, now: float) -> bool:
        """If the timeout has passed, open the SUB, or let the open SUB serve."""
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
        """Record that the handshake of the SUB is done. The link sends HELLO again, and a new timeout begins."""
        self._is_reached, self._started, self._stands = True, now, False

    def connection_ended(self) -> bool:
        """Record that the SUB has lost its connection; return whether the engine must open a new SUB."""
        self._is_reached = False
        is_new = self.state == PREFIX
        if is_new:
            self.state = ASKING
        return is_new

    def serve(self) -> bool:
        """Use the link, because no SUB has delivered a message, or because the move to the link is complete."""
        self.state, self.has_plain, self.has_delivered = LINK, False, False
        self._is_reached = False
        return True

    def move(self, revision: int) -> None:
        """Record that the SUB was read and closed.

        Args:
            revision: new revision of the subscriptions. The link serves after the ANSWER to this revision.
        """
        self.state, self.has_plain, self._is_reached, self._revision = MOVING, False, False, revision

    def answered(self, revision: int) -> bool:
        """Record an ANSWER. Return whether the move is complete; the caller then reports `Gap(None, "moved")`."""
        return self.state == MOVING and revision >= self._revision and self.serve()

    def ended(self) -> bool:
        """Record that the link's session has ended."""
        if self.state == PREFIX:
            return False
        self.state = ASKING
        return self._unanswered()
