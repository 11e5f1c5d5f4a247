"""Lanes: queues of the messages that wait for the handler of one subscription.

Theory of operation
-------------------
A subscription has `concurrency` lanes. The messages of one subject wait in the same lane, in order. At any time, only
one worker handles the messages of a lane. A lane becomes *scheduled* with its first message, and remains scheduled
until a worker finds the lane empty.

The caller of `put` holds the lock of the worker pool. A worker removes messages without the lock, because
`deque.popleft` is atomic. If the lane is empty, the worker acquires the lock and checks the lane a second time, because
`put` may have added a message. With "conflate", `put` may replace a message that waits. Therefore a worker then needs
the lock to remove a message.

The lanes of a subscription share a limit for the number of messages, and a limit for their bytes. The policy `overflow`
applies when the lanes are full:

=========================== ==========================================================================
overflow                    when the lanes are full
=========================== ==========================================================================
None, "drop_newest"         the new message is dropped
"drop_oldest"               the oldest messages of the same lane are dropped; if that lane is empty, the
                            oldest messages of the longest lane
"conflate"                  the new message replaces the waiting message of its subject; if none waits,
                            as "drop_oldest"
=========================== ==========================================================================

The count of bytes is an upper bound, because workers do not subtract the messages that they remove. When this bound
exceeds the limit, the exact sum is computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from oz.node.handler_times import Stopwatch

OVERHEAD = 128
"""Estimated memory of a message in bytes, without its payload."""
SLOW_AFTER = 1.0
"""A handler counts as slow when a message has waited for this number of seconds."""


class Lane:
    """Messages that are handled one after another.

    Attributes:
        items: messages that wait. In a `ConflatedLane`, each item is a list of length 1 with a message.
        take: function that removes and returns the oldest message. It raises IndexError if the lane is empty.
        is_scheduled: whether a worker handles the messages now, or will handle them.
        watch: stopwatch that calls the handler.
    """

    __slots__ = ("__weakref__", "_newest", "is_scheduled", "items", "owner", "take", "watch")

    watch: Stopwatch

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.items: deque[Any] = deque()
        self.take: Callable[[], Any] = self.items.popleft
        self.is_scheduled = False


class ConflatedLane(Lane):
    """Lane in which a new message can replace a waiting message. The caller of `take` holds the lock."""

    __slots__ = ()

    def __init__(self, owner: Any) -> None:
        super().__init__(owner)
        self._newest: dict[str, list[Any]] = {}
        self.take = self._take

    def _take(self) -> Any:
        cell = self.items.popleft()
        message = cell[0]
        if self._newest.get(message.subject) is cell:
            del self._newest[message.subject]
        return message

    def append(self, message: Any) -> None:
        """Add a message at the end."""
        cell = [message]
        self.items.append(cell)
        self._newest[message.subject] = cell

    def replace(self, message: Any) -> Any | None:
        """Replace the waiting message of the same subject; return the replaced message, or None if none waits."""
        cell = self._newest.get(message.subject)
        if cell is None:
            return None
        old, cell[0] = cell[0], message
        return old


class Lanes:
    """All lanes of one subscription.

    Attributes:
        all: the lanes.
        dropped: number of messages that were dropped because the lanes were full.
        removed: messages that were dropped or cleared. The owner reads and empties this list.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        max_pending: int,
        max_bytes: int,
        overflow: str | None,
        owner: Any = None,
    ) -> None:
        """Start without messages.

        Args:
            concurrency: number of lanes.
            max_pending: maximum number of messages that wait.
            max_bytes: maximum size in bytes of the messages that wait; a single message may be larger.
            overflow: policy that applies when the lanes are full.
            owner: `Runner` to which the lanes belong.
        """
        self._max_pending, self._max_bytes, self._overflow = max_pending, max_bytes, overflow
        kind = ConflatedLane if overflow == "conflate" else Lane
        self.all: list[Lane] = [kind(owner) for _ in range(concurrency)]
        self._only = self.all[0] if concurrency == 1 and kind is Lane else None
        self._bytes = 0
        self.dropped = self._reported = 0
        self.removed: list[Any] = []

    @property
    def pending(self) -> int:
        """Number of messages that wait."""
        return sum(len(lane.items) for lane in self.all)

    @property
    def oldest_ns(self) -> int | None:
        """Time of the oldest message that waits, in nanoseconds since 1970; None without messages."""
        times = []
        for lane in self.all:
            with suppress(IndexError):
                item = lane.items[0]
                times.append((item[0] if isinstance(lane, ConflatedLane) else item).time_ns)
        return min(times, default=None)

    @property
    def is_idle(self) -> bool:
        """Whether no message waits and no handler runs."""
        return not any(lane.is_scheduled for lane in self.all)

    def put(self, messages: Sequence[Any]) -> list[Lane]:
        """Add messages, and return the lanes that the caller must pass to `Pool.schedule`.

        Args:
            messages: messages in the order of their arrival.
        """
        lane = self._only
        if lane is not None:
            size = sum(map(_size, messages))
            if len(lane.items) + len(messages) <= self._max_pending and self._has_bytes_for(size):
                self._bytes += size
                lane.items += messages
                if lane.is_scheduled:
                    return []
                lane.is_scheduled = True
                return [lane]
        found = []
        for message in messages:
            lane = self._put_one(message)
            if lane is not None and not lane.is_scheduled:
                lane.is_scheduled = True
                found.append(lane)
        return found

    def _put_one(self, message: Any) -> Lane | None:
        """Add a message and return its lane; None if the message is dropped or replaces a message that waits."""
        count = len(self.all)
        lane = self.all[0 if count == 1 else crc32(message.subject_bytes) % count]
        size = _size(message)
        if not self._has_space_for(size):
            old = lane.replace(message) if isinstance(lane, ConflatedLane) else None
            if old is not None:
                self._drop(old)
                self._bytes += size
                while self.pending > 1 and not self._has_bytes_for(0):
                    self._drop_oldest(lane)
                return None
            if self._overflow in (None, "drop_newest"):
                self._drop(message)
                return None
            while not self._has_space_for(size):
                self._drop_oldest(lane)
        self._bytes += size
        if isinstance(lane, ConflatedLane):
            lane.append(message)
        else:
            lane.items.append(message)
        return lane

    def _drop_oldest(self, lane: Lane) -> None:
        """Drop the oldest message of a lane, or of the longest lane if the lane is empty."""
        if not lane.items:
            lane = max(self.all, key=lambda item: len(item.items))
        # A worker may remove the last message before this call.
        with suppress(IndexError):
            self._drop(lane.take())

    def _has_space_for(self, size: int) -> bool:
        pending = self.pending
        # Empty lanes accept a message of any size.
        return not pending or (pending < self._max_pending and self._has_bytes_for(size))

    def _has_bytes_for(self, size: int) -> bool:
        if self._bytes + size > self._max_bytes:
            self._bytes = sum(map(_size, self._waiting()))
        return self._bytes + size <= self._max_bytes

    def _waiting(self) -> Iterator[Any]:
        for lane in self.all:
            # A copy, because workers remove messages during the loop.
            for item in lane.items.copy():
                yield item[0] if isinstance(lane, ConflatedLane) else item

    def _drop(self, message: Any) -> None:
        self.dropped += 1
        self.removed.append(message)

    def release(self, lane: Lane) -> bool:
        """Return whether a lane is empty, and end the schedule of an empty lane."""
        if lane.items:
            return False
        lane.is_scheduled = False
        return True

    def clear(self) -> None:
        """Remove all messages when the subscription ends. They do not count as dropped."""
        for lane in self.all:
            with suppress(IndexError):
                while True:
                    self.removed.append(lane.take())

    def slowness(self, now_ns: int) -> tuple[float, int] | None:
        """Return the delay of a slow handler; None if the handler is not slow.

        A handler is slow if a message has waited for `SLOW_AFTER` seconds, or if messages were dropped since the
        previous call of `slowness`.

        Args:
            now_ns: time in nanoseconds since 1970.

        Returns:
            Seconds that the oldest message has waited, and the number of messages dropped since the previous call.
        """
        oldest_ns = self.oldest_ns
        lag = 0.0 if oldest_ns is None else max(0.0, (now_ns - oldest_ns) / 1e9)
        dropped, self._reported = self.dropped - self._reported, self.dropped
        return (lag, dropped) if dropped or lag >= SLOW_AFTER else None


def _size(message: Any) -> int:
    # With a codec, the last element of the tuple is the encoded payload; see `oz.subscriber.message`.
    body = message[6] if len(message) > 5 else message[1]
    if body is None:
        body = message[1]
    return OVERHEAD + len(body)
