"""The sink of `format("oz")`: it publishes the rows of a DataFrame or of a streaming query as messages.

Theory of operation. Each task binds a publisher to an endpoint that no other task uses, and waits until
subscribers have connected. It publishes the rows of its partition in order, and closes the publisher when the
subscribers have acknowledged all rows. If a subscriber does not connect, disconnects, or does not acknowledge in time,
the task fails, and Spark repeats the task. If the driver dies, Spark repeats the whole batch. Therefore each row is
published at least once. A repeated row gets the same message id again, so that a subscriber with `dedupe` drops it; see
`oz.spark.sink_rows`.
"""

from __future__ import annotations

import time
import uuid
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

from oz.errors import OzError, SinkError, SubjectError, WouldBlock
from oz.logs import logger
from oz.options import Options
from oz.publisher.engine import Engine
from oz.publisher.session import Session
from oz.publisher.sync import Publisher
from oz.spark.options import OptionValues, option_error
from oz.spark.sink_rows import Columns, Row, RowIds, RowReader, find_columns
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT, validate_subject
from oz.transport import endpoints
from oz.transport.errors import EndpointError
from oz.transport.routers import link_endpoint
from oz.transport.steps import Steps
from oz.transport.waiting import wait_in_thread

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
"""Names of the options of the sink. Spark itself adds the last two options."""

_FOREIGN = {
    "kafka.bootstrap.servers": "endpoint",
    "bind": "endpoint",
    "connect": "endpoint, at which the tasks bind; subscribers connect to it",
    "topic": "subject",
    "includeheaders": "the column headers",
    "batch": "run",
}

# Properties that Spark sets for the tasks of a streaming query, and for jobs inside foreachBatch.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"

_CLOSE_TIMEOUT = 1.0  # seconds
_BIND_AGAIN = 0.1  # seconds until the next attempt to bind, if other tasks use all endpoints
_MAX_ENDPOINTS = 1_024

_log = logger("oz.spark.sink")


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink; docs/spark-reference.md documents each option.

    Attributes:
        endpoints: endpoints to bind. Each task binds one of them.
        subscribers: number of subscribers for which a task waits before it publishes.
        timeout: maximum duration of each wait in seconds. A task waits for an endpoint and subscribers, for space in
            the queue of a subscriber, and for acknowledgements.
        subject: the subject of all rows; None to use the column `subject`.
        dialect: the dialect of the subjects.
        payload: encoding of payloads that are structs: "msgpack" or "json".
        run: the name of a batch write. If two writes have the same name, equal rows get the same ids.
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
        ConfigurationError: an option is absent, unknown or wrong.
    """
    values = OptionValues(given, NAMES, _FOREIGN, "sink")
    dialect = values.choice("dialect", dialects.DIALECTS, DEFAULT_DIALECT)
    subject = values.text("subject")
    if subject is not None:
        try:
            validate_subject(subject, dialect)
        except SubjectError as error:
            raise option_error("subject", subject, str(error)) from None
    return SinkOptions(
        _endpoints(values),
        values.integer("subscribers") or 1,
        values.seconds("timeout", 30.0),
        subject,
        dialect,
        values.choice("payload", ("msgpack", "json"), "msgpack"),
        values.text("run"),
    )


def _endpoints(values: OptionValues) -> tuple[str, ...]:
    text = values.text("endpoint") or ""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        rule = "give an endpoint to bind to, one for each task of a host, as in tcp://*:5600-5603"
        raise option_error("endpoint", None, rule)
    found: list[str] = []
    for part in parts:
        try:
            found += _ports(part)
            for each in found:
                endpoints.check(each, own_context=True)
                link_endpoint(each)
        except (ValueError, OzError) as error:
            raise option_error("endpoint", part, str(error)) from None
    return tuple(dict.fromkeys(found))


def _ports(endpoint: str) -> list[str]:
    """Return one endpoint for each port of an endpoint with a range of ports, such as `tcp://*:5600-5603`.

    Raises:
        ValueError: the range is empty or too long.
    """
    where, _, ports = endpoint.rpartition(":")
    first, dash, last = ports.partition("-")
    if not (endpoint.startswith("tcp://") and dash and first.isdecimal() and last.isdecimal()):
        return [endpoint]
    found = [f"{where}:{port}" for port in range(int(first), min(int(last), int(first) + _MAX_ENDPOINTS) + 1)]
    if not 0 < len(found) <= _MAX_ENDPOINTS:
        raise ValueError(f"a range has 1 to {_MAX_ENDPOINTS:,} ports, the lowest first")
    return found


@dataclass
class TaskReport(WriterCommitMessage):  # type: ignore[misc]
    """Report of a task to the driver: the number of rows that the task has published."""

    rows: int


class SinkTask:
    """Work of one task: it publishes one partition of a batch. Spark sends a pickled copy to each task."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        # Name of a batch write without the option `run`. The driver creates it, so that all tasks have the same name.
        self._write = uuid.uuid4().hex

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Publish the rows.

        Raises:
            SinkError: a row cannot be published, or not all subscribers have acknowledged all rows.
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
                    delivery = Delivery(options, partition)
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
        return TaskReport(published)

    def _identity(self, context: Any) -> tuple[str, int]:
        """Return the id of the query and the number of the batch, from which the ids of the rows are made."""
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        run = self._options.run
        if query is None or batch is None:
            return (self._write if run is None else f"run {run}"), 0
        return (query if run is None else f"{query} {run}"), int(batch)


