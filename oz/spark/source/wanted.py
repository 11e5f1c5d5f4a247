"""The records that a query wants, and the segments and batches that cannot hold any of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from oz.journal.manifest import Entry
from oz.journal.record import Kind
from oz.journal.schema import whole_number
from oz.journal.selection import SubjectFilter
from oz.journal.stamp import Stamp
from oz.subjects.pattern import Pattern

_MESSAGE = whole_number(int(Kind.MESSAGE), pa.int8())
_MOST = (1 << 63) - 1


class WantedRecords:
    """The demand of a query on a journal, its offsets apart."""

    def __init__(
        self,
        patterns: Sequence[Pattern],
        start_ns: int | None,
        end_ns: int | None,
        gaps: bool,
    ) -> None:
        """Say what.

        Args:
            patterns: subjects that one of them matches; none of them: all subjects.
            start_ns: the earliest time, in nanoseconds since 1970.
            end_ns: the time to stop before.
            gaps: also records that are no messages, as far as they may have to do with a pattern.
        """
        self._patterns = patterns
        self._gaps = gaps
        # The column has 64 bits: it holds no time before 1677 and none from 2263 on.
        self._low = None if start_ns is None else max(min(start_ns, _MOST), -_MOST)
        self._high = None if end_ns is None else max(end_ns, -_MOST)
        self._subjects = SubjectFilter(patterns, gaps)

    def may_be_in(self, entry: Entry | None) -> bool:
        """Tell whether a segment may hold something that is wanted; False is certain."""
        if entry is None:
            return True
        if not self._wants_times(entry.min_time_ns, entry.max_time_ns):
            return False
        if entry.gaps and self._gaps:
            return True
        return not self._patterns or any(entry.subjects.may_match(pattern) for pattern in self._patterns)

    def may_be_among(self, entry: Entry, subjects: pa.Array) -> bool:
        """Return whether a segment that has these subjects may hold a wanted record."""
        if not self._patterns or (entry.gaps and self._gaps):
            return True
        return self._subjects.may_pass(subjects)

    @property
    def has_subjects(self) -> bool:
        """Whether patterns select the subjects."""
        return bool(self._patterns)

    @property
    def columns(self) -> set[str]:
        """The columns of the journal that decide which records are wanted."""
        needed = {"kind"}
        if self._low is not None or self._high is not None:
            needed.add("time_ns")
        if self.has_subjects:
            needed |= {"subject", "subject_raw"}
        return needed

    def wants_batch(self, stamp: Stamp) -> bool:
        """Tell whether a batch may hold something that is wanted."""
        return self._wants_times(stamp.min_ns, stamp.max_ns)

    def _wants_times(self, low: int, high: int) -> bool:
        return (self._low is None or high >= self._low) and (self._high is None or low < self._high)

    def of(self, records: pa.Table) -> pa.Table:
        """Pick what is wanted of records that have `columns`.

        Raises:
            PatternTimeout: a pattern ran out of time on a subject.
        """
        masks = list(self._masks(records))
        return records.filter(functools.reduce(pc.and_, masks)) if masks else records

    def _masks(self, records: pa.Table) -> list[pa.ChunkedArray]:
        masks = []
        if self._low is not None:
            masks.append(pc.greater_equal(records["time_ns"], whole_number(self._low, pa.int64())))
        if self._high is not None and self._high <= _MOST:
            masks.append(pc.less(records["time_ns"], whole_number(self._high, pa.int64())))
        is_message = pc.equal(records["kind"], _MESSAGE)
        if not self._gaps and pc.all(is_message).as_py() is False:
            masks.append(is_message)
        if self._patterns:
            masks.append(self._subjects.mask(records))
        return masks
