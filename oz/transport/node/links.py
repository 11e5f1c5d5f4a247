"""The links of a node: whom it finds, whom it connects to, and who is connected to it.

It is touched by the node's I/O side only, and never waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import zmq

from oz.errors import ProtocolError
from oz.protocol.node.discovery_client import DiscoveryClient, Heard
from oz.protocol.node.membership import Act, Membership, Step
from oz.protocol.node.presence import from_text, to_text
from oz.transport.node.draining_peer import DrainingPeer
from oz.transport.node.local_directory import LocalDirectory
from oz.transport.node.sockets import (
    FOR_EVER,
    ONCE,
    NodePublisher,
    NodeSubscriber,
    local_origin,
    network_origin,
)
from oz.wire.discovery import Announcement, Left

_log = logging.getLogger("oz.node")

CHECK_EVERY = 1.0
"""Seconds between two looks at who says nothing."""

SCAN_EVERY = 1.0
"""Seconds between two looks at the directory where nodes of one host meet."""

REDIAL_AFTER = 2.0
"""Seconds without an answer after which a peer is connected to anew: what refused once is not tried."""

MISSES = 4
"""Looks in a row at which nothing new had come of a publisher, after which it counts as silent; its heart
beats every second. Not seconds: while a process stood still itself, nobody else was silent."""

PROBE_AGAIN = 2.0
"""Seconds after which a socket in the directory that did not answer is looked at anew."""

MUTE_AFTER = 4.0
"""Seconds for which somebody who listens and says nothing is waited for: a process that stands still may do
so for ever, and must not hold up those who have only just begun."""

FORGET_AFTER = 60.0
"""Seconds for which it is known where a lost node's messages stood: if it comes back, losses are counted."""


class BusListener(Protocol):
    """The listener to events of the bus."""

    def _peer_changed(self, act: Act, peer: Announcement) -> None: ...

    def _server_changed(self, endpoint: str, *, is_there: bool) -> None: ...

    def _introduce(self, peer: Announcement, text: str) -> None: ...


