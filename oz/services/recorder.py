"""Recorder: writes the messages of an endpoint, a subscriber or a node to a journal.

**Threads.** The thread of `run` receives messages. A second thread appends them to the journal. With only one thread,
messages would wait in the queues of ZeroMQ during a slow fsync, and a plain publisher would drop messages. If the
source is a node, a handler in the node's thread pool receives the messages instead of the thread of `run`. The buffer
between the threads keeps the order of the messages, and its size in bytes is limited.

**Waiting.** The receiving thread polls the descriptor of the subscriber, and a bell (`oz.transport.bell`), which `stop`
and signals ring.

**Losses.** A loss becomes a gap record at its position among the messages. There are three kinds of losses: gaps that
the subscriber reports, messages that cannot be stored, and messages that were dropped because both the disk and the
buffer were full. While the disk has space, a full buffer makes the receiving thread wait. If the journal already has
records, the recorder first appends a gap record of unknown size: no recorder may have run since the last record.

**Repeats.** A subscriber with `dedupe` drops messages whose id it has seen. The recorder reads the ids at the end of
the journal, so that it detects repeats even after a restart.

**Acknowledgements.** With `ack="received"`, a message that has arrived is acknowledged before it is in the journal, and
is lost if the recorder is killed. With `ack="handled"`, the writing thread acknowledges a message after its append. The
recorder is a member of a group with redelivery. Therefore the publisher sends the unacknowledged messages of a killed
recorder to another recorder.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import zmq

from oz.errors import ClosedError, ConfigurationError, JournalError, JournalFull, Timeout
from oz.journal import GAP, Journal, Writer
from oz.journal.records import unpack_headers
from oz.logs import peer_logger
from oz.message import Gap, Message, MessageId
from oz.node.engine import Engine as NodeEngine
from oz.node.sync import Node
from oz.numbers import check_count
from oz.options import Ack, Delivery
from oz.services.service import OnPoll, Service
from oz.subjects.pattern import Pattern, compile
from oz.subscriber.message import HandledMessage
from oz.subscriber.sync import Subscriber, Subscription
from oz.transport.bell import poll_until

MESSAGE_BYTES = 100
"""Estimated memory of a message in bytes, without its payload."""

COMMIT_SECONDS = 0.01
"""Minimum seconds between two appends. An append begins earlier if `APPEND_BYTES` wait."""

APPEND_BYTES = 4 << 20
"""An append takes no further records when its records have this size in bytes. Larger appends would delay commits."""

MAX_INT64 = (1 << 63) - 1
MAX_MESSAGES = 1024
"""Maximum number of messages that one `receive_many` returns."""
FULL_QUEUE = 64
"""Number of calls of `receive_many` that suffice to empty a full queue of a subscriber."""
FIRST_RETRY, LAST_RETRY = 0.01, 1.0
"""Shortest and longest pause in seconds between two attempts to append while the disk is full."""
SERVICE_INTERVAL = 1.0
"""Maximum seconds between two polls of the subscriber, because it answers its publishers only when it is polled."""
DRAIN_TIMEOUT = 2.0
"""Maximum seconds to wait for messages that were published before `run` was stopped."""
MAX_IDS = 65_536
"""Maximum number of records whose ids are read at the end of a journal. `dedupe` keeps the same number of ids."""
REST_TIMEOUT = 10.0
"""Maximum seconds for which a stopped recorder receives waiting messages.

