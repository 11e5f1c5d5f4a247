"""For whom the messages are that are being sent, and which of them nobody wants any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from oz.protocol.publisher.interest import Recipients
from oz.protocol.stats import PublisherStats


class OnTheirWay:
    """For whom messages are that are being sent: any of those may leave before they go out."""

    __slots__ = ("_first", "_left", "_recipients", "_stats")

    def __init__(self, stats: PublisherStats) -> None:
        """Start with none.

        Args:
            stats: where to count.
        """
        self._stats = stats
        self._recipients: list[Recipients] = []
        self._first = 0
        # How many recipients have left, of the messages that some have left.
        self._left: Counter[int] = Counter()

    def begin(self, recipients: list[Recipients], first: int) -> None:
        """Begin to send messages.

        Args:
            recipients: of each.
            first: the position of the first.
        """
        self._recipients, self._first = recipients, first
        if self._left:
            self._left.clear()

    def begin_alone(self, recipients: Recipients, position: int) -> None:
        """Begin to send one message, unless that was done."""
        # What a signal handler that raised has cut short stands here still.
        if self._first != position or not self._recipients:
            self.begin([recipients], position)

    def end(self) -> None:
        """Forget them, so that nobody who leaves is kept in memory until the next message."""
        self._recipients.clear()

    def count_left(self, positions: Sequence[int]) -> None:
        """Count one less whom messages go to; those that all have left before they were sent nobody wants."""
        self._left.update(positions)
        whom, first = self._recipients, self._first
        unwanted = [self._left[one] == whom[one - first].count for one in positions].count(True)
        self._stats.sent -= unwanted
        self._stats.unwanted += unwanted
