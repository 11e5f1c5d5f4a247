"""The recorder: a subscriber that writes a journal."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any, Literal, Self
from weakref import WeakSet

import zmq

from oz.errors import JournalError, JournalFull
from oz.journal import Journal, Writer
from oz.journal.ranges import messages_there
from oz.logs import peer_logger
from oz.message import Gap, MessageId
from oz.numbers import check_count, check_seconds
from oz.program_end import close_all
from oz.protocol.subscriber.columns import Arrived
from oz.protocol.subscriber.dedupe import SINGLES
from oz.services.backlog import BacklogWriter, RecordBacklog, RecorderStats
from oz.services.columns import Collector, Loss, place_of, spanning, unpack_headers
from oz.services.sockets import ServiceSubscriber
from oz.services.waiting import Bell, look_again, wait
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT, Pattern, compile

_log = peer_logger("oz.recorder")

_MANY = 1024
_CLOSE_TIMEOUT = 1.0  # seconds for what is on its way when it stops
_LOOK_SECONDS = 0.5  # between two looks at whether the files are still there: nothing tells

Filtering = Literal["prefix", "publisher"]


class Recorder:
    """Subscribes, and appends what it receives to a journal.

    `run` receives and lays out in the thread that calls it, and writes in another. What is lost on the way
    from publishers that filter, and what finds no room when the disk is full, becomes gap records. So does
    the time in which nobody recorded: a journal that is gone on with gets a gap of unknown size first.

    Attributes:
        stats: what it did so far.
        writer: the journal's writer.
        subscriber: what the messages come from.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        patterns: str | bytes | Pattern | Iterable[str | bytes | Pattern],
        *,
        connect: Any = None,
        bind: Any = None,
        filtering: Filtering = "prefix",
        most_waiting: int = 64 << 20,
        commit_seconds: float = 0.01,
        subscriber: dict[str, Any] | None = None,
        **writer: Any,
    ) -> None:
        """Open the journal, then subscribe.

        Args:
            directory: the journal; made if it is not there.
            patterns: what to record, as `oz.compile` takes it: "md.>", or "rv:MD.>" in another dialect.
            connect: an endpoint to connect to, or a list of them.
            bind: an endpoint to bind to, or a list of them.
            filtering: as of `oz.Subscriber`: `"prefix"` for any ZeroMQ publisher, `"publisher"` for those of
                oz: what is lost on the way is known then.
            most_waiting: bytes received and not written yet that are held in memory, beside one Arrow batch.
                Beyond it the recorder does not receive until it has written some; while the disk is full it
                drops what comes, and counts it.
            commit_seconds: after one commit wait for so long before the next, or until an Arrow batch is
                full: 8,192 messages or 4 MiB. A message after a silence of that length is written at once.
            subscriber: further options of `oz.Subscriber`, such as `limits`; with `dedupe` a repeat
                of one of the last 262,144 records is dropped too, whoever recorded it.
            writer: options of `oz.journal.Writer`, such as `sync` and `segment_bytes`.

        Raises:
            JournalError, JournalFull, ValueError: as `oz.journal.Writer`.
            PatternError, ValueError, zmq.ZMQError: as `oz.Subscriber`.
        """
        if isinstance(patterns, (str, bytes, Pattern)):
            patterns = [patterns]
        compiled = [compile(one) for one in patterns]
        if not compiled:
            raise ValueError("no pattern at all: nothing would be recorded")
        check_count("most_waiting", most_waiting, 0, sys.maxsize)
        check_seconds("commit_seconds", commit_seconds, inf)
        self._pattern = spanning(compiled)
        self._is_routed = filtering == "publisher"
        self._commit_seconds = commit_seconds
        self._poller = zmq.Poller()
        self._backlog = RecordBacklog(most_waiting)
        self._collected = Collector()
        self._not_before = 0.0
        self._losses: list[Loss] = []
        self._looked = 0.0
        self._is_stopping = False
        self._owner = os.getpid()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self.stats = RecorderStats()
        self.writer = Writer(directory, **writer)
        self._directory = Path(directory)
        self._first_offset = self.writer.end_offset
        with ExitStack() as opened:
            opened.callback(self.writer.close)
            self._bell = Bell()
            opened.callback(self._bell.close)
            self._poller.register(self._bell, zmq.POLLIN)
            self._writing = BacklogWriter(
                self._backlog, self.writer, self.stats, self._pattern, self._bell.ring
            )
            if self.writer.end_offset:
                self._backlog.put(Loss(None, time.time_ns()))
            options: dict[str, Any] = {"on_gap": self._note_gap} if self._is_routed else {}
            options |= subscriber or {}
            # The patterns are compiled already.
            dialects.find(options.pop("dialect", DEFAULT_DIALECT))
            self.subscriber = ServiceSubscriber(connect, bind, filtering=filtering, **options)
            opened.callback(self.subscriber.close)
            self._poller.register(self.subscriber.socket, zmq.POLLIN)
            self.subscriber.subscribe(compiled)
            if options.get("dedupe"):
                self.subscriber.mark_seen(_recorded_ids(directory, self.writer.end_offset))
            opened.pop_all()
        _open.add(self)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every publisher has answered; see `oz.Subscriber.wait_ready`. At once with prefixes."""
        if self._is_routed:
            self.subscriber.wait_ready(timeout)

    def run(self, on_look: Callable[[], object] | None = None) -> None:
        """Record until `stop` is called; then what has arrived is written, and it returns.

        Args:
            on_look: called ten times a second at least, in this thread, or at the time of the monotonic clock
                that it returns, a float.

        Raises:
            JournalFull: there was no room to the end, so that the last messages are not in the journal.
            JournalError: the system failed to write, or somebody has taken the files away; `stats.recorded`
                then counts only what is on the disk.
            PermissionDenied: a publisher denies a pattern, or does not trust the key of the recorder.
        """
        self._is_idle.clear()
        self._writing.start()
        again = 0.0
        try:
            with self._bell.rung_by_signals():
                while not self._is_stopping and self._writing.failure is None:
                    if not self._receive():
                        wait(self._poller, min(again, self._next_deadline()))
                        self._bell.hear()
                    self._look_at_files()
                    again = look_again(on_look)
            if self._writing.failure is None:
                self._receive_rest()
        finally:
            self._writing.give_up()
            try:
                self._hand_over()
            finally:
                self._backlog.close()
                self._writing.join()
                try:
                    self._look_at_files(at_once=True)
                finally:
                    self._is_idle.set()
        if self._writing.failure is not None:
            raise self._writing.failure

    def _next_deadline(self) -> float:
        """Return when something is due if nothing comes, in monotonic seconds.

        What was collected is committed after the last commit; the thread that writes rings when that is over.
        """
        asks_at = self.subscriber.next_deadline()
        looks_at = self._looked + _LOOK_SECONDS
        if self._collected.count and not self._backlog.count:
            return min(asks_at, looks_at, self._not_before)
        return min(asks_at, looks_at)

    def _look_at_files(self, *, at_once: bool = False) -> None:
        """See now and then that nobody has taken the files away, so that an idle recorder says so too."""
        now = time.monotonic()
        if self._writing.failure is None and (at_once or now - self._looked >= _LOOK_SECONDS):
            self._looked = now
            try:
                self.writer.check_files()
            except JournalError as error:
                self._writing.fail(error)
        failure = self._writing.failure
        if at_once and isinstance(failure, JournalError) and not isinstance(failure, JournalFull):
            self._count_anew()

    def _count_anew(self) -> None:
        """Count only what is on the disk, where somebody may have removed some."""
        try:
            there = messages_there(
                self._directory, self.writer.journal, self._first_offset, self.writer.end_offset
            )
        except OSError as error:
            _log.warning("%s: what is left cannot be counted: %s", self._directory, error)
            return
        self.stats.gone = max(0, self.stats.recorded - there)
        self.stats.recorded = min(self.stats.recorded, there)

    def stop(self) -> None:
        """End `run` at once. Any thread or signal handler may call it."""
        self._is_stopping = True
        self._bell.ring()

    @property
    def lag(self) -> float:
        """For how many seconds the oldest message that is not written yet has been waiting."""
        oldest = self._backlog.oldest_ns or self._collected.oldest_ns
        return 0.0 if oldest is None else max(0.0, (time.time_ns() - oldest) / 1e9)

    @property
    def waiting(self) -> int:
        """The number of messages that were received and are not written yet."""
        return self._backlog.count + self._collected.count

    # receiving -------------------------------------------------------------------------------------------

    def _receive(self) -> bool:
        """Receive what is here, within bounds; tell whether anything came."""
        arrived = self.subscriber.take_batches(_MANY)
        losses, self._losses = self._losses, []
        start = 0
        for loss in losses:
            place = max(start, place_of(loss, arrived))
            self._collect(arrived[start:place])
            self._hand_over()
            self._backlog.put(loss)
            start = place
        self._collect(arrived[start:] if start else arrived)
        if self._is_due():
            self._hand_over()
        return bool(arrived)

    def _collect(self, arrived: list[Arrived]) -> None:
        if not arrived:
            return
        if self._backlog.has_room():
            for one in arrived:
                if not self._collected.add(one):
                    self._hand_over()
                    self._collected.add(one)
        else:
            self._hand_over()
            self._backlog.discard(arrived)

    def _is_due(self) -> bool:
        """Whether the last commit is over, and was long enough ago."""
        return not self._backlog.count and time.monotonic() >= self._not_before

    def _hand_over(self) -> None:
        if self._collected.count:
            self._not_before = time.monotonic() + self._commit_seconds
            self._backlog.put(*self._collected.take())

    def _note_gap(self, gap: Gap) -> None:
        self._losses.append(Loss(gap.count, time.time_ns(), gap.origin, gap.sequence))

    def _receive_rest(self) -> None:
        """Take what has arrived, and from publishers that filter what is on its way."""
        ends = time.monotonic() + _CLOSE_TIMEOUT
        if self._is_routed:
            self.subscriber.drain(_CLOSE_TIMEOUT)
        while self._writing.failure is None and self._receive():
            if not self._is_routed and time.monotonic() >= ends:
                return

    # the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop it if it runs, and close the subscriber and the journal. A second call does nothing.

        Raises:
            JournalError: the system failed to make the end of the journal durable.
        """
        # A thread in `run` is stopped then, and never becomes idle; or it belongs to the parent process.
        if sys.is_finalizing() or self._owner != os.getpid():
            return
        self.stop()
        self._is_idle.wait()
        try:
            self.subscriber.close()
        finally:
            self._bell.close()
            self.writer.close()

    def _close_at_exit(self, timeout: float) -> None:
        """Close at the end of the program; see `close_all`."""
        if self._owner == os.getpid():
            self.stop()
            if self._is_idle.wait(timeout):
                self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.close()
        except JournalError:
            if error[0] is None:
                raise


_open: WeakSet[Recorder] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Write the messages of recorders that the program did not close; before their writers are closed."""
    close_all(_open)


def _recorded_ids(directory: str | os.PathLike[str], end: int) -> Iterator[MessageId]:
    """Return the ids of the last records."""
    if not end:
        return
    for batch in Journal(directory).batches(start=max(0, end - SINGLES), columns=["headers"]):
        for packed in batch.column("headers").drop_null().to_pylist():
            found = unpack_headers(packed).extras.message_id
            if found is not None:
                yield found
