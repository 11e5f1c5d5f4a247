"""Where messages wait to be received, without what differs between threads and tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from oz.message import Message
from oz.protocol.lanes import Lanes


class MailboxBase(ABC):
    """A queue of the messages of a subscription without a handler."""

    __slots__ = ("_dropped", "_is_closed", "_lane", "_lanes")

    failed = 0
    is_idle = True
    """Nobody handles anything by itself here."""

    def __init__(self, lanes: Lanes, dropped: Callable[[int, Message], None]) -> None:
        """Start empty.

        Args:
            lanes: its own, with one lane.
            dropped: is called with how many messages were let go, and the message that came.
        """
        self._lanes = lanes
        self._lane = lanes.lanes[0]
        self._dropped = dropped
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return len(self._lanes)

    @property
    def dropped(self) -> int:
        """Messages that were let go because too many waited."""
        return self._lanes.dropped

    @property
    def handled(self) -> int:
        """Messages that were received."""
        return self._lane.handled

    def close(self) -> int:
        """Forget what waits, and have those who receive know that nothing more comes."""
        count = self._lanes.close()
        self.end()
        return count

    @abstractmethod
    def end(self) -> None:
        """Have those who receive know that nothing more comes once it is empty."""
