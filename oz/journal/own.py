"""The journal's own files in a directory, and others that only have names like them.

A name is no proof: a copy under another name, a file of another journal or an empty one would tell of offsets
that nobody gave. A file is the journal's own if the manifest names it and knows its size,
or if its head is intact, has the journal's id and the offset that the name has. One whose head cannot be read
is taken for a damaged one of the journal's only where something should be. All others are strays: they are
left alone, and `verify` tells of them.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from oz.errors import JournalError
from oz.journal import epochs, files, manifest
from oz.journal.files import SEALED, STREAM, Segment
from oz.journal.manifest import Entry, Manifest
from oz.journal.mark import read_mark
from oz.journal.report import Finding
from oz.journal.schema import VERSION
from oz.journal.segment import SegmentHead, open_segment, read_head
from oz.journal.walk import Frame, ReadAhead

_HEAD_BYTES = 4096  # a head has about 900
_GONE = SegmentHead(0, "", None, 0)
"""In place of a head: the file was sealed or removed since it was listed. Who opens it looks again."""

_DAMAGED = "its head is damaged, and nothing says that there should be one"
_HIDDEN = "its head is damaged, and the stream beside it is intact"
_WITHIN = "its offset lies within another segment"

_TICK_NS = 2 * 10**9
_MOST_READ = 16
_read: dict[str, tuple[tuple[int, int, int], Manifest]] = {}

Heads = dict[Segment, SegmentHead | None]


@dataclass(frozen=True)
class Sorted:
    """The files of a directory that are named as segments are, sorted.

    Attributes:
        journal: the id of the journal; None when nothing tells it.
        known: its manifest, not to be changed; None when there is none that can be read, or it is another
            journal's.
        segments: its own segments by offset; of one that is there in both forms, the one that counts.
        strays: what else has such a name, and why it does not count.
        left: segments that retention has removed, left over where a power loss undid it in part.
    """

    journal: str | None
    known: Manifest | None
    segments: list[Segment]
    strays: tuple[Finding, ...] = ()
    left: tuple[Segment, ...] = ()


def sorted_files(directory: Path, known: Manifest | None = None, *, closely: bool = False) -> Sorted:
    """Sort the files of a journal's directory.

    Args:
        directory: the journal, or what may be one.
        known: its manifest, which may have been read earlier; None reads manifest and journal id.
        closely: look into files that the manifest names, too.

    Raises:
        JournalError: the manifest is of another version; or there are files of several journals, and nothing
            tells which of them this is.
    """
    named, others = files.named(directory)
    found = known or _manifest_of(directory)
    trusted = set() if closely or found is None else _as_named(directory, named, found)
    heads = {one: _head(directory, one) for one in named if one not in trusted}
    journal = known.journal if known else _journal(directory, found, heads, len(trusted))
    if found is not None and found.journal != journal:
        # It says nothing of these files.
        found, trusted = None, set()
        heads = {one: _head(directory, one) for one in named}
    return _Sorting(directory, journal, found, trusted, heads).sorted(others)


def segments(directory: Path, known: Manifest | None = None) -> list[Segment]:
    """List a journal's own segments, as `sorted_files` does; its errors too."""
    return sorted_files(directory, known).segments


def journal_of(directory: Path) -> str | None:
    """Say which journal this is; None when nothing tells. Its errors are those of `sorted_files`."""
    return sorted_files(directory).journal


def segment_at(directory: Path, base: int, known: Manifest) -> Segment | None:
    """Find the segment that begins at an offset, in the form that counts; see `sorted_files`."""
    # One that is sealed between two looks is there in its other form by the third.
    forms = [Segment(base, suffix) for suffix in (SEALED, STREAM)]
    there = [one for one in forms if files.is_regular(directory / one.name)] or [
        one for one in forms[:1] if files.is_regular(directory / one.name)
    ]
    for one in there:
        if known.entry_of(directory, one) or _fault(one, _head(directory, one), known.journal) == "":
            return one
    if not there:
        return None
    return next((one for one in segments(directory, known) if one.base == base), None)


def is_anothers(directory: Path, segment: Segment, journal: str) -> bool:
    """Tell whether a file has an intact head that is of another journal, or of another offset."""
    return bool(_fault(segment, _head(directory, segment), journal))


def may_go(directory: Path, segment: Segment, journal: str) -> bool:
    """Tell whether a file may be removed because its segment is there in another form, or is to go.

    Its head says so; or, of a stream that is damaged, it has another name too, under which it stays.
    """
    if not files.is_regular(directory / segment.name):
        return False
    fault = _fault(segment, _head(directory, segment), journal)
    if fault is None and not segment.is_sealed:
        return (directory / segment.name).stat().st_nlink > 1
    return not fault


