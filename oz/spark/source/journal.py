"""A journal as the driver's side sees it while a query is planned, and how far a stream has read it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oz.errors import JournalError, OptionError
from oz.journal import files, manifest, own
from oz.journal.epochs import history_of
from oz.journal.manifest import Entry, Manifest
from oz.journal.ranges import Span, identity_of, read_range, spans_of
from oz.journal.reading import end_of, subjects_of, why_renumbered
from oz.journal.schema import whole_number
from oz.logs import logger
from oz.spark.source.options import LATEST, Options
from oz.spark.source.planning import Share, share_out
from oz.spark.source.position import Position
from oz.spark.source.wanted import WantedRecords

_log = logger("oz.spark.source")


class PlannedJournal:
    """A journal, and what a query wants of it.

    Attributes:
        directory: where it is.
        id: its id.
    """

    def __init__(self, options: Options, wanted: WantedRecords) -> None:
        """Look at it.

        Raises:
            JournalError: there is none, it is damaged, or of another version.
        """
        self.directory = options.journal
        self._options = options
        self._wanted = wanted
        self._seen: tuple[int, int] | None = None
        self._manifest: Manifest | None = None
        self._verdicts: dict[Entry, bool] = {}
        self.id = found_at(self.directory)

    @property
    def end(self) -> int:
        """The offset after the last acknowledged record.

        Raises:
            JournalError: the head of the last segment is damaged.
        """
        return end_of(self.directory)

    @property
    def first(self) -> int:
        """The offset of the first record that is kept; the end when there is none."""
        return min((segment.base for segment in own.segments(self.directory)), default=self.end)

    def beginning(self, since_ns: int | None = None) -> int:
        """The offset where a new query begins, by the options.

        Args:
            since_ns: the earliest time, in nanoseconds since 1970, where no other record is to be begun with.

        Raises:
            JournalError: what they ask for has been removed by retention, and that is an error.
            OptionError: it is after the end.
        """
        start, end = self._options.start, self.end
        if since_ns is not None and start != LATEST:
            start = max(self.since(since_ns), start if isinstance(start, int) else 0)
        if isinstance(start, str):
            return end if start == LATEST else self.first
        if start > end:
            raise OptionError("startingOffset", start, f"the journal ends at offset {end}")
        self.pass_by(start)
        return max(start, self.first)

    def going_on(self, position: Position) -> int:
        """Tell at which offset a query goes on that has read up to a position.

        It is the position's, unless the records before it are no longer those that were read there: then it
        is where they differ, or the beginning when nobody can tell.

        Raises:
            JournalError: it is another, and that is an error.
        """
        history, end = history_of(self.directory, self.id), self.end
        agreed = history.agreed(position.epoch, position.offset)
        if agreed == position.offset and agreed <= end:
            return agreed
        if agreed == position.offset:
            why = (
                f"the query has read up to offset {agreed}, and the journal ends at {end}: it has lost its "
                "end, or is an older copy, and what is appended now has the offsets of what was read"
            )
        else:
            why = why_renumbered(history, position.epoch, position.offset)
        begins = self.first if agreed is None else min(agreed, end)
        if self._options.fails_on_loss:
            raise JournalError(
                f"{self.directory}: {why}. Begin anew with another checkpointLocation; or option "
                f"failOnDataLoss=false goes on at offset {begins}"
            )
        _log.warning("%s: %s; the query goes on at offset %d", self.directory, why, begins)
        return begins

    def pass_by(self, offset: int) -> int:
        """Tell how many records from an offset on are no longer there.

        Raises:
            JournalError: there are some, and that is an error.
        """
        where, first = self.directory, self.first
        lost = max(0, first - offset)
        if lost and self._options.fails_on_loss:
            raise JournalError(
                f"{where}: the query goes on at offset {offset}, and retention has removed all before "
                f"{first}: {lost} records are lost to it. Keep more with retain_bytes or retain_seconds; "
                "option failOnDataLoss=false passes them by, and counts them"
            )
        if lost:
            _log.warning(
                "%s: retention has removed %d records, from offset %d on, before they were read",
                where,
                lost,
                offset,
            )
        return lost

    def limited(self, first: int, end: int, most_rows: float = math.inf, most_bytes: float = math.inf) -> int:
        """Find where to stop so that at most so much is looked at; at least one record is.

        Args:
            first: the first offset.
            end: the offset to stop before, whatever there is.
            most_rows: records at most.
            most_bytes: bytes at most, as they are in the journal's files.
        """
        at = first
        for span in self._spans(first, end):
            fitting = min(most_rows, most_bytes * span.rows / span.bytes if span.bytes else math.inf)
            if span.rows > fitting:
                return max(span.first + int(fitting), first + 1)
            most_rows -= span.rows
            most_bytes -= span.bytes
            at = span.end
            if most_rows <= 0 or most_bytes <= 0:
                return at
        return end

    def count(self, first: int, end: int) -> int:
        """Count the records of a range, those of segments that hold nothing wanted apart."""
        return sum(span.rows for span in self._spans(first, end))

    def since(self, time_ns: int) -> int:
        """Find the first record that was received at a time or later; the end when there is none.

        Args:
            time_ns: nanoseconds since 1970.
        """
        end = self.end
        for span in spans_of(self.directory, self._known(), self.first, end):
            if span.entry is not None and span.entry.max_time_ns < time_ns:
                continue
            for table in read_range(
                self.directory,
                span.first,
                span.end,
                ["offset", "time_ns"],
                lambda stamp: stamp.max_ns >= time_ns,
            ):
                found = table["offset"].filter(
                    pc.greater_equal(table["time_ns"], whole_number(time_ns, pa.int64()))
                )
                if len(found):
                    return int(found[0].as_py())
        return end

    def shares(self, first: int, end: int) -> list[Share]:
        """Share out a range among partitions; what holds nothing wanted is in none of them.

        Raises:
            JournalError: retention has come in between, and that is an error.
        """
        options = self._options
        spans = list(self._spans(first, end))
        if first < end:
            self.pass_by(first)  # what was there before the segments were listed may be missing in the list
        shares = share_out(spans, options.partitions, options.partition_rows, options.tasks)
        history = history_of(self.directory, self.id)
        return [
            Share(self.id, ranges, history.epoch_before(ranges[-1].end), self.directory) for ranges in shares
        ]

    def _spans(self, first: int, end: int) -> Iterator[Span]:
        spans = spans_of(self.directory, self._known(), first, end)
        return (span for span in spans if self._wanted.may_be_in(span.entry) and self._may_hold(span.entry))

    def _may_hold(self, entry: Entry | None) -> bool:
        """Ask the subjects that are in the segment's file."""
        if entry is None or entry.subjects.complete or not self._wanted.has_subjects:
            return True
        if entry not in self._verdicts:
            subjects = subjects_of(self.directory, entry, self.id)
            self._verdicts[entry] = subjects is None or self._wanted.may_be_among(entry, subjects)
        return self._verdicts[entry]

    def _known(self) -> Manifest | None:
        """The manifest; read again when it has changed."""
        try:
            status = (self.directory / files.MANIFEST).stat()
        except FileNotFoundError:
            return None
        seen = status.st_mtime_ns, status.st_ino
        if seen != self._seen:
            self._manifest = manifest.load(self.directory)
            self._seen = seen
        return self._manifest

    def position(self, offset: int, lost: int = 0) -> Position:
        """Make a position in it."""
        return Position(self.id, offset, lost, history_of(self.directory, self.id).epoch_before(offset))


