"""The selection of records by pattern, offset and time, and of the files and row groups that may contain them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oz.errors import PatternTimeout, SubjectError
from oz.journal.format import COLUMNS, MESSAGE, TYPES, int_scalar
from oz.journal.sealed import Footer, Group
from oz.subjects.pattern import Pattern, compile
from oz.times import read_moment

Patterns = str | bytes | Pattern | Sequence[str | bytes | Pattern] | None
Bound = int | datetime | str | None
"""An offset, a time, or a text such as "2026-03-01", "2026-03-01T09:30+01:00", "now" or "-1h". None means no bound."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX = (1 << 63) - 1  # the largest value of an offset or a time in a column
_MESSAGE = int_scalar(MESSAGE, pa.int8())
_MAX_PREFIXES = 16  # with more prefixes, a test of the prefixes takes longer than a match of the patterns
_MAX_VERDICTS = 1 << 16


def parse_bound(value: Bound) -> int | datetime | None:
    """Return a bound as an offset or as a time with a zone; None for no bound.

    Args:
        value: an offset, a time, or a text such as "2026-03-01" or "-1h". A time without a zone is local time.

    Raises:
        TypeError: the value has another type.
        ValueError: the offset is negative, or the text is no time.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return read_moment(value)
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC)
        except (OverflowError, ValueError):  # datetime.min and datetime.max have no local time
            return value.replace(tzinfo=UTC)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"start and end are an offset, a datetime or text, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"an offset is at least 0, not {value}")
    return min(value, _MAX)


def microseconds(moment: datetime) -> int:
    """Return a time in microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def checked_columns(columns: Sequence[str] | None) -> list[str]:
    """Check the names of columns and return them. None means all columns.

    Raises:
        ValueError: a column does not exist.
    """
    if isinstance(columns, str):
        raise ValueError(f"columns is a list of names: [{columns!r}]")
    names = list(COLUMNS if columns is None else columns)
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"no column {name!r}; the columns are {', '.join(COLUMNS)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns names each column once, and at least one: {names}")
    return names