class Delivery:
    """The publisher of one task, and the check that its subscribers have acknowledged all messages."""

    def __init__(self, options: SinkOptions, partition: int) -> None:
        """Bind a publisher, and wait for the subscribers.

        Args:
            options: options of the sink.
            partition: number of the partition. Tasks with different numbers try different endpoints first.

        Raises:
            SinkError: within `timeout`, no endpoint is free, or too few subscribers connect.
        """
        self._options = options
        end = time.monotonic() + options.timeout
        self._publisher = _bind(options, partition, end)
        self._engine: Engine = self._publisher._engine
        self._where = self._publisher.endpoint
        try:
            self._present = wait_in_thread(
                self._engine.waiters, _wait_for_sessions(self._engine, options.subscribers, end)
            )
            found = len(self._present)
            if found < options.subscribers:
                raise SinkError(
                    f"{self._where}: {found} of {options.subscribers} subscribers after {options.timeout:g} s. "
                    f"Let a subscriber connect to {', '.join(options.endpoints)} with filtering='publisher', or "
                    "set the option timeout to more seconds"
                )
        except BaseException:
            self.abandon()
            raise

    def publish(self, row: Row) -> None:
        """Publish a row.

        Raises:
            SinkError: the queue of a subscriber is full for longer than `timeout`.
            ValueError, TypeError: the subject or the headers are not allowed.
        """
        subject, payload, headers, key, message_id = row
        try:
            self._publisher.publish(subject, payload, headers=headers, key=key, id=message_id)
        except WouldBlock as error:
            raise SinkError(
                f"{self._where}: {error}; check the subscriber, or set the option timeout to more seconds"
            ) from None

    def finish(self) -> None:
        """Wait until the subscribers have acknowledged all messages, and close the publisher.

        Raises:
            SinkError: a subscriber has not acknowledged all messages within `timeout`, a subscriber has left, or the
                publisher has dropped messages for a subscriber.
        """
        options, engine = self._options, self._engine
        self._publisher.flush()
        end = time.monotonic() + options.timeout
        sessions = wait_in_thread(engine.waiters, _wait_for_acknowledgements(engine, end))
        pending = sum(not session.is_idle for session in sessions)
        refused = sum(session.dropped_unasked for session in sessions)
        stayed = len(set(sessions).intersection(self._present))
        given_up = self._publisher.stats.given_up
        self.abandon()
        if pending:
            raise SinkError(
                f"{self._where}: {pending} of {len(sessions)} subscribers have not acknowledged all messages "
                f"within {options.timeout:g} s; check them, or set the option timeout to more seconds"
            )
        if stayed < options.subscribers or given_up:
            raise SinkError(
                f"{self._where}: a subscriber left while its messages were published; {stayed} have them all, "
                f"of {options.subscribers} that the option subscribers asks for"
            )
        if refused:
            raise SinkError(
                f"{self._where}: {refused} messages were dropped for a subscriber that was without connection "
                "for too long, or that refuses messages of their size; check the subscriber"
            )

    def abandon(self) -> None:
        """Close the publisher, and do not wait for acknowledgements."""
        self._publisher.close(timeout=_CLOSE_TIMEOUT)


