"""The sink of `format("oz")`: rows of a DataFrame become messages, in batch and in streams.

Theory of operation. Each task opens a publisher, connects it to the endpoints, and waits for subscribers.
It publishes the rows of its partition in order, and closes the publisher when the subscribers have read
them. If a subscriber is absent, leaves, or does not read in time, the task fails, and Spark repeats it. If
the driver dies, Spark repeats the whole batch. So each row is published at least once. The id of a message
is the same in each repetition, so that a subscriber with `dedupe` drops repeated messages; see
`oz.spark.sink_rows`.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import zmq
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from zmq.utils.monitor import parse_monitor_message

from oz.errors import OptionError, OzError, SinkError, SubjectError, Timeout, WouldBlock
from oz.logs import logger
from oz.spark.options import OptionValues
from oz.spark.sink_rows import Columns, Row, RowIds, RowReader, find_columns
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT, validate_subject
from oz.sync.publisher import Publisher
from oz.transport import endpoints
from oz.transport.publisher.ends import Fate

NAMES = (
    "endpoint",
    "subscribers",
    "timeout",
    "subject",
    "dialect",
    "payload",
    "run",
    "checkpointLocation",
    "queryName",
)
"""The options of the sink. The last two are Spark's own."""

_FOREIGN = {
    "kafka.bootstrap.servers": "endpoint",
    "bind": "endpoint, with the address of a subscriber or forwarder that binds",
    "topic": "subject",
    "includeheaders": "the column headers",
    "batch": "run",
}

# Properties that Spark sets for the tasks of a streaming query, and inside foreachBatch.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"

_CLOSE_AFTER_ERROR = 1.0  # seconds
_BEGIN_EVENTS = zmq.EVENT_CONNECTED | zmq.EVENT_ACCEPTED

_log = logger("oz.spark.sink")


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink; docs/spark-sink.md documents each.

    Attributes:
        endpoints: endpoints to connect to.
        subscribers: number of subscriptions to wait for before a task publishes.
        timeout: seconds to wait for subscribers, for a full one, and for the last message to be read.
        subject: the subject of all rows; None to use the column `subject`.
        dialect: the dialect of the subjects.
        payload: encoding of structs, "msgpack" or "json".
        run: the name of a batch write; writes of equal names make equal ids.
    """

    endpoints: tuple[str, ...]
    subscribers: int
    timeout: float
    subject: str | None
    dialect: str
    payload: str
    run: str | None


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a sink.

    Raises:
        OptionError: an option is absent, unknown or wrong.
    """
    values = OptionValues(given, NAMES, _FOREIGN, "sink")
    dialect = values.choice("dialect", dialects.DIALECTS, DEFAULT_DIALECT)
    subject = values.text("subject")
    if subject is not None:
        try:
            validate_subject(subject, dialect)
        except SubjectError as error:
            raise OptionError("subject", subject, str(error)) from None
    connect = _endpoints(values)
    subscribers = values.integer("subscribers", 0)
    return SinkOptions(
        connect,
        len(connect) if subscribers is None else subscribers,
        values.seconds("timeout", 30.0),
        subject,
        dialect,
        values.choice("payload", ("msgpack", "json"), "msgpack"),
        values.text("run"),
    )


def _endpoints(values: OptionValues) -> tuple[str, ...]:
    text = values.text("endpoint") or ""
    found = tuple(each.strip() for each in text.split(",") if each.strip())
    if not found:
        rule = "give the address of a subscriber or forwarder that binds, as in tcp://hub:5555"
        raise OptionError("endpoint", None, rule)
    for each in found:
        try:
            endpoints.check(each, own_context=True)
        except (ValueError, OzError) as error:
            raise OptionError("endpoint", each, str(error)) from None
    return found


@dataclass
class Published(WriterCommitMessage):  # type: ignore[misc]
    """The report of a task to the driver: the number of rows it published."""

    rows: int


class SinkTask:
    """Publishes one partition of a batch. Spark pickles it for each task."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        # Created by the driver: the name of a batch write that has none.
        self._write = uuid.uuid4().hex

    def run(self, batches: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows.

        Raises:
            SinkError: a row cannot be published, or not all subscribers have read all rows.
        """
        options, context = self._options, TaskContext.get()
        partition = context.partitionId()
        ids = RowIds(*self._identity(context), partition)
        reader = RowReader(self._columns, ids, subject=options.subject, encoding=options.payload)
        published = 0
        delivery: Delivery | None = None
        try:
            for batch in batches:
                if batch.num_rows and delivery is None:
                    delivery = Delivery(options)
                rows = reader.read(batch)
                while True:
                    try:
                        row = next(rows, None)
                        if row is None:
                            break
                        assert delivery is not None
                        delivery.publish(row)
                    except (ValueError, TypeError) as error:  # SubjectError is a ValueError
                        raise SinkError(
                            f"row {published} of partition {partition}: {error}; correct or filter the row"
                        ) from error
                    published += 1
            if delivery is not None:
                delivery.finish()
        except BaseException:
            if delivery is not None:
                delivery.abandon()
            raise
        return Published(published)

    def _identity(self, context: Any) -> tuple[str, int]:
        """Return the query and the number of the batch that the ids of the rows are made of."""
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        run = self._options.run
        if query is None or batch is None:
            return (self._write if run is None else f"run {run}"), 0
        return (query if run is None else f"{query} {run}"), int(batch)