Without this limit, other subscriptions of the same subscriber could delay the end for ever.
"""

_log = peer_logger("oz.recorder")

Row = Message | dict[str, Any]
"""A message, or a gap record as a dict of columns."""


@dataclass
class RecorderStats:
    """Counts of a recorder since it was created.

    Attributes:
        recorded: messages that were appended to the journal.
        payload_bytes: total size in bytes of the payloads of these messages.
        lost: number of lost messages in gap records. Gaps of unknown size are not counted.
        dropped: messages that were dropped while the disk was full. `lost` counts them too.
        commits: number of appends to the journal.
        is_full: whether the disk is full at present.
    """

    recorded: int = 0
    payload_bytes: int = 0
    lost: int = 0
    dropped: int = 0
    commits: int = 0
    is_full: bool = False


class Recorder(Service):
    """Receives messages with a subscription, and appends them to a journal.

    `run` records until `stop` is called. Then it appends the messages that have already arrived. `run` raises
    `JournalFull` if the disk is still full at the end, `JournalError` if the operating system reports an error, and
    `PermissionDenied` if a publisher refuses the subscription.

    Attributes:
        stats: counts of the recorder.
        writer: writer of the journal.
        subscriber: subscriber that receives the messages; None if the source is a node.
    """

    subscriber: Subscriber | None = None

    def __init__(
        self,
        directory: str | os.PathLike[str],
        patterns: str | bytes | Pattern | Iterable[str | bytes | Pattern],
        *,
        source: Subscriber | Node | str | Sequence[str],
        group: str | None = None,
        ack: Ack = "received",
        subscriber: Mapping[str, Any] | None = None,
        max_pending_bytes: int = 64 << 20,
        **writer: Any,
    ) -> None:
        """Open the journal, then subscribe.

        Args:
            directory: the directory of the journal. The recorder creates the directory if it does not exist.
            patterns: one pattern or several patterns of the subjects to record, as in `oz.compile`: "md.>", or
                "rv:MD.>" in another dialect.
            source: source of the messages. For one or several endpoints, the recorder creates a subscriber. With a
                `Subscriber`, the program must not receive from the same subscriber until the recorder is closed. With a
                `Node`, the recorder subscribes on the bus of the node. `close` leaves a given subscriber or node open.
            group: name of a queue group. Each message goes to one recorder in the group.
            ack: "received", or "handled" to acknowledge a message when it is in the journal. "handled" needs a `group`
                and a source with links. If the recorder is killed, another recorder receives the unacknowledged
                messages, and may record some messages a second time. The other recorder must join the group within the
                `resume_seconds` of the publisher.
            subscriber: arguments of the recorder's own `oz.Subscriber`, such as `filtering`, `bind` and `options`.
            max_pending_bytes: maximum memory in bytes for messages that are not written yet. At this limit, the
                recorder stops receiving. If the disk is full, it drops and counts messages instead.
            writer: further arguments of `oz.journal.Writer`, such as `sync` and `segment_bytes`.

        Raises:
            JournalError, JournalFull, ValueError: the same reasons as in `oz.journal.Writer`.
            PatternError, ValueError, zmq.ZMQError: the same reasons as in `oz.Subscriber` and `subscribe`.
            ConfigurationError: `ack="handled"` is given without a group, or with a node as the source.
            TypeError: the source has a wrong type, or `subscriber` is given with a `Subscriber` or a `Node`.
        """
        if isinstance(patterns, (str, bytes, Pattern)):
            patterns = [patterns]
        compiled = [compile(pattern) for pattern in patterns]
        if not compiled:
            raise ValueError("patterns is empty: give at least one pattern to record")
        check_count("max_pending_bytes", max_pending_bytes, 0, sys.maxsize)
        if subscriber and isinstance(source, (Subscriber, Node)):
            raise TypeError("subscriber= holds options for an endpoint; this source has options of its own")
        if ack == "handled" and (group is None or isinstance(source, Node)):
            rule = "the recorder needs group=, and an endpoint or a Subscriber as its source"
            raise ConfigurationError("ack", ack, "argument", rule)
        self.stats = RecorderStats()
        self._pattern = spanning_pattern(compiled)
        self._buffer = RecordBuffer(max_pending_bytes, self._gap_record, self.stats)
        self._failure: BaseException | None = None
        self._gaps: list[Gap] = []
        self._directory, self._group, self._ack = directory, group, ack
        self._ids: set[MessageId] = set()
        self._node = source if isinstance(source, Node) else None
        self._dropped_by_node = 0
        self._giving_up = threading.Event()
        self._resources = ExitStack()
        with ExitStack() as opened:
            self.writer = opened.enter_context(Writer(directory, **writer))
            if self.writer.end_offset:
                self._buffer.put([self._gap_record(None)])
            super().__init__()
            opened.callback(self._bell.close)
            self._poller = zmq.Poller()
            self._poller.register(self._bell, zmq.POLLIN)
            self._subscription = self._subscribe(source, compiled, dict(subscriber or {}), opened)
            self._resources = opened.pop_all()

    def _subscribe(
        self, source: Any, compiled: list[Pattern], options: dict[str, Any], opened: ExitStack
    ) -> Any:
        if isinstance(source, Node):
            subscription: Any = source.subscribe(compiled, handler=self._receive_from_node, group=self._group)
            journals = source._node.traces.journals
            journals[subscription._inbox] = os.path.abspath(os.fspath(self._directory))
            opened.callback(journals.pop, subscription._inbox, None)
            opened.callback(subscription.unsubscribe)
            return subscription
        if isinstance(source, Subscriber):
            self.subscriber = source
        else:
            self.subscriber = opened.enter_context(Subscriber(source or None, **options))
        engine = self.subscriber._engine
        engine.gap_listeners.append(self._gaps.append)
        opened.callback(engine.gap_listeners.remove, self._gaps.append)
        if engine.options.dedupe and self.writer.end_offset:
            self._ids = last_ids(Journal(self._directory), MAX_IDS)
        self._poller.register(self.subscriber.fileno(), zmq.POLLIN)
        delivery = Delivery(redeliver=self._ack == "handled")
        subscription = self.subscriber.subscribe(
            compiled, group=self._group, ack=self._ack, delivery=delivery
        )
        opened.callback(_end, subscription)
        return subscription

    def _serve(self, on_poll: OnPoll | None) -> None:
        thread = threading.Thread(target=self._write, name="oz-recorder", daemon=True)
        thread.start()
        try:
            super()._serve(on_poll)
            self._receive_rest()
        finally:
            self._giving_up.set()
            self._buffer.close()
            thread.join()
        if self._failure is not None:
            raise self._failure

    @property
    def _node_engines(self) -> tuple[NodeEngine, ...]:
        return () if self._node is None else (self._node._node,)

    @property
    def pending(self) -> int:
        """Number of messages that were received and are not written yet."""
        return self._buffer.messages

    def wait_ready(self, *, timeout: float | None = 10.0) -> None:
        """Wait until the subscriber is ready; return at once if the source is a node.

        Raises:
            Timeout, PermissionDenied: the same reasons as in `oz.Subscriber.wait_ready`.
        """
        if self.subscriber is not None:
            self.subscriber.wait_ready(timeout=timeout)

    # Receiving. ------------------------------------------------------------------------------------------

    def _turn(self, until: float) -> None:
        if not self._receive():
            if self.subscriber is not None:
                until = min(until, time.monotonic() + SERVICE_INTERVAL)
            poll_until(self._poller, until)

    def _receive(self) -> bool:
        """Move the messages that have arrived into the buffer; return whether messages had arrived."""
        if self.subscriber is None:
            return False
        messages: Sequence[Message] = ()
        try:
            # `receive_many` stops before a gap. Therefore the reported gaps precede the first message.
            messages = self.subscriber.receive_many(MAX_MESSAGES, timeout=0)
            # Otherwise the next call of `receive_many` would acknowledge the messages of this call.
            self.subscriber._engine.in_hand.clear()
        except Timeout:
            pass
        finally:
            rows: list[Row] = [self._gap_record(gap.count, gap.origin) for gap in self._gaps]
            self._gaps.clear()
            ids = self._ids
            repeats = [message for message in messages if message.id in ids] if ids else []
            acknowledge(repeats)
            rows += messages if not repeats else [message for message in messages if message.id not in ids]
            self._buffer.put(rows)
        return bool(messages)

    def _receive_from_node(self, message: Message) -> None:
        rows: list[Row] = []
        if (dropped := self._subscription.dropped - self._dropped_by_node) > 0:
            self._dropped_by_node += dropped
            rows.append(self._gap_record(dropped))
        if message.gap:
            rows.append(self._gap_record(message.gap, message.origin))
        self._buffer.put([*rows, message])

    def _receive_rest(self) -> None:
        with suppress(ClosedError):
            if self.subscriber is None:
                self._subscription.drain(timeout=DRAIN_TIMEOUT)
                return
            # Empty the queue of the subscriber before `drain`, because a subscriber with a full queue does not read its
            # sockets. The number of calls is limited, because a fast publisher may fill the queue without end.
            for _ in range(FULL_QUEUE):
                if self._failure is not None or not self._receive():
                    break
            self._subscription.drain(timeout=DRAIN_TIMEOUT)
            ends = time.monotonic() + REST_TIMEOUT
            while self._failure is None and self._receive() and time.monotonic() < ends:
                pass

    def _gap_record(self, count: int | None, origin: bytes | None = None) -> Row:
        return {
            "subject": self._pattern,
            "payload": b"",
            "kind": GAP,
            "time_ns": time.time_ns(),
            "origin": origin,
            "lost": count if count is None else min(count, MAX_INT64),
        }

    # Writing. --------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Append the records of the buffer until the buffer is closed and empty. The second thread runs this method."""
        try:
            not_before = 0.0
            while rows := self._buffer.take(not_before):
                not_before = time.monotonic() + COMMIT_SECONDS
                self._append(rows)
                self._buffer.remove(rows)
        except BaseException as error:
            self._failure = error
            self._buffer.close()
            self.stop()

    def _append(self, rows: list[Row]) -> None:
        retry = FIRST_RETRY
        while True:
            try:
                end = self.writer.append(rows)
            except JournalFull as error:
                self._report_full(error)
                if self._giving_up.wait(retry):
                    raise
                retry = min(2 * retry, LAST_RETRY)
            except (ValueError, TypeError, OverflowError) as error:
                self._append_parts(rows, error)
                return
            else:
                self._report_marked(rows, end)
                self._count(rows)
                return

    def _append_parts(self, rows: list[Row], error: Exception) -> None:
        """Append the records that can be stored, after the journal has refused all of them together."""
        if len(rows) > 1:
            middle = len(rows) // 2
            self._append(rows[:middle])
            self._append(rows[middle:])
            return
        [message] = rows
        if not isinstance(message, Message):
            raise error
        _log.warning("a message cannot be recorded, and becomes a gap: %r: %s", message.subject, error)
        acknowledge([message])
        self._append([self._gap_record(1, message.origin)])

    def _report_marked(self, rows: list[Row], end: int) -> None:
        """Report to `oz trace` that its messages are in the journal.

        Args:
            rows: records of one append.
            end: offset after the last record.
        """
        traces = None if self._node is None else self._node._node.traces
        if traces is not None and traces.is_asked:
            for offset, row in enumerate(rows, end - len(rows)):
                if isinstance(row, Message):
                    traces.on_recorded(self._subscription._inbox, row, offset)

    def _count(self, rows: list[Row]) -> None:
        stats = self.stats
        stats.commits += 1
        for row in rows:
            if isinstance(row, dict):
                stats.lost += row["lost"] or 0
            else:
                stats.recorded += 1
                stats.payload_bytes += payload_size(row)
        acknowledge(rows)
        if stats.is_full:
            stats.is_full = False
            _log.warning(
                "the disk has space again; %s messages were dropped, and are recorded as gaps", stats.dropped
            )

    def _report_full(self, error: JournalFull) -> None:
        if not self.stats.is_full:
            _log.error(
                "%s; all records before offset %s are kept; free space, or keep less with retain_bytes "
                "(--retain-bytes). The recorder retries. It drops messages that do not fit into memory",
                error,
                self.writer.end_offset,
            )
            self._buffer.set_full()

    # Closing. --------------------------------------------------------------------------------------------

    def _release(self, timeout: float | None) -> None:
        self._resources.close()

    def __exit__(self, *error: object) -> None:
        try:
            self.close()
        except JournalError:
            if error[0] is None:
                raise


