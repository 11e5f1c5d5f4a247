"""A queue of messages for a handler, without what differs between threads and tasks."""

from __future__ import annotations

import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from oz.message import Message
from oz.protocol.node.handler_queue import HandlerQueue, Partition
from oz.transport.guard import Guard

_log = logging.getLogger("oz.handlers")


handled_partition: ContextVar[Partition | None] = ContextVar("handled_partition", default=None)
"""What the thread or task that runs works off, so that a reply is known to be its handler's."""


class HandlersBase(ABC):
    """The pool that works queues off: a bounded number of workers, which are threads or tasks.

    Attributes:
        still: workers whose handler waits for others to end. They do not wait for each other.
    """

    def __init__(self, size: int, most: int) -> None:
        """Start no worker yet: that happens when there is work.

        Raises:
            ValueError: `size` is not a number from 1 to `most`.
        """
        if not 1 <= size <= most:
            raise ValueError(f"a pool of {size!r} cannot handle anything; give a size from 1 to {most:,}")
        self.still: set[Any] = set()
        self._size = size
        self._lent = 0
        self._is_closed = False
        self._queues: weakref.WeakSet[HandlerRunnerBase] = weakref.WeakSet()
        self._guard = Guard()
        self._guard.when_disowned = self._forget

    @property
    def closed(self) -> bool:
        """Whether it takes no more work."""
        return self._is_closed

    @abstractmethod
    def submit(self, work: Callable[[], Any]) -> None:
        """Hand work to the pool."""

    @abstractmethod
    def is_worker(self, one: Any) -> bool:
        """Tell whether a thread or task is one of the pool's."""

    def watch(self, queue: HandlerRunnerBase) -> None:
        """Tell a queue, for as long as it lives, when the pool is closed or a worker stands still."""
        with self._guard:
            self._queues.add(queue)

    def _wake_all(self) -> None:
        with self._guard:
            queues = list(self._queues)
        for queue in queues:
            queue.wake()

    @abstractmethod
    def _forget(self) -> None:
        """Be empty in the child of a fork."""


class HandlerRunnerBase(ABC):
    """One subscription's messages on their way to its handler."""

    def __init__(
        self,
        handlers: HandlersBase,
        handler_queue: HandlerQueue,
        handler: Callable[[Message], Any],
        failed: Callable[[Message, BaseException], None],
        dropped: Callable[[int, Message], None],
    ) -> None:
        """Start empty.

        Args:
            handlers: the pool whose threads or tasks call the handler.
            handler_queue: its own, which is empty; it is given a lock here.
            handler: is called with each message.
            failed: is called where the handler was, with a message and what the handler raised at it.
            dropped: is called where `put` is, with how many messages were dropped and the message that was
                put. What these two raise is logged.
        """
        self._handler_queue = handler_queue
        self._handler = handler
        self._failed = failed
        self._dropped = dropped
        self._works: dict[Partition, Callable[[], Any]] = {
            partition: partial(self._work_off, partition) for partition in handler_queue.partitions
        }
        # Who, a thread or a task, works off which partition.
        self._busy: dict[Any, Partition] = {}
        self._has_warned = False
        self._pool = handlers
        self._guard = handler_queue.lock = Guard()
        handlers.watch(self)

    @property
    def handled(self) -> int:
        """Messages that were handled, without those at which the handler raised."""
        return sum(partition.handled for partition in self._works)

    @property
    def failed(self) -> int:
        """Messages at which the handler raised, or was cancelled."""
        return sum(partition.failed for partition in self._works)

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too many waited."""
        return self._handler_queue.dropped

    @property
    def waiting(self) -> int:
        """Messages that wait; without those that are being handled."""
        return 0 if self._guard.is_foreign else len(self._handler_queue)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being handled."""
        return not (self._busy or len(self._handler_queue))

    def put(self, message: Message) -> None:
        """Have a message handled. It never waits for a handler.

        Raises:
            ClosedError: the pool is closed.
            OwnershipError: it was made before a fork, in the parent process.
            RuntimeError: there is no loop, or the system gives no thread, to handle anything.
        """
        partition, dropped = self._handler_queue.put(message)
        if partition is not None:
            self._submit(partition)
        if dropped:
            try:
                self._dropped(dropped, message)
            except Exception:
                _log.exception("reporting a message that was dropped failed")

    def clear(self) -> int:
        """Forget what waits; what is being handled goes on. Give how many messages that were."""
        return self._forget(self._handler_queue.clear)

    def close(self) -> int:
        """Forget what waits, and ignore what is still put. Give how many messages waited."""
        return self._forget(self._handler_queue.close)

    @abstractmethod
    def wake(self) -> None:
        """Wake all that wait for the queue."""

    @abstractmethod
    def _work_off(self, partition: Partition) -> Any:
        """Handle a partition's messages, for a while or to the last."""

    def _forget(self, messages: Callable[[], int]) -> int:
        if self._guard.is_foreign:
            return 0
        count = messages()
        self.wake()
        return count

    def _is_done(self, me: Any) -> bool:
        """Tell whether there is nothing more to wait for, for this thread or task."""
        still = self._pool.still if self._pool.is_worker(me) else ()
        if any(one not in still for one in self._busy):
            return False
        return self._pool.closed or not self._handler_queue.waiting_beside(self._busy.values())

    def _submit(self, partition: Partition) -> None:
        try:
            self._pool.submit(self._works[partition])
        except BaseException:
            self._handler_queue.leave(partition)
            raise

    def _note_result(self, partition: Partition, message: Message) -> None:
        """Warn, once, of a handler that gives back its answer and does not send it."""
        is_request = isinstance(message, Message) and message.reply_to is not None
        if is_request and partition.answered is not message and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "a handler returned a value at the request %r, and that is sent to nobody: answer with "
                "message.reply(value); this is said once for each subscription",
                message.subject,
            )

    def _report(self, message: Message, error: BaseException) -> None:
        try:
            self._failed(message, error)
        except Exception:
            _log.exception("reporting that a handler raised failed; it had raised %r", error)
