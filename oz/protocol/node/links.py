"""The links of a node, decided: whom it has found, whom it connects to, and whose link stands both ways.

Nothing here touches a socket or reads a clock: a simulation drives it with ports that answer at once, and
`oz.transport.node.dialler` with the sockets of a node. What is to be done comes back as steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Protocol

from oz.errors import ProtocolError
from oz.protocol.node.connections import Connections
from oz.protocol.node.discovery_client import DiscoveryClient, Heard
from oz.protocol.node.membership import Act, Membership, Step
from oz.protocol.node.presence import from_text, local_origin, network_origin, to_text
from oz.protocol.node.steps import (
    ConnectionStep,
    Introduce,
    LinkStep,
    LoseTrack,
    PeerChanged,
    Refused,
    ServerChanged,
)
from oz.wire.discovery import Announcement, Left

LOOK_PAUSE, FEW = 0.002, 8
"""Seconds between two looks at which links stand, for each peer beyond a few: it goes through all."""

_NAMED = 8
"""Peers that are named at most of those who are not ready."""


class Connected(Protocol):
    """A publisher of a node, as far as it knows who is connected to it; it answers at once."""

    def standing(self) -> tuple[list[Announcement], set[bytes]]:
        """Return the nodes that are connected, and the uuids of those whose connection was cut."""

    def forwarders(self) -> set[bytes]:
        """Return the uuids of the nodes that are connected and pass messages on from other buses."""


class Links:
    """The links of one node. Each call says which steps to take, in order.

    Attributes:
        membership: the node's peers.
        connections: what it is connected to.
        discovery_clients: what it does with each name server, by endpoint.
        silent: the uuids of peers that are connected and say nothing any more.
        is_stale: whether links may have come or gone that nobody has looked at.
    """

    __slots__ = (
        "_echoes",
        "_forwarders",
        "_has_acted",
        "_has_lost_way",
        "_is_there",
        "_local",
        "_looked_at",
        "_network",
        "_refused",
        "_standing",
        "_was_silent",
        "connections",
        "discovery_clients",
        "is_stale",
        "membership",
        "silent",
    )

    def __init__(
        self,
        membership: Membership,
        connections: Connections,
        local: Connected,
        network: Connected | None,
        *,
        servers: Sequence[str] = (),
        echo: bool = True,
    ) -> None:
        """Put together what the node has; nothing is decided yet.

        Args:
            membership: the peers.
            connections: what the node is connected to.
            local: who is connected to its publisher for this host.
            network: who is connected to its publisher for everybody; None where there is none.
            servers: the endpoints of name servers.
            echo: whether the node hears itself.
        """
        own = connections.own
        self.membership = membership
        self.connections = connections
        self._local, self._network = local, network
        self.discovery_clients = {endpoint: DiscoveryClient(own, endpoint) for endpoint in servers}
        self._is_there = dict.fromkeys(servers, False)
        self._echoes: list[bytes] = []
        if echo:
            self._echoes = [local_origin(own.uuid), *([network_origin(own.uuid)] if network else [])]
        self._forwarders: set[bytes] = set()
        self._has_lost_way = self._has_acted = False
        self._standing: list[tuple[list[Announcement], set[bytes]]] = []
        self._was_silent: frozenset[bytes] = frozenset()
        self._refused: frozenset[Refused] = frozenset()
        self.is_stale = True
        self._looked_at = 0.0
        self.silent: frozenset[bytes] = frozenset()

    def start(self, now: float) -> list[LinkStep]:
        """Connect to seeds, and look for nodes of this host."""
        return [*self.connections.start(), *self._scan(now)]

    def wake(self) -> None:
        """Record that links may have come or gone; any thread may say so."""
        self.is_stale = True

    # what comes ------------------------------------------------------------------------------------------

    def receive(self, endpoint: str, frame: bytes, now: float) -> list[LinkStep]:
        """Take a frame from a name server."""
        steps: list[LinkStep] = []
        for event in self.discovery_clients[endpoint].receive(frame, now):
            if isinstance(event, Heard):
                steps += self._hear(event.announcement, now, by=endpoint)
            elif not isinstance(event, Left):
                steps += self._follow(self.membership.lose(event.uuid, now, by=endpoint), now)
            else:
                steps += self._follow(self.membership.leave(event.uuid, now, by=endpoint), now)
        return steps + self._look_at_servers(now)

    def hear_of(self, text: str, now: float) -> list[LinkStep]:
        """Take what a peer tells of others."""
        steps: list[LinkStep] = []
        for word in text.split():
            with suppress(ProtocolError):
                peer = from_text(word)
                # Nearly all are: each peer tells of all others.
                if not self.membership.knows(peer):
                    steps += self._hear(peer, now)
        return steps

    def _hear(self, peer: Announcement, now: float, by: str | None = None) -> list[LinkStep]:
        """Believe that there is a node, if it can be connected to."""
        if peer.bus == self.connections.own.bus and (why := self.connections.reach.refusal(peer)) is not None:
            return [Refused("introduction", f"{peer.name} is not connected to: {why}")]
        return self._follow(self.membership.hear(peer, now, by=by), now)

    # what is due -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[LinkStep]:
        """Do what is due."""
        steps: list[LinkStep] = []
        if self.connections.is_check_due(now):
            steps += self.connections.check(self.membership.known, now)
            # A link may stand on which nothing comes, and something again.
            self.is_stale = self.is_stale or self._has_changed()
        if now >= self.look_at:
            steps += self.look(now)
        self.membership.crowd_patience = self.connections.crowd_patience(now)
        steps += self._follow(self.membership.tick(now, self.connections.is_waiting), now)
        steps += self._scan(now)
        steps += self.connections.begin_dials(now)
        steps += self.connections.drain(now)
        return steps + self._look_at_servers(now)

    def announcements(self, now: float) -> list[tuple[str, bytes]]:
        """Return the frames that are to be sent to name servers now, by endpoint."""
        return [
            (endpoint, frame) for endpoint, one in self.discovery_clients.items() for frame in one.tick(now)
        ]

    def peer_of(self, origin: bytes) -> Announcement | None:
        """Return the node whose publisher has, or had, this name; None when none is known."""
        for peer in (*self.membership.known, self.connections.own):
            if origin in (network_origin(peer.uuid), local_origin(peer.uuid)):
                return peer
        return self.connections.gone_peer(origin)

    def next_deadline(self, now: float) -> float | None:
        """Return when `tick` or `announcements` has something to do, if nothing comes before.

        Args:
            now: monotonic seconds.

        Returns:
            Monotonic seconds; None for never.
        """
        deadlines = [
            self.look_at if self.is_stale else None,
            self.membership.next_deadline(),
            self.connections.next_deadline(has_peers=bool(self.membership.count)),
            *(one.next_deadline(now) for one in self.discovery_clients.values()),
        ]
        return min((at for at in deadlines if at is not None), default=None)

    @property
    def look_at(self) -> float:
        """When to see which links stand, in monotonic seconds: while many join, once for several of them."""
        pause = LOOK_PAUSE * max(0, self.membership.count - FEW)
        return self._looked_at + pause if self.is_stale else inf

    def look(self, now: float) -> list[LinkStep]:
        """See which links stand, if any may have come or gone since this was asked last."""
        if not self.is_stale:
            return []
        self.is_stale = self._has_acted = False
        self._looked_at = now
        self._was_silent = self.connections.silent
        self._standing = self._look_who_stands()
        refused: list[Refused] = []
        looks = [(self._believed(standing, refused), broken) for standing, broken in self._standing]
        new = [one for one in refused if one not in self._refused]
        self._refused = frozenset(refused)
        there = {peer.uuid: peer for standing, _ in looks for peer in standing}
        self.silent = frozenset(
            uuid for uuid, peer in there.items() if self.connections.has_fallen_silent(peer)
        )
        cut = self.silent.union(*(broken for _, broken in looks))
        seen = [{peer.uuid for peer in standing} for standing, _ in looks]
        whole = {
            uuid
            for uuid, peer in there.items()
            if uuid not in self.silent
            and all(uuid in uuids for uuids, is_due in zip(seen, self._due_at(peer), strict=False) if is_due)
        }
        before = {uuid for uuid in self._forwarders if self.membership.is_linked(uuid)}
        steps = self._follow(self.membership.link(there.values(), whole, cut, now), now)
        return [*new, *steps, *self._look_at_forwarders(before)]

    def _believed(self, standing: list[Announcement], refused: list[Refused]) -> list[Announcement]:
        """Leave out those who announce where nobody connects to, or what is known to be otherwise."""
        believed = []
        for peer in standing:
            if (why := self.connections.reach.refusal(peer)) is not None:
                refused.append(Refused("introduction", f"{peer.name} is not connected to: {why}"))
            elif self.membership.refuses(peer):
                refused.append(Refused("announcement", f"{peer.name} is announced in two ways"))
            else:
                believed.append(peer)
        return believed

    def _has_changed(self) -> bool:
        """Tell whether `look` may find something else than the last time, though nobody said so."""
        return (
            self._has_acted
            or self.connections.silent != self._was_silent
            # Who was silent at the last look, and has spoken before the check that would have noted it.
            or not self.silent <= self.connections.silent
            or self._look_who_stands() != self._standing
        )

    def _look_who_stands(self) -> list[tuple[list[Announcement], set[bytes]]]:
        return [one.standing() for one in (self._local, self._network) if one is not None]

    def _look_at_forwarders(self, before: set[bytes]) -> list[LinkStep]:
        """See which forwarders have come or gone: numbers do not tell what they did not pass on.

        Args:
            before: the uuids of forwarders whose links stood until now.
        """
        there = self._local.forwarders() | (self._network.forwarders() if self._network else set())
        if not (there or self._forwarders):
            return []
        known = {peer.uuid: peer for peer in self.membership.known}
        there &= known.keys()
        gone = {uuid for uuid in before if not self.membership.is_linked(uuid)}
        # Whoever took its leave is not known any more, and had passed everything on.
        lost = [(uuid, False) for uuid in gone & known.keys()]
        if self._has_lost_way:
            lost += [(uuid, True) for uuid in there - self._forwarders]
        self._has_lost_way |= bool(gone)
        self._forwarders = there | (self._forwarders & known.keys())
        return [LoseTrack(_main_origin(known[uuid]), is_in_place) for uuid, is_in_place in lost]

    def _due_at(self, peer: Announcement) -> tuple[bool, bool]:
        """Say which of this node's publishers a peer connects to: that for the host, and the other."""
        return self.connections.is_local(peer), self._network is not None

    def _look_at_servers(self, now: float) -> list[LinkStep]:
        steps: list[LinkStep] = []
        for endpoint, discovery_client in self.discovery_clients.items():
            is_there = discovery_client.is_registered(now)
            if is_there != self._is_there[endpoint]:
                self._is_there[endpoint] = is_there
                if not is_there:
                    self.membership.forsake(endpoint)
                steps.append(ServerChanged(endpoint, is_there))
        return steps

    def _scan(self, now: float) -> list[ConnectionStep]:
        membership = self.membership
        return self.connections.scan(
            (peer for peer in membership.known if membership.is_linked(peer.uuid)), now
        )

    def _follow(self, steps: Iterable[Step], now: float) -> list[LinkStep]:
        """Say what comes of the steps of the membership."""
        taken: list[LinkStep] = []
        for act, peer in steps:
            self._has_acted = True
            if act is Act.CONNECT:
                taken += self.connections.connect(peer, now)
            elif act is Act.DISCONNECT:
                self.connections.disconnect(peer, now)
            else:
                # What was said when a link broke may not have arrived.
                if act in (Act.UP, Act.BACK) and not self.discovery_clients:
                    taken.append(Introduce(peer, " ".join(map(to_text, self.membership.expected))))
                if act is not Act.BACK:
                    taken.append(PeerChanged(act, peer))
        return taken

    # who is there ----------------------------------------------------------------------------------------

    def heard(self) -> set[bytes]:
        """Return the publishers that answer: those of peers whose link stands, and this node's own."""
        linked = [one for one in self.membership.known if self.membership.is_linked(one.uuid)]
        return {*self._echoes, *(way.origin for peer in linked for way in self.connections.ways(peer))}

    def there(self) -> list[tuple[Announcement, tuple[bool, bool]]]:
        """Return the peers whose links stand and who speak.

        Returns:
            Each with whether it is connected to this node's publisher for the host, and to the other.
        """
        return [
            (peer, self._due_at(peer))
            for peer in self.membership.known
            if self.membership.is_linked(peer.uuid) and not self.connections.has_fallen_silent(peer)
        ]

    def unsettled(self) -> list[str]:
        """Return the sockets of this host of which it is not known yet whether anybody listens there."""
        return self.connections.unsettled(self.membership.known)

    @property
    def is_registered(self) -> bool:
        """Whether some name server is live, or none is needed."""
        return not self.discovery_clients or any(self._is_there.values())

    def unheard(self) -> set[bytes]:
        """Return the uuids of the peers that are known and have not answered what this node asks for."""
        linked, answered = self.membership.is_linked, self.connections.has_answered
        return {one.uuid for one in self.membership.expected if not (linked(one.uuid) and answered(one))}

    def unready(self) -> list[str]:
        """Say what is not there yet: empty when every peer that is known can be spoken with both ways.

        Of peers it names the first few: it is asked for again and again while many join.
        """
        missing = (
            [] if self.is_registered else [f"no name server answers at {', '.join(self.discovery_clients)}"]
        )
        missing += [f"whether anybody listens on {one} is not known yet" for one in self.unsettled()]
        if not self.connections.have_answered(self._echoes):
            missing.append("this node has not answered its own subscriptions")
        for peer in self.membership.expected:
            if self.connections.has_fallen_silent(peer):
                # Whoever stands still may do so for ever.
                continue
            if not self.membership.is_linked(peer.uuid):
                missing.append(f"{peer.name} is not connected to this node")
            elif not self.connections.has_answered(peer):
                missing.append(f"{peer.name} has not answered this node's subscriptions")
            if len(missing) >= _NAMED:
                return [*missing, "perhaps others too"]
        return missing


def _main_origin(peer: Announcement) -> bytes:
    """Return the publisher of a peer by which all goes out but what stays on its host."""
    return network_origin(peer.uuid) if peer.endpoints else local_origin(peer.uuid)
