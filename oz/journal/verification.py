"""`Journal.verify` and `Journal.repair`.

`verify` reads every byte of every file, and compares the offsets and the ids of successive segments. Missing offsets
are a fault if the journal does not record that they are missing. A journal records missing offsets of a segment in
`oz.missing` of the footer. It records missing offsets between two segments in `oz.previous`, which then has the id of
the segment before the gap. Missing offsets after the last segment are recorded in `first` and `end` of the
acknowledged mark.

`repair` keeps each intact batch and row group at its offset. It writes a damaged file again without the damaged
parts, and keeps the old file with the suffix `.damaged`. Then it records the missing offsets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from oz.errors import JournalError
from oz.journal.format import (
    COLUMNS,
    MARK,
    DamageError,
    Head,
    Mark,
    SegmentFile,
    sync_directory,
)
from oz.journal.lock import WriterLock
from oz.journal.reading import acknowledged_mark
from oz.journal.recovery import recover, seal, set_aside
from oz.journal.report import Finding, Report
from oz.journal.sealed import SealedFile, plain_batches, read_footer, write_sealed
from oz.journal.store import LocalStore, Store
from oz.journal.stream import END, ActiveStream, Scan

Progress = Callable[[int, int], None]
"""Function that is called with the number of checked bytes and the total number of bytes."""


class _FileResult(NamedTuple):
    """A checked file: its identity, the offset after its last record, and the number of its intact records."""

    head: Head | None
    end: int
    records: int


def verify(store: Store, progress: Progress | None = None) -> Report:
    """Check every byte of a journal; see `Journal.verify`."""
    return _Verification(store, progress).report()


class _Verification:
    def __init__(self, store: Store, progress: Progress | None) -> None:
        self._store, self._progress = store, progress
        self._findings: list[Finding] = []
        self._records = self._bytes = self._segments = 0

    def report(self) -> Report:
        mark, files = acknowledged_mark(self._store), self._store.segments()
        if mark is None and isinstance(self._store, LocalStore) and (self._store.directory / MARK).exists():
            self._findings.append(Finding(MARK, "its checksum is wrong"))
        before: _FileResult | None = None
        while files:
            file = files.pop(0)
            try:
                size = self._store.size(file.name)
                total = self._bytes + size + sum(map(self._size, files)) if self._progress else 0
                following = files[0].first if files else max(mark.end, file.first) if mark else None
                checked = self._sealed(file) if file.is_sealed else self._stream(file, mark, following)
            except FileNotFoundError:  # the file was sealed or removed after it was listed
                reached = before.end if before is not None else 0
                mark = acknowledged_mark(self._store)
                files = [
                    segment
                    for segment in self._store.segments()
                    if (segment.end or segment.first + 1) > reached
                ]
                continue
            self._compare(before, checked, file)
            before = checked
            self._segments, self._bytes = self._segments + 1, self._bytes + size
            self._records += checked.records
            if self._progress is not None:
                self._progress(self._bytes, total)
        reached = before.end if before is not None else 0
        if mark is not None:
            self._compare_mark(mark, reached)
        findings = sorted(self._findings, key=lambda item: (item.first is None, item.first or 0))
        return Report(tuple(findings), self._segments, self._records, self._bytes)

    def _size(self, file: SegmentFile) -> int:
        try:
            return self._store.size(file.name)
        except FileNotFoundError:
            return 0

    def _add(self, error: DamageError, file: SegmentFile) -> None:
        self._findings.append(Finding(file.name, error.reason, error.first, error.end, error.position))

    def _compare(self, before: _FileResult | None, checked: _FileResult, file: SegmentFile) -> None:
        if before is None:
            return
        if file.first < before.end:
            reason = "its records overlap those of the segment before"
            self._findings.append(Finding(file.name, reason, file.first, before.end))
        if before.head is None or checked.head is None:
            return
        if checked.head.journal != before.head.journal:
            self._findings.append(Finding(file.name, "it belongs to another journal"))
        elif checked.head.previous != before.head.segment:
            first, end = min(before.end, file.first), file.first
            self._findings.append(Finding("", "a segment is missing", first, end))

    def _compare_mark(self, mark: Mark, reached: int) -> None:
        # Without an active segment, the mark records that the offsets from `first` up to `end` are missing.
        expected = mark.end if mark.segment else mark.first
        is_reported = any(finding.end == mark.end for finding in self._findings)
        if expected > reached and not is_reported:
            self._findings.append(Finding("", "acknowledged records are missing", reached, expected))

    def _sealed(self, file: SegmentFile) -> _FileResult:
        assert file.end is not None
        try:
            opened = SealedFile(self._store, file, is_cached=False)
        except DamageError as error:
            self._add(error, file)
            return _FileResult(None, file.end, 0)
        records = 0
        try:
            groups = opened.footer.groups
            opened.check_magic()
            for group in groups:
                try:
                    opened.check(group)
                    records += group.rows
                except DamageError as error:
                    self._add(error, file)
        except DamageError as error:
            self._add(error, file)
        finally:
            opened.close()
        return _FileResult(opened.footer.head, file.end, records)

    def _stream(self, file: SegmentFile, mark: Mark | None, following: int | None) -> _FileResult:
        assert isinstance(self._store, LocalStore)
        is_named = mark is not None and mark.segment == file.segment
        is_empty = mark is not None and not is_named and mark.end <= file.first
        try:
            stream = ActiveStream(self._store.directory / file.name, file.segment)
        except DamageError as error:
            if not is_empty:
                self._findings.append(Finding(file.name, error.reason, file.first, following, 0))
            return _FileResult(None, following or file.first, 0)
        try:
            limit = mark.size if mark is not None and is_named else stream.size
            scan = Scan(stream, stream.begin if is_empty else limit)
            records = sum(batch.num_rows for batch in scan)
            for hole in scan.holes:
                self._findings.append(Finding(file.name, "it is damaged", hole.first, hole.end, hole.place))
            if not scan.has_head:
                self._findings.append(Finding(file.name, "the head of the stream is damaged", position=0))
            end = scan.reached
            is_ended = mark is None or is_named or is_empty or stream.frame(scan.place, stream.size) == END
            if (is_named and mark is not None and mark.end > end) or not is_ended:
                end = mark.end if is_named and mark is not None else following or end
                self._findings.append(Finding(file.name, "it is damaged", scan.reached, end, scan.place))
            return _FileResult(stream.head, end, records)
        finally:
            stream.close()


def repair(directory: Path, progress: Progress | None = None) -> Report:
    """Repair a journal; see `Journal.repair`."""
    try:
        lock = WriterLock(directory)
    except OSError as error:
        raise JournalError(f"{directory}: the journal cannot be repaired: {error.strerror}") from None
    store = LocalStore(directory)
    try:
        report = verify(store, progress)
        damaged = {finding.file for finding in report.findings if finding.file}
        for file in store.segments():
            if file.is_sealed and file.name in damaged:
                _rewrite(store, file)
        recovered = recover(directory)
        for file in recovered.pending:
            seal(directory, file)
        _link_segments(store)
        _write_mark(directory, store, recovered.end)
        return report
    except OSError as error:
        raise JournalError(f"{directory}: the repair failed: {error}") from error
    finally:
        lock.release()


def _rewrite(store: LocalStore, file: SegmentFile, previous: str | None = None) -> None:
    """Write the intact row groups of a sealed file to a new file, and rename the old file.

    If `previous` is given, the file is intact. The new file gets this id of the previous segment, and the old file is
    removed.
    """
    try:
        opened = SealedFile(store, file, is_cached=False)
    except DamageError:
        set_aside(store.directory, file.name)
        return
    try:
        head = opened.footer.head
        head = head if previous is None else head._replace(previous=previous)
        written = write_sealed(store.directory, head, _intact_batches(opened))
    finally:
        opened.close()
    if written is not None and written.name == file.name:
        return  # the columns were intact, so that the new file has the same name and has replaced the old file
    if previous is None:
        set_aside(store.directory, file.name)
    else:
        os.unlink(store.directory / file.name)
        sync_directory(store.directory)


def _intact_batches(opened: SealedFile) -> Iterator[pa.RecordBatch]:
    try:
        groups = opened.footer.groups
    except DamageError:
        return
    for group in groups:
        try:
            table = opened.read([group], COLUMNS)
        except DamageError:
            continue
        yield from plain_batches(table.combine_chunks())


def _link_segments(store: LocalStore) -> None:
    """Write the id of the previous segment into each segment, which records that offsets in between are missing."""
    previous: str | None = None
    for file in store.segments():
        if not file.is_sealed:
            continue
        head = read_footer(store, file, is_cached=False).head
        if previous is not None and head.previous != previous:
            _rewrite(store, file, previous)
        previous = head.segment


def _write_mark(directory: Path, store: LocalStore, end: int) -> None:
    reached = max((file.end for file in store.segments() if file.end is not None), default=0)
    descriptor = os.open(directory / MARK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        os.pwrite(descriptor, Mark("", reached, 0, end).to_bytes(), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
