"""Reading a journal as a stream, from where the query's checkpoint is.

A live query reads a journal that a recorder of its own writes.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
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

from oz.errors import JournalError, OptionError, OzError
from oz.journal.lock import WriterLock
from oz.logs import logger
from oz.services.recorder import Recorder
from oz.spark.source.batch import read_share, rows_for, wanted_of
from oz.spark.source.fetch import Fetcher
from oz.spark.source.journal import Ahead, JournalProgress, PlannedJournal
from oz.spark.source.options import Options
from oz.spark.source.planning import Share, shared_among
from oz.spark.source.position import Position, are_several_in, positions_as_data, positions_of

_log = logger("oz.spark.source")

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
    options.journal.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        self._rows = rows_for(schema, options)
        self._due = -math.inf
        self._live: LiveRecorder | None = None
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
                checkpoint is one of another journal; or the recorder has failed.
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

    def stop(self) -> None:
        """Stop the recorder, if there is one."""
        if self._live is not None:
            self._live.stop()

    def _opened(self) -> dict[str, JournalProgress]:
        """Return the journals by their ids; the first time a recorder is started, if the query has one."""
        if self._live is None and self._options.endpoints:
            self._live = LiveRecorder(self._options)
            self._live.start()
        if self._live is not None:
            self._live.check()
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


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Raises what is wrong with a stream when Spark first asks something.

    PySpark 4.3 hides what is raised any earlier behind an UnboundLocalError of its own.
    """

    def __init__(self, error: OzError) -> None:
        """Remember the error."""
        self._error = error

    def _refuse(self, *_: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = getDefaultReadLimit = partitions = read = _refuse
    prepareForTriggerAvailableNow = _refuse