class Mesh:
    """The links of one node.

    Attributes:
        own: the node's announcement.
        membership: its peers.
        discovery_clients: what it does with each name server, by endpoint.
        silent: the uuids of peers that are connected and say nothing any more.
    """

    __slots__ = (
        "_check_at",
        "_dialled",
        "_dialled_at",
        "_draining",
        "_echoes",
        "_forgotten",
        "_forwarders",
        "_has_lost_way",
        "_heard",
        "_is_stale",
        "_is_there",
        "_listener",
        "_local",
        "_local_directory",
        "_mute",
        "_network",
        "_probed",
        "_scan_at",
        "_seeds",
        "_seen_at",
        "_sub",
        "discovery_clients",
        "membership",
        "own",
        "silent",
    )

    def __init__(
        self,
        membership: Membership,
        own: Announcement,
        sockets: tuple[NodeSubscriber, NodePublisher, NodePublisher | None],
        listener: BusListener,
        *,
        servers: Sequence[str] = (),
        seeds: Sequence[str] = (),
        local_directory: LocalDirectory | None = None,
        echo: bool = True,
    ) -> None:
        """Put together what the node has; nothing is connected yet.

        Args:
            membership: the peers.
            own: the node's announcement.
            sockets: what it subscribes with, and its publishers: for its host, and for everybody.
            listener: who is told of what happens.
            servers: the endpoints of name servers.
            seeds: endpoints of peers that are connected to whether they are there or not.
            local_directory: where nodes of this host are looked for; None when they are not.
            echo: whether the node hears itself.
        """
        self.own = own
        self.membership = membership
        self._sub, self._local, self._network = sockets
        self._listener = listener
        self.discovery_clients = {endpoint: DiscoveryClient(own, endpoint) for endpoint in servers}
        self._is_there = dict.fromkeys(servers, False)
        self._seeds = tuple(seeds)
        self._local_directory = local_directory
        self._echoes: list[bytes] = []
        if echo:
            self._echoes = [local_origin(own.uuid), *([network_origin(own.uuid)] if self._network else [])]
        self._dialled: dict[str, bytes] = {}
        self._dialled_at: dict[str, float] = {}
        self._heard: dict[bytes, tuple[int, int]] = {}
        self._check_at = 0.0
        self._draining: dict[bytes, DrainingPeer] = {}
        self._forgotten: dict[bytes, float] = {}
        self._probed: dict[str, float] = {}
        self._seen_at: dict[str, float] = {}
        self._mute: set[str] = set()
        self._scan_at = 0.0
        self._is_stale = True
        self._forwarders: set[bytes] = set()
        self._has_lost_way = False
        self.silent: frozenset[bytes] = frozenset()

    def start(self, now: float) -> None:
        """Connect to seeds, and look for nodes of this host."""
        for seed in self._seeds:
            self._sub.dial(seed, stop=FOR_EVER)
        self._scan(now)

    def wake(self) -> None:
        """Record that links may have come or gone; any thread may say so."""
        self._is_stale = True

    # what comes ------------------------------------------------------------------------------------------

    def receive(self, endpoint: str, frame: bytes, now: float) -> None:
        """Take a frame from a name server."""
        for event in self.discovery_clients[endpoint].receive(frame, now):
            if isinstance(event, Heard):
                self._do(self.membership.hear(event.announcement, now, by=endpoint), now)
            elif isinstance(event, Left):
                # Its link tells when its last messages have come; without one there are none.
                if not self.membership.is_linked(event.uuid):
                    self._do(self.membership.leave(event.uuid, now), now)
            else:
                self._do(self.membership.lose(event.uuid, now, by=endpoint), now)
        self._look_at_servers(now)

    def hear_of(self, text: str, now: float) -> None:
        """Take what a peer tells of others."""
        for word in text.split():
            with suppress(ProtocolError):
                self._do(self.membership.hear(from_text(word), now), now)

    # what is due -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[tuple[str, bytes]]:
        """Do what is due; give the frames that are to be sent to name servers, by endpoint."""
        self._look_who_is_silent(now)
        self.look_at_links(now)
        self._do(self.membership.tick(now), now)
        self._scan(now)
        for origin, one in list(self._draining.items()):
            if one.is_over(self._sub.heard_at(origin), now):
                self._part(origin, now)
        for origin in [one for one, at in self._forgotten.items() if now >= at and one not in self._draining]:
            del self._forgotten[origin]
            self._heard.pop(origin, None)
            self._sub.forget(origin)
        self._look_at_servers(now)
        return [
            (endpoint, frame) for endpoint, one in self.discovery_clients.items() for frame in one.tick(now)
        ]

    def next_deadline(self, now: float) -> float | None:
        """Return when `tick` has something to do, if nothing comes before.

        Args:
            now: monotonic seconds.

        Returns:
            Monotonic seconds; None for never.
        """
        if self._is_stale:
            return now
        deadlines = [self.membership.next_deadline()]
        deadlines += [one.next_deadline(now) for one in self.discovery_clients.values()]
        deadlines += [one.next_deadline() for one in self._draining.values()]
        deadlines += [at for origin, at in self._forgotten.items() if origin not in self._draining]
        if self._local_directory is not None:
            deadlines.append(self._scan_at)
        if self.membership.known:
            deadlines.append(self._check_at)
        return min((at for at in deadlines if at is not None), default=None)

    @property
    def is_stale(self) -> bool:
        """Whether links may have come or gone that nobody has looked at."""
        return self._is_stale

    def look_at_links(self, now: float) -> None:
        """See which links stand, if any may have come or gone since this was asked last."""
        if not self._is_stale:
            return
        self._is_stale = False
        publishers = [self._local] if self._network is None else [self._local, self._network]
        linked: list[list[Announcement]] = []
        cut: set[bytes] = set()
        for publisher in publishers:
            standing, broken = publisher.standing()
            linked.append(standing)
            cut |= broken
        seen = [{one.uuid for one in some} for some in linked]
        there = {one.uuid: one for some in linked for one in some}
        silent = {peer.uuid for peer in there.values() if self._has_fallen_silent(peer)}
        cut |= silent
        self.silent = frozenset(silent)
        whole = {
            peer.uuid
            for peer in there.values()
            if peer.uuid not in silent
            and all(
                peer.uuid in uuids for uuids, is_due in zip(seen, self._due_at(peer), strict=False) if is_due
            )
        }
        before = {uuid for uuid in self._forwarders if self.membership.is_linked(uuid)}
        self._do(self.membership.link(there.values(), whole, cut, now), now)
        self._look_at_forwarders(publishers, before, cut)

    def _look_at_forwarders(
        self, publishers: Iterable[NodePublisher], before: set[bytes], cut: set[bytes]
    ) -> None:
        """See which forwarders have come or gone: numbers do not tell what they did not pass on.

        Args:
            publishers: of this node.
            before: the uuids of forwarders whose links stood until now.
            cut: the uuids of nodes that did not take their leave.
        """
        known = {peer.uuid: peer for peer in self.membership.known}
        gone = {uuid for uuid in before if not self.membership.is_linked(uuid)}
        for uuid in gone & cut & known.keys():
            self._sub.lose_track(self._main_origin(known[uuid]), is_in_place=False)
        there = set().union(*(one.forwarders() for one in publishers)) & known.keys()
        if self._has_lost_way:
            for uuid in there - self._forwarders:
                self._sub.lose_track(self._main_origin(known[uuid]), is_in_place=True)
        self._has_lost_way |= bool(gone)
        self._forwarders = there | (self._forwarders & known.keys())

    @staticmethod
    def _main_origin(peer: Announcement) -> bytes:
        """Return the publisher of a peer by which all goes out but what stays on its host."""
        return network_origin(peer.uuid) if peer.endpoints else local_origin(peer.uuid)

    def _due_at(self, peer: Announcement) -> tuple[bool, bool]:
        """Say which of this node's publishers a peer connects to: that for the host, and the other."""
        is_local = self._is_local(peer)
        return is_local, self._network is not None

    def _is_local(self, peer: Announcement) -> bool:
        return (
            self.own.local_endpoint is not None
            and peer.local_endpoint is not None
            and peer.host_id == self.own.host_id
        )

    def _look_at_servers(self, now: float) -> None:
        for endpoint, discovery_client in self.discovery_clients.items():
            is_there = discovery_client.is_registered(now)
            if is_there != self._is_there[endpoint]:
                self._is_there[endpoint] = is_there
                if not is_there:
                    self.membership.forsake(endpoint)
                self._listener._server_changed(endpoint, is_there=is_there)

    # what is done ----------------------------------------------------------------------------------------

    def _do(self, steps: Iterable[Step], now: float) -> None:
        for act, peer in steps:
            if act is Act.CONNECT:
                self._connect(peer, now)
            elif act is Act.DISCONNECT:
                self._disconnect(peer, now)
            else:
                if act is Act.UP and not self.discovery_clients:
                    self._listener._introduce(peer, " ".join(to_text(one) for one in self.membership.known))
                self._listener._peer_changed(act, peer)

    def targets(self, peer: Announcement) -> list[str]:
        """Return the endpoints that a peer is connected to by."""
        local = [peer.local_endpoint] if peer.local_endpoint is not None and self._is_local(peer) else []
        return [*local, *peer.endpoints[:1]]

    def origins(self, peer: Announcement) -> list[bytes]:
        """Return the publishers of a peer that this node hears."""
        local = [local_origin(peer.uuid)] if self._is_local(peer) else []
        return [*local, *([network_origin(peer.uuid)] if peer.endpoints else [])]

    def heard(self) -> set[bytes]:
        """Return the publishers that answer: those of peers whose link stands, and this node's own."""
        linked = [one for one in self.membership.known if self.membership.is_linked(one.uuid)]
        return {*self._echoes, *(origin for peer in linked for origin in self.origins(peer))}

    def _connect(self, peer: Announcement, now: float) -> None:
        for endpoint, origin in zip(self.targets(peer), self.origins(peer), strict=True):
            self._forgotten.pop(origin, None)
            self._draining.pop(origin, None)
            others = [left for left, one in self._draining.items() if one.endpoint == endpoint]
            for left in others:
                self._part(left, now)
            if others and endpoint not in self._seeds:
                self._dial(endpoint, peer, now)
            elif endpoint in self._dialled or endpoint in self._seeds or endpoint in self._probed:
                # It was here before, or another was; whether that connection stands is seen by what comes.
                self._dialled[endpoint] = peer.uuid
                self._dialled_at.setdefault(endpoint, now)
            elif self._is_silent(origin):
                self._dial(endpoint, peer, now)

    def _dial(self, endpoint: str, peer: Announcement, now: float) -> None:
        self._dialled[endpoint] = peer.uuid
        self._dialled_at[endpoint] = now
        self._try(endpoint, peer.name)

    def _try(self, endpoint: str, name: str) -> None:
        """Connect; what cannot be connected to now is tried again like what does not answer."""
        try:
            self._sub.dial(endpoint, stop=ONCE)
        except (zmq.ZMQError, ValueError, OSError) as error:
            _log.warning("cannot connect to %s at %s: %s", name, endpoint, error)

    def _look_who_is_silent(self, now: float) -> None:
        """Connect anew to peers that say nothing; a link on which nothing comes does not stand."""
        if now < self._check_at:
            return
        self._check_at = now + CHECK_EVERY
        # A link may stand on which nothing comes, and something again.
        self._is_stale = True
        for peer in self.membership.known:
            for endpoint, origin in zip(self.targets(peer), self.origins(peer), strict=True):
                heard_at = self._sub.heard_at(origin)
                if heard_at:
                    before, misses = self._heard.get(origin, (0, 0))
                    self._heard[origin] = heard_at, misses + 1 if heard_at == before else 0
                is_due = now - self._dialled_at.get(endpoint, now - REDIAL_AFTER) >= REDIAL_AFTER
                if is_due and endpoint not in self._seeds and self._is_silent(origin):
                    self._hang_up(endpoint)
                    self._dial(endpoint, peer, now)

    def _is_silent(self, origin: bytes) -> bool:
        """Tell whether a publisher has not been heard for long, or never."""
        heard_at = self._sub.heard_at(origin)
        before, misses = self._heard.get(origin, (heard_at, 0))
        return not heard_at or (heard_at == before and misses >= MISSES)

    def _has_fallen_silent(self, peer: Announcement) -> bool:
        """Tell whether a peer was heard, and is heard no more: it stands still, or its link is cut."""
        origins = self.origins(peer)
        return any(map(self._sub.heard_at, origins)) and all(map(self._is_silent, origins))

    def _disconnect(self, peer: Announcement, now: float) -> None:
        for endpoint, origin in zip(self.targets(peer), self.origins(peer), strict=True):
            self._forgotten[origin] = now + FORGET_AFTER
            self._heard[origin] = self._sub.heard_at(origin), MISSES
            self._draining[origin] = DrainingPeer(peer, endpoint, self._sub.heard_at(origin), now)

    def _part(self, origin: bytes, now: float) -> None:
        """Hang up on a publisher that is gone; report that something is missing, unless it said goodbye."""
        self._sub.lose_track(origin, is_in_place=False)
        one = self._draining.pop(origin)
        self._forgotten[origin] = now + FORGET_AFTER
        if self._dialled.get(one.endpoint) == one.peer.uuid:
            self._hang_up(one.endpoint)

    def draining_peer(self, origin: bytes) -> Announcement | None:
        """Return the peer of a publisher that is gone, and is listened to for what it sent last."""
        one = self._draining.get(origin)
        return None if one is None else one.peer

    def _hang_up(self, endpoint: str) -> None:
        self._probed.pop(endpoint, None)
        self._dialled.pop(endpoint, None)
        self._dialled_at.pop(endpoint, None)
        if endpoint not in self._seeds:
            self._sub.hang_up(endpoint)

    def _scan(self, now: float) -> None:
        """Connect to sockets in the directory that nobody told of, and remove dead ones."""
        if self._local_directory is None or now < self._scan_at:
            return
        self._scan_at = now + SCAN_EVERY
        there = self._local_directory.others()
        known = {
            peer.local_endpoint for peer in self.membership.known if self.membership.is_linked(peer.uuid)
        }
        self._seen_at = {one: self._seen_at.get(one, now) for one in there - known}
        self._mute = {one for one, at in self._seen_at.items() if now - at >= MUTE_AFTER}
        for endpoint in there - known:
            probed_at = self._probed.get(endpoint)
            if probed_at is None and endpoint not in self._dialled:
                self._probed[endpoint] = now
                self._try(endpoint, "a node of this host")
            elif probed_at is not None and now - probed_at >= PROBE_AGAIN:
                is_dead = self._local_directory.clear(endpoint)
                if endpoint in self._dialled:
                    # It is a peer's, and what it sent last may be on its way.
                    continue
                self._hang_up(endpoint)
                if not is_dead:
                    # Nobody may have listened there yet when it was tried.
                    self._probed[endpoint] = now
                    self._try(endpoint, "a node of this host")
        for endpoint in self._probed.keys() - there:
            if endpoint in self._dialled:
                # It is a peer's, and what it sent last may be on its way.
                del self._probed[endpoint]
            else:
                self._hang_up(endpoint)

    def unsettled(self) -> list[str]:
        """Return the sockets of this host of which it is not known yet whether anybody listens there."""
        local = {peer.local_endpoint for peer in self.membership.known}
        return [one for one in self._probed if one not in local and one not in self._mute]

    def there(self) -> list[tuple[Announcement, list[NodePublisher]]]:
        """Return the peers whose links stand and who speak, with the publishers that each is connected to."""
        return [
            (peer, self._publishers_for(peer))
            for peer in self.membership.known
            if self.membership.is_linked(peer.uuid) and not self._has_fallen_silent(peer)
        ]

    def _publishers_for(self, peer: Announcement) -> list[NodePublisher]:
        there = zip((self._local, self._network), self._due_at(peer), strict=True)
        return [publisher for publisher, is_due in there if publisher is not None and is_due]

    # readiness -------------------------------------------------------------------------------------------

    @property
    def is_registered(self) -> bool:
        """Whether some name server is live, or none is needed."""
        return not self.discovery_clients or any(self._is_there.values())

    def unready(self) -> list[str]:
        """Say what is not there yet: empty when every peer that is known can be spoken with both ways."""
        missing = (
            [] if self.is_registered else [f"no name server answers at {', '.join(self.discovery_clients)}"]
        )
        missing += [f"whether anybody listens on {one} is not known yet" for one in self.unsettled()]
        if not all(map(self._sub.has_answer, self._echoes)):
            missing.append("this node has not answered its own subscriptions")
        for peer in self.membership.known:
            if self._has_fallen_silent(peer):
                # Whoever stands still may do so for ever.
                continue
            if not self.membership.is_linked(peer.uuid):
                missing.append(f"{peer.name} is not connected to this node")
            elif any(
                not self._sub.has_answer(origin) or self._is_silent(origin) for origin in self.origins(peer)
            ):
                missing.append(f"{peer.name} has not answered this node's subscriptions")
        return missing