class Selection:
    """The records that a reader selects.

    Attributes:
        first: the first offset.
        end: the offset before which to stop; None for no limit.
        since: the earliest time of receipt, in microseconds since 1970; None for no limit.
        until: the time of receipt before which to stop, in microseconds since 1970; None for no limit.
        columns: the names of the columns to return.
        gaps: whether gap records are selected too.
        subjects: the filter of subjects; None if all subjects are selected.
        is_from_offset: whether the argument `start` was an offset. Then missing records at the start are a gap.
    """

    def __init__(
        self, pattern: Patterns, start: Bound, end: Bound, columns: Sequence[str] | None, *, gaps: bool
    ) -> None:
        """Parse the arguments of `Journal.batches`.

        Raises:
            PatternError, TypeError, ValueError: an argument has a wrong type or value; see `Journal.batches`.
        """
        first, last = parse_bound(start), parse_bound(end)
        self.is_from_offset = isinstance(first, int)
        self.first = first if isinstance(first, int) else 0
        self.end = last if isinstance(last, int) else None
        self.since = microseconds(first) if isinstance(first, datetime) else None
        self.until = microseconds(last) if isinstance(last, datetime) else None
        self.columns = checked_columns(columns)
        self.gaps = gaps
        self.subjects = None if pattern is None else SubjectFilter(pattern)

    def limit(self, end: int) -> None:
        """Limit the selection to records before an offset."""
        self.end = end if self.end is None else min(self.end, end)

    def wants_file(self, footer: Footer) -> bool:
        """Return whether a sealed file may hold a selected record."""
        if not self._wants_times(footer.times):
            return False
        if self.subjects is None or (self.gaps and footer.gaps):
            return True
        return footer.subjects is None or self.subjects.matches_some(footer.subjects)

    def wants_group(self, footer: Footer, group: Group) -> bool:
        """Return whether a row group may hold a selected record."""
        if group.end <= self.first or (self.end is not None and group.first >= self.end):
            return False
        if not self._wants_times(group.times):
            return False
        if self.subjects is None or group.subjects is None or (self.gaps and group.has_gaps):
            return True
        # The statistics of `subject` do not cover subjects that are not UTF-8, which are in `subject_raw`.
        return "subject_raw" not in footer.empty or self.subjects.may_match(*group.subjects)

    def _wants_times(self, times: tuple[int, int]) -> bool:
        return (self.since is None or times[1] >= self.since) and (
            self.until is None or times[0] < self.until
        )

    def deciding_columns(self, groups: Sequence[Group]) -> list[str]:
        """Return the names of the columns that decide which records of some row groups are selected."""
        names = []
        if groups[0].first < self.first or (self.end is not None and groups[-1].end > self.end):
            names.append("offset")
        low, high = min(group.times[0] for group in groups), max(group.times[1] for group in groups)
        is_cut = (self.since is not None and low < self.since) or (
            self.until is not None and high >= self.until
        )
        if is_cut:
            names.append("time")
        if any(group.has_gaps for group in groups) and (not self.gaps or self.subjects is not None):
            names.append("kind")
        if self.subjects is not None:
            names += ["subject", "subject_raw"]
        return names

    def mask(self, table: pa.Table | pa.RecordBatch) -> Any:
        """Return for each record whether it is selected, as an Arrow array; None if all records are selected.

        Args:
            table: records with at least the columns of `deciding_columns`.

        Raises:
            PatternTimeout: a pattern exceeded its time limit on a subject.
        """
        masks = list(self._masks(table))
        return functools.reduce(pc.and_, masks) if masks else None

    def _masks(self, table: pa.Table | pa.RecordBatch) -> Iterator[Any]:
        names = table.schema.names
        if "offset" in names and self.first:
            yield pc.greater_equal(table["offset"], int_scalar(self.first, pa.int64()))
        if "offset" in names and self.end is not None:
            yield pc.less(table["offset"], int_scalar(self.end, pa.int64()))
        if "time" in names and self.since is not None:
            yield pc.greater_equal(table["time"], int_scalar(_clamp(self.since), TYPES["time"]))
        if "time" in names and self.until is not None:
            yield pc.less(table["time"], int_scalar(_clamp(self.until), TYPES["time"]))
        has_gaps = "kind" in names and pc.max(table["kind"]).as_py() != MESSAGE
        is_message = pc.equal(table["kind"], _MESSAGE) if has_gaps else None
        if self.subjects is None:
            if is_message is not None and not self.gaps:
                yield is_message
            return
        matching = self.subjects.mask(table["subject"], table["subject_raw"])
        if is_message is None:
            yield matching
        elif self.gaps:
            # All gap records are selected, because the lost messages may have matched.
            yield pc.or_(pc.invert(is_message), matching)
        else:
            yield pc.and_(is_message, matching)


def _clamp(value: int) -> int:
    return max(-_MAX, min(value, _MAX))


