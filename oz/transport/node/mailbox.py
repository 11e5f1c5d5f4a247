"""The mailbox where messages wait to be received: the part that threads and tasks share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from oz.message import Message
from oz.protocol.node.handler_queue import HandlerQueue


class MailboxBase(ABC):
    """A queue of the messages of a subscription without a handler."""

    __slots__ = ("_dropped", "_handler_queue", "_is_closed", "_partition")

    failed = 0
    is_idle = True
    """Nobody handles anything by itself here."""

    def __init__(self, handler_queue: HandlerQueue, dropped: Callable[[int, Message], None]) -> None:
        """Start empty.

        Args:
            handler_queue: its own, with one partition.
            dropped: is called with how many messages were dropped, and the message that came.
        """
        self._handler_queue = handler_queue
        self._partition = handler_queue.partitions[0]
        self._dropped = dropped
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return len(self._handler_queue)

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too many waited."""
        return self._handler_queue.dropped

    @property
    def handled(self) -> int:
        """Messages that were received."""
        return self._partition.handled

    def close(self) -> int:
        """Forget what waits, and have those who receive know that nothing more comes."""
        count = self._handler_queue.close()
        self.end()
        return count

    @abstractmethod
    def end(self) -> None:
        """Tell receivers that nothing more comes once it is empty."""
