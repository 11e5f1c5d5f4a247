"""Letting go of the oldest segments."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from oz.journal import files, own
from oz.journal.files import FULL, STREAM, Segment
from oz.journal.manifest import Manifest
from oz.logs import logger

_AT_ONCE = 64  # segments, each of them open meanwhile

_log = logger("oz.journal")


@dataclass(frozen=True)
class Retention:
    """The bounds of what to keep.

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
            Whether something was removed; the manifest is changed and saved then.
        """
        if self.most_bytes is None and self.most_seconds is None:
            return False
        is_changed = False
        while self._remove_some(directory, manifest, active):
            is_changed = True
        return is_changed

    def _remove_some(self, directory: Path, manifest: Manifest, active: int) -> bool:
        present = own.segments(directory, manifest)
        journal = manifest.journal
        sizes = [_size(directory, segment, journal) for segment in present]
        total, now_ns = sum(sizes), time.time_ns()
        going = 0
        with ExitStack() as held:
            for segment, size in zip(present[:_AT_ONCE], sizes, strict=False):
                excess = self.most_bytes is not None and total > self.most_bytes
                if segment.base >= active or not (excess or self._is_old(manifest, segment, now_ns)):
                    break
                paths = _removable(directory, segment, journal)
                if not all(held.enter_context(files.unheld(path)) for path in paths):
                    break
                total -= size
                going += 1
            if going:
                first = present[going].base if going < len(present) else active
                _remove(directory, manifest, present[:going], first)
        return going > 0

    def _is_old(self, manifest: Manifest, segment: Segment, now_ns: int) -> bool:
        entry = manifest.entries.get(segment.base)
        if self.most_seconds is None or entry is None:
            return False
        return now_ns - entry.max_time_ns > self.most_seconds * 1e9


def _paths(directory: Path, segment: Segment, journal: str) -> list[Path]:
    """The files of a segment: also the stream that may still be beside its sealed form."""
    stream = Segment(segment.base, STREAM)
    is_beside = segment.is_sealed and own.may_go(directory, stream, journal)
    return [directory / one.name for one in (segment, stream)[: 1 + is_beside]]


def _removable(directory: Path, segment: Segment, journal: str) -> list[Path]:
    """Those of them that are not somebody else's, whatever the manifest says."""
    paths = _paths(directory, segment, journal)
    return paths[1:] if own.is_anothers(directory, segment, journal) else paths


def _size(directory: Path, segment: Segment, journal: str) -> int:
    return sum(path.stat().st_size for path in _paths(directory, segment, journal))


def _remove(directory: Path, manifest: Manifest, going: list[Segment], first: int) -> None:
    manifest.first = first
    for segment in going:
        manifest.entries.pop(segment.base, None)
    # It is noted before anything is removed: what is missing otherwise was not removed by retention.
    if not _note(directory, manifest):
        # The oldest alone makes room for the note: until then a power loss takes what is removed for lost.
        _unlink(directory, going[0], manifest.journal)
        manifest.save(directory)
    for segment in going:
        _unlink(directory, segment, manifest.journal)
        _log.info("%s: removed segment %s", directory, segment.name)


def _unlink(directory: Path, segment: Segment, journal: str) -> None:
    for path in _removable(directory, segment, journal):
        path.unlink(missing_ok=True)


def _note(directory: Path, manifest: Manifest) -> bool:
    """Save the manifest; False when there is no room, which removing is to make."""
    try:
        manifest.save(directory)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return False
    return True