class SubjectFilter:
    """A filter of subjects by patterns: a subject passes if at least one pattern matches."""

    def __init__(self, pattern: Patterns) -> None:
        """Compile patterns.

        Raises:
            PatternError: a dialect does not allow a pattern.
            ValueError: the list of patterns is empty.
        """
        listed = [pattern] if isinstance(pattern, (str, bytes, Pattern)) else list(pattern or ())
        if not listed:
            raise ValueError("the list of patterns is empty, so that no record would match; None selects all")
        self.patterns = [compile(pattern) for pattern in listed]
        literals = [pattern._compiled.literal for pattern in self.patterns]
        self._literals = [literal for literal in literals if literal is not None]
        self._is_literal = len(self._literals) == len(literals)
        prefixes = {prefix for pattern in self.patterns for prefix in pattern.prefixes}
        self._prefixes = sorted(prefixes) if b"" not in prefixes and len(prefixes) <= _MAX_PREFIXES else []
        self._verdicts: dict[str, bool] = {}

    def matches(self, subject: str) -> bool:
        """Return whether a pattern matches a subject. Results are cached."""
        verdict = self._verdicts.get(subject)
        if verdict is None:
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[subject] = any(_matches(pattern, subject) for pattern in self.patterns)
        return verdict

    def matches_some(self, subjects: Sequence[str]) -> bool:
        """Return whether at least one of the subjects may pass."""
        try:
            prefixes: Any = tuple(prefix.decode() for prefix in self._prefixes) or ""
        except UnicodeDecodeError:  # a prefix ends inside of a UTF-8 character
            prefixes = ""
        try:
            return any(self.matches(subject) for subject in subjects if subject.startswith(prefixes))
        except PatternTimeout:
            return True

    def may_match(self, low: bytes, high: bytes) -> bool:
        """Return whether a subject between `low` and `high` may begin with a prefix of a pattern."""
        if not self._prefixes:
            return True
        return any(low[: len(prefix)] <= prefix <= high for prefix in self._prefixes)

    def mask(self, subjects: Any, raw: Any) -> Any:
        """Return for each subject whether it passes, as an Arrow array.

        Args:
            subjects: the column `subject`, as text or as a dictionary.
            raw: the column `subject_raw`.
        """
        if raw.null_count < len(raw):
            pairs = zip(subjects.to_pylist(), raw.to_pylist(), strict=True)
            exact = [text if own is None else own.decode(errors="surrogateescape") for text, own in pairs]
            return _booleans([self.matches(subject) for subject in exact])
        if isinstance(subjects, pa.ChunkedArray):
            return pa.chunked_array([self._mask_chunk(chunk) for chunk in subjects.chunks], pa.bool_())
        return self._mask_chunk(subjects)

    def _mask_chunk(self, chunk: pa.Array) -> pa.Array:
        if not isinstance(chunk, pa.DictionaryArray):
            chunk = chunk.dictionary_encode()
        return _expand_mask(self._mask_distinct(chunk.dictionary), chunk.indices)

    def _mask_distinct(self, subjects: pa.Array) -> pa.Array:
        data = subjects.cast(pa.binary())
        if self._is_literal:
            equal = (pc.equal(data, _binary_scalar(literal)) for literal in self._literals)
            return functools.reduce(pc.or_, equal)
        if not self._prefixes:
            return _booleans([self.matches(subject) for subject in subjects.to_pylist()])
        candidates = functools.reduce(
            pc.or_, (pc.starts_with(data, pattern=prefix) for prefix in self._prefixes)
        )
        if not pc.any(candidates).as_py():
            return candidates
        verdicts = [self.matches(subject) for subject in subjects.filter(candidates).to_pylist()]
        return pc.replace_with_mask(candidates, candidates, _booleans(verdicts))


def _expand_mask(mask: pa.Array, indices: pa.Array) -> pa.Array:
    """Convert a mask of the values in a dictionary to a mask of the rows."""
    hits = pc.indices_nonzero(mask)
    if len(hits) == 1:  # `equal` is three times as fast as `take`
        return pc.equal(indices, int_scalar(hits[0].as_py(), indices.type))
    return mask.take(indices) if len(hits) else _booleans(bytes(len(indices)))


def _matches(pattern: Pattern, subject: str) -> bool:
    try:
        return pattern.matches(subject)
    except SubjectError:  # a subject that is not UTF-8 matches no pattern of a text dialect
        return False


def _booleans(values: Sequence[bool] | bytes) -> pa.Array:
    # `pa.array` is not used, because it imports pandas; see `int_scalar`.
    return pa.Array.from_buffers(pa.uint8(), len(values), [None, pa.py_buffer(bytes(values))]).cast(
        pa.bool_()
    )


def _binary_scalar(value: bytes) -> pa.Scalar:
    offsets = pa.py_buffer(b"".join(end.to_bytes(4, "little") for end in (0, len(value))))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(value)])[0]
