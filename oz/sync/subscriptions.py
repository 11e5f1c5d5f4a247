"""The results of `subscribe`: of a subscriber, and of a node with a handler or without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from oz.errors import ClosedError
from oz.message import Message
from oz.protocol.node.subscription import NodeParts
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.node.mailbox import Mailbox


class Subscription(Subscribed):
    """One call of `subscribe`: its patterns and its handler, until it is undone.

    Attributes:
        patterns: the compiled patterns.
        handler: what is called with each message, or None when messages are received.
        active: False once it has been undone; nothing is delivered for it any more.
        left: messages after which it ends, or None; 0 once it has had its last.
    """

    __slots__ = ()

    def drain(self, timeout: float = 1.0) -> bool:
        """End it, and lose nothing: ask for no more, and deliver what was on its way.

        Publishers that filter answer that they send no more for it. A plain one does not answer: what is
        here counts. Handlers are called; what is to be received still is. Of a queue group the other members
        get what is published from then on.

        Args:
            timeout: seconds for all of it; what has come by then is still handled.

        Returns:
            Whether nothing is missing: every publisher has answered, and a node's handlers have returned.
            True also for one that has ended before.

        Raises:
            ClosedError, OwnershipError: as `oz.Subscriber.receive`.
        """
        return bool(super().drain(timeout))


class NodeSubscription(Subscription):
    """One call of a node's `subscribe`. Any thread may call its methods, and handlers may.

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
    """A subscription without a handler: its messages are received, by `receive` or iteration.

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

    def receive(self, timeout: float | None = None) -> Message:
        """Wait for its next message.

        Args:
            timeout: seconds; None waits for ever, 0 takes only what is there.

        Raises:
            Timeout: none came in that time.
            ClosedError: the subscription has ended, or its node is closed.
            PermissionDenied: a peer denies a pattern of the subscription; once for each reason.
        """
        message: Message = self.queue.receive(timeout)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Receive until the subscription has ended."""
        with suppress(ClosedError):
            while True:
                yield self.receive()

    @property
    def waiting(self) -> int:
        """Messages that wait to be handled."""
        return self.queue.waiting

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too many waited."""
        return self.queue.dropped
