"""Going through a journal, from segment to segment, while it may be written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from oz.errors import JournalError
from oz.journal import files, manifest, own
from oz.journal.epochs import History, history_of, must_reach
from oz.journal.files import SEALED, Segment
from oz.journal.manifest import Entry, Manifest
from oz.journal.mark import acknowledged, read_mark
from oz.journal.ranges import gone
from oz.journal.segment import DamagedHead, OpenSegment, damage, open_segment
from oz.journal.selection import Selection
from oz.journal.subjects import subjects_in
from oz.journal.walk import Frame, Hole, survey
from oz.protocol.backoff import growing

_SHORTEST, _LONGEST = 0.001, 0.05  # seconds between two looks while nothing is appended
_LOOKS = 20  # at a manifest that may be about to change
_NO_LIMIT = 1 << 63


class Reading:
    """One pass over a journal. The segment that it is at is held, and with it all that follow."""

    def __init__(self, directory: Path, selection: Selection, *, follow: bool) -> None:
        """Begin; nothing is opened yet.

        Args:
            directory: the journal's.
            selection: what to read, with an end unless `follow` is true.
            follow: at the end wait for more.
        """
        self._directory = directory
        self._selection = selection
        self._follow = follow
        found = own.sorted_files(directory)
        self._journal = found.journal
        self._known = found.known or (Manifest(found.journal) if found.journal else None)
        self._history = history_of(directory)
        self._at = selection.first
        self._position = 0
        self._left: Segment | None = None
        self._keeps_place = False
        self._pauses = growing(_SHORTEST, _LONGEST)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what is wanted.

        Raises:
            JournalError: something is damaged or missing.
            PatternTimeout: the pattern ran out of time on a subject.
        """
        current: OpenSegment | None = None
        try:
            while not self._is_over():
                following = self._enter()
                if following is not None:
                    # Only now: between the two retention could come in.
                    if current is not None:
                        current.close()
                    current = following
                    # Where retention overtook it, it has not read what is before this.
                    self._compare_epochs()
                    self._keeps_place = True
                    yield from self._rest_of(current)
                elif not self._wait(current):
                    self._refuse_an_early_end()
                    return
        finally:
            if current is not None:
                current.close()

    def _is_over(self) -> bool:
        return self._selection.end is not None and self._at >= self._selection.end

    def _refuse_an_early_end(self) -> None:
        end = self._selection.end
        if end is not None and self._at < end:
            raise gone(self._directory, self._at, end)

    def _compare_epochs(self) -> None:
        """See that what was read so far is still what the journal has at those offsets."""
        mark = read_mark(self._directory)
        present = mark.growing.epoch if mark is not None else None
        if present and present == self._history.present.id:
            return
        now = history_of(self._directory)
        if now.present == self._history.present:
            return
        epoch = self._history.epoch_before(self._at)
        if self._keeps_place and now.agreed(epoch, self._at) != self._at:
            raise renumbered(self._directory, now, epoch, self._at)
        self._history = now

    def _refuse_what_is_gone(self, current: OpenSegment | None) -> None:
        """See, while it waits, that what it waits for can come."""
        if current is not None and not current.segment.is_sealed and not current.is_in_place():
            sealed = self._directory / Segment(current.segment.base, SEALED).name
            if self._following() is None and not files.is_regular(sealed):
                raise JournalError(
                    f"{current.path} was removed or replaced while it was followed, at offset {self._at}; "
                    "read again from there once the journal is in order"
                )
        must = acknowledged(self._directory)
        is_short = must is not None and self._at < must and (current is None or current.segment.is_sealed)
        if must is not None and is_short and self._locate() is None:
            raise gone(self._directory, self._at, must)

    def _wait(self, current: OpenSegment | None) -> bool:
        """Wait a little for more; False when there is nothing to wait for.

        Raises:
            JournalError: what would come is not there, or comes no more.
        """
        end_ns = self._selection.end_ns
        if not self._follow or (end_ns is not None and time.time_ns() >= end_ns):
            self._follow = False
            return False
        self._refuse_what_is_gone(current)
        time.sleep(next(self._pauses))
        return True

    def _enter(self) -> OpenSegment | None:
        """Open the segment that comes next, passing by those that hold nothing wanted."""
        while (segment := self._locate()) is not None:
            known = self._known and self._known.entry_of(self._directory, segment)
            if known and not self._selection.wants_segment(known):
                self._left, self._at = segment, known.end_offset
            elif opened := open_segment(self._directory, segment, self._journal):
                if known and not _may_hold(opened, known, self._selection):
                    opened.close()
                    self._left, self._at = segment, known.end_offset
                    continue
                self._left, self._at = segment, segment.base
                self._position = opened.first_batch
                return opened
        return None

    def _locate(self) -> Segment | None:
        if self._left is not None and (found := self._following()) is not None:
            return found
        present = own.segments(self._directory, self._known)
        # What was passed by is not held: until the first is, retention may overtake.
        is_overtaken = not self._keeps_place and bool(present) and present[0].base > self._at
        if self._left is not None and not is_overtaken:
            self._refuse_a_hole(present)
            return None
        if present and present[0].base > self._at:
            self._refuse_unless_retention(present[0].base)
            self._at = present[0].base
        return max((segment for segment in present if segment.base <= self._at), default=None)

    def _refuse_unless_retention(self, there: int) -> None:
        """See that what is missing before an offset was removed by retention."""
        for _ in range(_LOOKS):
            # With no room for a new manifest it removes first, and says so an instant later.
            known = manifest.load(self._directory)
            is_own = known is not None and known.journal == self._journal
            missing = own.missing(self._directory, known) if known and is_own else []
            if not any(entry.end_offset > self._at and entry.first_offset < there for entry in missing):
                return
            time.sleep(_LONGEST)
        raise gone(self._directory, self._at, there)

    def _following(self) -> Segment | None:
        assert self._left is not None
        if self._at > self._left.base and self._known is not None:
            return own.segment_at(self._directory, self._at, self._known)
        return None

    def _refuse_a_hole(self, present: list[Segment]) -> None:
        later = [segment.base for segment in present if segment.base > self._at]
        if later and self._following() is None:
            raise JournalError(
                f"{self._directory}: the records from offset {self._at} to {later[0] - 1} are missing; "
                "`oz journal repair` puts records in their place that say so"
            )

    def _rest_of(self, current: OpenSegment) -> Iterator[pa.RecordBatch]:
        """Read a segment to its end; that of the last one is where the journal ends."""
        while True:
            current.source.forget()
            limit = self._limit(current)
            for run in current.runs(self._wanted(current, limit)):
                table = current.decode(run, self._selection.columns)
                picked = self._selection.of(table, run.first.first)
                yield from picked.combine_chunks().to_batches()
                self._pauses = growing(_SHORTEST, _LONGEST)
            if current.segment.is_sealed or self._is_over() or self._following():
                return
            if self._at < limit and not self._following():
                reason = "what was acknowledged is missing"
                raise damage(current.path, self._position, reason, self._at, limit)
            if not self._wait(current):
                return

    def _limit(self, current: OpenSegment) -> int:
        """The end of what may be read of a segment now."""
        if current.segment.is_sealed:
            return _NO_LIMIT
        if self._selection.end is not None and not self._follow:
            return self._selection.end
        limit = acknowledged(self._directory)
        if limit is None:
            limit = max(self._intact(current), must_reach(self._directory, self._journal))
        # Only now: so the epoch of a writer that takes over in between is known before its records are read.
        self._compare_epochs()
        return limit

    def _intact(self, current: OpenSegment) -> int:
        pieces = survey(current.source, self._position, current.salt, self._at)
        return max((piece.stamp.end for piece in pieces if isinstance(piece, Frame)), default=self._at)

    def _wanted(self, current: OpenSegment, limit: int) -> Iterator[Frame]:
        """Go through what may be read, and pick the batches that may hold something wanted."""
        for piece in current.frames(self._position, self._at):
            if self._at >= limit or self._is_over():
                return
            if isinstance(piece, Hole):
                raise damage(current.path, piece.position, piece.reason, self._at)
            self._position, self._at = piece.end, piece.stamp.end
            if self._selection.wants_batch(piece.stamp):
                yield piece


