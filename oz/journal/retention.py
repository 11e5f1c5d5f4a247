"""Letting go of the oldest segments."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from oz.journal import files
from oz.journal.files import STREAM, Segment
from oz.journal.manifest import Manifest

_log = logging.getLogger("oz.journal")


@dataclass(frozen=True)
class Retention:
    """How much to keep.

    Attributes:
        most_bytes: the size of all segments together; None for no limit.
        most_seconds: the age of a segment's latest record; None for no limit.
    """

    most_bytes: int | None
    most_seconds: float | None

    def apply(self, directory: Path, manifest: Manifest, active: int) -> bool:
        """Remove what exceeds it, oldest first, up to the first that a reader holds.

        Since it goes from the oldest on, a reader that holds one segment has all later ones too.

        Args:
            directory: the journal's.
            manifest: what is known of the segments.
            active: the base of the segment that grows: neither it nor one after it is removed.

        Returns:
            Whether something was removed; the manifest is changed then, and not saved.
        """
        if self.most_bytes is None and self.most_seconds is None:
            return False
        present = files.segments(directory)
        sizes = {segment: _size(directory, segment) for segment in present}
        total = sum(sizes.values())
        removed, now_ns = False, time.time_ns()
        for segment in present:
            if segment.base >= active:
                break
            excess = self.most_bytes is not None and total > self.most_bytes
            if not (excess or self._is_old(manifest, segment, now_ns)) or not _remove(directory, segment):
                break
            _log.info("%s: removed segment %s", directory, segment.name)
            total -= sizes[segment]
            manifest.entries.pop(segment.base, None)
            removed = True
        return removed

    def _is_old(self, manifest: Manifest, segment: Segment, now_ns: int) -> bool:
        entry = manifest.entries.get(segment.base)
        if self.most_seconds is None or entry is None:
            return False
        return now_ns - entry.max_time_ns > self.most_seconds * 1e9


def _size(directory: Path, segment: Segment) -> int:
    """The size of a segment, with the stream that may still be beside it."""
    paths = {directory / segment.name, directory / Segment(segment.base, STREAM).name}
    return sum(path.stat().st_size for path in paths if path.exists())


def _remove(directory: Path, segment: Segment) -> bool:
    stream = directory / Segment(segment.base, STREAM).name
    if segment.is_sealed and not files.remove_unless_held(stream):
        return False
    return files.remove_unless_held(directory / segment.name)
