"""Going through a journal, from segment to segment, while it may be written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from oz.errors import JournalError
from oz.journal import manifest
from oz.journal.files import SEALED, STREAM, Segment, segments
from oz.journal.mark import acknowledged
from oz.journal.segment import OpenSegment, damage, open_segment, runs
from oz.journal.selection import Selection
from oz.journal.walk import Frame, Hole, survey

_SHORTEST, _LONGEST = 0.001, 0.05  # seconds between two looks while nothing is appended
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
        self._manifest = manifest.load(directory)
        self._at = selection.first
        self._position = 0
        self._left: Segment | None = None
        self._is_holding = False
        self._pause = _SHORTEST

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
                    yield from self._rest_of(current)
                elif not self._wait():
                    return
        finally:
            if current is not None:
                current.close()

    def _is_over(self) -> bool:
        return self._selection.end is not None and self._at >= self._selection.end

    def _wait(self) -> bool:
        """Wait a little for more; False when there is nothing to wait for."""
        end_ns = self._selection.end_ns
        if not self._follow or (end_ns is not None and time.time_ns() >= end_ns):
            self._follow = False
            return False
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST)
        return True

    def _enter(self) -> OpenSegment | None:
        """Open the segment that comes next, passing by those that hold nothing wanted."""
        while (segment := self._locate()) is not None:
            known = self._manifest and self._manifest.entry_of(self._directory, segment)
            if known and not self._selection.wants_segment(known):
                self._left, self._at = segment, known.end_offset
            elif opened := open_segment(self._directory, segment):
                self._left, self._at, self._is_holding = segment, segment.base, True
                self._position = opened.first_batch
                return opened
        return None

    def _locate(self) -> Segment | None:
        if self._left is not None and (found := self._following()) is not None:
            return found
        present = segments(self._directory)
        # What was passed by is not held: until the first is, retention may overtake.
        is_overtaken = not self._is_holding and bool(present) and present[0].base > self._at
        if self._left is not None and not is_overtaken:
            self._refuse_a_hole(present)
            return None
        if present and present[0].base > self._at:  # retention was there first
            self._at = present[0].base
        return max((segment for segment in present if segment.base <= self._at), default=None)

    def _following(self) -> Segment | None:
        assert self._left is not None
        if self._at > self._left.base:
            for suffix in (SEALED, STREAM):
                segment = Segment(self._at, suffix)
                if (self._directory / segment.name).exists():
                    return segment
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
            for run in runs(self._wanted(current, limit)):
                table = current.decode(run, self._selection.columns)
                picked = self._selection.of(table, run[0].stamp.first)
                yield from picked.combine_chunks().to_batches()
                self._pause = _SHORTEST
            if current.segment.is_sealed or self._is_over() or self._following():
                return
            if self._at < limit and not self._following():
                raise damage(current.path, self._position, "records that were acknowledged are missing")
            if not self._wait():
                return

    def _limit(self, current: OpenSegment) -> int:
        """How far a segment may be read now."""
        if current.segment.is_sealed:
            return _NO_LIMIT
        if self._selection.end is not None and not self._follow:
            return self._selection.end
        noted = acknowledged(self._directory)
        return self._intact(current) if noted is None else noted

    def _intact(self, current: OpenSegment) -> int:
        pieces = survey(current.source, self._position, current.salt, self._at)
        return max((piece.stamp.end for piece in pieces if isinstance(piece, Frame)), default=self._at)

    def _wanted(self, current: OpenSegment, limit: int) -> Iterator[Frame]:
        """Go through what may be read, and pick the batches that may hold something wanted."""
        for piece in current.frames(self._position, self._at):
            if self._at >= limit or self._is_over():
                return
            if isinstance(piece, Hole):
                raise damage(current.path, piece.position, piece.reason)
            self._position, self._at = piece.end, piece.stamp.end
            if self._selection.wants_batch(piece.stamp):
                yield piece


def end_of(directory: Path) -> int:
    """Find where a journal ends: as far as it is acknowledged, or else as far as it is intact.

    Raises:
        JournalError: the head of the last segment is damaged, or of a newer version.
    """
    noted = acknowledged(directory)
    if noted is not None:
        return noted
    while present := segments(directory):
        opened = open_segment(directory, present[-1])
        if opened is not None:
            with opened:
                ends = (piece.stamp.end for piece in opened.survey() if isinstance(piece, Frame))
                return max(ends, default=present[-1].base)
    return 0
