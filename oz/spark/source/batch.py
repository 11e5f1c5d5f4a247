"""Reading a journal once, as it is when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from oz.errors import OptionError
from oz.journal.schema import COLUMNS
from oz.spark.source.fetch import Fetcher
from oz.spark.source.journal import PlannedJournal
from oz.spark.source.options import LATEST, Options
from oz.spark.source.planning import Share
from oz.spark.source.rows import DecodedRows, Malformed
from oz.spark.source.wanted import WantedRecords

_FOR_STREAMS = ("maxRowsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


class JournalReader(DataSourceReader):  # type: ignore[misc]
    """Reads what the journal has when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Look at the journal.

        Args:
            options: the options.
            schema: the columns that Spark expects.

        Raises:
            JournalError: there is none, it is damaged, or of another version.
            OptionError: an option or a column makes no sense for a batch.
        """
        _refuse_what_is_for_streams(options)
        self._options = options
        self._rows = rows_for(schema, options)
        for each in options.each():
            PlannedJournal(each, wanted_of(each))

    def partitions(self) -> Sequence[Share]:
        """Share out what is wanted.

        Raises:
            JournalError: what the options ask for is no longer there, and that is an error.
            OptionError: it is not there yet.
        """
        shares = [share for each in self._options.each() for share in self._shares(each)]
        return shares or [Share("", [], "", self._options.journal)]

    def _shares(self, options: Options) -> list[Share]:
        planned = PlannedJournal(options, wanted_of(options))
        first, end = planned.beginning(), planned.end
        wanted_end = options.end
        if wanted_end is not None:
            if wanted_end > end:
                raise OptionError("endingOffset", wanted_end, f"the journal ends at offset {end}")
            end = wanted_end
        return planned.shares(first, end)

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        """Read one partition; an executor calls it.

        Raises:
            JournalError: something is damaged or missing.
            PatternTimeout: a pattern ran out of time on a subject.
        """
        options = self._options
        fetcher = Fetcher(partition.directory, partition.journal, fails_on_loss=options.fails_on_loss)
        return read_share(partition, fetcher, wanted_of(options), self._rows)


def rows_for(schema: StructType, options: Options) -> DecodedRows:
    """Prepare the rows of a query.

    Raises:
        OptionError: there is no such column, or it has another type.
    """
    return DecodedRows(
        schema,
        options.payload,
        options.headers,
        Malformed(options.mode, options.corrupt),
        names_journal=bool(options.journals),
    )


def wanted_of(options: Options) -> WantedRecords:
    """Return the selection of records that the options of a query make."""
    return WantedRecords(options.patterns(), options.start_ns, options.end_ns, options.gaps)


def read_share(
    share: Share, fetcher: Fetcher, wanted: WantedRecords, rows: DecodedRows
) -> Iterator[pa.RecordBatch]:
    """Read what one partition has, in the order of the offsets."""
    if share.ranges:
        fetcher.compare(share.epoch, share.ranges[-1].end)
    needed = wanted.columns | rows.columns
    columns = [name for name in COLUMNS if name in needed]
    for each in share.ranges:
        for records in fetcher.fetch(each, wanted, columns):
            yield from rows.of(wanted.of(records), str(share.directory))


def _refuse_what_is_for_streams(options: Options) -> None:
    if options.start == LATEST:
        raise OptionError("startingOffset", LATEST, "it is for streams: a batch would be empty")
    for name in _FOR_STREAMS:
        if name in options.written:
            raise OptionError(name, None, "it is for streams")
