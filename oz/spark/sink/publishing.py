"""Publishes the staged rows of a batch: to all that were there when it began, and whole, or it says so."""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from hashlib import blake2b
from types import TracebackType
from typing import Any

import pyarrow as pa
import zmq
from pyspark.sql import DataFrame
from zmq.utils.monitor import parse_monitor_message

from oz.errors import OptionError, SinkError, Timeout, WouldBlock
from oz.logs import logger
from oz.spark.session import is_remote
from oz.spark.sink.encoding import unpack_headers
from oz.spark.sink.settings import SinkSettings, read_settings
from oz.spark.sink.staging import Staged
from oz.sync.publisher import Publisher
from oz.transport.publisher.ends import Fate

_QUERY = "sql.streaming.queryId"

_BEGIN = zmq.EVENT_CONNECTED | zmq.EVENT_ACCEPTED

_log = logger("oz.spark.sink")

SERIES_BYTES = 16

_SETTLE = 0.1  # seconds without a new subscription after which nobody else is expected
_RETURN = 1.0  # seconds for those to come back who were there at the end of the batch before
_RETRY = 0.05

_seen: dict[tuple[str, ...], int] = {}
"""Subscriptions at the end of the batch before, by endpoints; Spark commits all batches in one process."""


class _SubscriberMissing(Exception):
    """Not all subscribers are there, or one left."""


def series_of(query: str, batch: int, partition: int) -> bytes:
    """Return the first half of the ids of one partition's rows; the other half is the row's number.

    Args:
        query: the id of the query, or the name of a run.
        batch: the number of the batch.
        partition: the number of the partition.
    """
    return blake2b(f"oz sink {query} {batch} {partition}".encode(), digest_size=SERIES_BYTES).digest()


class BatchDelivery:
    """Publishes the rows of one batch.

    Attributes:
        published: rows published so far.
        dropped: rows that nobody was there for, or not until the end, where that is no error.
        may_have_arrived: whether any row was published, also where the batch was begun again since.
    """

    def __init__(self, settings: SinkSettings, batch: int, directory: str) -> None:
        """Prepare it; nothing is opened yet.

        Args:
            settings: where to, and how.
            batch: the number of the batch.
            directory: where its rows are staged.
        """
        self.published = 0
        self.dropped = 0
        self.may_have_arrived = False
        self._settings = settings
        self._batch = batch
        self._directory = directory

    def publish(self, staged: Sequence[Staged]) -> None:
        """Publish all rows, and wait until they have gone out.

        Args:
            staged: which, in order.

        Raises:
            SinkError: nobody was there, or left meanwhile, and that is an error; or one did not take them in
                time.
        """
        absent = self._settings.absent
        while True:
            try:
                self._publish_once(staged)
                return
            except _SubscriberMissing as error:
                if absent == "fail":
                    raise SinkError(str(error)) from None
                if absent == "drop":
                    self.dropped = sum(one.rows for one in staged)
                    self.published = 0
                    return
                _log.warning("batch %d waits: %s", self._batch, error)
                self.published = 0

    def _publish_once(self, staged: Sequence[Staged]) -> None:
        settings = self._settings
        publisher = self._opened()
        with _closed_unread(publisher), ConnectionsByDescriptor(publisher) as connections:
            _await_subscribers(publisher, settings)
            connections.begin()
            for one in staged:
                series = series_of(one.query, self._batch, one.partition)
                number = 0
                for batch in one.batches(self._directory):
                    self._publish_batch(publisher, batch, series, number)
                    number += batch.num_rows
            publisher.flush()
            _check_still_there(publisher, connections, settings)
        _close_read(publisher, connections, settings)

    def _opened(self) -> Publisher:
        """Open the publisher; an address may still be held by the process of a driver that was killed."""
        deadline = time.monotonic() + self._settings.timeout
        while True:
            try:
                return Publisher(
                    self._settings.bind,
                    self._settings.connect,
                    dialect=self._settings.dialect,
                    on_full="block",
                    full_timeout=self._settings.timeout,
                )
            except zmq.ZMQError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise SinkError(f"{', '.join(self._settings.endpoints)}: {error}") from None
            time.sleep(_RETRY)

    def _publish_batch(self, publisher: Publisher, batch: pa.RecordBatch, series: bytes, first: int) -> None:
        rows = zip(*(_values(batch.column(at)) for at in range(batch.num_columns)), strict=True)
        try:
            for number, (subject, payload, headers, key) in enumerate(rows, first):
                publish_row(publisher, subject, payload, headers, key, (series, number))
                self.published += 1
                self.may_have_arrived = True
        except WouldBlock as error:
            raise SinkError(
                f"{error}; the batch is published again, with the same ids, when the query is started again: "
                "look after the subscriber, or give the sink's option timeout more seconds"
            ) from None