class RecordBuffer:
    """Queue of messages and gap records between the receiving thread and the writing thread."""

    def __init__(self, max_bytes: int, gap_record: Callable[..., Row], stats: RecorderStats) -> None:
        self._max_bytes, self._gap_record, self._stats = max_bytes, gap_record, stats
        # Use `with` on the lock, not on the condition: Ctrl-C may interrupt `with` on a condition after it has acquired
        # the lock, and then the lock is never released.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._rows: list[Row] = []
        self._dropped: dict[bytes | None, int | None] = {}
        self._is_closed = False
        self._bytes = 0
        self.messages = 0
        """Number of messages in the buffer."""

    def put(self, rows: Sequence[Row]) -> None:
        """Add records, and wait while the buffer is full. If the disk is full too, drop the records instead."""
        if not rows:
            return
        with self._lock:
            self._changed.wait_for(
                lambda: self._bytes < self._max_bytes or self._stats.is_full or self._is_closed
            )
            if self._stats.is_full and self._bytes >= self._max_bytes:
                self._drop(rows)
                return
            self._flush_dropped()
            self._add(rows)

    def _add(self, rows: Sequence[Row]) -> None:
        self._rows += rows
        self._bytes += sum(map(size_of, rows))
        self.messages += sum(not isinstance(row, dict) for row in rows)
        self._changed.notify_all()

    def _drop(self, rows: Sequence[Row]) -> None:
        acknowledge(rows)
        for row in rows:
            origin, count = (row["origin"], row["lost"]) if isinstance(row, dict) else (row.origin, 1)
            before = self._dropped.get(origin, 0)
            self._dropped[origin] = None if before is None or count is None else before + count
            self._stats.dropped += count or 0

    def _flush_dropped(self) -> None:
        dropped, self._dropped = self._dropped, {}
        self._add([self._gap_record(count, origin) for origin, count in dropped.items()])

    def set_full(self) -> None:
        """Record that the disk is full. From now on, a full buffer drops records."""
        with self._lock:
            self._stats.is_full = True
            self._changed.notify_all()

    def take(self, not_before: float) -> list[Row]:
        """Wait for records, and return the records of one append. The caller passes them to `remove` after the append.

        Args:
            not_before: earliest time of the return, by the monotonic clock. Until then, the call waits for further
                records. It returns earlier if `APPEND_BYTES` wait, or if the buffer is closed.

        Returns:
            The first records; an empty list if the buffer is closed and empty.
        """
        with self._lock:
            self._changed.wait_for(lambda: self._rows or self._is_closed)
            self._changed.wait_for(
                lambda: self._bytes >= APPEND_BYTES or self._is_closed,
                max(0.0, not_before - time.monotonic()),
            )
            size = count = 0
            while count < len(self._rows) and size < APPEND_BYTES:
                size += size_of(self._rows[count])
                count += 1
            rows, self._rows = self._rows[:count], self._rows[count:]
            return rows

    def remove(self, rows: Sequence[Row]) -> None:
        """Remove records that are in the journal from the counts of the buffer."""
        with self._lock:
            self._bytes -= sum(map(size_of, rows))
            self.messages -= sum(not isinstance(row, dict) for row in rows)
            self._changed.notify_all()

    def close(self) -> None:
        """Close the buffer. From now on, `put` and `take` do not wait."""
        with self._lock:
            self._flush_dropped()
            self._is_closed = True
            self._changed.notify_all()


