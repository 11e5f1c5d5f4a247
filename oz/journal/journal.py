"""The class `Journal`, with which programs read a journal. The module `oz.journal.reading` reads the files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from oz.errors import JournalError
from oz.journal import verification
from oz.journal.format import SCHEMA
from oz.journal.reading import Reading, acknowledged_mark, end_offset
from oz.journal.records import JournalGap, Record, read_records
from oz.journal.report import Report
from oz.journal.sealed import plain_batches
from oz.journal.selection import Bound, Patterns, Selection, checked_columns
from oz.journal.store import LocalStore, open_store
from oz.wire.codec import Codec, find_codec


class Segment(NamedTuple):
    """A segment of a journal.

    Attributes:
        name: the file name.
        first: the first offset of the segment.
        end: the offset after the last record. In the active segment: after the last acknowledged record.
        bytes: the size of the file in bytes.
        is_sealed: whether the file is a Parquet file.
    """

    name: str
    first: int
    end: int
    bytes: int
    is_sealed: bool


class Journal:
    """Reader of a journal. A writer in this or another process may append to the journal at the same time.

    Attributes:
        directory: the directory or the URI of the journal.
    """

    directory: str

    def __init__(self, directory: str | os.PathLike[str], *, codec: str | Codec | None = None) -> None:
        """Open a journal. No file stays open between reads.

        Args:
            directory: the directory of the journal, or a URI of `pyarrow.fs`, such as "s3://bucket/journal". At a URI,
                only sealed segments are read.
            codec: codec with which `read` decodes payloads: "msgpack", "json", or an object with `encode` and
                `decode`, as in `oz.Subscriber`. With None, payloads are bytes.

        Raises:
            JournalError: the directory contains no journal, or cannot be read.
            ConfigurationError: no codec has this name.
        """
        self.directory = os.fspath(directory)
        self._store = open_store(directory)
        self._codec = find_codec(codec)

    def read(
        self,
        pattern: Patterns = None,
        *,
        start: Bound = None,
        end: Bound = None,
        follow: bool = False,
    ) -> Iterator[Record | JournalGap]:
        """Read records and gaps in the order of offsets.

        Args:
            pattern: read only the messages whose subject matches this pattern, or at least one pattern of a list.
                A text is parsed as in `oz.compile`. None reads all messages.
            start: the first offset, or the earliest time of receipt: a `datetime`, or text such as "2026-03-01" or
                "-1h". A time without a zone is local time. None begins with the first record.
            end: the offset or the time before which to stop. None stops after the last record that is acknowledged
                when the method is called.
            follow: whether to wait for further records at the end of the journal, until `end` is reached. Without
                `end`, the iterator never ends.

        Yields:
            A `Record` for each message that matches, and a `JournalGap` for missing offsets and for each gap record.
            Gaps are yielded with any `pattern`, because the pattern may match the lost messages.

        Raises:
            JournalError: the codec cannot decode a payload.
            DamageError: a file is damaged. The error names the file and the offsets.
            PatternError, ValueError, TypeError: an argument has a wrong type or value.
            PatternTimeout: a pattern exceeded its time limit on a subject.
        """
        selection = Selection(pattern, start, end, None, gaps=True)
        return self._read(selection, follow)

    def _read(self, selection: Selection, follow: bool) -> Iterator[Record | JournalGap]:
        decode = None if self._codec is None else self._codec.decode
        for part in Reading(self._store, selection, follow=follow).parts():
            if isinstance(part, JournalGap):
                yield part
            else:
                yield from read_records(part, decode)

    def batches(
        self,
        pattern: Patterns = None,
        *,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        gaps: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Read records as Arrow batches, which are never empty. The errors are those of `read`.

        Args:
            pattern: pattern of the subjects, as in `read`.
            start: first offset or earliest time, as in `read`.
            end: offset or time before which to stop, as in `read`.
            follow: whether to wait for further records, as in `read`.
            columns: names of columns of `oz.journal.SCHEMA`; None reads all columns.
            gaps: whether to yield gap records too, in which the column `kind` is 1. Missing offsets are not reported.

        Yields:
            Batches with the columns in the order of `columns`.
        """
        return self._batches(Selection(pattern, start, end, columns, gaps=gaps), follow)

    def _batches(self, selection: Selection, follow: bool) -> Iterator[pa.RecordBatch]:
        for part in Reading(self._store, selection, follow=follow).parts():
            if isinstance(part, pa.Table):
                yield from plain_batches(part)

    def table(
        self,
        pattern: Patterns = None,
        *,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        gaps: bool = False,
    ) -> pa.Table:
        """Return the records as one Arrow table in memory. The arguments and errors are those of `batches`."""
        batches = self.batches(pattern, start=start, end=end, columns=columns, gaps=gaps)
        schema = pa.schema([SCHEMA.field(name) for name in checked_columns(columns)])
        return pa.Table.from_batches(batches, schema)

    def to_pandas(
        self,
        pattern: Patterns = None,
        *,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        gaps: bool = False,
    ) -> Any:
        """Return the records as a `pandas.DataFrame`. The arguments and errors are those of `batches`."""
        return self.table(pattern, start=start, end=end, columns=columns, gaps=gaps).to_pandas()

    @property
    def first_offset(self) -> int:
        """The offset of the first record in the journal; the end offset if the journal has no record."""
        files = self._store.segments()
        return files[0].first if files else self.end_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last acknowledged record."""
        return end_offset(self._store)

    @property
    def segments(self) -> list[Segment]:
        """The segments, sorted by offset."""
        mark, files = acknowledged_mark(self._store), self._store.segments()
        end = end_offset(self._store)
        found = []
        for at, file in enumerate(files):
            following = files[at + 1].first if at + 1 < len(files) else end
            try:
                size = self._store.size(file.name)
            except FileNotFoundError:  # the file was sealed or removed after it was listed
                continue
            reached = mark.end if mark is not None and mark.segment == file.segment else following
            found.append(Segment(file.name, file.first, file.end or reached, size, file.is_sealed))
        return found

    def verify(self, *, progress: Callable[[int, int], None] | None = None) -> Report:
        """Check every byte of the journal, and change nothing. A writer may append at the same time.

        Args:
            progress: function that is called after each file, with the number of checked bytes and the total number.

        Returns:
            The faults, each with its file and its offsets, and the amount of checked data.
        """
        return verification.verify(self._store, progress)

    def repair(self, *, progress: Callable[[int, int], None] | None = None) -> Report:
        """Repair the faults that `verify` finds. Intact records keep their offsets, and lost records become gaps.

        A damaged file stays in the directory with the suffix ".damaged".

        Args:
            progress: function that is called after each file, as in `verify`.

        Returns:
            The faults that were found.

        Raises:
            JournalError: a writer has opened the journal, the directory holds files of two journals, the journal is
                remote, or the operating system failed.
        """
        if not isinstance(self._store, LocalStore):
            raise JournalError(f"{self.directory}: a remote journal is read only; repair the original")
        return verification.repair(self._store.directory, progress)
