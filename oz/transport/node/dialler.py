"""The dialler of a node: it carries out what `Links` decides, with the node's sockets.

It is touched by the node's I/O side only, and never waits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Protocol

import zmq

from oz.logs import peer_logger
from oz.protocol.node.inquiry import SAY_AGAIN
from oz.protocol.node.links import Links
from oz.protocol.node.membership import Act, Membership
from oz.protocol.node.reserved_subjects import NAMING
from oz.protocol.node.steps import (
    Dial,
    Forget,
    HangUp,
    Introduce,
    LinkStep,
    LoseTrack,
    PeerChanged,
    Refused,
    Unreachable,
)
from oz.protocol.node.subscription import Refusable
from oz.transport.attachments import is_inside
from oz.transport.node.calling import KeyedCalls
from oz.transport.node.connector import FOR_EVER, ONCE
from oz.transport.node.local_directory import TrustedDirectory
from oz.transport.node.publisher import NodePublisher
from oz.transport.node.subscriber import NodeSubscriber
from oz.wire.codec import Introduction
from oz.wire.discovery import Announcement

_log = peer_logger("oz.node")


_LOGGED = 100
"""Peers that cannot be reached of which each is logged."""

_UNREACHABLE = (
    "nothing is heard of %s at %s, which it announces: its process stands still, or a firewall or router is "
    "between; let that port pass, or give it the bind= and advertise= by which it can be reached"
)


class BusListener(Protocol):
    """A listener to what happens on the bus."""

    def peer_changed(self, act: Act, peer: Announcement) -> None:
        """Record that a peer is up, has left or is lost."""

    def server_changed(self, endpoint: str, *, is_there: bool) -> None:
        """Record that a name server answers, or does not any more."""

    def introduce(self, peer: Announcement, text: str) -> None:
        """Tell a peer of others; `text` is what `Links.hear_of` takes."""

    def refused(self, what: Refusable, text: str) -> None:
        """Record that something of others was not believed, and why."""


class Dialler:
    """The connections of one node, and those who are told of its links.

    Attributes:
        links: what it carries out.
        calls: where the key of a listener is to be found out; None where nodes have no keys.
        place: tells the keys of sockets in the directory; None where there are none.
    """

    __slots__ = ("_listener", "_local", "_network", "_sub", "_unreachable", "calls", "links", "place")

    def __init__(
        self,
        links: Links,
        sockets: tuple[NodeSubscriber, NodePublisher, NodePublisher | None],
        listener: BusListener,
    ) -> None:
        """Put together what the node has; nothing is connected yet.

        Args:
            links: what is to be connected to.
            sockets: what the node subscribes with, and its publishers: for its host, and for everybody.
            listener: who is told of what happens.
        """
        self.links = links
        self.calls: KeyedCalls | None = None
        self.place: TrustedDirectory | None = None
        self._sub, self._local, self._network = sockets
        self._listener = listener
        self._unreachable = 0

    def start(self, now: float) -> None:
        """Connect to seeds, and look for nodes of this host.

        Raises:
            EndpointError, TransportUnavailable, zmq.ZMQError: a seed cannot be connected to at all.
        """
        self._carry_out(self.links.start(now))

    def receive(self, endpoint: str, frame: bytes, now: float) -> None:
        """Take a frame from a name server."""
        self._carry_out(self.links.receive(endpoint, frame, now))

    def hear_of(self, text: str, now: float) -> None:
        """Take what a peer tells of others."""
        self._carry_out(self.links.hear_of(text, now))

    def look(self, now: float) -> None:
        """See which links stand, if any may have come or gone."""
        self._carry_out(self.links.look(now))

    def tick(self, now: float) -> list[tuple[str, bytes]]:
        """Do what is due; give the frames that are to be sent to name servers, by endpoint."""
        self._carry_out(self.links.tick(now))
        return self.links.announcements(now)

    def there(self) -> list[tuple[Announcement, list[NodePublisher]]]:
        """Return the peers whose links stand and who speak, with the publishers that each is connected to."""
        return [
            (
                peer,
                [
                    publisher
                    for publisher, is_due in zip((self._local, self._network), due, strict=True)
                    if publisher is not None and is_due
                ],
            )
            for peer, due in self.links.there()
        ]

    def _carry_out(self, steps: Iterable[LinkStep]) -> None:
        for step in steps:
            match step:
                case Dial():
                    self._dial(step)
                case HangUp(endpoint):
                    self._sub.connector.hang_up(endpoint)
                case LoseTrack(origin, is_in_place):
                    self._sub.lose_track(origin, is_in_place=is_in_place)
                case Forget(origin):
                    self._sub.forget(origin)
                case Unreachable(endpoint, name):
                    self._warn(_UNREACHABLE, name, endpoint)
                case Introduce(peer, text):
                    self._listener.introduce(peer, text)
                case PeerChanged(act, peer):
                    self._listener.peer_changed(act, peer)
                case Refused(what, text):
                    self._listener.refused(what, text)
                case _:
                    self._listener.server_changed(step.endpoint, is_there=step.is_there)

    def _dial(self, step: Dial) -> None:
        """Connect; what cannot be connected to now is tried again like what does not answer."""
        key = step.key
        if step.is_for_ever:
            if self.calls is None or is_inside(step.endpoint):
                self._sub.connector.dial(step.endpoint, stop=FOR_EVER)
            else:
                self.calls.call(step.endpoint)
            return
        if self.calls is not None and key is None:
            key = None if self.place is None else self.place.key_of(step.endpoint)
            if key is None:
                # Its key is not trusted any more.
                return
        if os.path.islink(step.endpoint.removeprefix("ipc://")):
            self._listener.refused("introduction", f"{step.endpoint} is a symbolic link")
            return
        try:
            self._sub.connector.dial(step.endpoint, stop=ONCE, key=key)
        except (zmq.ZMQError, ValueError, OSError) as error:
            self._warn("cannot connect to %s at %s: %s", step.name, step.endpoint, error)

    def _warn(self, text: str, *values: object) -> None:
        """Log of the peers that cannot be reached the first, and whenever there are twice as many.

        Whoever announces many may announce what it likes.
        """
        self._unreachable += 1
        if self._unreachable <= _LOGGED or self._unreachable & (self._unreachable - 1) == 0:
            _log.warning(text, *values)


class Introductions:
    """The introductions of peers to each other, and what else nodes say on the bus.

    Attributes:
        said: messages that have gone, which no application published.
    """

    __slots__ = ("_membership", "_publisher", "_untold", "said")

    def __init__(self, publisher: NodePublisher, membership: Membership) -> None:
        """Start with nothing to say.

        Args:
            publisher: the node's main one.
            membership: who is linked.
        """
        self._publisher = publisher
        self._membership = membership
        self._untold: dict[bytes, str] = {}
        self.said = 0

    def tell(self, subject: str, value: Any) -> bool:
        """Publish what nodes say to each other; tell whether there was room for it."""
        engine = self._publisher.engine
        has_room = engine.sender.publish(engine.socket, subject, value) is None
        self.said += has_room
        return has_room

    def introduce(self, peer: Announcement, text: str) -> None:
        """Tell a peer of others. Only once is it told, so what finds no room is to be said again."""
        self._untold[peer.uuid] = text
        self.try_again()

    def try_again(self) -> None:
        """Say what has found no room."""
        for uuid, text in list(self._untold.items()):
            subject = f"{NAMING}{uuid.hex()}"
            if not self._membership.is_linked(uuid) or self.tell(subject, Introduction(text)):
                del self._untold[uuid]

    def next_deadline(self, now: float) -> float | None:
        """Return when to try again; None when nothing is to be said."""
        return now + SAY_AGAIN if self._untold else None
