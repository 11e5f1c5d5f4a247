"""What a writer does before its first append: tidy up after whoever wrote before."""

from __future__ import annotations

import itertools
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from oz.errors import JournalError
from oz.journal import files
from oz.journal.faults import FULL
from oz.journal.files import STREAM, Segment
from oz.journal.manifest import Manifest, load
from oz.journal.report import Finding
from oz.journal.sealing import describe, seal
from oz.journal.segment import OpenSegment, open_segment
from oz.journal.walk import Frame, Hole

_log = logging.getLogger("oz.journal")


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
class Recovered:
    """What is there, in order again.

    Attributes:
        manifest: an entry for every sealed segment.
        end_offset: the offset after the last record of all.
        tail: the stream to go on with, if there is one.
        findings: what was cut, filled or read anew.
    """

    manifest: Manifest
    end_offset: int = 0
    tail: Tail | None = None
    findings: list[Finding] = field(default_factory=list)


def recover(directory: Path) -> Recovered:
    """Put a journal in order; the caller holds the writer's lock.

    Reads the last segment whole, if it is a stream; of the others only those that the manifest does not
    know. Logs a warning for each finding.

    Raises:
        JournalError: the journal is of a newer version.
    """
    for name in os.listdir(directory):
        if files.is_leftover(name):
            (directory / name).unlink()
    present = files.segments(directory)
    known = load(directory)
    state = Recovered(known or Manifest(_journal_id(directory, present)))
    if known is None and any(segment.is_sealed for segment in present):
        state.findings.append(Finding(files.MANIFEST, "missing or damaged; made again from the segments"))
    with _unless_full(directory, "a segment stays a stream for now"):
        state.findings += seal_finished(directory, state.manifest)
    state.findings += _reconcile(directory, state.manifest)
    if present:
        _recover_last(directory, present[-1], state)
    state.end_offset = max(
        [state.end_offset, *(entry.end_offset for entry in state.manifest.entries.values())]
    )
    with _unless_full(directory, "the manifest stays as it is"):
        state.manifest.save(directory)
    for finding in state.findings:
        _log.warning("%s: %s", directory, finding)
    return state


@contextmanager
def _unless_full(directory: Path, otherwise: str) -> Iterator[None]:
    """Do what can as well be done later."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        _log.warning("%s: %s: %s", directory, otherwise, error)


def seal_finished(directory: Path, manifest: Manifest, active: int | None = None) -> list[Finding]:
    """Seal every stream that does not grow any more, and remove what has been sealed.

    A stream that a reader holds stays beside its sealed form until a later call. The manifest is changed, not
    saved.

    Args:
        directory: the journal's.
        manifest: gets an entry for each segment that is sealed.
        active: the base of the segment that grows; None when it is the last.

    Returns:
        What was damaged.
    """
    findings: list[Finding] = []
    present = files.segments(directory)
    for segment, following in itertools.pairwise(present):
        if active is not None and segment.base >= active:
            # One after it may be there for a moment, while the disk has no room for its beginning.
            break
        if not segment.is_sealed:
            findings += _seal(directory, segment, following.base, manifest)
        remove_sealed_stream(directory, segment.base)
    return findings


def remove_sealed_stream(directory: Path, base: int) -> bool:
    """Remove the stream of a segment that is sealed, unless it is held; tell whether it is gone."""
    return files.remove_unless_held(directory / Segment(base, STREAM).name)


def _seal(directory: Path, segment: Segment, end: int | None, manifest: Manifest) -> list[Finding]:
    with opened(directory, segment, manifest.journal) as source:
        entry, holes = seal(directory, source, end)
    manifest.entries[segment.base] = entry
    return [finding_of(segment, hole, "what was intact is kept") for hole in holes]


def opened(directory: Path, segment: Segment, journal: str) -> OpenSegment:
    """Open a segment that is there, even when its head is damaged."""
    source = open_segment(directory, segment, journal)
    assert source is not None, segment
    return source


def finding_of(segment: Segment, hole: Hole, done: str) -> Finding:
    """Say what is wrong at a hole."""
    size = hole.end - hole.position
    return Finding(segment.name, f"{hole.reason}: {size} bytes mean nothing; {done}", hole.position)


def _reconcile(directory: Path, manifest: Manifest) -> Iterator[Finding]:
    """Give every sealed segment its entry, and no other."""
    was_known = bool(manifest.entries)
    present = [segment for segment in files.segments(directory) if segment.is_sealed]
    bases = {segment.base for segment in present}
    for base in set(manifest.entries) - bases:
        del manifest.entries[base]
    for segment in present:
        if manifest.entry_of(directory, segment) is None:
            with opened(directory, segment, manifest.journal) as source:
                manifest.entries[segment.base], holes = describe(source)
            if was_known:
                yield Finding(segment.name, "was not as the manifest had it; read again")
            yield from (finding_of(segment, hole, "see `oz journal repair`") for hole in holes)


def _recover_last(directory: Path, segment: Segment, state: Recovered) -> None:
    state.end_offset = segment.base
    if segment.is_sealed:
        return
    with opened(directory, segment, state.manifest.journal) as source:
        pieces = list(source.survey())
        size = source.source.size
        first_batch = source.first_batch
    frames = [piece for piece in pieces if isinstance(piece, Frame)]
    torn = pieces[-1] if pieces and isinstance(pieces[-1], Hole) else None
    state.end_offset = frames[-1].stamp.end if frames else segment.base
    if len(pieces) - len(frames) > (torn is not None):
        # Later records are intact: they keep their offsets, and this stream is not written to again.
        state.findings += _seal(directory, segment, None, state.manifest)
        remove_sealed_stream(directory, segment.base)
        return
    end = frames[-1].end if frames else first_batch
    if not end:
        # Nothing of it is intact, not even its head: a new stream takes its place.
        text = f"{torn.reason}: nothing of its {size} bytes is intact" if torn else "it is empty"
        state.findings.append(Finding(segment.name, text, 0, segment.base, cut_bytes=size))
        return
    if size > end:
        _cut(directory, segment, end, size - end, torn, state)
    state.tail = Tail(segment, end, state.end_offset)


def _cut(
    directory: Path, segment: Segment, end: int, excess: int, torn: Hole | None, state: Recovered
) -> None:
    descriptor = os.open(directory / segment.name, os.O_RDWR)
    try:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    reason = torn.reason if torn else "there is more after its end"
    text = f"{reason}: cut {excess} bytes, all before offset {state.end_offset} is intact"
    state.findings.append(Finding(segment.name, text, end, state.end_offset, cut_bytes=excess))


def _journal_id(directory: Path, present: list[Segment]) -> str:
    for segment in present:
        source = open_segment(directory, segment, "")
        if source is not None:
            source.close()
            if source.journal:
                return source.journal
    if present:
        raise JournalError(
            f"{directory}: neither the manifest nor any segment tells which journal this is, so nothing "
            "in it can be checked; restore manifest.json or put the segments aside"
        )
    return uuid.uuid4().hex
