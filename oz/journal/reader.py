"""Reading a journal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from oz.errors import JournalError
from oz.journal import files, manifest, own
from oz.journal.archived import Archived
from oz.journal.manifest import Entry
from oz.journal.reading import Reading, end_of, may_hold
from oz.journal.record import Record
from oz.journal.report import Report
from oz.journal.schema import SCHEMA, records_of, with_subject
from oz.journal.selection import Selection, checked_columns
from oz.journal.verify import repair, verify
from oz.subjects.pattern import Pattern


class Journal:
    """A journal to read, while a writer in this or another process may be at work on it.

    Attributes:
        directory: where it is.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Look at a journal; nothing stays open between reads.

        Raises:
            JournalError: there is none, or it is of another version.
        """
        self.directory = Path(directory)
        if not files.is_journal(self.directory):
            raise JournalError(f"{self.directory}: there is no journal here")
        manifest.load(self.directory)

    def read(
        self,
        pattern: str | bytes | Pattern | None = None,
        *,
        start: int | datetime | None = None,
        end: int | datetime | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        gaps: bool = False,
    ) -> Iterator[Record]:
        """Read records in the order of their offsets.

        While it goes on, retention removes nothing from where it is on; close the iterator to end it early.

        Args:
            pattern: only what it matches: a `Pattern`, or text as `oz.compile` reads it, as in `"rv:Foo.*"`.
            start: the first offset, or the earliest time of receipt. What retention has removed is passed
                by. A datetime without a zone is local time.
            end: the offset to stop before, or the time; None reads what is acknowledged now.
            columns: the columns to read, of `oz.journal.COLUMNS`; the others are as in a bare `Record`. A
                subject is always exact: "subject" brings "subject_raw" along.
            follow: at the end wait for more, as `tail -f` does. Ends only at `end`.
            gaps: also what is no message: records of losses, whose pattern may have to do with this one, and
                records of damage. `Record.kind` tells.

        Returns:
            The records.

        Raises:
            JournalError: on the way: something is damaged or missing.
            PatternError: a dialect does not allow the pattern.
            PatternTimeout: on the way: the pattern ran out of time on a subject.
            TypeError: a bound is neither offset nor datetime.
            ValueError: there is no such column, or an offset is negative.
        """
        names = None if columns is None else with_subject(checked_columns(columns))
        batches = self.batches(pattern, start=start, end=end, columns=names, follow=follow, gaps=gaps)
        return (record for batch in batches for record in records_of(batch))

    def batches(
        self,
        pattern: str | bytes | Pattern | None = None,
        *,
        start: int | datetime | None = None,
        end: int | datetime | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        gaps: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Read records as Arrow batches, none of them empty; arguments and errors are those of `read`.

        Returns:
            The batches, with the columns asked for, in that order.
        """
        selection = Selection(pattern, start, end, columns, gaps=gaps)
        if not follow:
            selection.stop_before(self.end_offset)
        return Reading(self.directory, selection, follow=follow).batches()

    def table(
        self,
        pattern: str | bytes | Pattern | None = None,
        *,
        start: int | datetime | None = None,
        end: int | datetime | None = None,
        columns: Sequence[str] | None = None,
        gaps: bool = False,
    ) -> pa.Table:
        """Read records into one Arrow table, which holds them all; arguments and errors are those of `read`.

        Returns:
            The table, with the columns asked for, in that order; it has them also when it has no rows.
        """
        batches = self.batches(pattern, start=start, end=end, columns=columns, gaps=gaps)
        schema = pa.schema([SCHEMA.field(name) for name in checked_columns(columns)])
        return pa.Table.from_batches(batches, schema)

    @property
    def first_offset(self) -> int:
        """The offset of the first record that is kept; the end offset when there is none."""
        return min((segment.base for segment in own.segments(self.directory)), default=self.end_offset)

    @property
    def end_offset(self) -> int:
        """The offset after the last acknowledged record.

        Raises:
            JournalError: the head of the last segment is damaged.
        """
        return end_of(self.directory)

    def segments(
        self, pattern: str | bytes | Pattern | None = None
    ) -> list[tuple[files.Segment, Entry | None]]:
        """List the segments by offset, each with what the manifest says of it; None if it says nothing.

        Args:
            pattern: only those that may hold a message that it matches; None for all. One that grows, or of
                which nothing is known, may hold any.

        Raises:
            JournalError: the journal is of another version.
            PatternError: a dialect does not allow the pattern.
        """
        found = own.sorted_files(self.directory)
        known = found.known
        listed = [
            (segment, known.entry_of(self.directory, segment) if known else None)
            for segment in found.segments
        ]
        if pattern is None:
            return listed
        selection = Selection(pattern, None, None, None, gaps=False)
        return [
            (segment, entry)
            for segment, entry in listed
            if entry is None or known is None or may_hold(self.directory, entry, known.journal, selection)
        ]

    def archive(self, lake: str | os.PathLike[str]) -> Archived:
        """Copy each sealed segment as a Parquet file to a folder, unless it is there.

        A file is there whole or not at all, and is named by its offsets: after an error or a kill the same
        call goes on. What retention removes from the journal stays in the folder.

        Args:
            lake: a folder on any file system that pyarrow reaches, such as `"s3://bucket/lake"` or
                `"file:///srv/lake"`; or a path.

        Returns:
            What was written, and what is missing.

        Raises:
            JournalError: the folder has files of another journal, or of other records; the file system
                refuses something; or the journal is damaged.
        """
        from oz.journal.archive import archive  # it takes Parquet and file systems along

        return archive(self.directory, os.fspath(lake))

    def verify(self) -> Report:
        """Check every byte; changes nothing. A writer may be at work.

        Returns:
            What is not as it should be.

        Raises:
            JournalError: the journal is of another version.
        """
        return verify(self.directory)

    def repair(self) -> Report:
        """Put in order whatever `verify` finds; no writer may be at work.

        What is intact is kept at its offset. Where records are lost, records of kind `DAMAGED` take their
        place; a sealed segment that had to be written anew stays beside it as `….damaged`.

        Returns:
            What was found and done.

        Raises:
            JournalError: a writer is at work, or the journal is of another version.
        """
        return repair(self.directory)
