"""What a recorder has received and not written yet: bounded, in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from oz.message import Arrived
from oz.services.collecting import OVERHEAD, Rows, count_of
from oz.services.columns import Loss

_LOSS_BYTES = 300
GROUP_BYTES = 16 << 20
"""What belongs into one commit at most, unless it is one item."""

Item = Rows | Loss


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
            if not isinstance(first, Rows) or first.count < 2:
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
    return item.bytes + OVERHEAD * item.count if isinstance(item, Rows) else _LOSS_BYTES


def _rows(item: Item) -> int:
    return item.count if isinstance(item, Rows) else 0
