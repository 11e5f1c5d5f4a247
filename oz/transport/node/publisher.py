"""The publisher of a node: an engine, and who is connected to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from math import inf
from typing import Any

import zmq

from oz.message import Extras
from oz.protocol.bridge.bridge import Ledger
from oz.protocol.node.presence import Presence
from oz.protocol.node.reserved_subjects import ReservedIndex
from oz.protocol.publisher.interest import PLAIN, ROUTED, Recipients
from oz.protocol.publisher.last_value_cache import NodeLastValueCache
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.stream import OutStream
from oz.protocol.stats import PublisherStats
from oz.security.access import Reserved
from oz.transport.publisher.engine import PublisherEngine
from oz.transport.publisher.options import PublisherOptions, Role, pattern_time
from oz.transport.publisher.sink import as_item, as_sendable
from oz.transport.socket import keep_link_alive
from oz.wire.discovery import Announcement
from oz.wire.extras import rich


def make_uuid(random_bytes: Callable[[int], bytes] = os.urandom) -> bytes:
    """Name a node: 16 random bytes, of which the last is even, so that both its publishers have names."""
    drawn = random_bytes(16)
    return drawn[:-1] + bytes((drawn[-1] & 0xFE,))


class NodePublisher:
    """A publisher of a node: an engine, and what the node has to know of who is connected to it.

    Attributes:
        engine: the engine.
    """

    __slots__ = ("_on_interest", "_presence", "_router", "_scoped", "engine")

    def __init__(
        self,
        make_engine: Callable[[PublisherOptions, Role], PublisherEngine],
        options: PublisherOptions,
        *,
        origin: bytes,
        bus: str,
        on_interest: Callable[[], None],
        reserved: Reserved | None = None,
    ) -> None:
        """Make one that is not bound yet.

        Args:
            make_engine: makes the engine; one for threads, or for a loop.
            options: of the node.
            origin: its name.
            bus: that of the node.
            on_interest: called, by any thread, when an interest has come or gone.
            reserved: decides, where nodes have keys, who may subscribe to what nodes say to each other.
        """
        self._scoped: dict[tuple[Recipients, str], Recipients] = {}
        self._on_interest = on_interest
        stats = PublisherStats()
        self._presence = presence = Presence(stats, bus)
        self._router = router = Router(
            origin,
            stats,
            index=ReservedIndex(cache_size=0),
            watcher=presence,
            pattern_time=pattern_time(options.limits),
            limits=options.limits,
        )
        last_values = NodeLastValueCache(time.perf_counter) if options.last_value else None
        role = Role(
            router=router,
            last_values=last_values,
            interest_changed=self._interest_changed,
            reserved=reserved,
        )
        self.engine = make_engine(options, role)
        keep_link_alive(self.engine.socket)

    def _interest_changed(self) -> None:
        self._scoped.clear()
        self._on_interest()

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether anybody has a subscription for a subject; see `oz.Publisher.interest`.

        That somebody has is told by what is known since a moment ago; that nobody has, after a look.
        """
        engine = self.engine
        sender = engine.sender
        sender.look(engine.socket)
        recipients = sender.routes.find(subject)[0]
        for stream in recipients.streams or (one for choice in recipients.choices for one in choice.members):
            if stream.vanished_at is None and not (stream.ending or stream.is_shared):
                return True
        return engine.interest(subject)

    def standing(self) -> tuple[list[Announcement], set[bytes]]:
        """Return the nodes that are connected, and those whose connection was cut; see `Presence`."""
        with self.engine.guard:
            return self._presence.standing()

    def take_refused(self) -> list[str]:
        """Return, in words, the announcements that were not believed since the last call."""
        with self.engine.guard:
            return self._presence.take_refused()

    @property
    def denied(self) -> str:
        """The last denial of a subscription of a peer, in words; empty before."""
        return self._router.acceptance.last_denied

    def streams(self) -> list[OutStream]:
        """Return the streams that there are."""
        with self.engine.guard:
            return list(self._router.streams.values())

    def forwarders(self) -> set[bytes]:
        """Return the uuids of the nodes that are connected and pass messages on from other buses."""
        with self.engine.guard:
            return self._presence.forwarders()

    def enter_into(self, ledger: Ledger, silent: Container[bytes]) -> None:
        """Bring a ledger up to date, which is the only one; `on_interest` tells when to do it again.

        Args:
            ledger: what is asked for here.
            silent: the uuids of nodes that say nothing any more.
        """
        with self.engine.guard:
            names = self._presence.names_of(silent) if silent else ()
            ledger.update(self._router.streams.values(), self._presence.take_changes(), names)

    def has_learned(self, chunks: Mapping[bytes, int]) -> bool:
        """Tell whether all that a subscriber asks for has arrived; see `Router.has_learned`."""
        self.engine.listen()
        with self.engine.guard:
            return self._router.has_learned(chunks)

    def own_up(self, streams: Iterable[OutStream]) -> None:
        """Tell streams that they may have missed something, as nobody counted for them meanwhile."""
        with self.engine.guard:
            self.engine.sender.accumulator.flush(self.engine.socket)
            for stream in streams:
                if not stream.is_gone:
                    self._router.renumber(stream)
            self.engine.records.answer()

    def pass_on(self, subject: Any, content: Any, extras: Extras, group: str) -> bool:
        """Publish what came from another bus.

        Args:
            subject: as it came.
            content: the bytes of its payload, or a list of those of several frames.
            extras: what goes with it, as it came.
            group: the queue group that it came for, of which one gets it; "" is all who are in none.

        Returns:
            Whether anybody wants it.

        Raises:
            SubjectError, ProtocolError: it may not be published.
            ClosedError: the publisher is closed.
        """
        sender, socket = self.engine.sender, self.engine.socket
        with self.engine.guard:
            sender.look(socket)
            recipients, raw = sender.routes.find(subject)
            scoped = self._scope(recipients, group)
            payload = as_sendable(content)
            if scoped.kind & PLAIN:
                # Dropped for whoever has no room: a node that passes on does not wait.
                sender.hand_over(socket, raw, payload, zmq.NOBLOCK)
            if scoped.kind & ROUTED:
                sender.accumulator.begin_rare(socket, scoped, raw, rich(as_item(payload), extras))
            elif scoped.kind:
                sender.stats.sent += 1
            else:
                sender.stats.unwanted += 1
            return bool(scoped.kind)

    def _scope(self, recipients: Recipients, group: str) -> Recipients:
        """Leave of the recipients one queue group, or those who are in none."""
        if not (group or recipients.choices):
            return recipients
        scoped = self._scoped.get((recipients, group))
        if scoped is None:
            choices = tuple(one for one in recipients.choices if one.members[0].delivery.group == group)
            scoped = Recipients(
                is_plain=not group and bool(recipients.kind & PLAIN),
                streams=() if group else recipients.streams,
                choices=choices if group else (),
            )
            self._scoped[recipients, group] = scoped
        return scoped

    def expect_others(self, most: float = inf) -> None:
        """Hold what is sent next, as others are about to come; see `Accumulator`."""
        engine = self.engine
        engine.sender.accumulator.expect_others(engine.socket, most)

    def go(self) -> None:
        """Send what waits for others; see `Accumulator`."""
        # The publisher has closed meanwhile. A request that waited ends with its node.
        with suppress(zmq.ZMQError):
            self.engine.sender.accumulator.go(self.engine.socket)

    def send_request(
        self, subject: Any, payload: Any, headers: dict[str, Any] | None, key: Any, reply_to: str
    ) -> Iterator[float] | None:
        """Publish a message that is to be answered; give the pauses between attempts, if it needs more."""
        extras = Extras(headers, reply_to, None, key)
        refused = self.engine.sender.publish(self.engine.socket, subject, payload, extras)
        return None if refused is None else self.engine.try_again(subject, refused)