def acknowledge(rows: Iterable[Row]) -> None:
    """Acknowledge the messages that were received with `ack="handled"`."""
    for row in rows:
        if isinstance(row, HandledMessage):
            row.ack()


def payload_size(message: Message) -> int:
    """Return the size of a payload in bytes. For a decoded payload, this is the size of the payload frames."""
    payload = message.payload
    return len(payload) if type(payload) is bytes else sum(map(len, message.frames[1:]))


def size_of(row: Row) -> int:
    """Return the estimated memory of a record in bytes."""
    return MESSAGE_BYTES if isinstance(row, dict) else MESSAGE_BYTES + payload_size(row)


def last_ids(journal: Journal, count: int) -> set[MessageId]:
    """Return the ids of the messages in the last records of a journal.

    Args:
        journal: journal to read.
        count: maximum number of records to read.
    """
    start = max(journal.first_offset, journal.end_offset - count)
    column = journal.table(start=start, columns=["headers"])["headers"]
    found = (unpack_headers(packed)[2] for packed in column.drop_null().to_pylist())
    return {item for item in found if item is not None}


def _end(subscription: Subscription) -> None:
    # The program may close its subscriber before it closes the recorder.
    with suppress(ClosedError):
        subscription.unsubscribe()


def spanning_pattern(patterns: Sequence[Pattern]) -> str:
    """Return the text of one pattern that matches all subjects of several patterns.

    For one pattern, the result is the dialect and the text of the pattern, if this text describes the pattern
    completely. Otherwise it is the common prefix of the patterns.
    """
    pattern, *others = patterns
    if not others and not pattern._flags and not pattern._named_lists:
        text = pattern.text
        with suppress(UnicodeError):
            return f"{pattern.dialect}:{text if isinstance(text, str) else text.decode()}"
    prefixes = [prefix for item in patterns for prefix in item.prefixes]
    low, high = min(prefixes), max(prefixes)
    length = next((at for at, byte in enumerate(low) if high[at : at + 1] != bytes([byte])), len(low))
    # If the prefixes differ within a character of UTF-8, the common part of this character is left out.
    return f"zmq:{low[:length].decode(errors='ignore')}"
