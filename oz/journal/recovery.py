"""Recovery: a new writer repairs the files of a killed writer before it appends.

A killed writer may leave temporary files, a stream without an end mark, a partial batch, or a stream that was already
sealed. Recovery removes the temporary files and the sealed stream, cuts the partial batch, and writes the end mark. The
housekeeper then seals the stream. The new writer begins a new segment. The segment begins at the end of the existing
records, or at the acknowledged end if that offset is greater, so that no two records get the same offset.

If a stream is damaged before the acknowledged end, records are lost. Recovery then seals the intact batches, and
renames the damaged stream with the suffix `.damaged`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from oz.errors import JournalError
from oz.journal.format import (
    DAMAGED,
    TEMPORARY,
    DamageError,
    Mark,
    SegmentFile,
    new_id,
    parse_name,
    read_mark,
    sort_segments,
    sync_directory,
)
from oz.journal.report import Finding
from oz.journal.sealed import read_footer, write_sealed
from oz.journal.store import LocalStore
from oz.journal.stream import END, ActiveStream, Scan


class RecoveredState(NamedTuple):
    """The state of a journal after recovery, from which a new writer continues.

    Attributes:
        reached: the offset after the last existing record.
        end: the offset of the next record. It is greater than `reached` if acknowledged records are lost.
        journal: the id of the journal.
        previous: the id of the last segment; empty if there is no segment.
        pending: the streams that the housekeeper must seal.
        findings: the faults that were repaired.
    """

    reached: int
    end: int
    journal: str
    previous: str
    pending: list[SegmentFile]
    findings: list[Finding]


def recover(directory: Path) -> RecoveredState:
    """Repair the files of a killed writer. The caller holds the lock of the writer.

    Raises:
        JournalError: segments overlap, or belong to different journals.
        OSError: the operating system failed.
    """
    findings: list[Finding] = []
    mark = read_mark(directory)
    names = _remove_leftovers(directory, os.listdir(directory), findings)
    end, journal, previous = 0, "", ""
    pending: list[SegmentFile] = []
    for file in sort_segments(names):
        if file.first < end:
            raise JournalError(
                f"{directory / file.name}: its records overlap those of the segment before; two journals "
                "were mixed: move the files of one of them away"
            )
        if file.end is not None:
            end = file.end
            continue
        found, reached = _end_stream(directory, file, mark, findings)
        end = max(end, reached)
        if found is not None:
            pending.append(found)
    last = _last_head(directory, findings)
    if last is not None:
        journal, previous = last
    if mark is not None and mark.end > end and (mark.segment or mark.first != end):
        findings.append(Finding("", "the acknowledged records are lost", end, mark.end))
    return RecoveredState(
        end, max(end, mark.end if mark else 0), journal or new_id(), previous, pending, findings
    )


def _remove_leftovers(directory: Path, names: list[str], findings: list[Finding]) -> list[str]:
    """Remove temporary files, and streams whose sealed file is complete. Return the names of the remaining files."""
    for name in names:
        if name.endswith(TEMPORARY):
            (directory / name).unlink()
    sealed = {file.first: file for file in sort_segments(names) if file.is_sealed}
    kept = []
    for name in names:
        file = parse_name(name)
        if file is not None and not file.is_sealed and file.first in sealed:
            try:
                segment = read_footer(LocalStore(directory), sealed[file.first]).head.segment
            except DamageError as error:
                set_aside(directory, sealed[file.first].name)
                findings.append(Finding(sealed[file.first].name, f"set aside: {error.reason}"))
                kept.append(name)
                continue
            if segment != file.segment:
                raise JournalError(f"{directory / name}: another segment begins at its offset; move one away")
            (directory / name).unlink()
        elif file is not None:
            kept.append(name)
    return [name for name in kept if (directory / name).exists()]


def _end_stream(
    directory: Path, file: SegmentFile, mark: Mark | None, findings: list[Finding]
) -> tuple[SegmentFile | None, int]:
    """Cut the partial batch at the end of a stream, and write the end mark.

    Returns:
        The stream to seal, or None; and the offset after the last record of the stream.
    """
    path = directory / file.name
    acknowledged = mark.end if mark is not None else file.first
    try:
        stream = ActiveStream(path, file.segment)
    except DamageError as error:
        if acknowledged <= file.first:
            path.unlink()  # the writer was killed before it acknowledged a record in this file
        else:
            set_aside(directory, file.name)
            findings.append(Finding(file.name, f"set aside: {error.reason}", file.first, position=0))
        return None, file.first
    try:
        scan = Scan(stream, stream.size)
        for _ in scan:
            pass
        damage = [Finding(file.name, "damaged", hole.first, hole.end, hole.place) for hole in scan.holes]
        if mark is not None and mark.segment == file.segment and mark.end > scan.reached:
            damage.append(Finding(file.name, "damaged at its end", scan.reached, mark.end, scan.place))
        if not scan.has_head:
            damage.append(Finding(file.name, "the head of the stream is damaged", position=0))
        if damage:
            findings.extend(damage)
            write_sealed(directory, stream.head, Scan(stream, stream.size))
            set_aside(directory, file.name)
            return None, scan.reached
        if scan.reached == file.first:
            path.unlink()
            return None, scan.reached
        surplus = stream.size - scan.place
        if stream.frame(scan.place, stream.size) != END or surplus != len(END):
            if surplus:
                reason = f"cut {surplus} bytes that were not acknowledged"
                findings.append(Finding(file.name, reason, position=scan.place))
            _write_end(path, scan.place)
        return file, scan.reached
    finally:
        stream.close()


def _write_end(path: Path, place: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, place)
        os.pwrite(descriptor, END, place)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _last_head(directory: Path, findings: list[Finding]) -> tuple[str, str] | None:
    """Return the id of the journal and the id of its last segment; None if no segment has an intact identity."""
    store, previous = LocalStore(directory), None
    for file in reversed(store.segments()):
        with suppress(FileNotFoundError):
            try:
                if file.is_sealed:
                    head = read_footer(store, file).head
                else:
                    stream = ActiveStream(directory / file.name, file.segment)
                    head = stream.head
                    stream.close()
            except DamageError as error:
                findings.append(Finding(file.name, error.reason, file.first, file.end))
                previous = previous or ""
                continue
            return head.journal, head.segment if previous is None else previous
    return None


def set_aside(directory: Path, name: str) -> None:
    """Rename a damaged file with the suffix `.damaged`, so that no reader opens the file."""
    target = directory / (name + DAMAGED)
    number = 1
    while target.exists():
        number += 1
        target = directory / f"{name}.{number}{DAMAGED}"
    os.rename(directory / name, target)
    sync_directory(directory)


def seal(directory: Path, file: SegmentFile, *, sync: bool = True) -> SegmentFile | None:
    """Write an ended stream as a sealed file, and remove the stream.

    Returns:
        The sealed file; None if the stream has no intact record.

    Raises:
        DamageError: the head of the stream is damaged.
        OSError: the operating system failed. The stream still exists.
    """
    stream = ActiveStream(directory / file.name, file.segment)
    try:
        scan = Scan(stream, stream.size)
        sealed = write_sealed(directory, stream.head, scan, sync=sync)
        is_intact = not scan.holes and scan.has_head and stream.frame(scan.place, stream.size) == END
    finally:
        stream.close()
    if is_intact:
        (directory / file.name).unlink()
    else:
        set_aside(directory, file.name)
    return sealed
