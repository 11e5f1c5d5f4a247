"""Filters that Spark hands over, as far as they help to pass records by.

Spark evaluates all of them again, so what is not understood here costs time only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from oz.journal.manifest import SubjectSummary

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_SCALE = {"offset": 1, "time_ns": 1, "time": 1000}  # nanoseconds of one unit, for times

Span = tuple[int, int]
"""A number and the one to stop before; what is outside the range of 64 bits stands for no bound."""


class Bounds(NamedTuple):
    """The rest that filters leave: each of the parts must hold.

    Attributes:
        offsets: the first offset and the one to stop before.
        times: the earliest time, in nanoseconds since 1970, and the one to stop before.
        begins: prefixes; the text of a subject begins with all of them.
        among: sets of texts; the text of a subject is in all of them.
        ranges: pairs of texts, or None; that of a subject is not below the first nor above the second.
    """

    offsets: Span = (_LEAST, _MOST + 1)
    times: Span = (_LEAST, _MOST + 1)
    begins: tuple[str, ...] = ()
    among: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[tuple[str | None, str | None], ...] = ()

    @property
    def min_ns(self) -> int | None:
        """The earliest time; None when it has no bound."""
        return self.times[0] if self.times[0] > _LEAST else None

    @property
    def end_ns(self) -> int | None:
        """The time to stop before; None when it has no bound."""
        return self.times[1] if self.times[1] <= _MOST else None

    @property
    def has_subjects(self) -> bool:
        """Whether filters say anything of subjects."""
        return bool(self.begins or self.among or self.ranges)

    def may_be_in(self, subjects: SubjectSummary) -> bool:
        """Tell whether a segment with such subjects may hold a message that is left; False is certain."""
        if not self.has_subjects:
            return True
        return any(self._may_be(*_text_of(one, subjects.complete)) for one in subjects.prefixes)

    def _may_be(self, text: bytes, is_whole: bool) -> bool:
        """Tell whether what is, or begins with, a text may be left."""
        for prefix in map(str.encode, self.begins):
            if not (text.startswith(prefix) or (not is_whole and prefix.startswith(text))):
                return False
        for values in self.among:
            if not any(
                one.encode() == text or (not is_whole and one.encode().startswith(text)) for one in values
            ):
                return False
        for low, high in self.ranges:
            if high is not None and text > high.encode():
                return False
            if low is not None and text < low.encode() and (is_whole or not low.encode().startswith(text)):
                return False
        return True

    def masks(self, records: pa.Table) -> list[pa.ChunkedArray]:
        """Say which records are left; those of offsets and times are the reader's."""
        return list(self._masks(records["subject"])) if self.has_subjects else []

    def _masks(self, subjects: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
        for prefix in self.begins:
            yield pc.starts_with(subjects, pattern=prefix)
        for values in self.among:
            yield pc.is_in(subjects, value_set=pa.array(values, pa.string()))
        for low, high in self.ranges:
            if low is not None:
                yield pc.greater_equal(subjects, low)
            if high is not None:
                yield pc.less_equal(subjects, high)


def _text_of(subject: bytes, is_whole: bool) -> tuple[bytes, bool]:
    """Return a subject or prefix as far as Spark sees the same bytes, and whether that is all of it."""
    try:
        return subject.decode().encode(), is_whole
    except UnicodeDecodeError as error:  # behind it Spark sees U+FFFD
        return subject[: error.start], False


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Read filters, all of which hold."""
    bounds = Bounds()
    for each in filters:
        column = each.attribute[0] if len(getattr(each, "attribute", ())) == 1 else ""
        if column == "subject":
            bounds = _with_subject(bounds, each)
        elif column in _SCALE:
            bounds = _with_number(bounds, column, each)
    return bounds


def _with_subject(bounds: Bounds, each: Filter) -> Bounds:
    value = getattr(each, "value", None)
    if isinstance(each, In):
        texts = tuple(one for one in each.value if isinstance(one, str))
        return bounds._replace(among=(*bounds.among, texts)) if texts else bounds
    if not isinstance(value, str):
        return bounds
    if isinstance(each, EqualTo):
        return bounds._replace(among=(*bounds.among, (value,)))
    if isinstance(each, StringStartsWith):
        return bounds._replace(begins=(*bounds.begins, value))
    if isinstance(each, (GreaterThan, GreaterThanOrEqual)):
        return bounds._replace(ranges=(*bounds.ranges, (value, None)))
    if isinstance(each, (LessThan, LessThanOrEqual)):
        return bounds._replace(ranges=(*bounds.ranges, (None, value)))
    return bounds


def _with_number(bounds: Bounds, column: str, each: Filter) -> Bounds:
    span = _span(each)
    if span is None:
        return bounds
    low, high = (bound * _SCALE[column] for bound in span)
    name = "offsets" if column == "offset" else "times"
    was = getattr(bounds, name)
    return bounds._replace(**{name: (max(was[0], low), min(was[1], high))})


def _span(each: Filter) -> Span | None:
    """Read a filter of numbers, or of times in microseconds."""
    number = _number(getattr(each, "value", None))
    if number is None:
        return None
    if isinstance(each, EqualTo):
        return number, number + 1
    if isinstance(each, GreaterThan):
        return number + 1, _MOST + 1
    if isinstance(each, GreaterThanOrEqual):
        return number, _MOST + 1
    if isinstance(each, LessThan):
        return _LEAST, number
    if isinstance(each, LessThanOrEqual):
        return _LEAST, number + 1
    return None


def _number(value: Any) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value if type(value) is int else None