def missing(directory: Path, known: Manifest, *, closely: bool = False) -> list[Entry]:
    """List the entries of segments that are not there, though retention has not removed them.

    Args:
        directory: the journal.
        known: its manifest.
        closely: as for `sorted_files`.
    """
    # First a copy: the thread that seals adds to them once a file is there, and lets go of them before.
    entries = list(known.entries.values())
    present = {segment.base for segment in sorted_files(directory, known, closely=closely).segments}
    gone = [one for one in entries if one.first_offset not in present and one.end_offset > known.first]
    return sorted(
        (one for one in gone if one.first_offset in known.entries), key=lambda one: one.first_offset
    )


def _manifest_of(directory: Path) -> Manifest | None:
    """Read the manifest, unless it is as it was at the last look; nobody may change what this gives."""
    try:
        status = os.lstat(directory / files.MANIFEST)
    except OSError:
        return manifest.load(directory)
    seen = status.st_mtime_ns, status.st_ino, status.st_size
    kept = _read.get(os.fspath(directory))
    if kept is not None and kept[0] == seen:
        return kept[1]
    found = manifest.load(directory)
    # What was changed just now may change again within a tick of the file system's clock.
    if found is not None and time.time_ns() - status.st_mtime_ns > _TICK_NS:
        if len(_read) >= _MOST_READ:
            _read.clear()
        _read[os.fspath(directory)] = seen, found
    return found


def _as_named(directory: Path, named: list[Segment], known: Manifest) -> set[Segment]:
    """Pick those that are as the manifest has them, unless a sample says that it is another journal's."""
    fitting = [one for one in named if known.entry_of(directory, one)]
    sample = _head(directory, fitting[-1]) if fitting else _GONE
    is_others = sample is not None and sample is not _GONE and sample.journal != known.journal
    return set() if is_others else set(fitting)


def _head(directory: Path, segment: Segment) -> SegmentHead | None:
    descriptor = files.open_regular(directory / segment.name)
    if descriptor is None:
        return _GONE
    try:
        return read_head(ReadAhead(descriptor, _HEAD_BYTES), segment)
    finally:
        os.close(descriptor)


def _fault(segment: Segment, head: SegmentHead | None, journal: str | None) -> str | None:
    """Say what an intact head tells against a file, nothing if it is own; None for a damaged one."""
    if head is None:
        return None
    if head is _GONE:
        return ""
    if head.journal != journal:
        return f"of journal {head.journal}"
    if head.first != segment.base and head.version == VERSION:
        return f"a copy of the one of offset {head.first}"
    return ""


def _journal(directory: Path, known: Manifest | None, heads: Heads, trusted: int) -> str | None:
    """Decide which journal a directory has, by its notes and by the heads of segments."""
    claimed = Counter(
        head.journal for one, head in heads.items() if head and head.first == one.base and head is not _GONE
    ) or Counter(head.journal for head in heads.values() if head and head is not _GONE)
    mark = read_mark(directory)
    in_mark = mark.growing.journal if mark is not None else None
    in_notes = (known.journal if known else None, in_mark, epochs.journal_in(directory))
    notes = Counter(one for one in in_notes if one is not None)
    if known is not None and trusted:
        claimed[known.journal] += trusted
    chosen = notes or claimed
    if not chosen:
        return None
    best = max(chosen, key=lambda one: (notes[one] > 1, claimed[one] > 0, one == in_notes[0]))
    # One note alone may have been copied here, and so may segments.
    if claimed and (notes[best] == 1 and not claimed[best] if notes else len(claimed) > 1):
        raise JournalError(
            f"{directory}: nothing tells which journal this is: there are files of "
            f"{', '.join(sorted({*notes, *claimed}))}; put those aside that are not this one's"
        )
    return best


