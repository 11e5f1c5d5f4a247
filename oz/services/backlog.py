"""The backlog of a recorder: received and not written yet, bounded, in order; and its writing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oz.errors import JournalFull
from oz.journal import Writer
from oz.logs import peer_logger
from oz.protocol.backoff import growing
from oz.protocol.subscriber.columns import Arrived
from oz.services.columns import LaidOut, Loss, columns_of_loss, count_of

_log = peer_logger("oz.recorder")

OVERHEAD = 100
"""Bytes that a message takes besides its payload, about."""


_LOSS_BYTES = 300

GROUP_BYTES = 16 << 20
"""What belongs into one commit at most, unless it is one item."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0
"""Seconds between two attempts while the disk is full: nothing tells when there is room again."""

Item = LaidOut | Loss


class RecordBacklog:
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


@dataclass
class RecorderStats:
    """The counts of a recorder so far."""

    recorded: int = 0
    """Messages in the journal, as durable as its `sync` says."""
    payload_bytes: int = 0
    """The size of their payloads."""
    lost: int = 0
    """Messages that gap records stand for: lost on the way, or while there was no room."""
    gone: int = 0
    """Messages that were in the journal, until somebody else removed the file."""
    commits: int = 0
    """Appends to the journal."""
    is_full: bool = False
    """Whether there is no room at present."""


class BacklogWriter:
    """Writes a backlog to a journal, in a thread of its own.

    Attributes:
        failure: why it has ended before the backlog did.
    """

    def __init__(
        self,
        backlog: RecordBacklog,
        writer: Writer,
        stats: RecorderStats,
        pattern: str,
        on_news: Callable[[], None],
    ) -> None:
        """Prepare; `start` begins.

        Args:
            backlog: what is to be written.
            writer: the journal's writer.
            stats: what is counted.
            pattern: what was lost matched it.
            on_news: called, by the thread, after each commit and when it fails.
        """
        self.failure: BaseException | None = None
        self._backlog = backlog
        self._writer = writer
        self._stats = stats
        self._pattern = pattern
        self._on_news = on_news
        self._most = GROUP_BYTES
        self._giving_up = threading.Event()
        self._pauses = growing(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._run, name="oz-recorder", daemon=True)
        self._thread.start()

    def give_up(self) -> None:
        """Wait for room no longer."""
        self._giving_up.set()

    def join(self) -> None:
        """Wait until all is written, or it has failed; the backlog is closed."""
        if self._thread is not None:
            self._thread.join()

    def fail(self, error: BaseException) -> None:
        """Write nothing more, for this reason."""
        self.failure = error
        # Nobody must wait for room any more.
        self._backlog.close()
        self._on_news()

    def _run(self) -> None:
        try:
            while items := self._backlog.take(self._most):
                if self._commit(items):
                    self._backlog.done(len(items))
                    # What was collected meanwhile may be due.
                    self._on_news()
                    self._most = min(2 * self._most, GROUP_BYTES)
                    self._look_at_room()
        except BaseException as error:
            self.fail(error)

    def _commit(self, items: list[Item]) -> bool:
        """Append items as one group; False when they found no room, and fewer are to be tried."""
        group = [
            columns_of_loss(self._pattern, one) if isinstance(one, Loss) else one.columns for one in items
        ]
        try:
            self._writer.append_columns(*group)
        except JournalFull as error:
            self._note_full(error)
            # There may be room for a part of them.
            self._most = min(self._most, sum(map(size_of, items))) // 2
            if len(items) == 1 and not self._backlog.split():
                self._await_room(error)
            return False
        self._pauses = growing(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._count(items)
        return True

    def _count(self, items: list[Item]) -> None:
        self._stats.commits += 1
        for one in items:
            if isinstance(one, Loss):
                self._stats.lost += one.count or 0
            else:
                self._stats.recorded += one.count
                self._stats.payload_bytes += one.bytes

    def _note_full(self, error: JournalFull) -> None:
        if not self._stats.is_full:
            self._stats.is_full = True
            self._backlog.discard_when_full(True)
            _log.error(
                "%s: %s; all up to offset %s is recorded; make room, or keep less with retain_bytes "
                "(--retain-bytes): it tries again by itself, and counts as lost what memory does not hold",
                error.directory,
                error.reason,
                error.end_offset,
            )

    def _look_at_room(self) -> None:
        """There is room again once the backlog fits, and not just a part of it."""
        if self._stats.is_full and (self._most == GROUP_BYTES or not self._backlog.count):
            self._say_room()

    def _await_room(self, error: JournalFull) -> None:
        if self._giving_up.is_set():
            raise error
        self._giving_up.wait(next(self._pauses))

    def _say_room(self) -> None:
        self._stats.is_full = False
        self._backlog.discard_when_full(False)
        lost = self._backlog.discarded
        _log.warning("there is room again; %s messages were dropped so far, and are recorded as gaps", lost)
