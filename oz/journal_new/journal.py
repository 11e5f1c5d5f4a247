"""Reading a journal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from oz.journal_new.records import JournalGap, Record
from oz.journal_new.report import Report
from oz.subjects.pattern import Pattern

Bound = int | datetime | str | None
"""An offset; a time; text such as "2026-03-01", "2026-03-01T09:30+01:00", "now" or "-1h"; or None for no bound."""


class Segment(NamedTuple):
    """A segment of a journal.

    Attributes:
        name: the file name.
        first: the first offset.
        end: the offset after the last; of the active segment, after the last acknowledged record.
        bytes: the size of the file.
        is_sealed: whether the file is a Parquet file.
    """

    name: str
    first: int
    end: int
    bytes: int
    is_sealed: bool


class Journal:
    """A journal to read, while a writer in this or another process may append to it.

    Attributes:
        directory: the directory, or the URI.
    """

    directory: str

    def __init__(self, directory: str | os.PathLike[str], *, codec: Any = None) -> None:
        """Open a journal. No file stays open between reads.

        Args:
            directory: the directory; or a URI of `pyarrow.fs`, such as "s3://bucket/journal", with sealed
                files. Through a URI the sealed part is readable.
            codec: decodes the payloads of `read`, as in `oz.Subscriber`: an object with `encode` and `decode`;
                None leaves bytes.

        Raises:
            JournalError: the directory is no journal.
        """
        raise NotImplementedError

    def read(
        self,
        pattern: str | bytes | Pattern | Sequence[str | bytes | Pattern] | None = None,
        *,
        start: Bound = None,
        end: Bound = None,
        follow: bool = False,
    ) -> Iterator[Record | JournalGap]:
        """Read records and gaps in the order of offsets.

        Args:
            pattern: read only the messages whose subject matches; a list of patterns: at least one of them.
                Text as in `oz.compile`. None reads all.
            start: the first offset, or the earliest time of receipt. Text without a zone is local time.
            end: the offset, or the time, before which to stop; by default the acknowledged end at this moment.
            follow: wait at the end for further records, until `end` is reached. Without `end` never ends.

        Yields:
            `Record` objects, which are `oz.Message` objects with an `offset`, and `JournalGap` objects for
            missing offsets and for gap records whose pattern overlaps with `pattern`.

        Raises:
            JournalError: a file is damaged; a `DamageError` names the file and the offsets.
            PatternError, ValueError, TypeError: an argument has a wrong type or value.
            PatternTimeout: a pattern exceeded its time limit on a subject.
        """
        raise NotImplementedError

    def batches(
        self,
        pattern: str | bytes | Pattern | Sequence[str | bytes | Pattern] | None = None,
        *,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        gaps: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Read records as Arrow batches, none of them empty. Arguments and errors as in `read`.

        Args:
            pattern: as in `read`.
            start: as in `read`.
            end: as in `read`.
            follow: as in `read`.
            columns: names of columns of `oz.journal.SCHEMA`; None reads all.
            gaps: yield gap records too, with kind 1. Missing offsets are not reported.

        Yields:
            Batches with `columns` in this order.
        """
        raise NotImplementedError

    def table(
        self,
        pattern: str | bytes | Pattern | Sequence[str | bytes | Pattern] | None = None,
        *,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        gaps: bool = False,
    ) -> pa.Table:
        """Return the records as one Arrow table in memory. Arguments and errors as in `batches`."""
        raise NotImplementedError

    def to_pandas(
        self,
        pattern: str | bytes | Pattern | Sequence[str | bytes | Pattern] | None = None,
        *,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        gaps: bool = False,
    ) -> Any:
        """Return the records as a `pandas.DataFrame`. Arguments and errors as in `batches`."""
        raise NotImplementedError

    @property
    def first_offset(self) -> int:
        """The offset of the first record that is kept; the end offset if there is none."""
        raise NotImplementedError

    @property
    def end_offset(self) -> int:
        """The offset after the last acknowledged record."""
        raise NotImplementedError

    @property
    def segments(self) -> list[Segment]:
        """The segments, by offset."""
        raise NotImplementedError

    def verify(self) -> Report:
        """Check every byte; change nothing. A writer may append meanwhile."""
        raise NotImplementedError

    def repair(self) -> Report:
        """Repair the faults that `verify` finds. Intact records keep their offsets; lost records become gaps.

        A damaged file stays in the directory with the suffix ".damaged".

        Raises:
            JournalError: a writer has the journal.
        """
        raise NotImplementedError
