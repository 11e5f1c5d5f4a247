"""Recovery before a writer's first append: it tidies up after the previous writer."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from oz.errors import JournalError
from oz.journal import epochs, files, own
from oz.journal.epochs import History, history_of
from oz.journal.files import FULL, SEALED, Segment
from oz.journal.manifest import Manifest, load
from oz.journal.mark import Mark, is_damaged, read_mark
from oz.journal.report import Finding
from oz.journal.sealing import believable, describe
from oz.journal.tail import (
    Tail,
    end_in_order,
    filled,
    finding_of,
    opened,
    remove_sealed_stream,
    seal_stream,
)
from oz.logs import logger

_log = logger("oz.journal")


@dataclass
class Recovered:
    """The journal as it is there, in order again.

    Attributes:
        manifest: an entry for every sealed segment.
        history: the epochs.
        end_offset: the offset after the last record of all.
        tail: the stream to go on with, if there is one.
        findings: what was cut, filled or read anew.
    """

    manifest: Manifest
    history: History = field(default_factory=History)
    end_offset: int = 0
    tail: Tail | None = None
    findings: list[Finding] = field(default_factory=list)


def recover(directory: Path, *, closely: bool = False) -> Recovered:
    """Put a journal in order; the caller holds the writer's lock.

    Reads the last segment whole, if it is a stream; of the others only those that the manifest does not
    know. What was acknowledged and is lost becomes records that say so, so that no offset is given again.
    Files that only have names like segments are left alone. Logs a warning for each finding, unless it looks
    closely: that is for a caller who reports them.

    Args:
        directory: the journal.
        closely: look also into segments that the manifest knows, whether they are this journal's.

    Raises:
        JournalError: the journal is of another version; or nothing tells which journal it is.
    """
    for name in os.listdir(directory):
        if files.is_leftover(name):
            (directory / name).unlink()
    aside = list(_irregular_notes(directory))
    found = own.sorted_files(directory, closely=closely)
    present, known, mark = found.segments, found.known, read_mark(directory)
    first = present[0].base if present else 0
    journal = known or Manifest(_journal_id(directory, found), first=first)
    state = Recovered(replace(journal, entries=dict(journal.entries)), findings=aside)
    state.findings += _notes(directory, known, mark, state.manifest.journal, present)
    moved = list(_set_aside_others(directory, found)) if closely else []
    state.findings += moved
    state.findings += _remove_left_over(directory, found)
    state.findings += (one for one in found.strays if one.file not in {other.file for other in moved})
    if mark is not None and mark.growing.journal != state.manifest.journal:
        mark = None
    state.history = history_of(directory, state.manifest.journal)
    floor = max(
        state.history.present.first_offset,
        mark.end if mark is not None else 0,
        *(entry.end_offset for entry in state.manifest.entries.values()),
        0,
    )
    state.manifest.first = min(state.manifest.first, *(segment.base for segment in present[:1]), 1 << 63)
    with _unless_full(directory, "a segment stays a stream for now"):
        state.findings += seal_finished(directory, state.manifest)
    state.findings += _fill_missing(directory, state.manifest)
    state.findings += _reconcile(directory, state.manifest)
    state.findings += _fill_holes(directory, state.manifest)
    base = mark.growing.base if mark is not None else state.manifest.first
    ending = end_in_order(directory, state.manifest, floor, max(base, state.manifest.first))
    state.findings += ending.findings
    state.end_offset, state.tail = ending.end_offset, ending.tail
    with _unless_full(directory, "the manifest stays as it is"):
        state.manifest.save(directory)
        if state.history != History() and not epochs.is_saved(directory):
            state.history.save(directory, state.manifest.journal)
    for finding in state.findings if not closely else ():
        _log.warning("%s: %s", directory, finding)
    return state


def _irregular_notes(directory: Path) -> Iterator[Finding]:
    """Make room for the files that say what should be there, where something else is in their place."""
    for name in (files.MANIFEST, files.MARK, files.EPOCHS):
        path = directory / name
        if os.path.lexists(path) and not files.is_regular(path):
            yield Finding(name, f"what was there is no regular file; it is {files.set_aside(path)} now")


def _remove_left_over(directory: Path, found: own.Sorted) -> Iterator[Finding]:
    """Remove what retention has removed before, where a power loss brought it back."""
    for one in found.left:
        if files.remove_unless_held(directory / one.name):
            yield Finding(one.name, "retention had removed it, and others after it; it is removed again")


def _set_aside_others(directory: Path, found: own.Sorted) -> Iterator[Finding]:
    """Make room where the manifest has a segment and another file of the same size is in its place."""
    for base in found.known.entries if found.known is not None else ():
        one = Segment(base, SEALED)
        if one not in found.segments and found.known and found.known.entry_of(directory, one):
            kept = files.set_aside(directory / one.name)
            yield Finding(
                one.name, f"is no segment of this journal, and stands where one was; it is {kept} now"
            )


def _notes(
    directory: Path, known: Manifest | None, mark: Mark | None, journal: str, present: list[Segment]
) -> Iterator[Finding]:
    """Look at the files that say what should be there."""
    if known is None and (other := load(directory)) is not None:
        yield Finding(files.MANIFEST, f"is of another journal, {other.journal}; made again from the segments")
    elif known is None and any(segment.is_sealed for segment in present):
        yield Finding(files.MANIFEST, "missing or damaged; made again from the segments")
    if mark is None and is_damaged(directory):
        yield Finding(files.MARK, "damaged; nothing says how far the last segment went")
    elif mark is not None and mark.growing.journal != journal:
        yield Finding(files.MARK, f"is of another journal, {mark.growing.journal}; it does not count")
    if epochs.is_damaged(directory):
        yield Finding(files.EPOCHS, "damaged; of what was written before the present epoch nothing is known")


def _fill_missing(directory: Path, manifest: Manifest) -> Iterator[Finding]:
    """Put records where sealed segments are gone that say so."""
    missing = own.missing(directory, manifest)
    believable(directory, 0, sum(entry.end_offset - entry.first_offset for entry in missing))
    for entry in missing:
        gone = Segment(entry.first_offset, SEALED)
        ends = [one.base for one in own.segments(directory, manifest) if one.base > gone.base]
        yield filled(directory, manifest, gone, min(entry.end_offset, *ends[:1], entry.end_offset))


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
    present = own.segments(directory, manifest)
    for segment, following in itertools.pairwise(present):
        if active is not None and segment.base >= active:
            # One after it may be there for a moment, while the disk has no room for its beginning.
            break
        if not segment.is_sealed:
            findings += seal_stream(directory, segment, following.base, manifest)
        remove_sealed_stream(directory, segment.base, manifest.journal)
    return findings


def _reconcile(directory: Path, manifest: Manifest) -> Iterator[Finding]:
    """Write an entry for every sealed segment, and no other."""
    was_known = bool(manifest.entries)
    present = [segment for segment in own.segments(directory, manifest) if segment.is_sealed]
    bases = {segment.base for segment in present}
    for base in set(manifest.entries) - bases:
        del manifest.entries[base]
    for segment in present:
        if manifest.entry_of(directory, segment) is None:
            with opened(directory, segment, manifest.journal) as source:
                manifest.entries[segment.base], found = describe(source)
            if was_known:
                yield Finding(segment.name, "was not as the manifest had it; read again")
            yield from (finding_of(segment, hole, "see `oz journal repair`") for hole in found.holes)


def _fill_holes(directory: Path, manifest: Manifest) -> Iterator[Finding]:
    """Put damage records into holes between segments that the manifest does not name.

    Behind a segment that is damaged itself nothing is filled: that is for `oz journal repair`.
    """
    for segment, following in itertools.pairwise(own.segments(directory, manifest)):
        entry = manifest.entries.get(segment.base)
        if entry is None or entry.end_offset >= following.base:
            continue
        with opened(directory, segment, manifest.journal) as source:
            _, found = describe(source)
        if not found.holes:
            yield filled(directory, manifest, Segment(entry.end_offset, SEALED), following.base)


def _journal_id(directory: Path, found: own.Sorted) -> str:
    if found.journal is not None:
        return found.journal
    if found.segments:
        raise JournalError(
            f"{directory}: neither the manifest nor any segment tells which journal this is, so nothing "
            "in it can be checked; restore manifest.json or put the segments aside"
        )
    return uuid.uuid4().hex
