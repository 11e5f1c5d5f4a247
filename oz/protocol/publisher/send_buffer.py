"""The send buffer: what waits at a publisher for a stream that is full, as its subscriber chose."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Protocol

from oz.protocol.conflating import LIMIT
from oz.protocol.publisher.batching import Batch
from oz.protocol.publisher.stream import OutStream


class SendBuffer(Protocol):
    """Messages of one stream that found no room.

    Attributes:
        is_numbered: whether those that are held have their numbers already.
    """

    is_numbered: bool

    def put(self, stream: OutStream, items: list[Any], positions: Sequence[int]) -> int:
        """Take subjects and payloads in; return how many messages the subscriber will miss for it."""
        ...

    def take(self, stream: OutStream, most: int) -> tuple[int, list[Any], list[int]]:
        """Return the sequence of the first, and what `put` was given of at most so many messages."""
        ...

    def drop(self, stream: OutStream, count: int) -> None:
        """Forget so many that `take` gave, as they have gone."""
        ...

    def end(self, stream: OutStream) -> int:
        """Return the sequence of what comes after all that are held."""
        ...

    def __bool__(self) -> bool:
        """Whether any are held."""
        ...


class DropOldestSendBuffer:
    """The newest so many messages; each has its sequence, so that those dropped show as a gap."""

    __slots__ = ("_items", "is_numbered")

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self.is_numbered = True
        self._items: deque[tuple[bytes, Any, int]] = deque(maxlen=limit)

    def __bool__(self) -> bool:
        """Whether any are held."""
        return bool(self._items)

    def put(self, stream: OutStream, items: list[Any], positions: Sequence[int]) -> int:
        """Take messages in."""
        new = list(zip(items[0::2], items[1::2], positions, strict=True))
        before = len(self._items) + len(new)
        self._items.extend(new)
        stream.sequence += len(new)
        return before - len(self._items)

    def take(self, stream: OutStream, most: int) -> tuple[int, list[Any], list[int]]:
        """Return the oldest of them."""
        return stream.sequence - len(self._items), *_apart(islice(self._items, most))

    def end(self, stream: OutStream) -> int:
        """Return the sequence of the next message: all that are held have theirs."""
        return stream.sequence

    def drop(self, stream: OutStream, count: int) -> None:
        """Forget the oldest, as they have gone."""
        for _ in range(count):
            self._items.popleft()


class ConflatingSendBuffer:
    """The newest message of each subject. Those that it stands for were never numbered: they are no gap."""

    __slots__ = ("_limit", "_newest", "is_numbered")

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self.is_numbered = False
        self._limit = limit
        self._newest: dict[bytes, tuple[Any, int]] = {}

    def __bool__(self) -> bool:
        """Whether any are held."""
        return bool(self._newest)

    def put(self, stream: OutStream, items: list[Any], positions: Sequence[int]) -> int:
        """Take messages in; beyond the limit the subject that came up first is missed."""
        newest = self._newest
        for at, position in enumerate(positions):
            newest[items[2 * at]] = items[2 * at + 1], position
        missed = max(0, len(newest) - self._limit)
        # What is missed is numbered as if it had gone first, so that it shows as a gap.
        self.drop(stream, missed)
        return missed

    def take(self, stream: OutStream, most: int) -> tuple[int, list[Any], list[int]]:
        """Return those whose subjects came up first: their positions may fall."""
        first = ((subject, *newest) for subject, newest in islice(self._newest.items(), most))
        return stream.sequence, *_apart(first)

    def end(self, stream: OutStream) -> int:
        """Return what the sequence is when all have gone that are held, if no other subject comes up."""
        return stream.sequence + len(self._newest)

    def drop(self, stream: OutStream, count: int) -> None:
        """Forget those whose subjects came up first, and number them only now: none is conflated any more."""
        if count:
            left = dict(islice(self._newest.items(), count, None))
            # In one statement: a signal handler that raises comes before or after.
            self._newest, stream.sequence = left, stream.sequence + count


def _apart(held: Iterable[tuple[bytes, Any, int]]) -> tuple[list[Any], list[int]]:
    """Return subjects and payloads in turn, and positions."""
    items, positions = list[Any](), list[int]()
    for subject, payload, position in held:
        items += (subject, payload)
        positions.append(position)
    return items, positions


SEND_BUFFERS: dict[str | None, Callable[[int], SendBuffer]] = {
    "drop_oldest": DropOldestSendBuffer,
    "conflate": ConflatingSendBuffer,
}
"""What makes the send buffer of each `overflow` that has one, from its limit. With the others, messages that
find no room are dropped, or wait in the way of everybody."""


def send_buffer_of(stream: OutStream) -> SendBuffer | None:
    """Return the send buffer of a stream; None when its overflow needs none."""
    make = SEND_BUFFERS.get(stream.delivery.overflow)
    if stream.send_buffer is None and make is not None:
        stream.send_buffer = make(stream.delivery.limit or LIMIT)
    send_buffer: SendBuffer | None = stream.send_buffer
    return send_buffer


class Passing:
    """The batches of one flush that are for members of queue groups: those sent, and those still to come.

    What one member refuses may be older than what another was sent already. Of one subject that would go back
    in the order at the other one.
    """

    __slots__ = ("_pending", "_sent")

    def __init__(self, batches: Iterable[Batch] = ()) -> None:
        """Start with the batches of one flush, of which none was sent."""
        self._pending = {one.stream: one for one in batches if one.stream.delivery.group}
        self._sent: dict[OutStream, list[Batch]] = {}

    def begin(self, batch: Batch) -> None:
        """Record that a batch is being sent, so that nothing more goes into it."""
        if self._pending.get(batch.stream) is batch:
            del self._pending[batch.stream]

    def note(self, batch: Batch) -> None:
        """Record that a batch is its stream's now, sent or waiting."""
        self._sent.setdefault(batch.stream, []).append(batch)

    def share(
        self, batch: Batch, members: list[OutStream], *, must_go: bool
    ) -> tuple[list[Batch], Batch, Batch]:
        """Share out what a member has no room for.

        Args:
            batch: what it was to get.
            members: the others that can take more.
            must_go: it is gone itself, so that another one gets a message even out of order.

        Returns:
            Batches that are to be sent now, beside what was added to those still to come; what has to wait
            for the member itself, as all others that want it are ahead; and what nobody else wants.
        """
        assert batch.items is not None
        latest = {one: self._latest(one) for one in members}
        follow: list[Batch] = []
        waits, rest = Batch(batch.stream), Batch(batch.stream)
        for number, position in enumerate(batch.positions):
            item = batch.items[2 * number : 2 * number + 2]
            able = [one for one in members if one.wants(item[0])]
            taker = next((one for one in able if latest[one].get(item[0], -1) < position), None)
            if taker is None and able and must_go:
                taker = able[0]
            if taker is None:
                (waits if able else rest).put(position, item)
            else:
                if taker not in self._pending:
                    # Still to come, as others: what the one before it refuses goes into it.
                    self._pending[taker] = Batch(taker)
                    follow.append(self._pending[taker])
                self._pending[taker].put(position, item)
        return follow, waits, rest

    def _latest(self, member: OutStream) -> dict[bytes, int]:
        """Return the position of the last message of each subject that a member was sent."""
        positions: dict[bytes, int] = {}
        for batch in self._sent.get(member, ()):
            items: list[Any] = batch.items or []
            for subject, position in zip(items[0::2], batch.positions, strict=True):
                positions[subject] = max(positions.get(subject, -1), position)
        return positions
