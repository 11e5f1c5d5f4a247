"""Where the messages of a subscription without a handler wait for the tasks that receive them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from oz.errors import ClosedError, Timeout
from oz.message import Message
from oz.protocol.node.handler_queue import HandlerQueue
from oz.transport.node.mailbox import MailboxBase


class Mailbox(MailboxBase):
    """A queue of messages for tasks of one loop. Cancelling one that waits loses nothing."""

    __slots__ = ("_arrived",)

    def __init__(self, handler_queue: HandlerQueue, dropped: Callable[[int, Message], None]) -> None:
        """Start empty; the arguments are those of `MailboxBase`."""
        super().__init__(handler_queue, dropped)
        self._arrived = asyncio.Event()

    def put(self, message: Message) -> None:
        """Take a message in."""
        _, dropped = self._handler_queue.put(message)
        self._arrived.set()
        if dropped:
            self._dropped(dropped, message)

    async def receive(self, timeout: float | None) -> Message:
        """Wait for a message.

        Raises:
            Timeout: none came in so many seconds.
            ClosedError: the subscription has ended, and nothing is left.
        """
        try:
            async with asyncio.timeout(timeout):
                while not len(self._handler_queue):
                    if self._is_closed:
                        raise ClosedError("this subscription has ended, and nothing is left")
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            if not len(self._handler_queue):
                raise Timeout(f"no message in {timeout or 0:g} s") from None
        self._partition.handled += 1
        return self._partition.pop()

    async def drain(self, timeout: float | None = None) -> bool:
        """Nobody handles by itself what waits here: it is still to be received."""
        return True

    def end(self) -> None:
        """Have those who receive know that nothing more comes once it is empty."""
        self._is_closed = True
        self._arrived.set()
