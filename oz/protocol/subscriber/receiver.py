"""The receiver: what a subscriber does with a message that arrives. The heart of oz, without the socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from oz.compiled import HOT
from oz.logs import peer_logger
from oz.protocol.messages import Message
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.publish_access import PublishAccess
from oz.protocol.subscriber.subscriptions import Route, SubscriptionTable
from oz.subjects.pattern import TIME_LIMIT
from oz.wire.codec import Codec

_log = peer_logger("oz.subscriber")


class Receiver(Protocol):
    """Takes the frames of messages, and gives the messages that some subscription wants.

    Attributes:
        table: the subscriptions.
        stats: what is counted.
        refusals: what becomes of messages that go to fewer than they might.
    """

    table: SubscriptionTable
    stats: SubscriberStats
    refusals: Refusals

    @property
    def is_simple(self) -> bool:
        """Whether nothing is to be done to a message but to find out whether it is wanted."""

    def accept(self, frames: list[bytes], time_ns: int) -> Message | None:
        """Take one message in.

        Args:
            frames: its ZeroMQ frames, the first of which begins with the subject or a key.
            time_ns: the time, for `Message.time_ns`.

        Returns:
            The message, with the route that says who gets it; None when nobody does, which is counted, or
            when it waits in line.
        """


class Refusals:
    """Counts and reports the messages that go to fewer than they might, or to nobody.

    Attributes:
        on_refused: called with the subject of a message that no pattern wants, if anybody asks for that.
        reported: the kinds that were warned of.
    """

    __slots__ = ("_stats", "on_refused", "reported")

    def __init__(self, stats: SubscriberStats) -> None:
        """Start with none.

        Args:
            stats: where to count.
        """
        self._stats = stats
        self.reported: set[object] = set()
        self.on_refused: Callable[[str], object] | None = None

    def is_wanted(self, route: Route) -> bool:
        """Count why a message goes to fewer than it might, and tell whether anybody is left."""
        if route.timed_out:
            self._report_timeouts(route)
        elif route.is_malformed:
            self._stats.malformed += 1
            self.warn_once("subject", "a subject is not UTF-8 and is skipped: %r", route.subject)
        elif not route.subscriptions:
            self._stats.filtered += 1
        if not route.subscriptions and self.on_refused is not None:
            self.on_refused(route.subject)
        return bool(route.subscriptions)

    def _report_timeouts(self, route: Route) -> None:
        self._stats.timed_out += len(route.timed_out)
        for pattern in route.timed_out:
            self.warn_once(
                pattern,
                "pattern %r took longer than %g s on subject %r; its messages are dropped and counted",
                pattern.text,
                TIME_LIMIT,
                route.subject,
            )

    def warn_once(self, key: object, text: str, *values: object) -> None:
        """Log the first of its kind; the counters tell how many there were."""
        if key not in self.reported:
            self.reported.add(key)
            _log.warning(text, *values)


class PrefixReceiver:
    """Takes messages of a subject and a payload, which ZeroMQ has let through for their prefix.

    Attributes:
        access: what publishers may publish; None where they may everything.
    """

    __slots__ = ("_decode", "_is_wanted", "_routes", "access", "refusals", "stats", "table")

    def __init__(self, codec: Codec | None = None, table: SubscriptionTable | None = None) -> None:
        """Start without subscriptions."""
        self.table = SubscriptionTable() if table is None else table
        self.stats = SubscriberStats()
        self.refusals = Refusals(self.stats)
        self._is_wanted = self.refusals.is_wanted
        self._routes = self.table.routes
        self._decode = codec.decode if codec is not None else None
        self.access: PublishAccess | None = None

    @property
    def decodes(self) -> bool:
        """Whether a codec decodes payloads."""
        return self._decode is not None

    @property
    def is_simple(self) -> bool:
        """Whether nothing is to be done to a message but to find out whether it is wanted."""
        is_simple = type(self) is PrefixReceiver and self._decode is None and self.access is None
        return is_simple and self.table.only_lists

    def accept(self, frames: list[bytes], time_ns: int) -> Message | None:
        """Take one message in; see `Receiver.accept`."""
        stats = self.stats
        stats.received += 1
        if self.access is not None and not self.access.allows(frames[0]):
            return None
        route = self._routes.get(frames[0])
        if route is None:
            route = self.table.route(frames[0])
        if not route.is_clear and not self._is_wanted(route):
            return None
        payload = frames[1] if len(frames) > 1 else b""
        if self._decode is not None:
            try:
                payload = self._decode(payload)
            except Exception as error:
                stats.malformed += 1
                self.refusals.warn_once("codec", "a payload does not decode and is skipped: %r", error)
                return None
        stats.delivered += 1
        return Message(route.subject, payload, frames, route, time_ns)


if HOT is not None:
    HOT.know_plain(Message, Route)


def shortest(receiver: Receiver) -> Callable[[list[bytes], int], Message | None]:
    """Return `accept` of a receiver, compiled where that is possible."""
    if HOT is None or type(receiver) is not PrefixReceiver or receiver.decodes:
        return receiver.accept
    return HOT.Accept(
        twin=receiver.accept, receiver=receiver, routes=receiver.table.routes, stats=receiver.stats
    )
