"""What `oz.Node.subscribe` gives: a subscription with a queue between the bus and whoever handles it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oz.message import Message
from oz.protocol.subscriptions import Subscription
from oz.subjects.pattern import Pattern


class NodeSubscription(Subscription):
    """One call of a node's `subscribe`. Its methods may be called from any thread, handlers included.

    Attributes:
        group: its queue group, or "".
        queue: what its messages wait in.
        answer: publishes a reply to a message; `Message.reply` calls it.
    """

    __slots__ = ("answer", "group", "queue")

    def __init__(
        self,
        patterns: Iterable[Pattern],
        queue: Any,
        cancel: Callable[[Subscription], Any],
        max_messages: int | None,
        group: str,
        answer: Callable[[Message, Any, Any], Any],
        drain: Callable[[Any, float], Any],
    ) -> None:
        """For `subscribe`."""
        is_counted = max_messages is not None and hasattr(queue, "end")
        super().__init__(patterns, self._put_last if is_counted else queue.put, cancel, max_messages, drain)
        self.queue = queue
        self.group = group
        self.answer = answer

    def _put_last(self, message: Message) -> None:
        self.queue.put(message)
        if self.left == 0:
            # Only now: whoever receives is to have the last message before the end.
            self.queue.end()

    @property
    def waiting(self) -> int:
        """Messages that wait to be handled."""
        return int(self.queue.waiting)

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too many waited."""
        return int(self.queue.dropped)
