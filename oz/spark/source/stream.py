"""Reader of a journal as a stream, from the position in the query's checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from oz.errors import JournalError, OptionError
from oz.logs import logger
from oz.spark.source.batch import read_share, rows_for, wanted_of
from oz.spark.source.fetch import Fetcher
from oz.spark.source.journal import Ahead, JournalProgress, PlannedJournal
from oz.spark.source.options import Options
from oz.spark.source.planning import Share, shared_among
from oz.spark.source.position import Position, are_several_in, positions_as_data, positions_of

_log = logger("oz.spark.source")


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
        if "endingOffset" in options.written:
            raise OptionError("endingOffset", None, "it is for a batch, with spark.read")
        if "endingTime" in options.relative:
            rule = "a stream has it anew at each start: give a time that stays"
            raise OptionError("endingTime", None, rule)
        self._begins_ns = None
        if "startingTime" in options.relative:
            # Said at each start anew; what it says of a query that goes on would be left out in silence.
            self._begins_ns, options = options.start_ns, replace(options, start_ns=None)
        self._options = options
        self._rows = rows_for(schema, options)
        self._due = -math.inf
        self._journals: dict[str, JournalProgress] = {}
        self._is_ending = False

    # planning: beside the driver -------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Say where a new query begins.

        Raises:
            JournalError: there is no journal, or what the options ask for is no longer there.
            OptionError: it is not there yet.
        """
        return self._data({name: self._beginning(one) for name, one in self._opened().items()})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Say how far the next micro-batch goes.

        Raises:
            JournalError: retention has removed what is to be read next, and that is an error; or the
                checkpoint is one of another journal.
        """
        journals = self._opened()
        positions = self._positions(journals, start)
        ahead = {name: one.ahead(positions[name]) for name, one in journals.items()}
        ends = self._ends(journals, ahead, limit)
        return self._data({name: one.go_to(ends[name], ahead[name].lost) for name, one in journals.items()})

    def _ends(
        self, journals: Mapping[str, JournalProgress], ahead: Mapping[str, Ahead], limit: ReadLimit
    ) -> dict[str, int]:
        """Find where a micro-batch ends in each journal; where it begins if it is to wait for more."""
        if isinstance(limit, ReadAllAvailable):
            return {name: each.end for name, each in ahead.items()}
        options, now = self._options, time.monotonic()
        waiting = {
            name: one.journal.count(ahead[name].first, ahead[name].end) for name, one in journals.items()
        }
        if options.least_rows is not None and not self._is_ending:
            if now < self._due and sum(waiting.values()) < options.least_rows:
                return {name: each.first for name, each in ahead.items()}
            self._due = now + options.delay
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else options.most_rows
        most_bytes = (options.most_bytes or math.inf) / max(1, sum(count > 0 for count in waiting.values()))
        ends = {}
        for name, most_rows in shared_among(waiting, rows).items():
            first, end, _ = ahead[name]
            there = journals[name].journal
            ends[name] = there.limited(first, end, most_rows, most_bytes) if most_rows else first
        return ends

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit that the options set; Spark hands over one of them, and all of them hold."""
        options = self._options
        if options.most_rows is not None:
            return ReadMaxRows(options.most_rows)
        if options.most_bytes is not None:
            return ReadMaxBytes(options.most_bytes)
        return ReadAllAvailable() if options.least_rows is None else ReadMinRows(options.least_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the end, which the query is to reach.

        Raises:
            JournalError: there is no journal.
        """
        self._is_ending = True
        for one in self._opened().values():
            one.stop_at_the_end()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Say where the journal ends, and how many records lie between that and the last micro-batch.

        Raises:
            JournalError: the head of the last segment is damaged.
        """
        reports = [one.report() for one in self._journals.values()]
        if not self._options.journals:
            return reports[0] if reports else None
        sums = {name: sum(int(each.get(name, 0)) for each in reports) for name in ("lag", "lost")}
        return {"journals": reports, **sums}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Share]:
        """Share out a micro-batch.

        Raises:
            JournalError: retention has removed some of it, and that is an error; or the checkpoint is one of
                another journal.
        """
        journals = self._opened()
        first, last = self._positions(journals, start), self._positions(journals, end)
        return [share for name, one in journals.items() for share in one.shares(first[name], last[name])]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what is kept is for the journal's own retention to say."""

    def _opened(self) -> dict[str, JournalProgress]:
        """Return the journals by their ids."""
        if not self._journals:
            planned = [PlannedJournal(each, wanted_of(each)) for each in self._options.each()]
            found = [JournalProgress(journal) for journal in planned]
            self._journals = {one.journal.id: one for one in found}
            if len(self._journals) < len(found):
                raise JournalError(
                    "two of the directories hold the same journal; a copy has the id of the first"
                )
        return self._journals

    def _beginning(self, one: JournalProgress) -> Position:
        return one.journal.position(one.journal.beginning(self._begins_ns))

    def _data(self, positions: Mapping[str, Position]) -> dict[str, Any]:
        return positions_as_data(positions, are_several=bool(self._options.journals))

    def _positions(
        self, journals: Mapping[str, JournalProgress], data: dict[str, Any]
    ) -> dict[str, Position]:
        """Read a checkpoint's positions; a journal that it does not know is begun with its first record."""
        if not self._options.journals and not are_several_in(data):
            [(name, one)] = journals.items()
            return {name: Position.from_data(data, one.journal.directory, name)}
        known = positions_of(data)
        if gone := known.keys() - journals.keys():
            said = f"the query has read journal {min(gone)}, and none of the directories has it"
            if self._options.fails_on_loss:
                raise JournalError(f"{said}: give it again, or go on without it with failOnDataLoss=false")
            _log.warning("%s; the query goes on without it", said)
        return {
            name: known[name] if name in known else one.journal.position(one.journal.first)
            for name, one in journals.items()
        }

    # reading: on executors -------------------------------------------------------------------------------

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        """Read one partition.

        Raises:
            JournalError: something is damaged or missing.
            PatternTimeout: a pattern ran out of time on a subject.
        """
        fetcher = Fetcher(partition.directory, partition.journal, fails_on_loss=self._options.fails_on_loss)
        return read_share(partition, fetcher, wanted_of(self._options), self._rows)
