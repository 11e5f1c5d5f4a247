"""The writers that Spark calls: tasks stage rows, and the driver's side publishes them.

The outbox of a query keeps a batch that was once written down, so that it has the same rows if it runs again.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

import msgpack
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from oz.errors import SinkError
from oz.logs import logger
from oz.spark.sink.columns import RowReader, SinkColumns, find_columns
from oz.spark.sink.publishing import BatchDelivery
from oz.spark.sink.settings import SinkSettings, read_settings
from oz.spark.sink.staging import Staged, remove_file, stage, sync_directory

_MANIFEST = "batch.oz"
_DROPPED = "dropped.json"
_MAGIC = b"OZBATCH1"
_STALE = 7 * 86_400.0


class Outbox:
    """The staged batches of one query, a directory with one more for each batch."""

    def __init__(self, staging: str, query: str) -> None:
        """Name it; nothing is made yet.

        Args:
            staging: the directory of all queries.
            query: the id of the query or run.
        """
        self._directory = Path(staging, query)

    def path(self, batch: int) -> str:
        """Return the directory of a batch."""
        return str(self._directory / str(batch))

    def settle(self, batch: int, staged: Sequence[Staged]) -> list[Staged]:
        """Write down durably what a batch holds, unless an earlier run of the same batch did.

        A batch that runs again after a crash may have its rows in another order, or in other partitions. So
        what was written down first is what is published, and ids mean the same rows.

        Args:
            batch: its number.
            staged: what this run of it staged, in the order in which it is to be published.

        Returns:
            What to publish.

        Raises:
            SinkError: what an earlier run wrote is damaged.
            OSError: the file system does not take it.
        """
        path = Path(self.path(batch), _MANIFEST)
        try:
            return _read(path)
        except FileNotFoundError:
            pass
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        body: bytes = msgpack.packb([asdict(one) for one in staged])
        # A name of its own: the process of a driver that was killed may be at the same.
        begun = path.with_name(f"{_MANIFEST}.{uuid.uuid4().hex}")
        with open(begun, "wb") as file:
            file.write(_MAGIC + crc32(body).to_bytes(4, "big") + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(begun, path)
        for directory in (path.parent, self._directory, self._directory.parent):
            sync_directory(str(directory))
        return list(staged)

    def is_settled(self, batch: int) -> bool:
        """Tell whether it is written down what a batch holds: some of it may have been published."""
        return os.path.exists(os.path.join(self.path(batch), _MANIFEST))

    def withdraw(self, batch: int) -> None:
        """Forget what a batch holds, of which nothing was published: what its next run stages counts."""
        remove_file(os.path.join(self.path(batch), _MANIFEST))

    def discard(self, batch: int, staged: Sequence[Staged]) -> None:
        """Remove what was staged in vain, unless it was written down as what is to be published."""
        if not self.is_settled(batch):
            for one in staged:
                if one.name is not None:
                    remove_file(os.path.join(self.path(batch), one.name))

    def forget_before(self, batch: int) -> None:
        """Remove all batches before one: Spark starts it only when it has noted that they are done."""
        if self._directory.is_dir():
            for one in self._directory.iterdir():
                if one.name.isdecimal() and int(one.name) < batch:
                    shutil.rmtree(one, ignore_errors=True)

    def count_dropped(self, batch: int, rows: int) -> int:
        """Write down that the rows of a batch were dropped; gives those of all batches so far.

        Args:
            batch: its number; one that runs again counts once.
            rows: how many.
        """
        path = self._directory / _DROPPED
        counted = json.loads(path.read_bytes()) if path.exists() else {"batch": -1, "rows": 0}
        if counted["batch"] < batch:
            counted = {"batch": batch, "rows": counted["rows"] + rows}
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            begun = path.with_name(f"{_DROPPED}.{uuid.uuid4().hex}")
            begun.write_text(json.dumps(counted), encoding="utf-8")
            os.replace(begun, path)
        total: int = counted["rows"]
        return total

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def remove_stale(self, prefix: str) -> None:
        """Remove what runs left behind that were killed long ago.

        Args:
            prefix: what the names of such runs begin with.
        """
        before = time.time() - _STALE
        for one in self._directory.parent.glob(f"{prefix}*"):
            with suppress(FileNotFoundError):  # another run may be at the same
                if one != self._directory and one.stat().st_mtime < before:
                    shutil.rmtree(one, ignore_errors=True)


def _read(path: Path) -> list[Staged]:
    written = path.read_bytes()
    head, body = written[: len(_MAGIC) + 4], written[len(_MAGIC) + 4 :]
    if not body or head != _MAGIC + crc32(body).to_bytes(4, "big"):
        raise SinkError(
            f"{path} is damaged: which rows of this batch may have been published is not known; remove it to "
            "publish the batch anew, some of it perhaps for the second time"
        )
    return [Staged(**one) for one in msgpack.unpackb(body)]


_log = logger("oz.spark.sink")

_RUN = "run-"
_EACH = "each-"


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Publishes the batches of a streaming query."""

    def __init__(self, settings: SinkSettings, columns: SinkColumns) -> None:
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

    def __init__(self, settings: SinkSettings, columns: SinkColumns) -> None:
        """Prepare it, with options and columns that are checked."""
        self._settings = settings
        self._columns = columns
        # The same object goes to all tasks and to the commit.
        kind = _RUN if settings.batch is None else _EACH
        self._run = kind + (uuid.uuid4().hex if settings.run is None else _digest(settings.run))
        self._batch = settings.batch or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task.

        Raises:
            SinkError: a row cannot be published, unless such rows are skipped.
        """
        return _stage(iterator, self._settings, self._columns, self._run, self._batch)

    def commit(self, messages: Sequence[Staged | None]) -> None:
        """Publish them.

        Raises:
            SinkError: they could not be published as a whole.
        """
        outbox = self._outbox()
        outbox.remove_stale(_RUN)
        # Of a query's batches the last is kept, should it run again.
        outbox.forget_before(self._batch)
        _publish(outbox, self._settings, self._batch, _in_order(messages))
        if self._settings.batch is None:
            outbox.remove()

    def abort(self, messages: Sequence[Staged | None]) -> None:
        """Remove what was staged in vain."""
        self._outbox().discard(self._batch, _in_order(messages))
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
    settings = read_settings(options, is_streaming=True)
    return StreamWriter(settings, find_columns(schema, needs_subject=settings.subject is None))


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
    settings = read_settings(options, is_streaming=False)
    return BatchWriter(settings, find_columns(schema, needs_subject=settings.subject is None))


def _digest(name: str) -> str:
    return blake2b(name.encode(), digest_size=16).hexdigest()


def _in_order(messages: Sequence[Staged | None]) -> list[Staged]:
    return sorted((one for one in messages if one is not None), key=lambda one: one.partition)


def _stage(
    batches: Iterator[pa.RecordBatch], settings: SinkSettings, columns: SinkColumns, query: str, batch: int
) -> Staged:
    reader = RowReader(columns, settings, TaskContext.get().partitionId())
    return stage(reader, batches, Outbox(settings.staging, query).path(batch), query)


def _publish(outbox: Outbox, settings: SinkSettings, batch: int, staged: list[Staged]) -> None:
    started = time.monotonic()
    runs_again = outbox.is_settled(batch)
    chosen = outbox.settle(batch, staged)
    delivery = BatchDelivery(settings, batch, outbox.path(batch))
    try:
        if any(one.rows for one in chosen):
            delivery.publish(chosen)
    except BaseException:
        # An earlier run that was killed may have published some of it.
        if not delivery.may_have_arrived and not runs_again:
            outbox.withdraw(batch)
        raise
    seconds = time.monotonic() - started
    _log.info("batch %d: %d rows published in %.3f s", batch, delivery.published, seconds)
    if delivery.dropped:
        _log.warning(
            "batch %d: %d rows dropped, since nobody listens at %s; %d of this query so far",
            batch,
            delivery.dropped,
            ", ".join(settings.endpoints),
            outbox.count_dropped(batch, delivery.dropped),
        )
    skipped = sum(one.skipped for one in chosen)
    if skipped:
        example = next(one.example for one in chosen if one.example)
        _log.warning("batch %d: %d rows skipped that cannot be published; %s", batch, skipped, example)
