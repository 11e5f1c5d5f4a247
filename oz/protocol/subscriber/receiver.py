"""The receiver: what a subscriber does with a message that arrives. The heart of oz, without the socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from oz.logs import peer_logger
from oz.protocol.messages import Message
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.subscriptions import Route, SubscriptionTable
from oz.subjects.pattern import TIME_LIMIT

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
