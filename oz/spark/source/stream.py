"""Reading a journal as a stream, from where the query's checkpoint is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from oz.errors import OptionError
from oz.spark.source.batch import read_share, wanted_of
from oz.spark.source.fetch import Fetcher
from oz.spark.source.journal import PlannedJournal
from oz.spark.source.live import LiveRecorder
from oz.spark.source.options import Options
from oz.spark.source.planning import Share
from oz.spark.source.position import Position
from oz.spark.source.rows import Rows


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads a journal as it grows.

    One object lives beside the driver for as long as the query runs, and plans; its copies read on executors.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        """Prepare; nothing is opened or started before Spark asks for an offset.

        Args:
            options: the options.
            schema: the columns that Spark expects.

        Raises:
            OptionError: an option or a column makes no sense for a stream.
        """
        for name in ("endingOffset", "pushFilters"):
            if name in options.written:
                raise OptionError(name, None, "it is for a batch, with spark.read")
        self._options = options
        self._rows = Rows(schema, options.payload)
        self._live: LiveRecorder | None = None
        self._journal: PlannedJournal | None = None
        self._target: int | None = None
        self._planned: Position | None = None
        self._late = 0

    # planning: beside the driver -------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Say where a new query begins.

        Raises:
            JournalError: there is no journal, or what the options ask for is no longer there.
            OptionError: it is not there yet.
        """
        journal = self._opened()
        return journal.position(journal.beginning()).as_data()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Say how far the next micro-batch goes.

        Raises:
            JournalError: retention has removed what is to be read next, and that is an error; or the
                checkpoint is one of another journal; or the recorder has failed.
        """
        journal = self._opened()
        position = self._position(journal, start)
        first = journal.going_on(position)
        lost = journal.pass_by(first)
        first += lost
        end = max(first, journal.end if self._target is None else self._target)
        if isinstance(limit, ReadMaxRows):
            end = journal.limited(first, end, limit.max_rows)
        self._planned = journal.position(end, position.lost + lost + self._late)
        self._late = 0
        return self._planned.as_data()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set."""
        most = self._options.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the end, which the query is to reach.

        Raises:
            JournalError: there is no journal.
        """
        self._target = self._opened().end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Say where the journal ends, and how many records lie between that and the last micro-batch.

        Raises:
            JournalError: the head of the last segment is damaged.
        """
        if self._journal is None:
            return None
        end, reached = self._journal.end, self._planned
        lag = {} if reached is None else {"lag": max(0, end - reached.offset), "lost": reached.lost}
        return {"journal": self._journal.id, "offset": end, **lag}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Share]:
        """Share out a micro-batch.

        Raises:
            JournalError: retention has removed some of it, and that is an error; or the checkpoint is one of
                another journal.
        """
        journal = self._opened()
        first, last = self._position(journal, start), self._position(journal, end)
        begins, ends = journal.going_on(first), journal.going_on(last)
        gone = journal.pass_by(begins)
        # Of a batch that was planned before, and whose records have gone since.
        self._late += max(0, min(gone, ends - begins) - (last.lost - first.lost))
        self._planned = last
        return journal.shares(begins + gone, ends)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what is kept is for the journal's own retention to say."""

    def stop(self) -> None:
        """Stop the recorder, if there is one."""
        if self._live is not None:
            self._live.stop()

    def _opened(self) -> PlannedJournal:
        """Return the journal; the first time a recorder is started, if the query has one."""
        if self._live is None and self._options.endpoints:
            self._live = LiveRecorder(self._options)
            self._live.start()
        if self._live is not None:
            self._live.check()
        if self._journal is None:
            self._journal = PlannedJournal(self._options, wanted_of(self._options))
        return self._journal

    def _position(self, journal: PlannedJournal, data: dict[str, Any]) -> Position:
        return Position.from_data(data, self._options.journal, journal.id)

    # reading: on executors -------------------------------------------------------------------------------

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        """Read one partition.

        Raises:
            JournalError: something is damaged or missing.
            PatternTimeout: a pattern ran out of time on a subject.
        """
        fetcher = Fetcher(self._options.journal, partition.journal, fails_on_loss=self._options.fails_on_loss)
        return read_share(partition, fetcher, wanted_of(self._options), self._rows)