class Delivery:
    """A publisher for one task, and the proof that its subscribers have read everything."""

    def __init__(self, options: SinkOptions) -> None:
        """Connect, and wait for the subscribers.

        Raises:
            SinkError: fewer than `subscribers` subscriptions arrive within `timeout`.
        """
        self._options = options
        self._where = ", ".join(options.endpoints)
        self._publisher = Publisher(
            (), options.endpoints, dialect=options.dialect, on_full="block", full_timeout=options.timeout
        )
        self._connections: Connections | None = None
        try:
            self._connections = Connections(self._publisher)
            self._publisher.wait_for_subscribers(options.subscribers, timeout=options.timeout)
            self._connections.begin()
        except Timeout as error:
            self.abandon()
            raise SinkError(
                f"{self._where}: {error}. Start a subscriber, or set the option timeout to more seconds, "
                "or subscribers=0 to publish without subscribers"
            ) from None
        except BaseException:
            self.abandon()
            raise

    def publish(self, row: Row) -> None:
        """Publish a row.

        Raises:
            SinkError: a subscriber is full for longer than `timeout`.
            ValueError, TypeError: the subject or the headers are not allowed.
        """
        subject, payload, headers, key, message_id = row
        try:
            self._publisher.publish(subject, payload, headers=headers, key=key, message_id=message_id)
        except WouldBlock as error:
            raise SinkError(
                f"{self._where}: {error}; check the subscriber, or set the option timeout to more seconds"
            ) from None

    def finish(self) -> None:
        """Close the publisher after its subscribers have read everything.

        Raises:
            SinkError: they have not within `timeout`, or a subscriber left.
        """
        options, connections = self._options, self._connections
        assert connections is not None
        self._publisher.flush()
        has_left = connections.update()
        connections.close()
        self._connections = None
        reading = self._publisher._close_read(options.timeout)
        # A connection that began after the first row has not got all of them.
        complete = (connections.present | reading.found) - connections.late
        fates = Counter(reading.fate(descriptor) for descriptor in complete)
        enough = fates[Fate.READ] + fates[Fate.UNTOLD] >= max(options.subscribers, 1)
        if not reading.is_sent or (fates[Fate.OPEN] and not enough):
            raise SinkError(
                f"{self._where}: not all messages were read within {options.timeout:g} s; check the "
                "subscriber, or set the option timeout to more seconds"
            )
        if (has_left or fates[Fate.GONE]) and not enough and options.subscribers:
            raise SinkError(f"{self._where}: a subscriber left while its messages were published")
        if fates[Fate.OPEN] or fates[Fate.GONE] or has_left:
            _log.warning("%s: not every connection read all messages: %s", self._where, dict(fates))

    def abandon(self) -> None:
        """Close the publisher after an error."""
        if self._connections is not None:
            self._connections.close()
            self._connections = None
        self._publisher.close(timeout=_CLOSE_AFTER_ERROR)


class Connections:
    """The connections of a publisher since it began to publish, from the events of its socket.

    A subscriber that leaves in the middle and returns lacks the messages of the time between, although the
    number of subscribers is the same again.

    Attributes:
        present: descriptors of connections that were open at the beginning, and are still open.
        late: descriptors of connections that began later.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._monitor = publisher.get_monitor_socket(_BEGIN_EVENTS | zmq.EVENT_DISCONNECTED)
        self.present: set[int] = set()
        self.late: set[int] = set()
        self._has_begun = False

    def begin(self) -> None:
        """Take the connections of this moment as those at the beginning."""
        self.update()
        self._has_begun = True

    def update(self) -> bool:
        """Read the events; return whether a connection that was there at the beginning has ended."""
        has_left = False
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())
            descriptor = event["value"]
            if event["event"] & _BEGIN_EVENTS:
                (self.late if self._has_begun else self.present).add(descriptor)
            else:
                has_left |= self._has_begun and descriptor in self.present
                self.present.discard(descriptor)
                self.late.discard(descriptor)
        return has_left

    def close(self) -> None:
        """Close the monitor."""
        self._monitor.close()


class SinkWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Publishes the rows of a DataFrame."""

    def __init__(self, task: SinkTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish one partition; errors are those of `SinkTask.run`."""
        return self._task.run(iterator)

    def commit(self, messages: Sequence[Published | None]) -> None:
        """Log the number of rows."""
        _log.info("%d rows published", sum(each.rows for each in messages if each is not None))


class SinkStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Publishes the rows of a streaming query."""

    def __init__(self, task: SinkTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish one partition; errors are those of `SinkTask.run`."""
        return self._task.run(iterator)

    def commit(self, messages: Sequence[Published | None], batchId: int) -> None:
        """Log the number of rows."""
        rows = sum(each.rows for each in messages if each is not None)
        _log.info("batch %d: %d rows published", batchId, rows)

    def abort(self, messages: Sequence[Published | None], batchId: int) -> None:
        """Do nothing: published messages cannot be recalled."""


def sink_task(given: Mapping[str, str], schema: T.StructType) -> SinkTask:
    """Check the options and the columns of a sink.

    Raises:
        OptionError: an option is absent, unknown or wrong.
        SinkError: a column is absent or has a wrong type.
    """
    options = read_sink_options(given)
    return SinkTask(options, find_columns(schema, needs_subject=options.subject is None))
