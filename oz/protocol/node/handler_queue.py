"""The handler queue: the messages of one partition are handled one after the other, by whichever worker.

Nothing here starts or waits for anything. `put` says which partition has to be worked off now, and whoever
works it off takes messages until there are none, or puts it at the end of its own line and goes on later.
Workers are threads or tasks; here they are only told apart. Whoever starts them asks whether there may be one
more, and what becomes of a partition that a worker leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol
from weakref import WeakSet

from oz.errors import ClosedError
from oz.protocol.conflating import LIMIT, ConflatingStore
from oz.protocol.messages import Message

MOST_CONCURRENCY = 1024
"""The highest `concurrency`."""

TURN = 0.001
"""Seconds for which a worker handles messages of one partition while others stand in line."""

Worker = Hashable

_OVERFLOWS = (None, "conflate", "drop_oldest", "drop_newest")


class Partition:
    """A partition of a queue: one worker at a time takes messages from it.

    Attributes:
        store: the messages; partitions of one queue share it where order does not matter.
        pop: gives the next message, or raises IndexError; a short way for the worker, any number of times
            before it calls `HandlerQueue.take`.
        handled: messages that were handled. The worker counts them here: there is only one at a time.
        failed: messages whose handler raised.
        answered: the message that its handler replied to last.
    """

    __slots__ = ("answered", "failed", "handled", "pop", "store")

    def __init__(self, store: Any, pop: Callable[[], Message]) -> None:
        """For `HandlerQueue`."""
        self.store = store
        self.pop = pop
        self.handled = 0
        self.failed = 0
        self.answered: Message | None = None


class HandlerQueue:
    """The messages of one subscription that wait for its handler.

    Attributes:
        lock: is held for every change. One that does nothing at first, which is enough for a single thread;
            those who have several give it a re-entrant one before they begin. `pop` of a partition takes it
            only with `overflow="conflate"`: otherwise it is a deque's, which threads may share.
        dropped: messages that were dropped so far.
    """

    __slots__ = (
        "_idle",
        "_is_closed",
        "_is_latest",
        "_is_ordered",
        "_limit",
        "_makes_room",
        "_only",
        "_partitions",
        "_stores",
        "dropped",
        "lock",
    )

    def __init__(
        self,
        overflow: str | None = None,
        limit: int = LIMIT,
        concurrency: int = 1,
        order_by: str | None = None,
    ) -> None:
        """Start empty.

        Args:
            overflow: what is dropped when `limit` messages wait: the
                new one with None and `"drop_newest"`, the oldest with `"drop_oldest"`. With `"conflate"` a
                message takes the place of an older one of its subject, and the subject that came up first
                goes.
            limit: messages that may wait, all partitions together; at least 1.
            concurrency: messages that may be handled at the same time, 1 to 1,024.
            order_by: `"subject"` keeps the messages of one subject in order. Without it only a
                concurrency of 1 keeps any order.

        Raises:
            ValueError: an argument is none of these.
        """
        _check(overflow, limit, concurrency, order_by)
        self.lock: AbstractContextManager[Any] = nullcontext()
        self.dropped = 0
        self._limit = limit
        self._is_latest = overflow == "conflate"
        self._makes_room = overflow in ("conflate", "drop_oldest")
        self._is_ordered = order_by is not None and concurrency > 1
        self._is_closed = False
        make = ConflatingStore if self._is_latest else deque
        self._stores: list[Any] = [make() for _ in range(concurrency if self._is_ordered else 1)]
        self._only = None if self._is_latest or self._is_ordered else self._stores[0]
        self._partitions = tuple(self._partition(place) for place in range(concurrency))
        self._idle = set(self._partitions)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions: as many as messages may be handled at the same time."""
        return self._partitions

    def __len__(self) -> int:
        """Count the messages that wait."""
        return sum(map(len, self._stores))

    def put(self, message: Message) -> tuple[Partition | None, int]:
        """Take in a message.

        Returns:
            The partition to be worked off from now on, None when that is being done already; and how many
            messages were dropped.
        """
        with self.lock:
            store = self._only
            if store is None or len(store) >= self._limit:
                return self._place(message)
            # The short way of nearly all messages.
            store.append(message)
            return (self._idle.pop() if self._idle else None), 0

    def take(self, partition: Partition) -> Message | None:
        """Return a partition's next message; None when it is empty: `put` then names it again."""
        with self.lock:
            try:
                message: Message = partition.store.popleft()
            except IndexError:
                self._idle.add(partition)
                return None
            return message

    def leave(self, partition: Partition) -> None:
        """Work a partition off no further, whatever waits in it: the next `put` into it names it again."""
        with self.lock:
            self._idle.add(partition)

    def clear(self) -> int:
        """Forget what waits; give how many messages that were."""
        with self.lock:
            return sum(map(_emptied, self._stores))

    def close(self) -> int:
        """Forget what waits, and ignore what comes; give how many messages waited."""
        with self.lock:
            self._is_closed = True
            self._only = None
            return self.clear()

    def waiting_beside(self, held: Collection[Partition]) -> int:
        """Count the messages that can be handled while these partitions stand still."""
        with self.lock:
            free = {id(partition.store) for partition in self._partitions if partition not in held}
            return sum(len(store) for store in self._stores if id(store) in free)

    def _place(self, message: Message) -> tuple[Partition | None, int]:
        if self._is_closed:
            return None, 0
        partition = self._partitions[hash(message.subject) % len(self._partitions) if self._is_ordered else 0]
        dropped = self._add(message, partition.store)
        self.dropped += dropped
        if not self._idle or not partition.store:
            return None, dropped
        if not self._is_ordered:
            return self._idle.pop(), dropped
        if partition not in self._idle:
            return None, dropped
        self._idle.remove(partition)
        return partition, dropped

    def _partition(self, place: int) -> Partition:
        store = self._stores[place % len(self._stores)]
        return Partition(store, partial(self._pop, store) if self._is_latest else store.popleft)

    def _pop(self, store: Any) -> Message:
        with self.lock:
            message: Message = store.popleft()
            return message

    def _add(self, message: Message, store: Any) -> int:
        """Put a message into a store; return how many were dropped for it, itself among them."""
        if self._is_latest and store.replace(message):
            return 1
        dropped = 0
        if (len(self) if self._is_ordered else len(store)) >= self._limit:
            if not self._makes_room:
                return 1
            dropped = self._make_room(store)
        store.append(message)
        return dropped

    def _make_room(self, store: Any) -> int:
        """Drop the oldest of a store, or of the fullest one when there is none in it."""
        try:
            (store or max(self._stores, key=len)).popleft()
        except IndexError:
            # A worker has just made room.
            return 0
        return 1


def _emptied(store: Any) -> int:
    """Take all messages out one by one, since a worker may be doing that too; count those had here."""
    count = 0
    try:
        while True:
            store.popleft()
            count += 1
    except IndexError:
        return count


def _check(overflow: str | None, limit: int, concurrency: int, order_by: str | None) -> None:
    if overflow not in _OVERFLOWS:
        raise ValueError(f"overflow={overflow!r} is none of {', '.join(map(repr, _OVERFLOWS))}")
    if limit < 1:
        raise ValueError(f"a limit of {limit} lets no message wait; give at least 1")
    is_whole = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if not is_whole or not 1 <= concurrency <= MOST_CONCURRENCY:
        raise ValueError(f"concurrency={concurrency!r} is not a number from 1 to {MOST_CONCURRENCY:,}")
    if order_by not in (None, "subject"):
        raise ValueError(f'order_by={order_by!r} is neither "subject" nor None')


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
