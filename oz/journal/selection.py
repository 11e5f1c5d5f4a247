"""The selection of records that a reader wants; it passes by all others cheaply."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oz.errors import OzError, PatternTimeout, SubjectError
from oz.journal.manifest import Entry
from oz.journal.record import Kind
from oz.journal.schema import COLUMNS, bytes_array, whole_number
from oz.journal.sealing import subject_bytes
from oz.journal.stamp import Stamp
from oz.subjects.pattern import Pattern, compile

_MESSAGE = whole_number(int(Kind.MESSAGE), pa.int8())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_PREFIXES = 16  # more, and asking for each of them takes longer than trying every subject
_MOST_VERDICTS = 1 << 16
_MOST = (1 << 63) - 1
"""The latest time and the largest offset that a column can hold."""


class Selection:
    """The selection of what to read.

    Attributes:
        first: the first offset.
        end: the offset to stop before; None for no end.
        end_ns: the time to stop before; None for no end.
    """

    def __init__(
        self,
        pattern: str | bytes | Pattern | None,
        start: int | datetime | None,
        end: int | datetime | None,
        columns: Sequence[str] | None,
        gaps: bool,
    ) -> None:
        """Say what is wanted, as `Journal.read` takes it."""
        self._pattern = None if pattern is None else compile(pattern)
        self.first, self._start_ns = _bound(start)
        stop, self.end_ns = _bound(end)
        self.end = stop if isinstance(end, int) else None
        self._wanted = checked_columns(columns)
        self._gaps = gaps
        self._subjects = None if self._pattern is None else SubjectFilter([self._pattern], gaps)

    @property
    def has_pattern(self) -> bool:
        """Whether not all subjects are wanted."""
        return self._pattern is not None

    def stop_before(self, offset: int) -> None:
        """Bring the end forward to an offset."""
        self.end = offset if self.end is None else min(self.end, offset)

    @property
    def columns(self) -> list[str]:
        """The columns to read, those that only decide included."""
        deciding = {"kind"} if not self._gaps or self._pattern is not None else set()
        if self._pattern is not None:
            deciding |= {"subject", "subject_raw"}
        if self._start_ns is not None or self.end_ns is not None:
            deciding |= {"time_ns"}
        return [name for name in COLUMNS if name in deciding or name in self._wanted]

    def wants_segment(self, entry: Entry) -> bool:
        """Tell whether a segment may hold something that is wanted."""
        if not self._wants_times(entry.min_time_ns, entry.max_time_ns):
            return False
        if self._pattern is None or (entry.gaps and self._gaps):
            return True
        return entry.subjects.may_match(self._pattern)

    def wants_subjects(self, entry: Entry, subjects: pa.Array) -> bool:
        """Tell whether a segment may hold something that is wanted, by all the subjects of its messages."""
        return self._subjects is None or (entry.gaps > 0 and self._gaps) or self._subjects.may_pass(subjects)

    def wants_batch(self, stamp: Stamp) -> bool:
        """Tell whether a batch may hold something that is wanted."""
        inside = stamp.end > self.first and (self.end is None or stamp.first < self.end)
        return inside and self._wants_times(stamp.min_ns, stamp.max_ns)

    def _wants_times(self, low: int, high: int) -> bool:
        return (self._start_ns is None or high >= self._start_ns) and (
            self.end_ns is None or low < self.end_ns
        )

    def of(self, table: pa.Table, first: int) -> pa.Table:
        """Pick what is wanted.

        Args:
            table: records in order, with `columns`.
            first: the offset of its first record.

        Raises:
            PatternTimeout: the pattern ran out of time on a subject.
        """
        skip = max(0, self.first - first)
        length = None if self.end is None else max(0, self.end - first - skip)
        table = table.slice(skip, length)
        masks = self._masks(table)
        return (table.filter(functools.reduce(pc.and_, masks)) if masks else table).select(self._wanted)

    def _masks(self, table: pa.Table) -> list[pa.ChunkedArray]:
        masks = []
        if self._start_ns is not None:
            masks.append(pc.greater_equal(table["time_ns"], whole_number(self._start_ns, pa.int64())))
        if self.end_ns is not None:
            masks.append(pc.less(table["time_ns"], whole_number(self.end_ns, pa.int64())))
        if self._subjects is not None:
            masks.append(self._subjects.mask(table))
        elif not self._gaps:
            masks.append(pc.equal(table["kind"], _MESSAGE))
        return masks


class SubjectFilter:
    """Picks records by patterns of their subjects."""

    def __init__(self, patterns: Sequence[Pattern], gaps: bool) -> None:
        """Say what passes.

        Args:
            patterns: messages whose subject one of them matches.
            gaps: also records that are no messages, as far as they may have to do with a pattern.
        """
        self._patterns, self._gaps = patterns, gaps
        self._verdicts: dict[bytes, bool] = {}

    def mask(self, table: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
        """Tell of each record whether it passes.

        Args:
            table: records with their kind and both columns of the subject.

        Raises:
            PatternTimeout: a pattern ran out of time on a subject.
        """
        subjects = subject_bytes(table)
        matching = self._matching(subjects)
        is_message = pc.equal(table["kind"], _MESSAGE)
        if pc.all(is_message).as_py() is not False:
            return matching
        if not self._gaps:
            return pc.and_(is_message, matching)
        others = pc.unique(subjects.filter(pc.invert(is_message))).to_pylist()
        similar = bytes_array([one for one in others if self._may_concern(one)])
        return pc.if_else(is_message, matching, pc.is_in(subjects, value_set=similar))

    def may_pass(self, subjects: pa.Array) -> bool:
        """Tell whether a message with one of these subjects passes; True if a pattern ran out of time."""
        try:
            return pc.any(self._matching(subjects)).as_py() is True
        except PatternTimeout:
            return True

    def _matching(self, subjects: Any) -> Any:
        literals = [pattern.literal for pattern in self._patterns if pattern.literal is not None]
        if len(literals) == len(self._patterns) == 1:  # the quickest
            return pc.equal(subjects, bytes_array(literals)[0])
        if len(literals) == len(self._patterns):
            return pc.is_in(subjects, value_set=bytes_array(literals))
        candidates = subjects
        prefixes = {prefix for pattern in self._patterns for prefix in pattern.prefixes}
        if b"" not in prefixes and len(prefixes) <= _MOST_PREFIXES:
            begins = (pc.starts_with(subjects, pattern=prefix) for prefix in prefixes)
            candidates = subjects.filter(functools.reduce(pc.or_, begins))
        matching = [subject for subject in pc.unique(candidates).to_pylist() if self._matches(subject)]
        return pc.is_in(subjects, value_set=bytes_array(matching))

    def _matches(self, subject: bytes) -> bool:
        verdict = self._verdicts.get(subject)
        if verdict is None:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[subject] = any(_matches(pattern, subject) for pattern in self._patterns)
        return verdict

    def _may_concern(self, lost: bytes) -> bool:
        """Tell whether messages that matched a gap's pattern may have matched one of these too."""
        try:
            heard = compile(lost.decode(errors="surrogateescape")) if lost else None
            return heard is None or any(heard.overlaps(pattern) for pattern in self._patterns)
        except OzError:  # it cannot be told
            return True


