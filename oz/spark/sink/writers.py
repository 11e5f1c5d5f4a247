"""The writers that Spark calls: tasks stage rows, and the driver's side publishes them."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from oz.errors import SinkError
from oz.spark.sink.columns import Columns, RowReader, find_columns
from oz.spark.sink.outbox import Outbox, Report
from oz.spark.sink.publishing import Delivery
from oz.spark.sink.settings import SinkSettings, read_settings
from oz.spark.sink.staging import Staged, stage

_log = logging.getLogger("oz.spark.sink")

_RUN = "run-"


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Publishes the batches of a streaming query."""

    def __init__(self, settings: SinkSettings, columns: Columns) -> None:
        """Prepare it, with options and columns that are checked."""
        self._settings = settings
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task.

        Raises:
            SinkError: a row cannot be published, unless such rows are skipped.
        """
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = int(context.getLocalProperty("streaming.sql.batchId"))
        return _stage(iterator, self._settings, self._columns, query, batch)

    def commit(self, messages: Sequence[Staged | None], batchId: int) -> None:
        """Publish a batch.

        Raises:
            SinkError: it could not be published as a whole.
        """
        staged = _in_order(messages)
        if staged:
            outbox = Outbox(self._settings.staging, staged[0].query)
            # Spark has noted that the batches before are done, or it would not have begun this one.
            outbox.forget_before(batchId)
            _publish(outbox, self._settings, batchId, staged)

    def abort(self, messages: Sequence[Staged | None], batchId: int) -> None:
        """Remove what was staged in vain."""
        staged = _in_order(messages)
        if staged:
            Outbox(self._settings.staging, staged[0].query).discard(batchId, staged)


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Publishes the rows of a DataFrame."""

    def __init__(self, settings: SinkSettings, columns: Columns) -> None:
        """Prepare it, with options and columns that are checked."""
        self._settings = settings
        self._columns = columns
        # The same object goes to all tasks and to the commit.
        self._run = _RUN + (uuid.uuid4().hex if settings.run is None else _digest(settings.run))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task.

        Raises:
            SinkError: a row cannot be published, unless such rows are skipped.
        """
        return _stage(iterator, self._settings, self._columns, self._run, 0)

    def commit(self, messages: Sequence[Staged | None]) -> None:
        """Publish them.

        Raises:
            SinkError: they could not be published as a whole.
        """
        outbox = self._outbox()
        outbox.remove_stale(_RUN)
        _publish(outbox, self._settings, 0, _in_order(messages))
        outbox.remove()

    def abort(self, messages: Sequence[Staged | None]) -> None:
        """Remove what was staged in vain."""
        self._outbox().discard(0, _in_order(messages))
        if self._settings.run is None:
            # Nobody comes again for it.
            self._outbox().remove()

    def _outbox(self) -> Outbox:
        return Outbox(self._settings.staging, self._run)


def stream_writer(options: Mapping[str, str], schema: T.StructType) -> StreamWriter:
    """Make the writer of a streaming query.

    Args:
        options: the sink's.
        schema: the columns of the rows.

    Raises:
        OptionError: an option is missing, unknown or wrong.
        SinkError: a column is missing or wrong.
    """
    return StreamWriter(read_settings(options, is_streaming=True), find_columns(schema))


def batch_writer(options: Mapping[str, str], schema: T.StructType, *, overwrite: bool = False) -> BatchWriter:
    """Make the writer of a DataFrame.

    Args:
        options: the sink's.
        schema: the columns of the rows.
        overwrite: what is published cannot be, so this must be False.

    Raises:
        OptionError: an option is missing, unknown or wrong.
        SinkError: a column is missing or wrong.
    """
    if overwrite:
        raise SinkError('what is published cannot be overwritten: write with mode("append")')
    return BatchWriter(read_settings(options, is_streaming=False), find_columns(schema))


def _digest(name: str) -> str:
    return blake2b(name.encode(), digest_size=16).hexdigest()


def _in_order(messages: Sequence[Staged | None]) -> list[Staged]:
    return sorted((one for one in messages if one is not None), key=lambda one: one.partition)


def _stage(
    batches: Iterator[pa.RecordBatch], settings: SinkSettings, columns: Columns, query: str, batch: int
) -> Staged:
    reader = RowReader(columns, settings, TaskContext.get().partitionId())
    return stage(reader, batches, Outbox(settings.staging, query).path(batch), query)


def _publish(outbox: Outbox, settings: SinkSettings, batch: int, staged: list[Staged]) -> None:
    started = time.monotonic()
    runs_again = outbox.is_settled(batch)
    chosen = outbox.settle(batch, staged)
    delivery, report = Delivery(settings, batch, outbox.path(batch)), Report(settings.report, batch, chosen)
    try:
        if any(one.rows for one in chosen):
            delivery.publish(chosen, report.progress)
    except BaseException:
        # An earlier run that was killed may have published some of it.
        if not delivery.published and not runs_again:
            outbox.withdraw(batch)
        raise
    report.progress(delivery.published, is_done=True)
    seconds = time.monotonic() - started
    _log.info("batch %d: %d rows published in %.3f s", batch, delivery.published, seconds)
    skipped = sum(one.skipped for one in chosen)
    if skipped:
        example = next(one.example for one in chosen if one.example)
        _log.warning("batch %d: %d rows skipped that cannot be published; %s", batch, skipped, example)