def _values(column: pa.Array) -> list[bytes | None]:
    if column.null_count == len(column):
        return [None] * len(column)
    values: list[bytes | None] = column.to_pylist()
    return values


def publish_row(
    publisher: Any,
    subject: bytes,
    payload: bytes,
    headers: bytes | None,
    key: bytes | None,
    message_id: tuple[bytes, int],
) -> None:
    """Publish one row.

    Args:
        publisher: with which.
        subject: valid in its dialect.
        payload: the payload.
        headers: packed headers, perhaps with the frames behind the payload.
        key: what sticky queue groups go by.
        message_id: series and number.
    """
    fields, more = unpack_headers(headers) if headers else (None, None)
    publisher.publish(
        subject, [payload, *more] if more else payload, headers=fields, key=key, message_id=message_id
    )


def _await_subscribers(publisher: Publisher, settings: SinkSettings) -> None:
    """Wait for those who are to get the batch; a publisher is new in each batch, and they find it again."""
    try:
        publisher.wait_for_subscribers(settings.subscribers, timeout=settings.timeout)
    except Timeout as error:
        raise _SubscriberMissing(
            f"{', '.join(settings.endpoints)}: {error}. Start a subscriber, or give the sink's option "
            "timeout more seconds, or absent=wait to wait on, or absent=drop, or subscribers=0 to publish "
            "even if nobody listens"
        ) from None
    expected = _seen.get(settings.endpoints)
    if expected and _has(publisher, expected, _RETURN):
        return
    while _has(publisher, _count(publisher) + 1, _SETTLE):
        pass


def _check_still_there(
    publisher: Publisher, connections: ConnectionsByDescriptor, settings: SinkSettings
) -> None:
    if not _has(publisher, settings.subscribers, 0) or not connections.may_still_be(settings.subscribers):
        raise _left(settings)
    _seen[settings.endpoints] = _count(publisher)


def _left(settings: SinkSettings) -> _SubscriberMissing:
    return _SubscriberMissing(
        f"a subscriber left while a batch was published to {', '.join(settings.endpoints)}: start the query "
        "again, and the batch is published again with the same ids"
    )


def _has(publisher: Publisher, count: int, seconds: float) -> bool:
    try:
        publisher.wait_for_subscribers(count, timeout=seconds)
    except Timeout:
        return False
    return True


def _count(publisher: Publisher) -> int:
    """Count the subscriptions: with a few questions, since there may be ten thousand."""
    step = 1
    while _has(publisher, step, 0):
        step *= 2
    low, high = step // 2, step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _has(publisher, middle, 0) else (low, middle)
    return low


@contextmanager
def _closed_unread(publisher: Publisher) -> Iterator[None]:
    """Close it after an error."""
    try:
        yield
    except BaseException:
        publisher.close(timeout=_RETURN)
        raise


