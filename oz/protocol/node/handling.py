"""The workers of a pool, and the partitions of one subscription that they work off.

Workers are threads or tasks; here they are only told apart. Nothing here starts one or waits for one: whoever
does asks whether there may be one more, and what becomes of a partition that a worker leaves. It is touched
under the lock of the pool, or of the subscription's queue.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol
from weakref import WeakSet

from oz.errors import ClosedError
from oz.message import Message
from oz.protocol.node.handler_queue import HandlerQueue, Partition

TURN = 0.001
"""Seconds for which a worker handles messages of one partition while others stand in line."""

Worker = Hashable


class Waker(Protocol):
    """Wakes those who wait for something to become different."""

    def tell(self) -> None:
        """Wake all who wait, to look again."""


def refused() -> ClosedError:
    """Make the error for work that a closed pool is given."""
    return ClosedError("the pool of handlers is closed; nothing more is handled")


class Workers:
    """The workers of one pool.

    Attributes:
        members: those that handle, or wait for work.
        ending: how many of them have been asked to end.
        lent: how many of them wait in their handlers, so that as many others may work.
        still: those whose handler waits for others to end. They do not wait for each other.
        is_closed: whether no more work is taken.
    """

    __slots__ = ("_size", "_watching", "ending", "is_closed", "lent", "members", "still")

    def __init__(self, size: int, most: int) -> None:
        """Start with no worker.

        Args:
            size: workers at most, 1 to `most`.
            most: the highest size.

        Raises:
            ValueError: `size` is not one of these.
        """
        if not 1 <= size <= most:
            raise ValueError(f"a pool of {size!r} cannot handle anything; give a size from 1 to {most:,}")
        self._size = size
        self._watching: WeakSet[Waker] = WeakSet()
        self.members: set[Worker] = set()
        self.ending = 0
        self.lent = 0
        self.still: set[Worker] = set()
        self.is_closed = False

    @property
    def has_room(self) -> bool:
        """Whether another may start, if there is work for it."""
        return not self.is_closed and len(self.members) - self.ending < self._size + self.lent

    @property
    def has_too_many(self) -> bool:
        """Whether one has to end, since those that were lent are back."""
        return len(self.members) - self.ending > self._size + self.lent

    def watch(self, news: Waker) -> None:
        """Wake those who wait, for as long as they live, when the pool is closed or a worker stands still."""
        self._watching.add(news)

    def watching(self) -> list[Waker]:
        """Return the news that are to be told."""
        return list(self._watching)

    def clear(self) -> None:
        """Forget all, and take no more work: in the child of a fork."""
        self.is_closed = True
        self.members = set()


class Handling:
    """One subscription's messages, on their way through its workers.

    Attributes:
        queue: what waits.
    """

    __slots__ = ("_busy", "_has_warned", "_workers", "queue")

    def __init__(self, handler_queue: HandlerQueue, workers: Workers) -> None:
        """Start with nobody at work.

        Args:
            handler_queue: what waits; empty.
            workers: those of the pool.
        """
        self.queue = handler_queue
        self._workers = workers
        # Who works off which partition.
        self._busy: dict[Worker, Partition] = {}
        self._has_warned = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being handled."""
        return not (self._busy or len(self.queue))

    def begin(self, worker: Worker, partition: Partition) -> bool:
        """Have a worker begin with a partition; False tells it to leave it, as the pool is closed."""
        if self._workers.is_closed:
            self.queue.leave(partition)
            return False
        self._busy[worker] = partition
        return True

    def end(self, worker: Worker, partition: Partition, *, is_empty: bool, is_ended: bool = False) -> bool:
        """Have a worker leave a partition; tell whether that stands in line again.

        Args:
            worker: who worked it off.
            partition: which.
            is_empty: whether `HandlerQueue.take` has given its last message.
            is_ended: whether the worker ends in the middle of it, as a task that is cancelled.
        """
        del self._busy[worker]
        if is_empty:
            return False
        if is_ended or self._workers.is_closed:
            # Without a worker nobody works it off before the next message comes, if one does.
            self.queue.leave(partition)
            return False
        return True

    def is_done(self, who: Worker) -> bool:
        """Tell whether there is nothing more to wait for.

        Args:
            who: who asks: a worker waits neither for itself nor for those that stand still too, nor for what
                these hold up.
        """
        still = self._workers.still if who in self._workers.members else ()
        if any(one not in still for one in self._busy):
            return False
        return self._workers.is_closed or not self.queue.waiting_beside(self._busy.values())

    def is_answer_lost(self, partition: Partition, message: object) -> bool:
        """Tell, once, that a handler has given back its answer to a request, and has not sent it."""
        is_request = isinstance(message, Message) and message.reply_to is not None
        if self._has_warned or not is_request or partition.answered is message:
            return False
        self._has_warned = True
        return True
