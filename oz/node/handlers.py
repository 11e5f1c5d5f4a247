"""Runners, which queue the messages of a subscription for its handler, and inline runners, which call the handler.

Theory of operation
-------------------
The thread or loop of the node passes the messages of a subscription to the `Runner` of the subscription. The runner
puts the messages in lanes (`oz.node.lanes`), and schedules each lane that was empty. A thread of a `ThreadPool`
(`oz.node.threads`) or a task of a `TaskPool` (`oz.node.tasks`) handles the messages of a lane.

If a handler returns a value other than None, this value is the reply to a request. If the handler raises an exception,
the node logs the exception and sends an error reply. With `ack="handled"`, a message is acknowledged after the handler
has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol

from oz.errors import OwnershipError
from oz.node.handler_times import Stopwatch
from oz.node.lanes import Lane, Lanes
from oz.subscriber.message import HandledMessage, Message

if TYPE_CHECKING:
    from oz.node.exchange import Exchange

_TURNS = 8  # Maximum number of times that the result of an inline handler may yield to the loop.


class Pool(Protocol):
    """Threads or tasks that call the handlers of a node. They are called workers.

    Attributes:
        lock: lock for the lanes.
        is_alone: whether no other message waits for a handler.
    """

    lock: threading.Lock
    is_alone: bool

    def schedule(self, lane: Lane) -> None:
        """Queue a lane. A worker then handles the messages of the lane. The caller holds the lock."""

    def is_worker(self) -> bool:
        """Return whether the calling thread or task is a worker of this pool."""

    def finish(self, timeout: float | None) -> object:
        """Reject further work, and wait for running handlers.

        Args:
            timeout: seconds to wait; None waits for ever.
        """

    def disown(self) -> None:
        """Forget the workers. The child of a fork calls this, because the workers exist only in the parent."""


class Runner:
    """Handler of one subscription, and the messages that wait for this handler.

    Attributes:
        handler: function of the program.
        lanes: queues with the messages that wait for the handler.
        owner: `Exchange` of the node, which sends replies and counts errors.
    """

    def __init__(
        self,
        pool: Pool,
        owner: Exchange,
        handler: Callable[[Any], Any],
        *,
        concurrency: int = 1,
        max_pending: int = 65_536,
        max_bytes: int = 64 << 20,
        overflow: str | None = None,
    ) -> None:
        """Start without messages.

        Args:
            pool: workers that call the handler.
            owner: `Exchange` of the node, which sends replies and counts errors.
            handler: function of the program. In an event loop, it may return an awaitable.
            concurrency: number of messages that are handled at the same time.
            max_pending: maximum number of messages that wait.
            max_bytes: maximum size in bytes of the messages that wait.
            overflow: policy that applies when the queue is full.
        """
        self._pool, self.owner, self.handler = pool, owner, handler
        self.lanes = Lanes(
            concurrency=concurrency,
            max_pending=max_pending,
            max_bytes=max_bytes,
            overflow=overflow,
            owner=self,
        )
        for lane in self.lanes.all:
            lane.watch = Stopwatch(handler)

    def put(self, messages: Sequence[Message]) -> None:
        """Queue messages for the handler."""
        pool, lanes = self._pool, self.lanes
        with pool.lock:
            dropped = lanes.dropped
            for lane in lanes.put(messages):
                pool.schedule(lane)
            dropped = lanes.dropped - dropped
        if dropped:
            self.owner.overflowed += dropped
            removed, self.lanes.removed = self.lanes.removed, []
            for message in removed:
                # With `ack="handled"`, the link acknowledges messages in order. Without this call, the dropped message
                # would block the acknowledgement of all later messages.
                message.ack()

    def __call__(self, message: Message) -> None:
        """Queue one message for the handler."""
        self.put((message,))

    def clear(self) -> list[Message]:
        """Remove and return the messages that wait when the subscription ends."""
        with self._pool.lock:
            self.lanes.clear()
            removed, self.lanes.removed = self.lanes.removed, []
        return removed

    def ended(self, message: Message, result: Any, *, is_alone: bool = True) -> None:
        """Send the reply and the acknowledgement after the handler has returned.

        Args:
            message: message that the handler was called with.
            result: return value of the handler.
            is_alone: whether no other message waits for the handler.
        """
        if result is not None:
            self.owner.answer(message, result, is_alone=is_alone)
        if isinstance(message, HandledMessage):
            message.ack()

    def failed(self, message: Message, error: BaseException) -> None:
        """Report an exception of a handler, and acknowledge the message."""
        self.owner.handler_failed(self.handler, message, error)
        if isinstance(message, HandledMessage):
            message.ack()


class InlineRunner:
    """Runner of an inline handler, which the thread or loop of the node calls directly.

    Attributes:
        handler: function of the program.
        watch: stopwatch that calls the handler.
    """

    def __init__(self, owner: Exchange, handler: Callable[[Any], Any]) -> None:
        """Create the runner.

        Args:
            owner: `Exchange` of the node, which sends replies and counts errors.
            handler: plain function. It must not wait.
        """
        self._owner, self.handler = owner, handler
        self.watch = Stopwatch(handler)

    def __call__(self, message: Message) -> None:
        """Call the handler with a message."""
        try:
            result = self.watch.call(message)
            if result is not None and isawaitable(result):
                result = finish_at_once(result)
        except Exception as error:
            self._owner.handler_failed(self.handler, message, error)
        else:
            if result is not None:
                self._owner.answer(message, result)


def finish_at_once(wanted: Awaitable[Any]) -> Any:
    """Return the result of an awaitable that never suspends, such as the awaitable of `message.reply`.

    Raises:
        OwnershipError: the awaitable suspends.
    """
    steps = wanted.__await__()
    try:
        for _ in range(_TURNS):
            # None comes from `asyncio.sleep(0)`, which does not wait. Any other value means that the awaitable waits.
            if next(steps) is not None:
                break
    except StopIteration as end:
        return end.value
    close = getattr(wanted, "close", None)
    if close is not None:
        close()
    raise OwnershipError("an inline handler has no task of its own and cannot wait: leave inline=True out")
