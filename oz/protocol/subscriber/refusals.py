"""The messages that a subscriber passes over, counted and logged."""

from __future__ import annotations

from oz.logs import peer_logger
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.subscriptions import Route
from oz.subjects.pattern import TIME_LIMIT

_log = peer_logger("oz.subscriber")


class Refusals:
    """Counts and reports the messages that go to fewer than they might, or to nobody.

    Attributes:
        reported: the kinds that were warned of.
    """

    __slots__ = ("_stats", "reported")

    def __init__(self, stats: SubscriberStats) -> None:
        """Start with none.

        Args:
            stats: where to count.
        """
        self._stats = stats
        self.reported: set[object] = set()

    def is_wanted(self, route: Route) -> bool:
        """Count why a message goes to fewer than it might, and tell whether anybody is left."""
        if route.timed_out:
            self._report_timeouts(route)
        elif route.is_malformed:
            self._stats.malformed += 1
            self.warn_once("subject", "a subject is not UTF-8 and is skipped: %r", route.subject)
        elif not route.subscriptions:
            self._stats.filtered += 1
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