def _bind(options: SinkOptions, partition: int, end: float) -> Publisher:
    """Return a publisher that is bound to the first free endpoint.

    Raises:
        SinkError: no endpoint is free until the time `end`, or an endpoint cannot be bound for another reason.
    """
    at = partition % len(options.endpoints)
    ordered = options.endpoints[at:] + options.endpoints[:at]
    settings = Options(send_timeout=options.timeout, resume_seconds=options.timeout)
    while True:
        for endpoint in ordered:
            try:
                # With an explicit link endpoint, the publisher raises an error if the link endpoint is in use.
                return Publisher(
                    endpoint,
                    dialect=options.dialect,
                    on_full="block",
                    links=link_endpoint(endpoint),
                    options=settings,
                )
            except EndpointError as error:
                if error.errno != zmq.EADDRINUSE:
                    raise SinkError(f"{endpoint}: {error}") from None
        if time.monotonic() >= end:
            raise SinkError(
                f"other programs or tasks use {', '.join(options.endpoints)} or their link endpoints: give the "
                "option endpoint as many endpoints as tasks run at once on a host, as in tcp://*:5600-5603"
            )
        time.sleep(_BIND_AGAIN)


def _wait_for_sessions(engine: Engine, count: int, end: float) -> Steps[set[Session]]:
    """Wait until `count` subscribers have declared subscriptions, or until the time `end`. Return their sessions."""
    while True:
        with engine.lock:
            sessions = {session for session in engine.sessions() if session.is_declared}
        if len(sessions) >= count or time.monotonic() >= end:
            return sessions
        yield end


def _wait_for_acknowledgements(engine: Engine, end: float) -> Steps[list[Session]]:
    """Wait until all subscribers have acknowledged all messages, or until the time `end`. Return their sessions."""
    while True:
        sessions = engine.sessions()
        if time.monotonic() >= end:
            return sessions
        with engine.lock:
            if all(session.is_idle for session in sessions):
                return sessions
        yield end


class SinkWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writer of Spark that publishes the rows of a DataFrame."""

    def __init__(self, task: SinkTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Publish one partition. The errors are those of `SinkTask.run`."""
        return self._task.run(iterator)

    def commit(self, messages: Sequence[TaskReport | None]) -> None:
        """Log the number of published rows."""
        _log.info("%d rows published", sum(each.rows for each in messages if each is not None))


class SinkStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writer of Spark that publishes the rows of a streaming query."""

    def __init__(self, task: SinkTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Publish one partition. The errors are those of `SinkTask.run`."""
        return self._task.run(iterator)

    def commit(self, messages: Sequence[TaskReport | None], batchId: int) -> None:
        """Log the number of published rows."""
        rows = sum(each.rows for each in messages if each is not None)
        _log.info("batch %d: %d rows published", batchId, rows)

    def abort(self, messages: Sequence[TaskReport | None], batchId: int) -> None:
        """Do nothing, because published messages cannot be recalled."""


def sink_task(given: Mapping[str, str], schema: T.StructType) -> SinkTask:
    """Check the options and the columns of a sink.

    Raises:
        ConfigurationError: an option is absent, unknown or wrong.
        SinkError: a column is absent or has a wrong type.
    """
    options = read_sink_options(given)
    return SinkTask(options, find_columns(schema, needs_subject=options.subject is None))