class _Sorting:
    """Sorts files by what their heads say, and what the notes say of those whose head says nothing."""

    def __init__(
        self,
        directory: Path,
        journal: str | None,
        known: Manifest | None,
        trusted: set[Segment],
        heads: Heads,
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._known = known
        self._trusted = trusted
        self._heads = heads
        self._mark = read_mark(directory, journal)
        self._whys: dict[str, str] = {}

    def sorted(self, others: list[str]) -> Sorted:
        """Sort; `others` are names that count in no case."""
        self._whys = dict.fromkeys(others, "no regular file, or no offset that a record can have")
        own: dict[int, Segment] = {}
        damaged: list[Segment] = []
        for one in sorted({*self._trusted, *self._heads}):  # the sealed form first
            why = "" if one in self._trusted else _fault(one, self._heads[one], self._journal)
            if why is None:
                damaged.append(one)
            elif why or (one not in self._trusted and self._is_within(one)):
                self._whys[one.name] = why or _WITHIN
            elif one.base not in own:
                own[one.base] = one
        self._take_damaged(own, damaged)
        left = [own.pop(base) for base in self._left_over(own)]
        strays = (
            Finding(name, f"is no segment of this journal: {why}; it is left alone, put it elsewhere")
            for name, why in sorted(self._whys.items())
        )
        segments = [own[base] for base in sorted(own)]
        return Sorted(self._journal, self._known, segments, tuple(strays), tuple(left))

    def _left_over(self, own: dict[int, Segment]) -> list[int]:
        """List the offsets of segments before one that retention has removed.

        Of files that are removed, a power loss may bring back any. Those that lead without a hole to what is
        kept count again; others would end in one.
        """
        first = self._known.first if self._known is not None else 0
        entries = self._known.entries if self._known is not None else {}
        below = sorted(base for base in own if base < first and base not in entries)
        follows = first
        while below and self._last_end(own[below[-1]]) >= follows:
            follows = below.pop()
        return below

    def _last_end(self, segment: Segment) -> int:
        """Find where a segment ends by the heads of its batches."""
        try:
            opened = open_segment(self._directory, segment, self._journal)
        except JournalError:
            return segment.base
        if opened is None:  # retention is at it
            return segment.base
        with opened:
            pieces = opened.frames(opened.first_batch, segment.base)
            return max((one.stamp.end for one in pieces if isinstance(one, Frame)), default=segment.base)

    def _take_damaged(self, own: dict[int, Segment], damaged: list[Segment]) -> None:
        """Add those with a damaged head that are where something should be."""
        intact = dict(own)
        entries = self._known.entries if self._known is not None else {}
        # What grows has not been sealed, and what has been sealed was named after that.
        for one in sorted(damaged, key=lambda one: (one.base, one.is_sealed != (one.base in entries))):
            beside = own.get(one.base)
            if beside is not None:
                self._whys[one.name] = _DAMAGED if beside.is_sealed else _HIDDEN
            elif self._should_be(one, intact):
                own[one.base] = one
            else:
                self._whys[one.name] = _DAMAGED

    def _is_within(self, one: Segment) -> bool:
        """Tell whether the manifest has a segment around an offset, and its file is as it says."""
        return any(
            other.base < one.base < self._known.entries[other.base].end_offset
            for other in self._trusted
            if self._known is not None
        )

    def _should_be(self, one: Segment, intact: dict[int, Segment]) -> bool:
        if self._journal is None:
            return True  # nobody is to take it for an empty journal
        base = one.base
        entries = list(self._known.entries.values()) if self._known is not None else []
        if any(entry.first_offset == base for entry in entries) or (
            self._mark is not None and self._mark.growing.base == base
        ):
            return True
        if self._known is not None and base < self._known.first:
            return False  # retention has removed what was there
        before = max((other for other in intact if other < base), default=None)
        reached = 0 if before is None else self._reach(intact[before])
        if reached > base:
            return False
        if self._mark is not None and base < self._mark.end:
            return True
        present = epochs.history_of(self._directory, self._journal).present
        ends = [present.first_offset, *(entry.end_offset for entry in entries), *intact]
        if base <= max([0, *ends]):
            return True
        return self._mark is None and base == reached and self._has_records(one)

    def _has_records(self, segment: Segment) -> bool:
        """Tell whether there is an intact batch of this journal in a file whose head is damaged."""
        opened = open_segment(self._directory, segment, self._journal, takes_damaged=True)
        if opened is None:
            return False
        with opened:
            return any(isinstance(piece, Frame) for piece in opened.survey())

    def _reach(self, segment: Segment) -> int:
        """Find the offset after the last intact record of a segment."""
        entry = self._known.entry_of(self._directory, segment) if self._known is not None else None
        if entry is not None:
            return entry.end_offset
        if self._mark is not None and self._mark.growing.base == segment.base:
            return self._mark.end
        reached = segment.base
        try:
            opened = open_segment(self._directory, segment, self._journal)
        except JournalError:
            return reached
        if opened is None:
            return reached
        with opened:
            for piece in opened.survey():
                reached = piece.stamp.end if isinstance(piece, Frame) else reached
        return reached