def found_at(directory: Path) -> str:
    """Return the id of a journal.

    Raises:
        JournalError: there is none, it is damaged, or of another version.
    """
    try:
        return identity_of(directory)
    except JournalError as error:
        if files.is_journal(directory):
            raise
        raise JournalError(f"{error}; `oz record` or oz.journal.Writer makes one") from None


class Ahead(NamedTuple):
    """The records that lie before a stream in a journal.

    Attributes:
        first: the offset to begin with.
        end: the offset to stop before, without a limit.
        lost: how many records are lost to the query, in all.
    """

    first: int
    end: int
    lost: int


class JournalProgress:
    """Plans what a stream reads of one journal.

    Attributes:
        journal: the journal.
        reached: how far the last micro-batch went; None before there is one.
    """

    def __init__(self, journal: PlannedJournal) -> None:
        """Begin before the first micro-batch.

        Args:
            journal: the journal.
        """
        self.journal = journal
        self.reached: Position | None = None
        self._target: int | None = None
        self._late = 0

    def stop_at_the_end(self) -> None:
        """Note the end, which the query is to reach and not to pass."""
        self._target = self.journal.end

    def ahead(self, position: Position) -> Ahead:
        """Tell what lies before a position.

        Raises:
            JournalError: retention has removed what is to be read next, or other records have the offsets
                now, and that is an error.
        """
        first = self.journal.going_on(position)
        if self._target is None:
            lost = self.journal.pass_by(first)
            end = self.journal.end
        else:
            # Who followed a retention that is quicker than the query would never come to an end.
            end = max(first, self._target)
            lost = min(self.journal.pass_by(first), end - first) if first < end else 0
        return Ahead(first + lost, max(first + lost, end), position.lost + lost + self._late)

    def go_to(self, end: int, lost: int) -> Position:
        """Note where a micro-batch ends."""
        self.reached = self.journal.position(end, lost)
        self._late = 0
        return self.reached

    def shares(self, first: Position, last: Position) -> Sequence[Share]:
        """Share out what a micro-batch has of it.

        Raises:
            JournalError: retention has removed some of it, and that is an error.
        """
        begins, ends = self.journal.going_on(first), self.journal.going_on(last)
        gone = self.journal.pass_by(begins)
        # Of a batch that was planned before, and whose records have gone since.
        self._late += max(0, min(gone, ends - begins) - (last.lost - first.lost))
        self.reached = last
        return self.journal.shares(min(begins + gone, ends), ends)

    def report(self) -> dict[str, str | int]:
        """Say where it ends, and how many records lie between that and the last micro-batch."""
        end, reached = self.journal.end, self.reached
        lag = {} if reached is None else {"lag": max(0, end - reached.offset), "lost": reached.lost}
        return {"journal": self.journal.id, "offset": end, **lag}
