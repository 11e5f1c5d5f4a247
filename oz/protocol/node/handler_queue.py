"""The handler queue: the messages of one partition are handled one after the other.

Nothing here starts or waits for anything. `put` says which partition has to be worked off now, and whoever
works it off takes messages until there are none, or puts it at the end of its own line and goes on later.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from oz.message import Message
from oz.protocol.subscriber.receive_buffer import LIMIT

MOST_CONCURRENCY = 1024
"""The highest `concurrency`."""

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


class _ConflatingStore:
    """The newest message of each subject, in the order in which the subjects came up."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: OrderedDict[str | bytes, Message] = OrderedDict()

    def __len__(self) -> int:
        return len(self._messages)

    def replace(self, message: Message) -> bool:
        """Put a message in the place of an older one, if there is one."""
        if message.subject not in self._messages:
            return False
        self._messages[message.subject] = message
        return True

    def append(self, message: Message) -> None:
        self._messages[message.subject] = message

    def popleft(self) -> Message:
        if not self._messages:
            raise IndexError
        return self._messages.popitem(last=False)[1]


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
        make = _ConflatingStore if self._is_latest else deque
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
    if not isinstance(concurrency, int) or not 1 <= concurrency <= MOST_CONCURRENCY:
        raise ValueError(f"concurrency={concurrency!r} is not a number from 1 to {MOST_CONCURRENCY:,}")
    if order_by not in (None, "subject"):
        raise ValueError(f'order_by={order_by!r} is neither "subject" nor None')
