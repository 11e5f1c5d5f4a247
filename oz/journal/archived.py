"""The outcome of an archive, apart from what writes one: that needs Parquet and file systems."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archived:
    """The outcome of `Journal.archive`.

    Attributes:
        written: the names of the files that were written.
        present: how many were there.
        end_offset: the offset after the last record in the folder; 0 for an empty one.
        missing: ranges of offsets, each with the one after it, that retention had removed before.
    """

    written: tuple[str, ...]
    present: int
    end_offset: int
    missing: tuple[tuple[int, int], ...] = ()
