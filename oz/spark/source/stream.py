"""Reading a journal as a stream, from where the query's checkpoint is.

A live query reads a journal that a recorder of its own writes.
"""

from __future__ import annotations

import logging
import math
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

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
from oz.journal.lock import WriterLock
from oz.services.recorder import Recorder
from oz.spark.source.batch import read_share, wanted_of
from oz.spark.source.fetch import Fetcher
from oz.spark.source.journal import PlannedJournal
from oz.spark.source.options import Options
from oz.spark.source.planning import Share
from oz.spark.source.position import Position
from oz.spark.source.rows import DecodedRows, Malformed

_log = logging.getLogger("oz.spark.source")

_TAKEOVER = 20.0  # seconds that the process of a query which ended may take to end too
_LOOK = 0.05
_START = 60.0
_STOP = 30.0


class LiveRecorder:
    """Records what a query asks for, in a thread, for as long as the process of its planning lives."""

    def __init__(self, options: Options) -> None:
        """Prepare.

        Args:
            options: the query's, with endpoints.
        """
        self._options = options
        self._recorder: Recorder | None = None
        self._failure: BaseException | None = None
        self._is_settled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oz-spark-recorder", daemon=True)

    def start(self) -> None:
        """Subscribe, and begin to record.

        Raises:
            JournalError: somebody else writes the journal, or it cannot be written.
            PatternError, ValueError, zmq.ZMQError: as `oz.services.recorder.Recorder`.
        """
        if self._options.is_private:
            _log.warning(
                "no option journal: what is received goes to %s, which is removed when the query ends; it "
                "cannot go on from its checkpoint after that",
                self._options.journal,
            )
        _await_lock(self._options)
        self._thread.start()
        if not self._is_settled.wait(_START):
            raise JournalError(f"{self._options.journal}: opening the journal takes more than {_START:g} s")
        self.check()

    def _run(self) -> None:
        # The socket belongs to the thread that makes it.
        try:
            with _recorder_of(self._options) as recorder:
                self._recorder = recorder
                self._is_settled.set()
                recorder.run()
        except BaseException as error:
            self._failure = error
        finally:
            self._is_settled.set()

    def check(self) -> None:
        """Raise what ended the recorder, if anything did."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End it; a private journal is removed."""
        if self._recorder is not None:
            self._recorder.stop()
            self._thread.join(_STOP)
        if self._options.is_private:
            shutil.rmtree(self._options.journal, ignore_errors=True)


def _recorder_of(options: Options) -> Recorder:
    writer: dict[str, Any] = {
        "retain_bytes": options.retain_bytes,
        "retain_seconds": options.retain_seconds,
    }
    return Recorder(
        options.journal,
        options.patterns() or ["zmq:"],
        connect=list(options.endpoints),
        filtering=cast(Literal["prefix", "publisher"], options.filtering),
        subscriber={"dedupe": True} if options.dedupe else None,
        **writer,
    )


def _await_lock(options: Options) -> None:
    """Wait until the process of an earlier run of the query is gone."""
    options.journal.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + _TAKEOVER
    while True:
        try:
            WriterLock(options.journal).release()
        except JournalError as error:
            if time.monotonic() >= ends:
                raise JournalError(
                    f"{error}: give the option endpoint to one query; others read its journal without it"
                ) from None
            time.sleep(_LOOK)
        else:
            return


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
        if "endingTime" in options.relative:
            rule = "a stream has it anew at each start: give a time that stays"
            raise OptionError("endingTime", None, rule)
        self._begins_ns = None
        if "startingTime" in options.relative:
            # Said at each start anew; what it says of a query that goes on would be left out in silence.
            self._begins_ns, options = options.start_ns, replace(options, start_ns=None)
        self._options = options
        self._rows = DecodedRows(
            schema, options.payload, options.headers, Malformed(options.mode, options.corrupt)
        )
        self._due = -math.inf
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
        return journal.position(journal.beginning(self._begins_ns)).as_data()

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
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(journal, first, end, limit)
        self._planned = journal.position(end, position.lost + lost + self._late)
        self._late = 0
        return self._planned.as_data()

    def _limited(self, journal: PlannedJournal, first: int, end: int, limit: ReadLimit) -> int:
        """Find where a micro-batch ends; where it begins if it is to wait for more."""
        options, now = self._options, time.monotonic()
        if options.least_rows is not None and self._target is None:
            if now < self._due and journal.count(first, end) < options.least_rows:
                return first
            self._due = now + options.delay
        most_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else options.most_rows
        return journal.limited(first, end, most_rows or math.inf, options.most_bytes or math.inf)

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
