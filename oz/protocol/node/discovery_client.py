"""The discovery client: a node announces itself to one name server until it hears itself, and goes on.

To hear itself is the proof that a name server is live: what was sent came there and back. A name server that
was started again knows nobody; it learns of every node by its next beacon, and nobody is lost.
"""

from __future__ import annotations

from typing import NamedTuple

from oz.errors import ProtocolError
from oz.wire.discovery import (
    Announce,
    Announcement,
    Goodbye,
    Joined,
    Left,
    Lost,
    Reply,
    Roster,
    Welcome,
    pack,
    unpack_reply,
)

RETRY = 0.25
"""Seconds between the first announcements, until the node hears itself."""

LONGEST_RETRY = 1.0
"""Seconds between announcements that nobody answers, in the end."""

_EACH = 4  # announcements after which the time between them doubles

BEACON = 1.0
EXPIRY = 3.5
"""Seconds, unless the name server says otherwise."""

MAX_NODES = 65_536
"""Nodes of a bus that are remembered of one name server."""


class Heard(NamedTuple):
    """A node is there, or is there still."""

    announcement: Announcement


Event = Heard | Left | Lost


class DiscoveryClient:
    """One node at one name server. It never speaks of the node itself.

    Frames may get lost, and are said again: a DEALER that keeps few of them (`SNDHWM`), and is never waited
    for, suits it. So does one socket for each name server, whatever becomes of its connection.

    Attributes:
        announcement: of the node.
        endpoint: where the name server is.
        server_id: which one answered there last; None before any did. Another one knows nobody yet.
        server_name: what that calls itself; empty before.
        heard_at: when anything came from it last, in monotonic seconds; None before.
        next_at: when `tick` has something to send again.
    """

    __slots__ = (
        "_beacon",
        "_expiry",
        "_has_heard",
        "_has_left",
        "_known",
        "_listed",
        "_reached",
        "_tries",
        "announcement",
        "endpoint",
        "heard_at",
        "next_at",
        "server_id",
        "server_name",
    )

    def __init__(self, announcement: Announcement, endpoint: str) -> None:
        """Begin; the first `tick` announces it.

        Args:
            announcement: of the node.
            endpoint: where the name server is; to be shown.
        """
        self.announcement = announcement
        self.endpoint = endpoint
        self.server_id: bytes | None = None
        self.server_name = ""
        self.heard_at: float | None = None
        self.next_at = float("-inf")
        self._beacon, self._expiry = BEACON, EXPIRY
        self._has_heard = self._has_left = False
        self._tries = 0
        self._known: set[bytes] = set()
        self._listed: set[bytes] | None = None
        self._reached = 0

    def is_registered(self, now: float) -> bool:
        """Tell whether the node has heard itself, and the name server is live since.

        Args:
            now: monotonic seconds.
        """
        return self._has_heard and self.heard_at is not None and now < self.heard_at + self._expiry

    def tick(self, now: float) -> list[bytes]:
        """Return the frames that are to be sent now.

        Args:
            now: monotonic seconds.
        """
        if now < self.next_at or self._has_left:
            return []
        self._has_heard = self.is_registered(now)
        if self._has_heard:
            self.next_at = now + self._beacon
        else:
            self.next_at = now + min(LONGEST_RETRY, RETRY * 2 ** min(self._tries // _EACH, 8))
            self._tries += 1
        return [pack(Announce(self.announcement, self._has_heard))]

    def next_deadline(self, now: float) -> float | None:
        """Return when `tick` or `is_registered` may say something else, if nothing comes before.

        Args:
            now: monotonic seconds.

        Returns:
            Monotonic seconds; None for never.
        """
        if self._has_left:
            return None
        if self.heard_at is None or not self.is_registered(now):
            return self.next_at
        return min(self.next_at, self.heard_at + self._expiry)

    def goodbye(self) -> bytes:
        """Leave; give the frame that says so. From now on there is nothing else to send."""
        self._has_left, self._has_heard = True, False
        self.next_at = float("inf")
        return pack(Goodbye(self.announcement.uuid))

    def receive(self, frame: bytes, now: float) -> list[Event]:
        """Take a frame from the name server; return what it says of other nodes of the bus.

        What means nothing is counted, and passed over.

        Args:
            frame: as it came.
            now: monotonic seconds.
        """
        try:
            reply = unpack_reply(frame)
        except ProtocolError:
            return []
        self.heard_at = now
        return self._take(reply, now)

    def _take(self, reply: Reply, now: float) -> list[Event]:
        if isinstance(reply, Welcome):
            self._meet(reply)
        elif isinstance(reply, Roster):
            return self._list(reply)
        elif isinstance(reply, Joined):
            return self._hear(reply.announcement)
        elif isinstance(reply, (Left, Lost)):
            return self._miss(reply, now)
        return []

    def _meet(self, welcome: Welcome) -> None:
        self.server_name = welcome.server_name
        self._beacon, self._expiry = welcome.beacon, welcome.expiry
        self._listed = None
        if welcome.server_id != self.server_id:
            self.server_id = welcome.server_id
            self._has_heard = False
            self._tries = 0
            # Whom this one does not know is not lost: it has only just begun.
            self._known.clear()

    def _list(self, roster: Roster) -> list[Event]:
        if roster.first == 0:
            self._listed, self._reached = set(), 0
        elif roster.first != self._reached:
            self._listed = None
        self._reached = roster.first + len(roster.announcements)
        events = [event for one in roster.announcements for event in self._hear(one)]
        if roster.is_last and self._listed is not None:
            # It was told of them before, and the word that they are gone found no room.
            missing = self._known - self._listed
            self._known -= missing
            events += [Lost(uuid) for uuid in sorted(missing)]
            self._listed = None
        return events

    def _hear(self, announcement: Announcement) -> list[Event]:
        if announcement.uuid == self.announcement.uuid:
            if announcement == self.announcement and not self._has_left:
                self._has_heard = True
                self._tries = 0
            return []
        if announcement.bus != self.announcement.bus:
            return []
        if len(self._known) < MAX_NODES:
            self._known.add(announcement.uuid)
        if self._listed is not None:
            self._listed.add(announcement.uuid)
        return [Heard(announcement)]

    def _miss(self, event: Left | Lost, now: float) -> list[Event]:
        if event.uuid == self.announcement.uuid:
            if not self._has_left:
                self._has_heard = False
                self.next_at = now
            return []
        self._known.discard(event.uuid)
        if self._listed is not None:
            self._listed.discard(event.uuid)
        return [event]
