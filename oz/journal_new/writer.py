"""Appending to a journal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

import pyarrow as pa

from oz.journal_new.report import Finding
from oz.message import Message

Appendable = tuple[str | bytes, bytes] | Mapping[str, Any] | Message
"""A record for `Writer.append`: a pair of subject and payload, a mapping of column names to values, or a message."""


class Writer:
    """Appends records to a journal. A journal has one writer at a time; threads may share it.

    Opening a writer repairs what a killed writer left; see `findings`.

    Attributes:
        findings: the faults that opening found and repaired. Each is logged as a warning.
    """

    findings: tuple[Finding, ...]

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        sync: Literal["batch", "none"] | float = "batch",
        segment_bytes: int = 64 << 20,
        segment_seconds: float = 3600.0,
        retain_bytes: int | None = None,
        retain_seconds: float | None = None,
    ) -> None:
        """Open a journal, or create one.

        Args:
            directory: the directory of the journal; created if it is absent.
            sync: when records are durable: "batch": before `append` returns. A number: within this many
                seconds. "none": when the operating system writes them; a power cut may cost acknowledged
                records, a killed process costs none.
            segment_bytes: size in bytes at which the active segment is sealed.
            segment_seconds: age in seconds at which the active segment is sealed.
            retain_bytes: remove the oldest sealed segments while all files together have more bytes; None keeps
                all. The newest sealed segment and the active segment are never removed.
            retain_seconds: remove sealed segments whose last record is older, in seconds; None keeps all.

        Raises:
            JournalError: another writer has the journal, whose process id the message names; or the directory
                cannot be read or written.
            JournalFull: the disk is full.
            TypeError, ValueError: an argument has a wrong type or value.
        """
        raise NotImplementedError

    def append(self, records: Iterable[Appendable] | Mapping[str, Any] | pa.Table | pa.RecordBatch) -> int:
        """Append records: all of them, or none if it raises.

        Args:
            records: one of

                - an iterable of records. A record is a pair (subject, payload), a mapping of column names to
                  values, or an `oz.Message`, such as a `Record` of another journal.
                - a mapping of column names to columns. A column is a list, a range, an Arrow array, or one
                  value (text, bytes, a number or None) for all records. At least one column is a list or an array.
                - a `pyarrow.Table` or `pyarrow.RecordBatch`.

                `subject` and `payload` are required. The other columns of `oz.journal.SCHEMA` are optional, except
                that `offset` is ignored. `time` (a `datetime` or an Arrow timestamp) or `time_ns` (integer
                nanoseconds since 1970) is the time of receipt, by default now. A subject is text or bytes.

        Returns:
            The offset after the last record. With `sync="batch"` the records are durable.

        Raises:
            JournalFull: the disk is full. Nothing of this call is in the journal; free space, then append again.
            JournalError: the operating system failed, or the files were removed. Close the writer and open
                the journal again.
            TypeError, ValueError: a value has a wrong type, or does not fit its column.
            ClosedError: the writer is closed.
            OwnershipError: the process is a fork of the one that opened the writer.
        """
        raise NotImplementedError

    @property
    def end_offset(self) -> int:
        """The offset after the last record, which is the offset of the next."""
        raise NotImplementedError

    @property
    def first_offset(self) -> int:
        """The offset of the first record that retention kept."""
        raise NotImplementedError

    def roll(self) -> None:
        """End the active segment now, and seal it in the background."""
        raise NotImplementedError

    def wait_sealed(self, *, timeout: float | None = 60.0) -> None:
        """Wait until all ended segments are sealed and retention was applied.

        Raises:
            Timeout: `timeout` seconds have passed.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Seal the active segment, and release the lock. A second call does nothing.

        Raises:
            JournalError: the operating system failed to write; the writer is closed all the same.
        """
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
