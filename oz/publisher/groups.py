"""Queue groups: one member of a group receives each message.

Theory of operation
-------------------
A member is a stream of a session. `Group.pick` chooses among the members whose patterns match the subject. A
member has *room* if its session is UP, and if it has fewer unacknowledged messages than its prefetch limit. With
`ack="handled"`, unhandled messages count in place of unacknowledged messages. A member has no room if an
acknowledgement is missing and its subscriber has sent no frame for 3 seconds.

=========== ==========================================================================================
policy      choice
=========== ==========================================================================================
round_robin next member with room, in turn; without one, the UP member with the fewest messages
sticky      member that is UP or DOWN with the largest hash of key and member id; changes at ENDED only
failover    member that joined first among the members that are UP
any         if no member is UP: a member that is DOWN; the messages wait until it connects again
=========== ==========================================================================================

A session *stands by* while it has the pattern `STANDBY`. The members of such a session are chosen only if no other
member matches. So one of two parallel forwarders receives the messages of a group in order, and the other forwarder
replaces it at once when it fails.

`pick` counts the message at the member at once (`load`), because messages of one batch are picked before the
session numbers them. The session lowers `load` when messages are acknowledged, handled, dropped or moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oz.publisher.session import Stream

STANDBY = "_OZ.STANDBY"
"""Pattern of a session that stands by: it receives messages of a group only if no other member matches."""
HEARD_WITHIN = 3.0
"""Seconds after which a silent member gets no new messages: no frame has come, and the oldest message is as old."""
HANDLED_PREFETCH = 64
RECEIVED_PREFETCH = 4_096
_CACHED_KEYS = 65_536


class Group:
    """One queue group of a publisher.

    Attributes:
        name: name of the group.
        policy: "round_robin", "sticky" or "failover", as the first member declared.
        members: streams in the order in which they joined.
    """

    __slots__ = ("_owners", "_step", "_turn", "members", "name", "policy")

    def __init__(self, name: str, policy: str) -> None:
        self.name, self.policy = name, policy
        self.members: list[Stream] = []
        self._turn = self._step = 0
        self._owners: dict[bytes, tuple[Sequence[Stream], Stream]] = {}

    def join(self, stream: Stream) -> None:
        """Add a member at the end."""
        self.members.append(stream)
        self._owners.clear()

    def leave(self, stream: Stream) -> None:
        """Remove a stream from the members, if it is a member."""
        if stream in self.members:
            self.members.remove(stream)
            self._owners.clear()

    def pick(self, matching: Sequence[Stream], key: bytes, now: float) -> Stream | None:
        """Choose a member for one message and count the message at the member.

        Args:
            matching: members whose patterns match, in the order in which they joined. The caller passes the same
                object for a subject as long as no pattern of the publisher changes.
            key: key or subject of the message, for the policy "sticky".
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
        """Return the member that `pick` would choose, without counting the message."""
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
