"""The registry: who is on which bus, as a name server knows it. It reads no clock and sends nothing.

Nothing here matters for long. A name server that begins again with nothing knows every node after one beacon.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from oz.errors import ProtocolError
from oz.protocol.node.discovery_client import BEACON, EXPIRY, MAX_NODES
from oz.wire.discovery import (
    Alive,
    Announce,
    Announcement,
    Ask,
    Goodbye,
    Joined,
    Left,
    Lost,
    Reply,
    Welcome,
    pack,
    pack_announcement,
    pack_rosters,
    unpack_reply,
    unpack_request,
)

MAX_NEWS = 1_000
"""Changes that wait to be told; the oldest are dropped."""

Sends = list[tuple[bytes, bytes]]
"""What is to be sent: the connection that it is for, and the frame. In this order."""

_ALIVE = pack(Alive())


class News(NamedTuple):
    """News of a node."""

    what: Literal["joined", "changed", "left", "lost"]
    announcement: Announcement


@dataclass(slots=True)
class RegistryStats:
    """The counts of a name server so far."""

    joined: int = 0
    """Nodes that came."""
    left: int = 0
    """Nodes that said goodbye."""
    lost: int = 0
    """Nodes that were not heard any more."""
    malformed: int = 0
    """Frames that meant nothing."""
    refused: int = 0
    """Announcements and goodbyes over the connection of another node, and those of nodes too many."""
    missed: int = 0
    """Frames that found no room, or nobody; the roster is sent again at the next beacon."""


class _Node:
    """One node, and over which connection it was heard last."""

    __slots__ = ("announcement", "heard_at", "is_behind", "packed", "peer")

    def __init__(self, announcement: Announcement, peer: bytes, now: float) -> None:
        self.peer = peer
        self.heard_at = now
        self.is_behind = False
        self.change(announcement)

    def change(self, announcement: Announcement) -> None:
        self.announcement = announcement
        self.packed = pack_announcement(announcement)


class Registry:
    """The nodes of all buses, as one name server knows them.

    Attributes:
        stats: what it did so far.
    """

    __slots__ = (
        "_beacon",
        "_buses",
        "_by_peer",
        "_expiry",
        "_news",
        "_nodes",
        "_ticked_at",
        "_welcome",
        "stats",
    )

    def __init__(
        self, server_id: bytes, name: str, *, beacon: float = BEACON, expiry: float = EXPIRY
    ) -> None:
        """Know nobody yet.

        Args:
            server_id: 16 bytes that no other name server has, nor had this one in an earlier life.
            name: what it calls itself.
            beacon: seconds between two announcements of a node.
            expiry: seconds of silence after which a node counts as lost; more than `beacon`.

        Raises:
            ValueError: one of them is out of bounds.
        """
        if not beacon < expiry:
            raise ValueError(
                f"a node that announces itself each {beacon:g} s would be lost after {expiry:g} s"
            )
        self.stats = RegistryStats()
        self._beacon, self._expiry = beacon, expiry
        self._welcome = pack(Welcome(server_id, name, beacon, expiry))
        # No node would listen to a welcome that it cannot read.
        unpack_reply(self._welcome)
        self._nodes: dict[bytes, _Node] = {}  # the one heard last is the last in line
        self._buses: dict[str, dict[bytes, _Node]] = {}
        self._by_peer: dict[bytes, bytes] = {}
        self._news: deque[News] = deque(maxlen=MAX_NEWS)
        self._ticked_at: float | None = None

    @property
    def nodes(self) -> list[Announcement]:
        """The nodes that are there, on any bus."""
        return [node.announcement for node in self._nodes.values()]

    def take_news(self) -> list[News]:
        """Return what became of nodes since the last call."""
        news = list(self._news)
        self._news.clear()
        return news

    def missed(self, peer: bytes) -> None:
        """Record that a frame for a connection found no room.

        It is told nothing more until its next beacon, and then everything.
        """
        self.stats.missed += 1
        node = self._nodes.get(self._by_peer.get(peer, b""))
        if node is not None:
            node.is_behind = True

    def receive(self, peer: bytes, frame: bytes, now: float) -> Sends:
        """Take a frame from a connection; return what is to be sent.

        Whoever sends it must leave out what follows for a connection for which something found no room.

        Args:
            peer: the connection, as the ROUTER calls it.
            frame: as it came; what means nothing is counted, and not answered.
            now: monotonic seconds.
        """
        try:
            request = unpack_request(frame)
        except ProtocolError:
            self.stats.malformed += 1
            return []
        if isinstance(request, Ask):
            return self._everything(peer, request.bus)
        uuid = request.uuid if isinstance(request, Goodbye) else request.announcement.uuid
        if self._by_peer.get(peer, uuid) != uuid:
            # A connection speaks for the node that it announced first, so it holds one place at most.
            self.stats.refused += 1
            return []
        if isinstance(request, Announce):
            return self._announced(peer, request, now)
        node = self._nodes.get(uuid)
        return [] if node is None else self._end(node, "left")

    def tick(self, now: float) -> Sends:
        """Forget the nodes that are not heard any more; give what is to be sent.

        Of the time since the last call, no more than one beacon counts: a name server that stood still could
        hear nobody.

        Args:
            now: monotonic seconds.
        """
        away = 0.0 if self._ticked_at is None else now - self._ticked_at - self._beacon
        self._ticked_at = now
        if away > 0:
            for node in self._nodes.values():
                node.heard_at = min(now, node.heard_at + away)
        sends: Sends = []
        while self._nodes:
            node = next(iter(self._nodes.values()))
            if now < node.heard_at + self._expiry:
                break
            sends += self._end(node, "lost")
        return sends

    def next_deadline(self) -> float | None:
        """Return when `tick` is due, in monotonic seconds; None while there is nobody.

        It is due twice in each beacon, or it would take silence of all nodes for a time in which it stood
        still.
        """
        if not self._nodes:
            return None
        if self._ticked_at is None:
            return 0.0
        first = next(iter(self._nodes.values()))
        return min(first.heard_at + self._expiry, self._ticked_at + self._beacon / 2)

    # what nodes say --------------------------------------------------------------------------------------

    def _announced(self, peer: bytes, request: Announce, now: float) -> Sends:
        announcement = request.announcement
        node = self._nodes.get(announcement.uuid)
        sends: Sends = []
        if node is not None and node.announcement.bus != announcement.bus:
            sends, node = self._end(node, "left"), None
        if node is None:
            return sends + self._join(peer, announcement, now)
        greets = node.is_behind or node.peer != peer
        self._move(node, peer, now)
        if node.announcement != announcement:
            node.change(announcement)
            self._news.append(News("changed", announcement))
            greeting = self._everything(peer, announcement.bus) if greets else []
            return greeting + self._broadcast(announcement.bus, Joined(announcement))
        if greets:
            return [*self._everything(peer, announcement.bus), (peer, pack(Joined(announcement)))]
        # One that has not heard itself yet is slow: the roster, which is on its way, would make it slower.
        return [(peer, _ALIVE if request.has_heard else pack(Joined(announcement)))]

    def _join(self, peer: bytes, announcement: Announcement, now: float) -> Sends:
        if len(self._nodes) >= MAX_NODES:
            self.stats.refused += 1
            return []
        node = _Node(announcement, peer, now)
        self._nodes[announcement.uuid] = node
        self._buses.setdefault(announcement.bus, {})[announcement.uuid] = node
        self._by_peer[peer] = announcement.uuid
        self.stats.joined += 1
        self._news.append(News("joined", announcement))
        greeting = self._everything(peer, announcement.bus)
        return greeting + self._broadcast(announcement.bus, Joined(announcement))

    def _move(self, node: _Node, peer: bytes, now: float) -> None:
        """Put a node last in line, and where it is: a DEALER that connects again is another connection."""
        uuid = node.announcement.uuid
        self._nodes[uuid] = self._nodes.pop(uuid)
        if node.peer != peer:
            del self._by_peer[node.peer]
            self._by_peer[peer] = uuid
        node.peer, node.heard_at, node.is_behind = peer, now, False

    def _end(self, node: _Node, how: Literal["left", "lost"]) -> Sends:
        uuid, bus = node.announcement.uuid, node.announcement.bus
        del self._nodes[uuid], self._by_peer[node.peer], self._buses[bus][uuid]
        if not self._buses[bus]:
            del self._buses[bus]
        self._news.append(News(how, node.announcement))
        if how == "left":
            self.stats.left += 1
            return self._broadcast(bus, Left(uuid))
        self.stats.lost += 1
        # It may be there still, and be heard again.
        return [*self._broadcast(bus, Lost(uuid)), (node.peer, pack(Lost(uuid)))]

    # what they are told ----------------------------------------------------------------------------------

    def _everything(self, peer: bytes, bus: str | None) -> Sends:
        nodes: Iterable[_Node] = self._nodes.values() if bus is None else self._buses.get(bus, {}).values()
        rosters = pack_rosters([node.packed for node in nodes])
        return [(peer, self._welcome), *((peer, roster) for roster in rosters)]

    def _broadcast(self, bus: str, reply: Reply) -> Sends:
        frame = pack(reply)
        # Who is behind is told everything before anything else, so that the welcome comes first.
        return [(node.peer, frame) for node in self._buses.get(bus, {}).values() if not node.is_behind]