def _close_read(publisher: Publisher, connections: ConnectionsByDescriptor, settings: SinkSettings) -> None:
    """Close it, and wait until subscribers have read all: nobody else has it if this process is killed.

    Args:
        publisher: all is published, and some of it perhaps not even sent.
        connections: know who came too late to have it all.
        settings: how long, and how many subscribers have to have it.
    """
    reading = publisher._close_read(settings.timeout)
    found = Counter(map(reading.fate, (connections.staying | reading.found) - connections.late))
    slow, has_enough = found[Fate.OPEN], found[Fate.READ] >= settings.subscribers
    if not reading.is_sent or (slow and not has_enough):
        done = "was read" if reading.is_sent else "went out"
        raise SinkError(
            f"not all of a batch {done} within {settings.timeout:g} s. It is published again, with the same "
            "ids, when the query starts again: look after the subscriber, or give the sink's option timeout "
            "more seconds"
        )
    if found[Fate.GONE] and not has_enough:
        raise _left(settings)
    if slow:
        _log.warning("%d of %d connections did not read a batch to its end in time", slow, found.total())


def publish_batches(endpoint: str | None = None, **options: object) -> Callable[[DataFrame, int], None]:
    """Return what `foreachBatch` calls to publish each batch: once, as `format("oz")` does.

    Spark refuses the output mode `update` to every sink written in Python. `foreachBatch` takes it:
    `counts.writeStream.outputMode("update").foreachBatch(publish_batches("tcp://hub:5555"))`.

    Args:
        endpoint: where to connect to, several with commas; or give the option `bind`.
        options: further ones of the sink, see docs/spark-sink.md. `staging` is needed on a cluster; `run`
            tells two functions of the same query apart, and with Spark Connect queries too.

    Raises:
        OptionError: an option is missing, unknown or wrong.
    """
    settings = {name: str(value) for name, value in options.items()}
    if endpoint is not None:
        settings["endpoint"] = endpoint
    if "batch" in settings:
        raise OptionError("batch", settings["batch"], "it is the number that Spark gives each batch")
    read_settings(settings, is_streaming=False)

    def publish(rows: DataFrame, batch: int) -> None:
        run = f"{settings.get('run', '')} {_query_of(rows, settings)}"
        rows.write.format("oz").mode("append").options(**{**settings, "run": run, "batch": str(batch)}).save()

    return publish


def _query_of(rows: DataFrame, settings: Mapping[str, str]) -> str | None:
    """Return the id of the query that a batch is of; Spark Connect tells none."""
    if not is_remote(rows.sparkSession):
        query: str | None = rows.sparkSession.sparkContext.getLocalProperty(_QUERY)
        return query
    if "run" not in settings:
        raise SinkError(
            "Spark Connect does not tell a function of foreachBatch its query: give publish_batches a run. "
            "It is a name that no other query has, and that stays when this one is started again"
        )
    return "connect"


class ConnectionsByDescriptor:
    """Tells whether those who were connected to a publisher at the start of a batch have stayed.

    Who leaves in the middle and comes back is counted as often as before, and lacks what was published
    meanwhile.

    Attributes:
        staying: the descriptors of those who were there at the start, as far as is known, and are still.
    """

    def __init__(self, publisher: Publisher) -> None:
        """Begin; what was there before is known only when it ends."""
        self._monitor = publisher.get_monitor_socket(_BEGIN | zmq.EVENT_DISCONNECTED)
        self._open: set[int] = set()
        self.staying: set[int] = set()
        self._left = 0

    def begin(self) -> None:
        """Take those that are there now for those that are to stay."""
        self._take_in()
        self.staying, self._left = set(self._open), 0

    @property
    def late(self) -> Set[int]:
        """The descriptors of those who came after the start."""
        return self._open - self.staying

    def may_still_be(self, wanted: int) -> bool:
        """Tell whether so many may have been there all the time; False is certain."""
        self._take_in()
        # Of other transports than tcp and ipc nothing is told.
        return not self._left or len(self.staying) >= wanted

    def _take_in(self) -> None:
        while self._monitor.poll(0):
            told = parse_monitor_message(self._monitor.recv_multipart())
            descriptor = told["value"]
            if told["event"] & _BEGIN:
                self._open.add(descriptor)
                continue
            is_new = descriptor in self._open and descriptor not in self.staying
            self._left += not is_new
            self._open.discard(descriptor)
            self.staying.discard(descriptor)

    def __enter__(self) -> ConnectionsByDescriptor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._monitor.close()
