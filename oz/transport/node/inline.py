"""The messages of a subscription whose handler is called where they arrive: on the I/O side, by no pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from oz.logs import peer_logger
from oz.message import Message
from oz.protocol.node.handler_queue import HandlerQueue, Handling, Partition, Worker, Workers
from oz.transport.guard import Guard
from oz.transport.node.handlers import PendingQueue, WaitedNews, handled_partition, warn_of_result

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