def _matches(pattern: Pattern, subject: bytes) -> bool:
    try:
        return pattern.matches(subject)
    except SubjectError:  # not UTF-8, in a dialect of text
        return False


def checked_columns(columns: Sequence[str] | None) -> list[str]:
    """Return the names of columns, all of them for None.

    Raises:
        ValueError: there is no such column.
    """
    names = list(COLUMNS if columns is None else columns)
    if isinstance(columns, str):
        raise ValueError(f"columns is a list of names, not text: write [{columns!r}]")
    if unknown := [name for name in names if name not in COLUMNS]:
        raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    return names


def _bound(value: int | datetime | None) -> tuple[int, int | None]:
    """Take a bound apart: an offset and a time."""
    if value is None:
        return 0, None
    if isinstance(value, datetime):
        return 0, _nanoseconds(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a bound is an offset or a datetime, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"offsets begin at 0: {value}")
    return min(value, _MOST), None


def _nanoseconds(moment: datetime) -> int:
    """Return a time in nanoseconds since 1970, or what a column can hold that is nearest to it."""
    try:
        in_utc = moment.astimezone(UTC)
    except (OverflowError, ValueError):  # `datetime.min` and `max` leave the calendar on their way
        in_utc = moment.replace(tzinfo=UTC)
    return min(max((in_utc - _EPOCH) // timedelta(microseconds=1) * 1000, -_MOST), _MOST)
