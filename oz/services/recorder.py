"""The recorder: a subscriber that writes a journal."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, Self

from oz.errors import ClosedError, JournalError, JournalFull, Timeout
from oz.journal import Writer
from oz.journal.columns import arranged
from oz.message import Gap, Message
from oz.services.backlog import Backlog, Item, Messages
from oz.services.columns import Loss, columns_of, columns_of_loss, sizes_of, spanning
from oz.subjects.pattern import DEFAULT_DIALECT, Pattern, parse
from oz.sync.subscriber import Subscriber

_log = logging.getLogger("oz.recorder")

_MANY = 8192
_ENOUGH = 1024  # messages that are laid out in columns at once, while they are in the processor's cache
_OVERHEAD = 300  # bytes that a message takes besides its payload
_PAYLOAD = attrgetter("payload")
_SLICE = 0.1  # seconds between two looks at whether to stop
_PARTING = 1.0  # seconds for what is on its way when it stops
_PAUSE = 0.25  # seconds between two attempts while the disk is full

Filtering = Literal["prefix", "publisher"]


@dataclass
class RecorderStats:
    """What a recorder did so far."""

    recorded: int = 0
    """Messages in the journal, as durable as its `sync` says."""
    payload_bytes: int = 0
    """The size of their payloads."""
    lost: int = 0
    """Messages that gap records stand for: lost on the way, or while there was no room."""
    commits: int = 0
    """Appends to the journal."""
    is_full: bool = False
    """Whether there is no room at present."""


class Recorder:
    """Subscribes, and appends what it receives to a journal.

    `run` receives in the thread that calls it, and writes in another. What is lost on the way from publishers
    that filter, and what finds no room when the disk is full, becomes gap records. So does the time in which
    nobody recorded: a journal that is gone on with gets a gap of unknown size first.

    Attributes:
        stats: what it did so far.
        writer: the journal's writer.
        subscriber: where the messages come from.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        patterns: str | bytes | Pattern | Iterable[str | bytes | Pattern],
        *,
        connect: Any = None,
        bind: Any = None,
        dialect: str = DEFAULT_DIALECT,
        filtering: Filtering = "prefix",
        most_waiting: int = 64 << 20,
        commit_seconds: float = 0.01,
        subscriber: dict[str, Any] | None = None,
        **writer: Any,
    ) -> None:
        """Open the journal, then subscribe.

        Args:
            directory: the journal; made if it is not there.
            patterns: what to record, as `oz.parse` takes it.
            connect: an endpoint to connect to, or a list of them.
            bind: an endpoint to bind to, or a list of them.
            dialect: the dialect of patterns that name none.
            filtering: as of `oz.Subscriber`: `"prefix"` for any ZeroMQ publisher, `"publisher"` for those of
                oz: what is lost on the way is known then.
            most_waiting: bytes received and not written yet that are held in memory. Beyond it the recorder
                does not receive until it has written some; while the disk is full it lets go of what comes,
                and counts it.
            commit_seconds: after one commit wait for so long, or for 1 MiB, before the next. A message that
                comes after a silence of that length is written at once.
            subscriber: further options of `oz.Subscriber`, such as `high_water_mark`.
            writer: options of `oz.journal.Writer`, such as `sync` and `segment_bytes`.

        Raises:
            JournalError, JournalFull, ValueError: as `oz.journal.Writer`.
            PatternError, ValueError, zmq.ZMQError: as `oz.Subscriber`.
        """
        if isinstance(patterns, (str, bytes, Pattern)):
            patterns = [patterns]
        compiled = [one if isinstance(one, Pattern) else parse(one, dialect) for one in patterns]
        if not compiled:
            raise ValueError("no pattern at all: nothing would be recorded")
        self._pattern = spanning(compiled)
        self._is_routed = filtering == "publisher"
        self._commit_seconds = commit_seconds
        self._backlog = Backlog(most_waiting)
        self._losses: list[Loss] = []
        self._is_stopping = False
        self._giving_up = threading.Event()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._failure: BaseException | None = None
        self.stats = RecorderStats()
        self.writer = Writer(directory, **writer)
        try:
            if self.writer.end_offset:
                self._backlog.put(Loss(None, time.time_ns()))
            options: dict[str, Any] = {"on_gap": self._note_gap} if self._is_routed else {}
            self.subscriber = Subscriber(
                connect, bind, dialect=dialect, filtering=filtering, **options, **(subscriber or {})
            )
            self.subscriber.subscribe(compiled)
        except BaseException:
            self.writer.close()
            raise

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every publisher has answered; see `oz.Subscriber.wait_ready`. At once with prefixes."""
        if self._is_routed:
            self.subscriber.wait_ready(timeout)

    def run(self, on_look: Callable[[], object] | None = None) -> None:
        """Record until `stop` is called; then what has arrived is written, and it returns.

        Args:
            on_look: called ten times a second at least, in this thread.

        Raises:
            JournalFull: there was no room to the end, so that the last messages are not in the journal.
            JournalError: the system failed to write.
        """
        self._is_idle.clear()
        writing = threading.Thread(target=self._write, name="oz-recorder", daemon=True)
        writing.start()
        try:
            while not self._is_stopping and self._failure is None:
                self._receive(_SLICE)
                if on_look is not None:
                    on_look()
            if self._failure is None:
                self._receive_rest()
        finally:
            self._giving_up.set()
            self._backlog.close()
            writing.join()
            self._is_idle.set()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Have `run` come to its end. Any thread may call it, and a signal handler."""
        self._is_stopping = True

    @property
    def lag(self) -> float:
        """For how many seconds the oldest message that is not written yet has been waiting."""
        oldest = self._backlog.oldest_ns
        return 0.0 if oldest is None else max(0.0, (time.time_ns() - oldest) / 1e9)

    @property
    def waiting(self) -> int:
        """How many messages were received and are not written yet."""
        return self._backlog.count

    # receiving -------------------------------------------------------------------------------------------

    def _receive(self, timeout: float) -> bool:
        """Receive some; tell whether anything came."""
        messages: list[Message] = []
        with suppress(Timeout):
            messages = self.subscriber.receive_many(_MANY, timeout)
        losses, self._losses = self._losses, []
        start = 0
        for loss in losses:
            place = max(start, _place_of(loss, messages))
            self._put(messages[start:place])
            self._backlog.put(loss)
            start = place
        self._put(messages[start:] if start else messages)
        return bool(messages)

    def _put(self, messages: list[Message]) -> None:
        if not messages:
            return
        if not self._backlog.has_room():
            self._backlog.discard(messages)
            return
        if len(messages) < _ENOUGH:
            # The thread that writes puts them together with others.
            self._backlog.put(_few(messages))
            return
        for item in _arranged(messages):
            self._backlog.put(item)

    def _note_gap(self, gap: Gap) -> None:
        self._losses.append(Loss(gap.count, time.time_ns(), gap.origin, gap.sequence))

    def _receive_rest(self) -> None:
        """Take what has arrived, and from publishers that filter what is on its way."""
        ends = time.monotonic() + _PARTING
        if self._is_routed:
            self.subscriber.drain(_PARTING)
        with suppress(ClosedError):
            while self._failure is None and self._receive(0):
                if not self._is_routed and time.monotonic() >= ends:
                    return

    # writing ---------------------------------------------------------------------------------------------

    def _write(self) -> None:
        not_before = 0.0
        try:
            while items := self._backlog.take(not_before):
                not_before = time.monotonic() + self._commit_seconds
                self._commit(items)
                self._backlog.done(len(items))
        except BaseException as error:
            self._failure = error
            # Nobody must wait for room any more.
            self._backlog.close()

    def _commit(self, items: list[Item]) -> None:
        """Append items as one group; it waits for as long as there is no room."""
        ready = list(_gathered(items))
        group = [
            columns_of_loss(self._pattern, one) if isinstance(one, Loss) else one.columns or {}
            for one in ready
        ]
        while True:
            try:
                self.writer.append_columns(*group)
                break
            except JournalFull as error:
                self._await_room(error)
        if self.stats.is_full:
            self._say_room()
        self._count(ready)

    def _count(self, items: list[Item]) -> None:
        self.stats.commits += 1
        for item in items:
            if isinstance(item, Messages):
                self.stats.recorded += item.rows
                self.stats.payload_bytes += item.payload
            else:
                self.stats.lost += item.count or 0

    def _await_room(self, error: JournalFull) -> None:
        if not self.stats.is_full:
            self.stats.is_full = True
            self._backlog.discard_when_full(True)
            _log.error("%s", error)
        if self._giving_up.is_set():
            raise error
        self._giving_up.wait(_PAUSE)

    def _say_room(self) -> None:
        self.stats.is_full = False
        self._backlog.discard_when_full(False)
        lost = self._backlog.discarded
        _log.warning("there is room again; %s messages were let go of so far, and are recorded as gaps", lost)

    # the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop it if it runs, and close the subscriber and the journal. A second call does nothing.

        Raises:
            JournalError: the system failed to make the end of the journal durable.
        """
        self.stop()
        self._is_idle.wait()
        try:
            self.subscriber.close()
        finally:
            self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.close()
        except JournalError:
            if error[0] is None:
                raise


def _gathered(items: list[Item]) -> Iterator[Item]:
    """Lay out what has not been yet, few messages together with those that follow."""
    few: list[Message] = []
    for item in items:
        if isinstance(item, Messages) and item.columns is None:
            few += item.messages
            continue
        yield from _arranged(few)
        few = []
        yield item
    yield from _arranged(few)


def _arranged(messages: list[Message]) -> Iterator[Item]:
    for part, columns in _laid_out(messages) if messages else ():
        yield _as_loss(part[0]) if columns is None else _many(part, columns)


def _laid_out(messages: list[Message]) -> Iterator[tuple[list[Message], dict[str, Any] | None]]:
    """Lay messages out in columns, by themselves those that cannot be stored: without columns."""
    try:
        columns = arranged(columns_of(messages))
    except (ValueError, TypeError, OverflowError) as error:
        if len(messages) == 1:
            subject = messages[0].subject
            _log.warning("a message cannot be recorded, and becomes a gap: %r: %s", subject, error)
            yield messages, None
            return
        middle = len(messages) // 2
        yield from _laid_out(messages[:middle])
        yield from _laid_out(messages[middle:])
    else:
        yield messages, columns


def _few(messages: list[Message]) -> Messages:
    payload = sum(map(len, map(_PAYLOAD, messages)))
    size = payload + _OVERHEAD * len(messages)
    return Messages(messages, None, len(messages), payload, size, messages[0].time_ns)


def _many(messages: list[Message], columns: dict[str, Any]) -> Messages:
    payload, size = sizes_of(columns)
    return Messages([], columns, len(messages), payload, size, messages[0].time_ns)


def _as_loss(message: Message) -> Loss:
    return Loss(1, message.time_ns, message.origin, message.sequence)


def _place_of(loss: Loss, messages: list[Message]) -> int:
    """Find the message before which a loss belongs; its end when what follows the loss is still to come."""
    previous = -1
    first: int | None = None
    for place, message in enumerate(messages):
        if message.origin != loss.origin or message.sequence is None:
            continue
        if loss.sequence is not None and loss.count is not None:
            if message.sequence >= loss.sequence + loss.count:
                return place
        elif message.sequence < previous:  # the publisher counts anew after it
            return place
        elif first is None:
            first = place
        previous = message.sequence
    return len(messages) if first is None else first
