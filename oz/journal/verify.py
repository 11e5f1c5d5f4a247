"""Checking a journal, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oz.errors import JournalError
from oz.journal import epochs, files, own
from oz.journal.epochs import must_reach
from oz.journal.files import Segment
from oz.journal.lock import WriterLock
from oz.journal.manifest import Entry, Manifest, load
from oz.journal.mark import AcknowledgedMark, Growing, acknowledged, read_mark
from oz.journal.messages import FILE_MAGIC
from oz.journal.recovery import recover
from oz.journal.report import Finding, Report
from oz.journal.sealing import footer_fault, seal, subjects_fault, tail_crc
from oz.journal.segment import DamagedHead, OpenSegment, open_segment
from oz.journal.tail import keep_damaged, neighbours_time, opened
from oz.journal.walk import Frame, Hole


def verify(directory: Path) -> Report:
    """Check all segments, and that they follow one another, and the manifest.

    Raises:
        JournalError: the journal is of another version; or nothing tells which of several it is.
    """
    journal = own.journal_of(directory)
    limit = must_reach(directory, journal)  # before the list is made: all that it counts is in these segments
    forgives = acknowledged(directory) is not None
    found = own.sorted_files(directory, closely=True)
    # Nothing is said of `found.left`: nothing in a file tells whether a writer is just removing it.
    present = found.segments
    findings = [*_notes(directory, found), *found.strays, *_gone(directory, found, limit)]
    records = size = 0
    for segment, following in zip(present, [*present[1:], None], strict=False):
        end = following.base if following else None
        seen = look_at(directory, segment, end, journal, found.known, limit, forgives=forgives)
        findings += seen.findings
        records += seen.records
        size += seen.bytes
    return Report(tuple(findings), len(present), records, size)


def _notes(directory: Path, found: own.Sorted) -> Iterator[Finding]:
    if found.known is None and (other := load(directory)) is not None:
        text = f"is of another journal, {other.journal}; the next writer makes it again"
        yield Finding(files.MANIFEST, text)
    elif found.known is None and any(segment.is_sealed for segment in found.segments):
        yield Finding(files.MANIFEST, "missing or damaged; the next writer makes it again")
    mark = read_mark(directory)
    if mark is not None and mark.growing.journal != found.journal:
        text = f"is of another journal, {mark.growing.journal}; it does not count"
        yield Finding(files.MARK, text)
    if read_mark(directory) is None:
        text = "missing or damaged: nothing says how far the last segment went"
        yield Finding(files.MARK, f"{text}; the next writer makes it again")
    if epochs.is_damaged(directory):
        yield Finding(files.EPOCHS, "damaged; the next writer makes it again, without what it does not know")


def _gone(directory: Path, found: own.Sorted, limit: int | None) -> Iterator[Finding]:
    known, present = found.known, found.segments
    missing = own.missing(directory, known, closely=True) if known else []
    if missing and known is not None:  # retention may just have removed them
        known = load(directory) or known
        missing = own.missing(directory, known, closely=True)
    for entry in missing:
        # Others are holes after the one before, or what the journal must reach.
        is_last = bool(present) and entry.first_offset > present[-1].base and entry.end_offset > (limit or 0)
        if not present or entry.first_offset < present[0].base or is_last:
            gone = Segment(entry.first_offset, files.SEALED)
            yield _missing_from(gone, gone.base, entry.end_offset)
    mark = read_mark(directory, found.journal)
    if not present and limit and mark and mark.growing.base < limit:
        yield _missing_from(Segment(mark.growing.base, files.STREAM), mark.growing.base, limit)


def _missing_from(segment: Segment, first: int, end: int) -> Finding:
    text = f"is gone: the records from offset {first} to {end - 1} are missing"
    return Finding(segment.name, text, None, first, end - first)


def look_at(
    directory: Path,
    segment: Segment,
    end: int | None,
    journal: str | None,
    known: Manifest | None,
    limit: int | None = None,
    *,
    forgives: bool = False,
) -> Report:
    """Check one segment.

    Args:
        directory: the journal's.
        segment: the segment.
        end: the offset at which the next one begins; None for the last.
        journal: the journal's id, if anything tells it.
        known: the manifest, if it can be read.
        limit: how far the journal must reach, if that is known; for the last segment.
        forgives: whether what is torn beyond that is nothing to speak of: it may be being written.
    """
    try:
        opened = open_segment(directory, segment, journal, takes_damaged=True)
    except DamagedHead:
        return Report((Finding(segment.name, "its head is damaged", 0, segment.base),), 1)
    if opened is None:  # sealed or removed meanwhile
        sealed = Segment(segment.base, files.SEALED)
        gone = segment.is_sealed or not (directory / sealed.name).exists()
        return Report() if gone else look_at(directory, sealed, end, journal, known, limit, forgives=forgives)
    with opened:
        pieces = list(opened.survey())
        frames = [piece for piece in pieces if isinstance(piece, Frame)]
        reached = frames[-1].stamp.end if frames else segment.base
        is_beyond = forgives and limit is not None and end is None and reached >= limit
        if is_beyond and pieces and not segment.is_sealed:
            # What follows is being written, or will be cut: nobody was told that it is there.
            pieces = pieces[:-1] if isinstance(pieces[-1], Hole) else pieces
        findings = [*_holes(segment, pieces), *_missing(segment, reached, end if end is not None else limit)]
        if segment.is_sealed:
            findings += _form(opened, frames, known, directory)
        return Report(tuple(findings), 1, sum(frame.stamp.rows for frame in frames), opened.source.size)


def _holes(segment: Segment, pieces: list[Frame | Hole]) -> Iterator[Finding]:
    offset = segment.base
    for at, piece in enumerate(pieces):
        if isinstance(piece, Frame):
            offset = piece.stamp.end
            continue
        following = pieces[at + 1] if at + 1 < len(pieces) else None
        lost = following.stamp.first - offset if isinstance(following, Frame) else 0
        size = piece.end - piece.position
        text = f"{piece.reason}: {size} bytes mean nothing" + (f", {lost} records are lost" if lost else "")
        cut = 0 if following or segment.is_sealed else size
        yield Finding(segment.name, text, piece.position, offset, lost, cut)


def _missing(segment: Segment, reached: int, end: int | None) -> Iterator[Finding]:
    if end is not None and reached < end:
        text = f"the records from offset {reached} to {end - 1} are missing after it"
        yield Finding(segment.name, text, None, reached, end - reached)


def _form(
    opened: OpenSegment, frames: list[Frame], known: Manifest | None, directory: Path
) -> Iterator[Finding]:
    """Check what others need to open it as an Arrow file, and what the manifest says."""
    entry = known.entry_of(directory, opened.segment) if known is not None else None
    text = _footer_fault(opened, frames, entry)
    if text is not None:
        yield Finding(opened.segment.name, f"no Arrow file to other programs: {text}")
    elif (text := subjects_fault(opened, frames)) is not None:
        yield Finding(opened.segment.name, text)
    # One that the manifest does not name may just have been sealed, unless it names a later one.
    if known is not None and entry is None and opened.segment.base <= max(known.entries, default=-1):
        yield Finding(opened.segment.name, "is not as the manifest has it")


def _footer_fault(opened: OpenSegment, frames: list[Frame], entry: Entry | None) -> str | None:
    if opened.source.at(0, len(FILE_MAGIC)) != FILE_MAGIC:
        return "it does not begin as one does"
    if entry is None or entry.tail_crc is None:
        return footer_fault(opened, frames)
    return None if tail_crc(opened, frames) == entry.tail_crc else "the checksum of its footer differs"


def repair(directory: Path) -> Report:
    """Put a journal in order.

    Returns:
        What was found and done.

    Raises:
        JournalError: a writer is at work, or the journal is of another version; or the system does not let
            it be put in order.
    """
    try:
        lock = WriterLock(directory)
        try:
            return _repair(directory)
        finally:
            lock.release()
    except OSError as error:
        raise JournalError(f"{directory}: it cannot be repaired: {error}") from error


def _repair(directory: Path) -> Report:
    state = recover(directory, closely=True)
    findings = [*state.findings]
    records = size = 0
    present = own.segments(directory, state.manifest)
    for segment, following in zip(present, [*present[1:], None], strict=False):
        end = following.base if following else state.end_offset
        found = look_at(directory, segment, end, state.manifest.journal, state.manifest)
        if found.findings and segment.is_sealed:
            findings += found.findings
            findings.append(_rewrite(directory, segment, end, state.manifest))
        records += found.records
        size += found.bytes
    state.manifest.save(directory)
    epoch = state.history.present
    mark = AcknowledgedMark(directory)
    base = present[-1].base if present else state.end_offset
    mark.set(state.end_offset, Growing(state.manifest.journal, *epoch, base))
    mark.close()
    return Report(tuple(findings), len(present), records, size)


def _rewrite(directory: Path, segment: Segment, end: int, manifest: Manifest) -> Finding:
    kept = keep_damaged(directory, segment)
    with opened(directory, segment, manifest.journal) as source:
        entry, _ = seal(directory, source, end, neighbours_time(directory, manifest, segment.base))
    manifest.entries[segment.base] = entry
    return Finding(segment.name, f"written anew; as it was it is {kept}")
