"""The registry: who is on which bus, as a name server knows it. It reads no clock and sends nothing.

Nothing here matters for long. A name server that begins again with nothing knows every node after one beacon.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

from oz.errors import ProtocolError
from oz.protocol.node.discovery_client import BEACON, EXPIRY
from oz.security.identity import is_of
from oz.security.limits import DEFAULT_LIMITS, Limits
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

BEACONS_MISSED = 2
"""Beacons for which a node is silent before it may come back over another connection, whatever became of the
one that it had."""

MOST_PAGED = 256
"""Connections that wait for room for the rest of a roster; others get none until their next beacon."""

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
    """Announcements and goodbyes over the connection or with the key of another node, and those of nodes too
    many."""
    missed: int = 0
    """Frames that found no room, or nobody; the roster is sent again at the next beacon."""


class _Node:
    """One node, and over which connection it was heard last."""

    __slots__ = ("announcement", "heard_at", "is_behind", "is_cut", "packed", "peer")

    def __init__(self, announcement: Announcement, peer: bytes, now: float) -> None:
        self.peer = peer
        self.heard_at = now
        self.is_behind = self.is_cut = False
        self.change(announcement)

    def change(self, announcement: Announcement) -> None:
        self.announcement = announcement
        self.packed = pack_announcement(announcement)


class _Pages:
    """The rest of a roster: the next message, and those behind it, which are made when there is room."""

    __slots__ = ("next", "rest")

    def __init__(self, following: bytes, rest: Iterator[bytes]) -> None:
        self.next: bytes | None = following
        self.rest = rest


class Registry:
    """The nodes of all buses, as one name server knows them.

    Attributes:
        stats: what it did so far.
    """

    __slots__ = (
        "_beacon",
        "_buses",
        "_by_peer",
        "_contest",
        "_expiry",
        "_most_nodes",
        "_news",
        "_nodes",
        "_pages",
        "_ticked_at",
        "_welcome",
        "stats",
    )

    def __init__(
        self,
        server_id: bytes,
        name: str,
        *,
        beacon: float = BEACON,
        expiry: float = EXPIRY,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Know nobody yet.

        Args:
            server_id: 16 bytes that no other name server has, nor had this one in an earlier life.
            name: what it calls itself.
            beacon: seconds between two announcements of a node.
            expiry: seconds of silence after which a node counts as lost; more than `beacon`.
            limits: how many nodes are kept in mind.

        Raises:
            ValueError: one of them is out of bounds.
        """
        if not beacon < expiry:
            raise ValueError(
                f"a node that announces itself each {beacon:g} s would be lost after {expiry:g} s"
            )
        self.stats = RegistryStats()
        self._beacon, self._expiry, self._most_nodes = beacon, expiry, limits.nodes
        self._welcome = pack(Welcome(server_id, name, beacon, expiry))
        # No node would listen to a welcome that it cannot read.
        unpack_reply(self._welcome)
        self._nodes: dict[bytes, _Node] = {}  # the one heard last is the last in line
        self._buses: dict[str, dict[bytes, _Node]] = {}
        self._by_peer: dict[bytes, bytes] = {}
        self._pages: dict[bytes, _Pages] = {}
        self._contest: tuple[bytes, bytes, bytes, str | None] | None = None
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

    @property
    def paging(self) -> list[bytes]:
        """The connections that wait for the rest of a roster."""
        return list(self._pages)

    def page(self, peer: bytes) -> bytes | None:
        """Return what a connection that waits is to be sent next; None when it has everything."""
        pages = self._pages.get(peer)
        return None if pages is None else pages.next

    def paged(self, peer: bytes) -> None:
        """Record that there was room for that."""
        pages = self._pages[peer]
        pages.next = next(pages.rest, None)
        if pages.next is None:
            del self._pages[peer]

    def unreachable(self, peer: bytes, now: float) -> Sends:
        """Record that a connection has ended, as libzmq says; return what is to be sent.

        Its node may come back over another one, and perhaps just did.
        """
        self.missed(peer)
        self._pages.pop(peer, None)
        node = self._nodes.get(self._by_peer.get(peer, b""))
        if node is not None:
            node.is_cut = True
        contest, self._contest = self._contest, None
        if node is None or contest is None or contest[0] != peer:
            return []
        self.stats.refused -= 1
        _, other, frame, key = contest
        return self.receive(other, frame, now, key)

    def receive(self, peer: bytes, frame: bytes, now: float, key: str | None = None) -> Sends:
        """Take a frame from a connection; return what is to be sent.

        Whoever sends it must leave out what follows for a connection for which something found no room.

        Args:
            peer: the connection, as the ROUTER calls it.
            frame: as it came; what means nothing is counted, and not answered.
            now: monotonic seconds.
            key: the public key of whoever sent it; None where nobody has to prove anything.
        """
        try:
            request = unpack_request(frame)
        except ProtocolError:
            self.stats.malformed += 1
            return []
        if isinstance(request, Ask):
            if peer in self._pages:
                # It has not read what it asked for before.
                self.stats.refused += 1
                return []
            return self._everything(peer, request.bus)
        uuid = request.uuid if isinstance(request, Goodbye) else request.announcement.uuid
        if key is not None and not _is_said_by(request, uuid, key):
            self.stats.refused += 1
            return []
        if self._by_peer.get(peer, uuid) != uuid:
            # A connection speaks for the node that it announced first, so it holds one place at most.
            self.stats.refused += 1
            return []
        node = self._nodes.get(uuid)
        if node is not None and node.peer != peer and self._is_there(node, now):
            # What is sent over the connection that has it tells whether that has ended: see `unreachable`.
            self.stats.refused += 1
            self._contest = node.peer, peer, frame, key
            return [(node.peer, _ALIVE)]
        if isinstance(request, Announce):
            return self._announced(peer, request, now)
        return [] if node is None else self._end(node, "left")

    def _is_there(self, node: _Node, now: float) -> bool:
        """Tell whether a node was heard of late, over a connection that stands as far as is known."""
        return not node.is_cut and now < node.heard_at + BEACONS_MISSED * self._beacon

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
        if node.peer == peer and peer in self._pages:
            node.heard_at = now
            self._nodes[announcement.uuid] = self._nodes.pop(announcement.uuid)
            return []
        greets = node.is_behind or node.peer != peer
        self._move(node, peer, now)
        if node.announcement != announcement:
            node.change(announcement)
            self._news.append(News("changed", announcement))
            greeting = self._everything(peer, announcement.bus) if greets else []
            return greeting + self._broadcast(announcement.bus, Joined(announcement), node)
        if greets:
            return self._everything(peer, announcement.bus) + self._tell(node, pack(Joined(announcement)))
        # One that has not heard itself yet is slow: the roster, which is on its way, would make it slower.
        return [(peer, _ALIVE if request.has_heard else pack(Joined(announcement)))]

    def _join(self, peer: bytes, announcement: Announcement, now: float) -> Sends:
        if len(self._nodes) >= self._most_nodes:
            self.stats.refused += 1
            return []
        node = _Node(announcement, peer, now)
        self._nodes[announcement.uuid] = node
        self._buses.setdefault(announcement.bus, {})[announcement.uuid] = node
        self._by_peer[peer] = announcement.uuid
        self.stats.joined += 1
        self._news.append(News("joined", announcement))
        greeting = self._everything(peer, announcement.bus)
        return greeting + self._broadcast(announcement.bus, Joined(announcement), node)

    def _move(self, node: _Node, peer: bytes, now: float) -> None:
        """Put a node last in line, and where it is: a DEALER that connects again is another connection."""
        uuid = node.announcement.uuid
        self._nodes[uuid] = self._nodes.pop(uuid)
        if node.peer != peer:
            self._pages.pop(node.peer, None)
            del self._by_peer[node.peer]
            self._by_peer[peer] = uuid
        node.peer, node.heard_at, node.is_behind, node.is_cut = peer, now, False, False

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
        sends = [(peer, self._welcome), (peer, next(rosters))]
        if (following := next(rosters, None)) is not None:
            if len(self._pages) >= MOST_PAGED:
                self.missed(peer)
            else:
                self._pages[peer] = _Pages(following, rosters)
        return sends

    def _broadcast(self, bus: str, reply: Reply, own: _Node | None = None) -> Sends:
        """Tell all nodes of a bus; for `own`, which it is about, it may come behind a roster."""
        frame = pack(reply)
        sends: Sends = []
        for node in self._buses.get(bus, {}).values():
            if node is own:
                sends += self._tell(node, frame)
            elif node.peer in self._pages:
                # The roster that it waits for is not true any more.
                node.is_behind = True
            elif not node.is_behind:
                # Who is behind is told everything before anything else, so that the welcome comes first.
                sends.append((node.peer, frame))
        return sends

    def _tell(self, node: _Node, frame: bytes) -> Sends:
        """Tell a node that it was heard, behind all that it is told before."""
        pages = self._pages.get(node.peer)
        if pages is None:
            return [] if node.is_behind else [(node.peer, frame)]
        pages.rest = chain(pages.rest, [frame])
        return []


def _is_said_by(request: Announce | Goodbye, uuid: bytes, key: str) -> bool:
    """Tell whether a node has the key that speaks for it: its uuid is made from that."""
    return is_of(uuid, key) and (isinstance(request, Goodbye) or request.announcement.key == key)
