"""The backlog of a recorder: received and not written yet; bounded, in order."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oz.journal.columns import arranged
from oz.journal.schema import BATCH_BYTES, BATCH_ROWS
from oz.message import Arrived, Message, MessageBatch, PlainBatch
from oz.services.columns import Loss, columns_of

_log = logging.getLogger("oz.recorder")

OVERHEAD = 100
"""Bytes that a message takes besides its payload, about."""


class LaidOut(NamedTuple):
    """Messages that were received one after another, laid out to be written.

    Attributes:
        columns: as `Writer.append_columns` takes them.
        count: how many they are.
        bytes: the size of their payloads.
        time_ns: when the first was received.
    """

    columns: dict[str, Any]
    count: int  # type: ignore[assignment]
    bytes: int
    time_ns: int

    def halves(self) -> tuple[LaidOut, LaidOut]:
        """Divide them in two; there are two at least."""
        return self._part(0, self.count // 2), self._part(self.count // 2, self.count)

    def _part(self, start: int, end: int) -> LaidOut:
        columns = {
            name: values[start:end] if isinstance(values, (list, tuple, range, pa.Array)) else values
            for name, values in self.columns.items()
        }
        payloads = columns["payload"]
        sizes = pc.sum(pc.binary_length(payloads)).as_py() or 0
        time_ns = columns.get("time_ns")
        first_ns = time_ns[0].as_py() if isinstance(time_ns, pa.Array) else self.time_ns
        return LaidOut(columns, end - start, sizes, first_ns)


class Collector:
    """Collects messages until they are laid out, all at once: each Arrow batch has its price.

    That is done in the thread that receives. Another would have to wait for the interpreter's lock again and
    again, and while one waits each call into ZeroMQ costs several times as much.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._arrived: list[Arrived] = []
        self.count = 0
        """Messages."""
        self.bytes = 0
        """The size of their payloads, about."""

    @property
    def oldest_ns(self) -> int | None:
        """When the first was received; None when there is none."""
        return self._arrived[0].time_ns if self._arrived else None

    def add(self, arrived: Arrived) -> bool:
        """Take in what was received; False, and not so, if that exceeded a batch."""
        count, size = self.count + count_of(arrived), self.bytes + _bytes_of(arrived)
        if self._arrived and (count > BATCH_ROWS or size > BATCH_BYTES):
            return False
        self._arrived.append(arrived)
        self.count, self.bytes = count, size
        return True

    def take(self) -> list[LaidOut | Loss]:
        """Lay out what is there, in order, and hold it no longer; what cannot be stored is lost."""
        by_kind = groupby(self._arrived, _kind_of)
        rows = [one for _, some in by_kind for one in _laid_out(list(some))]
        self._arrived = []
        self.count = self.bytes = 0
        return rows


def _kind_of(arrived: Arrived) -> type:
    """Tell batches from messages, all of whose kinds can be laid out together."""
    return Message if isinstance(arrived, Message) else type(arrived)


def count_of(arrived: Arrived) -> int:
    """Count messages."""
    return len(arrived) if isinstance(arrived, (MessageBatch, PlainBatch)) else 1


def _bytes_of(arrived: Arrived) -> int:
    if isinstance(arrived, MessageBatch):
        return arrived.size
    return len(arrived.payload) if isinstance(arrived, Message) else sum(map(len, arrived.payloads))


def _laid_out(arrived: list[Arrived]) -> Iterator[LaidOut | Loss]:
    try:
        columns = arranged(columns_of(arrived))
    except (ValueError, TypeError, OverflowError) as error:
        yield from _divided(arrived, error)
        return
    payloads = columns["payload"]
    yield LaidOut(columns, len(payloads), payloads.nbytes - 4 * len(payloads), arrived[0].time_ns)


def _divided(arrived: list[Arrived], error: Exception) -> Iterator[LaidOut | Loss]:
    """Lay out those that can be stored of messages that cannot all be."""
    first, middle = arrived[0], len(arrived) // 2
    if middle:
        yield from _laid_out(arrived[:middle])
        yield from _laid_out(arrived[middle:])
    elif not isinstance(first, Message):
        yield from _laid_out([*first.messages()])
    else:
        _log.warning("a message cannot be recorded, and becomes a gap: %r: %s", first.subject, error)
        yield Loss(1, first.time_ns, first.origin, first.sequence)


