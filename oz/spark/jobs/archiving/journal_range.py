"""The records of a journal that can be archived, and the steps."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException

from oz.errors import JournalError
from oz.journal import Journal, files, own
from oz.spark.jobs.archiving.layout import LakeLayout

_RAISED = re.compile(r"^oz\.[\w.]*(?:JournalError|RangeGone): (.+)$", re.MULTILINE)


@contextmanager
def errors_of_executors() -> Iterator[None]:
    """Raise what a reader of the journal raised on an executor; other failures stay as Spark reports them.

    Raises:
        JournalError: the journal is damaged, or something of it is gone.
    """
    try:
        yield
    except PySparkException as error:
        found = _RAISED.search(str(error))
        if found is None:
            raise
        raise JournalError(found[1]) from error


def identity_of(journal: Path) -> str:
    """Find the id of a journal.

    Raises:
        JournalError: nothing tells it.
    """
    found = own.journal_of(journal)
    if found is not None:
        return found
    raise JournalError(f"{journal}: nothing tells which journal this is; see `oz journal repair`")


@dataclass(frozen=True)
class JournalRange:
    """The part of a journal that can be archived now: it does not change any more.

    Attributes:
        first_offset: where the journal begins.
        end_offset: how far it can be archived.
        unsealed: records after that which are acknowledged, and in a segment that is not sealed.
        sizes: the first offset and the bytes of each segment.
    """

    first_offset: int
    end_offset: int
    unsealed: int
    sizes: tuple[tuple[int, int], ...]

    def step(self, start: int, layout: LakeLayout) -> int:
        """Find where a step ends that begins at an offset: at the latest at the end."""
        end = min(start + layout.step_rows, self.end_offset)
        budget = float(layout.step_bytes)
        following = [*(base for base, _ in self.sizes[1:]), self.end_offset]
        for (base, size), next_base in zip(self.sizes, following, strict=True):
            low, high = max(base, start), min(next_base, end)
            if low >= high:
                continue
            each = size / max(1, next_base - base)
            fitting = int(budget / each) if each else high - low
            if fitting < high - low:
                return max(low + fitting, start + 1)
            budget -= each * (high - low)
        return end


def range_of(directory: Path, *, unsealed: bool) -> JournalRange:
    """Look how far a journal can be archived.

    Args:
        directory: the journal.
        unsealed: also what is acknowledged in the segment that grows.

    Raises:
        JournalError: there is no journal, or it is damaged or of a newer version.
    """
    journal = Journal(directory)
    present = own.segments(directory)
    acknowledged = journal.end_offset
    growing = [segment.base for segment in present if not segment.is_sealed]
    sealed = min([*growing, acknowledged])
    end = acknowledged if unsealed else sealed
    sizes = tuple(
        (segment.base, _size(directory / segment.name)) for segment in present if segment.base < end
    )
    first = min((segment.base for segment in present), default=0)
    return JournalRange(min(first, end), end, acknowledged - end, sizes)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # sealed or removed meanwhile
        return 0


@contextmanager
def held(directory: Path, offset: int) -> Iterator[None]:
    """Keep retention from an offset and all that follow.

    Raises:
        JournalError: the offset is gone already.
    """
    descriptor = None
    while descriptor is None:
        bases = [segment for segment in own.segments(directory) if segment.base <= offset]
        if not bases:
            raise JournalError(f"{directory}: retention removed offset {offset} while it was to be archived")
        descriptor = files.open_held(directory / bases[-1].name)
    try:
        yield
    finally:
        os.close(descriptor)
