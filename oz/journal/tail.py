"""The end of a journal, as the next writer finds it: what is torn, and what is lost of the rest."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from oz.errors import JournalError
from oz.journal import files, own
from oz.journal.files import SEALED, STREAM, Segment
from oz.journal.manifest import Manifest
from oz.journal.report import Finding
from oz.journal.sealing import fill, seal
from oz.journal.segment import OpenSegment, open_segment
from oz.journal.walk import Frame, Hole


@dataclass
class Tail:
    """The stream that a writer goes on with.

    Attributes:
        segment: which segment it is.
        size: how many bytes of it are intact.
        end_offset: the offset after its last record.
    """

    segment: Segment
    size: int
    end_offset: int


@dataclass
class Ending:
    """The end of a journal.

    Attributes:
        end_offset: the offset after its last record.
        tail: the stream to go on with, if there is one.
        findings: what was cut, or filled.
    """

    end_offset: int
    tail: Tail | None
    findings: list[Finding]


def end_in_order(directory: Path, manifest: Manifest, floor: int, base: int) -> Ending:
    """Cut what is torn, and put records that say so where acknowledged ones are lost.

    Args:
        directory: the journal.
        manifest: gets an entry for each segment that is sealed.
        floor: everything before this offset was acknowledged.
        base: where the journal's only segment began, should it be gone.
    """
    present = own.segments(directory, manifest)
    if not present:
        return _filled(directory, manifest, base, floor) if base < floor else Ending(floor, None, [])
    last = present[-1]
    if last.is_sealed:
        end = max(last.base, manifest.entries[last.base].end_offset)
        return _filled(directory, manifest, end, floor) if end < floor else Ending(end, None, [])
    return _stream_in_order(directory, manifest, last, floor)


def _filled(directory: Path, manifest: Manifest, base: int, end: int) -> Ending:
    return Ending(end, None, [filled(directory, manifest, Segment(base, STREAM), end)])


def filled(directory: Path, manifest: Manifest, gone: Segment, end: int) -> Finding:
    """Put records where a segment is gone that say that theirs are lost."""
    kept = files.set_aside(directory / gone._replace(suffix=SEALED).name)
    time_ns = neighbours_time(directory, manifest, gone.base)
    manifest.entries[gone.base] = fill(directory, manifest.journal, gone.base, end, time_ns)
    found = lost_from(gone.name, gone.base, end)
    aside = f"; the file in its place is {kept} now" if kept else ""
    return replace(found, text=f"is gone: {found.text}{aside}")


def neighbours_time(directory: Path, manifest: Manifest, base: int) -> int:
    """Tell when what stands before a segment was received, or else what comes after it.

    Args:
        directory: the journal.
        manifest: the segments that are sealed.
        base: the first offset of the segment.

    Returns:
        Nanoseconds since 1970; 0 when nothing else is there.
    """
    before = [entry for entry in manifest.entries.values() if entry.first_offset < base]
    if before:
        return max(before, key=lambda entry: entry.first_offset).max_time_ns
    for following in own.segments(directory, manifest):
        if following.base > base and (time_ns := _first_time(directory, manifest, following)) is not None:
            return time_ns
    return 0


def _first_time(directory: Path, manifest: Manifest, segment: Segment) -> int | None:
    entry = manifest.entry_of(directory, segment)
    if entry is not None:
        return entry.min_time_ns
    with opened(directory, segment, manifest.journal) as source:
        return next((piece.stamp.min_ns for piece in source.survey() if isinstance(piece, Frame)), None)


def _stream_in_order(directory: Path, manifest: Manifest, segment: Segment, floor: int) -> Ending:
    with opened(directory, segment, manifest.journal) as source:
        pieces = list(source.survey())
        size, first_batch = source.source.size, source.first_batch
    frames = [piece for piece in pieces if isinstance(piece, Frame)]
    torn = pieces[-1] if pieces and isinstance(pieces[-1], Hole) else None
    reached = frames[-1].stamp.end if frames else segment.base
    if reached < floor or len(pieces) - len(frames) > (torn is not None):
        # What is intact keeps its offsets, and this stream is not written to again.
        findings = seal_stream(directory, segment, max(reached, floor), manifest)
        remove_sealed_stream(directory, segment.base, manifest.journal)
        return Ending(max(reached, floor), None, findings)
    end = frames[-1].end if frames else first_batch
    if not end:
        # Nothing of it is intact, not even its head: a new stream takes its place.
        text = f"{torn.reason}: nothing of its {size} bytes is intact" if torn else "it is empty"
        return Ending(reached, None, [Finding(segment.name, text, 0, segment.base, cut_bytes=size)])
    findings = [_cut(directory, segment, end, size - end, torn, reached)] if size > end else []
    return Ending(reached, Tail(segment, end, reached), findings)


def _cut(
    directory: Path, segment: Segment, end: int, excess: int, torn: Hole | None, reached: int
) -> Finding:
    descriptor = files.open_to_write(directory / segment.name, os.O_RDWR)
    try:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    reason = torn.reason if torn else "there is more after its end"
    text = f"{reason}: cut {excess} bytes, all before offset {reached} is intact"
    return Finding(segment.name, text, end, reached, cut_bytes=excess)


def seal_stream(directory: Path, segment: Segment, end: int, manifest: Manifest) -> list[Finding]:
    """Seal a stream; one that is damaged stays beside it.

    Args:
        directory: the journal.
        segment: the stream.
        end: the offset after its last record; what is missing before it becomes records that say so.
        manifest: gets the entry.

    Returns:
        What was damaged.
    """
    sealed = segment._replace(suffix=SEALED)
    with opened(directory, segment, manifest.journal) as source:
        aside = files.set_aside(directory / sealed.name)
        entry, found = seal(directory, source, end, neighbours_time(directory, manifest, segment.base))
    manifest.entries[segment.base] = entry
    others = [Finding(sealed.name, f"what was in its place is {aside} now")] if aside else []
    findings = [finding_of(segment, hole, "what was intact is kept") for hole in found.holes]
    findings += [lost_from(segment.name, *offsets) for offsets in found.lost]
    if findings:
        kept = keep_damaged(directory, segment)
        findings.append(Finding(segment.name, f"sealed; as it was it is {kept}"))
    return findings + others


def lost_from(name: str, first: int, end: int) -> Finding:
    """Say which records of a segment are lost."""
    text = f"the records from offset {first} to {end - 1} are lost, and records say so in their place"
    return Finding(name, text, None, first, end - first)


def keep_damaged(directory: Path, segment: Segment) -> str:
    """Keep a segment under another name, since another will take its place; gives the name."""
    path = directory / segment.name
    kept = files.free_name(path)
    os.link(path, kept)
    return kept.name


def remove_sealed_stream(directory: Path, base: int, journal: str) -> None:
    """Remove the stream of a segment that is sealed, unless it is held, or is not what was sealed."""
    stream = Segment(base, STREAM)
    if own.may_go(directory, stream, journal):
        files.remove_unless_held(directory / stream.name)


def opened(directory: Path, segment: Segment, journal: str) -> OpenSegment:
    """Open a segment that is there, even when its head is damaged."""
    source = open_segment(directory, segment, journal, takes_damaged=True)
    if source is None:
        raise JournalError(f"{directory / segment.name}: somebody has removed it meanwhile")
    return source


def finding_of(segment: Segment, hole: Hole, done: str) -> Finding:
    """Say what is wrong at a hole."""
    size = hole.end - hole.position
    return Finding(segment.name, f"{hole.reason}: {size} bytes mean nothing; {done}", hole.position)
