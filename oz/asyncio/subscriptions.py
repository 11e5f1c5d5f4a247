"""The results of `subscribe` for asyncio: of a subscriber, and of a node with a handler or without."""

from __future__ import annotations

from collections.abc import AsyncIterator

from oz.errors import ClosedError
from oz.message import Message
from oz.protocol.node.subscription import NodeParts
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.node.mailbox import Mailbox


class Subscription(Subscribed):
    """One call of `subscribe`: its patterns and its handler, until it is undone; as `oz.Subscription`."""

    __slots__ = ()

    async def drain(self, timeout: float = 1.0) -> bool:
        """End it, and lose nothing; see `oz.Subscription.drain`.

        Raises:
            ClosedError, OwnershipError: as there.
        """
        return bool(await super().drain(timeout))


class NodeSubscription(Subscription):
    """One call of a node's `subscribe`; as `oz.NodeSubscription`.

    Attributes:
        group: its queue group, or "".
    """

    __slots__ = ("answer", "group", "queue")

    def __init__(self, parts: NodeParts) -> None:
        """For `subscribe`."""
        super().__init__(parts.patterns, parts.queue.put, parts.cancel, parts.max_messages, parts.drain)
        self.answer = parts.answer
        self.group: str = parts.group
        self.queue = parts.queue

    @property
    def waiting(self) -> int:
        """Messages that wait to be handled."""
        return self.queue.waiting

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too many waited."""
        return self.queue.dropped


class ReceivedSubscription(Subscription):
    """A subscription without a handler: its messages are received, by `receive` or `async for`.

    Attributes:
        group: its queue group, or "".
    """

    __slots__ = ("answer", "group", "queue")

    def __init__(self, parts: NodeParts) -> None:
        """For `subscribe`."""
        super().__init__(parts.patterns, parts.queue.put, parts.cancel, parts.max_messages, parts.drain)
        assert isinstance(parts.queue, Mailbox)
        self.answer = parts.answer
        self.group: str = parts.group
        self.queue = parts.queue

    async def receive(self, timeout: float | None = None) -> Message:
        """Wait for its next message; cancelling that loses nothing.

        Args:
            timeout: seconds; None waits for ever, 0 takes only what is there.

        Raises:
            Timeout: none came in that time.
            ClosedError: the subscription has ended, or its node is closed.
            PermissionDenied: a peer denies a pattern of the subscription; once for each reason.
        """
        message: Message = await self.queue.receive(timeout)
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Receive until the subscription has ended."""
        while True:
            try:
                message = await self.receive()
            except ClosedError:
                return
            yield message

    @property
    def waiting(self) -> int:
        """Messages that wait to be handled."""
        return self.queue.waiting

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too many waited."""
        return self.queue.dropped
