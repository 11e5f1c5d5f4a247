"""Queue groups: one member of a group receives each message.

Theory of operation
-------------------
A member is a stream of a session. `Group.pick` chooses among the members whose patterns match the subject. The *load*
of a member is the number of its unacknowledged messages, or with `ack="handled"`, of its unhandled messages. A member
has *room* if its session is UP and its load is below its prefetch limit. There is one exception: a member has no room
while an acknowledgement is missing and its subscriber has sent no frame for 3 seconds.

=========== ==========================================================================================
policy      choice
=========== ==========================================================================================
round_robin next member with room, in turn; if no member has room, the UP member with the lowest load
sticky      UP or DOWN member with the largest hash of key and member id; it owns the key until ENDED
failover    member that joined first among the members that are UP
any         if no member is UP: a member that is DOWN; the messages wait until it connects again
=========== ==========================================================================================

A session *stands by* while it has the pattern `STANDBY`. The members of this session are chosen only if no other
member matches. So one of two parallel forwarders receives the messages of a group in order. When this forwarder fails,
the other forwarder replaces it at once.

`pick` adds the message to the load of the chosen member at once, because all messages of a batch are picked before the
session numbers them. The session lowers the load when messages are acknowledged, handled, dropped or moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oz.publisher.session import Stream

STANDBY = "_OZ.STANDBY"
"""A session with this pattern stands by: it receives messages of a group only if no other member matches."""
HEARD_WITHIN = 3.0
"""A member gets no new messages if its subscriber has sent no frame for this number of seconds, and the oldest message
of the member is at least as old."""
HANDLED_PREFETCH = 64
RECEIVED_PREFETCH = 4_096
_CACHED_KEYS = 65_536


class Group:
    """One queue group of a publisher.

    Attributes:
        name: name of the group.
        policy: "round_robin", "sticky" or "failover"; the first member decides.
        members: streams in the order in which they joined.
    """

    __slots__ = ("_owners", "_step", "_turn", "members", "name", "policy")

    def __init__(self, name: str, policy: str) -> None:
        self.name, self.policy = name, policy
        self.members: list[Stream] = []
        self._turn = self._step = 0
        self._owners: dict[bytes, tuple[Sequence[Stream], Stream]] = {}

    def join(self, stream: Stream) -> None:
        """Add a stream as the last member."""
        self.members.append(stream)
        self._owners.clear()

    def leave(self, stream: Stream) -> None:
        """Remove a stream from the members, if it is a member."""
        if stream in self.members:
            self.members.remove(stream)
            self._owners.clear()

    def pick(self, matching: Sequence[Stream], key: bytes, now: float) -> Stream | None:
        """Choose a member for one message, and add the message to the load of this member.

        Args:
            matching: members whose patterns match, in the order in which they joined. The caller passes the identical
                tuple for all messages with the same subject, until a pattern of the publisher changes.
            key: key of the message, or its subject; the policy "sticky" chooses by this key.
            now: current time in seconds.

        Returns:
            The chosen member; None if the sessions of all members have ended.
        """
        chosen = self.choose(matching, key, now)
        if chosen is not None:
            chosen.load += 1
            self._turn += self._step
        return chosen

    def choose(self, matching: Sequence[Stream], key: bytes, now: float) -> Stream | None:
        """Return the member that `pick` would choose, and leave its load unchanged."""
        self._step = 0
        if self.policy == "sticky":
            chosen = self._owner(matching, key)
        elif self.policy == "failover":
            chosen = next((member for member in matching if member.session.is_up), None)
        else:
            chosen = self._next(matching, now)
        return chosen or next((member for member in matching if not member.session.has_ended), None)

    def _next(self, matching: Sequence[Stream], now: float) -> Stream | None:
        count = len(matching)
        turn = self._turn
        for step in range(1, count + 1):
            stream = matching[(turn + step) % count]
            if stream.load < stream.prefetch and stream.session.is_responsive(now):
                self._step = step
                return stream
        up = [member for member in matching if member.session.is_up]
        return min(up, key=lambda member: member.load) if up else None

    def _owner(self, matching: Sequence[Stream], key: bytes) -> Stream | None:
        found = self._owners.get(key)
        if found is not None and found[0] is matching and not found[1].session.has_ended:
            return found[1]
        alive = [member for member in matching if not member.session.has_ended]
        if not alive:
            return None
        owner = max(alive, key=lambda member: rank(key, member.session.member))
        if len(self._owners) >= _CACHED_KEYS:
            self._owners.clear()
        self._owners[key] = matching, owner
        return owner


def rank(key: bytes, member: bytes) -> bytes:
    """Return the rank of a member for a key: the member with the highest rank owns the key."""
    return blake2b(key, digest_size=8, key=member).digest()
