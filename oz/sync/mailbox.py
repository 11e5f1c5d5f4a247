"""Where the messages of a subscription without a handler wait for whoever receives them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from oz.errors import ClosedError, Timeout
from oz.message import Message
from oz.protocol.node.handler_queue import HandlerQueue
from oz.transport.guard import Guard
from oz.transport.node.mailbox import MailboxBase


class Mailbox(MailboxBase):
    """A queue of messages for one or several threads that receive."""

    __slots__ = ("_arrived",)

    def __init__(self, handler_queue: HandlerQueue, dropped: Callable[[int, Message], None]) -> None:
        """Start empty; the arguments are those of `MailboxBase`."""
        super().__init__(handler_queue, dropped)
        self._arrived = threading.Condition(Guard())  # type: ignore[arg-type]
        handler_queue.lock = self._arrived

    def put(self, message: Message) -> None:
        """Take a message in."""
        with self._arrived:
            _, dropped = self._handler_queue.put(message)
            self._arrived.notify()
        if dropped:
            self._dropped(dropped, message)

    def receive(self, timeout: float | None) -> Message:
        """Wait for a message.

        Raises:
            Timeout: none came in so many seconds.
            ClosedError: the subscription has ended, and nothing is left.
            OwnershipError: it was made before a fork, in the parent process.
        """
        ends = None if timeout is None else monotonic() + timeout
        with self._arrived:
            while not len(self._handler_queue):
                if self._is_closed:
                    raise ClosedError("this subscription has ended, and nothing is left")
                left = None if ends is None else ends - monotonic()
                if left is not None and left <= 0:
                    raise Timeout(f"no message in {timeout:g} s")
                self._arrived.wait(left)
            self._partition.handled += 1
            return self._partition.pop()

    def drain(self, timeout: float | None = None) -> bool:
        """Nobody handles by itself what waits here: it is still to be received."""
        return True

    def end(self) -> None:
        """Have those who receive know that nothing more comes once it is empty."""
        with self._arrived:
            self._is_closed = True
            self._arrived.notify_all()
