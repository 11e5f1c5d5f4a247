"""The messages of a subscription that no pool handles: kept until they are received, or handled at once.

A mailbox is waited at by threads or tasks. An inline handler is called where messages come, on the I/O side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from oz.errors import ClosedError
from oz.logs import peer_logger
from oz.numbers import check_wait
from oz.protocol.messages import Message
from oz.protocol.node.handler_queue import HandlerQueue, Handling, Partition, Worker, Workers
from oz.transport.guard import Guard
from oz.transport.node.handlers import PendingQueue, WaitedNews, handled_partition, warn_of_result


class Receiving(Protocol):
    """The waiting for messages by threads or by tasks: all that differs between the two."""

    def make_news(self, guard: Guard) -> WaitedNews:
        """Make what is told when something guarded changes."""

    def receive(self, mailbox: Mailbox, timeout: float | None) -> Any:
        """Wait for a message; see `Mailbox.receive`."""

    def drain(self, queue: PendingQueue, timeout: float | None) -> Any:
        """Wait until all is handled; see `HandlerRunner.drain`."""


class Mailbox:
    """A queue of the messages of a subscription without a handler. Several threads or tasks may receive.

    Attributes:
        guard: is held for every change.
        news: is told of each message, and of the end.
    """

    __slots__ = ("_dropped", "_errors", "_is_ended", "_partition", "_queue", "_receiving", "guard", "news")

    failed = 0
    is_idle = is_handled = True
    """Nobody handles anything by itself here."""

    def __init__(
        self, receiving: Receiving, handler_queue: HandlerQueue, dropped: Callable[[int, Message], None]
    ) -> None:
        """Start empty.

        Args:
            receiving: how one waits for a message.
            handler_queue: its own, with one partition; it is given a lock here.
            dropped: is called with how many messages were dropped, and the message that came.
        """
        self._receiving = receiving
        self._queue = handler_queue
        self._partition = handler_queue.partitions[0]
        self._dropped = dropped
        self._is_ended = False
        self._errors: deque[Exception] = deque()
        self.guard = handler_queue.lock = Guard()
        self.news = receiving.make_news(self.guard)

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return len(self._queue)

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too many waited."""
        return self._queue.dropped

    @property
    def handled(self) -> int:
        """Messages that were received."""
        return self._partition.handled

    @property
    def is_readable(self) -> bool:
        """Whether `take` has something to give, or to say."""
        return len(self._queue) > 0 or self._is_ended or bool(self._errors)

    def is_done(self, who: Worker) -> bool:
        """Return at once: what is here is still to be received."""
        return True

    def put(self, message: Message) -> None:
        """Take a message in."""
        _, dropped = self._queue.put(message)
        self.news.tell()
        if dropped:
            self._dropped(dropped, message)

    def fail(self, error: Exception) -> None:
        """Have the next call that would wait raise an error, once."""
        self._errors.append(error)
        self.news.tell()

    def take(self) -> Message | None:
        """Return the next message of a mailbox that is readable; threads have its guard.

        Returns:
            None when a signal handler has taken it.

        Raises:
            ClosedError: the subscription has ended, and nothing is left.
            PermissionDenied: a peer denies what it asks for; once for each.
        """
        try:
            message = self._partition.pop()
        except IndexError:
            if self._errors:
                raise self._errors.popleft() from None
            if self._is_ended:
                raise ClosedError("this subscription has ended, and nothing is left") from None
            return None
        self._partition.handled += 1
        return message

    def receive(self, timeout: float | None) -> Any:
        """Wait for a message, and give it; on asyncio when awaited, and cancelling that loses nothing.

        Raises:
            Timeout: none came in so many seconds.
            ClosedError: the subscription has ended, and nothing is left.
            PermissionDenied: a peer denies what it asks for; once for each.
            OwnershipError: it was made before a fork, in the parent process.
        """
        check_wait("timeout", timeout)
        return self._receiving.receive(self, timeout)

    def drain(self, timeout: float | None = None) -> Any:
        """Return that all is handled, at once; on asyncio when awaited."""
        return self._receiving.drain(self, timeout)

    def close(self) -> int:
        """Forget what waits, and have those who receive know that nothing more comes."""
        count = self._queue.close()
        self.end()
        return count

    def end(self) -> None:
        """Tell receivers that nothing more comes once it is empty."""
        self._is_ended = True
        self.news.tell()

    def abandon(self) -> int:
        """End it, since its node closes; what is left can be received. Give how many messages are dropped."""
        self.end()
        return 0