def may_hold(directory: Path, entry: Entry, journal: str, selection: Selection) -> bool:
    """Tell whether a sealed segment may hold something that is wanted; False is certain."""
    if not selection.wants_segment(entry):
        return False
    if entry.subjects.complete or not selection.has_pattern:  # they have been asked
        return True
    subjects = subjects_of(directory, entry, journal)
    return subjects is None or selection.wants_subjects(entry, subjects)


def subjects_of(directory: Path, entry: Entry, journal: str) -> pa.Array | None:
    """Read the subjects in the file of a sealed segment; None where nothing tells them.

    A damaged head is not refused here: whoever reads the segment meets it.
    """
    try:
        opened = open_segment(directory, Segment(entry.first_offset, SEALED), journal)
    except DamagedHead:
        return None
    if opened is None:
        return None
    with opened:
        return subjects_in(opened.source) if opened.source.size == entry.bytes else None


def _may_hold(opened: OpenSegment, entry: Entry, selection: Selection) -> bool:
    if entry.subjects.complete:  # they have been asked
        return True
    subjects = subjects_in(opened.source) if selection.has_pattern else None
    return subjects is None or selection.wants_subjects(entry, subjects)


def end_of(directory: Path) -> int:
    """Find where a journal ends: as far as it is acknowledged, or else as far as it is intact.

    Raises:
        JournalError: the head of the last segment is damaged, or of another version.
    """
    noted = acknowledged(directory)
    if noted is not None:
        # Segments begin where all before is acknowledged.
        return max(noted, *(segment.base for segment in own.segments(directory)[-1:]), 0)
    must = 0
    while (found := own.sorted_files(directory)).segments:
        present, must = found.segments, must_reach(directory, found.journal)
        opened = open_segment(directory, present[-1], found.journal)
        if opened is not None:
            with opened:
                ends = (piece.stamp.end for piece in opened.survey() if isinstance(piece, Frame))
                return max([present[-1].base, must, *ends])
    return must_reach(directory, found.journal)


def renumbered(directory: Path, history: History, epoch: str, offset: int) -> JournalError:
    """Make the error for a reader that has read what is no longer in the journal at those offsets."""
    return JournalError(f"{directory}: {why_renumbered(history, epoch, offset)}")


def why_renumbered(history: History, epoch: str, offset: int) -> str:
    """Say what has become of the offsets that were read in an epoch up to one."""
    ended = history.agreed(epoch, offset)
    name = f"epoch {epoch}" if epoch else "an unknown epoch"
    if ended is None:
        return (
            f"what was read up to offset {offset} is of {name}, which this journal does not have: it is "
            "another copy, and other records may have these offsets here"
        )
    return (
        f"what was read up to offset {offset} is of {name}, which ended at offset {ended} here: the journal "
        "was put back to an earlier state, and other records have the offsets from there on"
    )