_LOSS_BYTES = 300
GROUP_BYTES = 16 << 20
"""What belongs into one commit at most, unless it is one item."""

Item = LaidOut | Loss


class Backlog:
    """Passes what one thread receives to another that writes it."""

    def __init__(self, most_bytes: int) -> None:
        """Begin, empty.

        Args:
            most_bytes: what may wait. The last item may exceed it.
        """
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._discarded: dict[bytes | None, Loss] = {}
        self._is_discarding = self._is_closed = False
        self.bytes = 0
        """What waits takes so much memory."""
        self.count = 0
        """Messages that wait."""
        self.discarded = 0
        """Messages that were dropped."""

    def has_room(self) -> bool:
        """Wait for room; False when what comes is to be dropped: see `discard`."""
        with self._changed:
            self._changed.wait_for(self._takes)
            return self.bytes < self._most_bytes

    def _takes(self) -> bool:
        return self.bytes < self._most_bytes or self._is_discarding or self._is_closed

    def put(self, *items: Item) -> None:
        """Hand over messages, or that some were lost on the way."""
        with self._changed:
            self._flush_discarded()
            for item in items:
                self._add(item)
            self._changed.notify_all()

    def _add(self, item: Item) -> None:
        self._items.append(item)
        self.bytes += size_of(item)
        self.count += _rows(item)

    def discard(self, arrived: Sequence[Arrived]) -> None:
        """Let messages go, and have that recorded in their place."""
        with self._changed:
            for one in arrived:
                rows = count_of(one)
                self.discarded += rows
                known = self._discarded.get(one.origin)
                if known is None:
                    known = Loss(0, time.time_ns(), one.origin, one.sequence)
                assert known.count is not None
                self._discarded[one.origin] = known._replace(count=known.count + rows)

    def _flush_discarded(self) -> None:
        for loss in self._discarded.values():
            self._add(loss)
        self._discarded.clear()

    def discard_when_full(self, whether: bool) -> None:
        """Change what becomes of messages for which there is no room: waiting for it, or letting them go."""
        with self._changed:
            self._is_discarding = whether
            if not whether:
                self._flush_discarded()
            self._changed.notify_all()

    def take(self, most_bytes: int = GROUP_BYTES) -> list[Item]:
        """Wait for something to write.

        Args:
            most_bytes: how much to give at most; the first item is given whatever its size.

        Returns:
            What belongs into one commit, in order; it counts as waiting until `done`. Empty at the end.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._is_closed)
            taken: list[Item] = []
            size = 0
            for item in self._items:
                size += size_of(item)
                if taken and size > most_bytes:
                    break
                taken.append(item)
            return taken

    def split(self) -> bool:
        """Make two of the first item, which is being written; False when it cannot be divided."""
        with self._changed:
            first = self._items[0]
            if not isinstance(first, LaidOut) or first.count < 2:
                return False
            halves = first.halves()
            self.bytes += sum(map(size_of, halves)) - size_of(first)
            self._items.popleft()
            self._items.extendleft(reversed(halves))
            return True

    def done(self, items: int) -> None:
        """Drop the first items, which have been written."""
        with self._changed:
            for _ in range(items):
                item = self._items.popleft()
                self.bytes -= size_of(item)
                self.count -= _rows(item)
            self._changed.notify_all()

    @property
    def oldest_ns(self) -> int | None:
        """When the first that waits was received; None when nothing does."""
        with self._changed:
            return self._items[0].time_ns if self._items else None

    def close(self) -> None:
        """Say that nothing more comes."""
        with self._changed:
            self._is_closed = True
            self._flush_discarded()
            self._changed.notify_all()


def size_of(item: Item) -> int:
    """Say how much memory an item takes, about."""
    return item.bytes + OVERHEAD * item.count if isinstance(item, LaidOut) else _LOSS_BYTES


def _rows(item: Item) -> int:
    return item.count if isinstance(item, LaidOut) else 0