_log = peer_logger("oz.handlers")


def _nothing() -> Message:
    raise IndexError("nothing waits for an inline handler")


class InlineCalls(Protocol):
    """The thread or the loop that calls such handlers: all that differs between the two.

    Attributes:
        workers: of the pool, which calls other handlers.
        interrupts: what a handler may raise to end the loop.
        before_inline: called before each such handler, which may take long.
    """

    workers: Workers
    interrupts: tuple[type[BaseException], ...]
    before_inline: Callable[[], object]

    def make_news(self, guard: Guard) -> WaitedNews:
        """Make what is told when something guarded changes."""

    def drain(self, queue: PendingQueue, timeout: float | None) -> Any:
        """Wait until all is handled; see `HandlerRunner.drain`."""

    def finish(self, result: Any) -> Any:
        """Return what comes of what an inline handler has given, without waiting for it.

        Raises:
            OwnershipError: it would wait.
        """


class Others(Protocol):
    """The messages that came with one; true while there are any."""

    is_handled: bool

    def __bool__(self) -> bool:
        """Tell whether there were others before, or are behind."""


class InlineRunner:
    """Calls the handler of one subscription with each message that is put, at once.

    Attributes:
        guard, news: as every queue has them; nothing waits here.
    """

    __slots__ = ("_calls", "_failed", "_handler", "_handling", "_others", "_partition", "guard", "news")

    dropped = waiting = 0
    is_idle = is_handled = True

    def __init__(
        self,
        calls: InlineCalls,
        handler: Callable[[Message], Any],
        failed: Callable[[Message, BaseException], None],
        others: Others,
    ) -> None:
        """Start with nothing handled.

        Args:
            calls: whose thread or loop calls the handler.
            handler: is called with each message.
            failed: is called with a message and what the handler raised at it. What it raises is logged.
            others: those that come with the message that is put; is told that this is handled.
        """
        self._calls = calls
        self._others = others
        self._handler = handler
        self._failed = failed
        self._handling = Handling(HandlerQueue(), calls.workers)
        self._partition = Partition(others, _nothing)
        self.guard = Guard()
        self.news = calls.make_news(self.guard)

    @property
    def handled(self) -> int:
        """Messages that were handled, without those at which the handler raised."""
        return self._partition.handled

    @property
    def failed(self) -> int:
        """Messages at which the handler raised."""
        return self._partition.failed

    def is_done(self, who: Worker) -> bool:
        """Return at once: what has come is handled."""
        return True

    def put(self, message: Message) -> None:
        """Handle a message; on the I/O side."""
        partition = self._partition
        self._others.is_handled = True
        self._calls.before_inline()
        token = handled_partition.set(partition)
        try:
            self._handle(message)
        finally:
            partition.answered = None
            handled_partition.reset(token)

    def _handle(self, message: Message) -> None:
        partition = self._partition
        try:
            result = self._handler(message)
            if result is not None:
                result = self._calls.finish(result)
        except BaseException as error:
            partition.failed += 1
            self._report(message, error)
            if isinstance(error, self._calls.interrupts):
                raise
        else:
            partition.handled += 1
            if result is not None:
                warn_of_result(self._handling, partition, message)

    def _report(self, message: Message, error: BaseException) -> None:
        try:
            self._failed(message, error)
        except Exception:
            _log.exception("reporting that a handler raised failed; it had raised %r", error)

    def drain(self, timeout: float | None = None) -> Any:
        """Return that all is handled, at once; on asyncio when awaited."""
        return self._calls.drain(self, timeout)

    def end(self) -> None:
        """Do nothing when no more comes: what has come is handled."""

    def abandon(self) -> int:
        """Forget nothing when the node closes: nothing waits."""
        return 0

    def close(self) -> int:
        """Forget nothing when the subscription ends: nothing waits, and nothing more is put."""
        return 0
