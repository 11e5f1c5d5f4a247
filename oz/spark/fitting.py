"""Decoded values as Arrow columns of a given type; what does not fit is told apart, never bent into shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from typing import Any

import msgpack
import pyarrow as pa

_NONE = type(None)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Wrong = set[int]
"""The places of the values that do not fit."""


def fit(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, Wrong]:
    """Make an array of values; None becomes null.

    A number fits a type that holds it: an integer a floating type too, but no fraction an integer type, and
    true is no number. Text fits text only, bytes fit binary only. Times are msgpack's timestamps or ISO 8601
    text, dates such text, decimals integers or text. A map fits a struct: fields that it lacks are null, and
    others are passed by. One wrong value in a field, an element or an entry makes all of it wrong.

    Args:
        values: as a codec gives them.
        kind: the type of the array.

    Returns:
        The array, null where a value does not fit; and where that is.

    Raises:
        TypeError: `kind` is, or has in it, a type that nothing fits.
    """
    if pa.types.is_struct(kind):
        return _fit_struct(values, kind)
    if pa.types.is_map(kind):
        return _fit_map(values, kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _fit_list(values, kind)
    return _fit_scalars(values, kind)


def _fit_struct(values: Sequence[Any], kind: pa.StructType) -> tuple[pa.Array, Wrong]:
    wrong = _not_of(values, dict)
    maps = [value if type(value) is dict else {} for value in values]
    columns = []
    for field in kind:
        column, bad = fit([each.get(field.name) for each in maps], field.type)
        columns.append(column)
        wrong |= bad
    is_null = _mask(values, wrong)
    if not columns:
        return pa.array([None if null else {} for null in is_null.to_pylist()], kind), wrong
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=is_null), wrong


def _fit_list(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, Wrong]:
    wrong = _not_of(values, list)
    rows = [value if type(value) is list else [] for value in values]
    elements, bad = fit([element for row in rows for element in row], kind.value_type)
    wrong |= _owners(rows, bad)
    is_large = pa.types.is_large_list(kind)
    made, number = (pa.LargeListArray, pa.int64()) if is_large else (pa.ListArray, pa.int32())
    ends = pa.array(_ends(rows), number)
    return made.from_arrays(ends, elements, type=kind, mask=_mask(values, wrong)), wrong


def _fit_map(values: Sequence[Any], kind: pa.MapType) -> tuple[pa.Array, Wrong]:
    wrong = _not_of(values, dict)
    rows = [value if type(value) is dict else {} for value in values]
    names = [name for row in rows for name in row]
    keys, bad = fit(names, kind.key_type)
    items, also_bad = fit([item for row in rows for item in row.values()], kind.item_type)
    bad |= also_bad | {at for at, name in enumerate(names) if name is None}
    wrong |= _owners(rows, bad)
    if bad:  # a null key may stand nowhere, not even behind a null
        return _fit_map([None if at in wrong else value for at, value in enumerate(values)], kind)[0], wrong
    ends = pa.array(_ends(rows), pa.int32())
    return pa.MapArray.from_arrays(ends, keys, items, type=kind, mask=_mask(values, wrong)), wrong


def _not_of(values: Sequence[Any], wanted: type) -> Wrong:
    if set(map(type, values)) <= {wanted, _NONE}:
        return set()
    return {at for at, value in enumerate(values) if value is not None and type(value) is not wanted}


def _owners(rows: Sequence[Any], bad: Wrong) -> Wrong:
    """Say in which rows the elements are that do not fit."""
    if not bad:
        return set()
    owners = [at for at, row in enumerate(rows) for _ in row]
    return {owners[at] for at in bad}


def _ends(rows: Sequence[Any]) -> list[int]:
    return list(accumulate(map(len, rows), initial=0))


def _mask(values: Sequence[Any], wrong: Wrong) -> pa.Array:
    """Say where there is nothing, or nothing that fits."""
    return pa.array([value is None or at in wrong for at, value in enumerate(values)], pa.bool_())


def _fit_scalars(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, Wrong]:
    plain, convert = _scalar(kind)
    if set(map(type, values)) <= plain | {_NONE}:
        try:
            return pa.array(values, kind), set()
        except (pa.ArrowException, OverflowError, ValueError):
            pass  # one of them is too large
    wrong: Wrong = set()
    fitted = [_fitted(value, kind, convert, at, wrong) for at, value in enumerate(values)]
    return pa.array(fitted, kind), wrong


def _fitted(value: Any, kind: pa.DataType, convert: Callable[[Any], Any], at: int, wrong: Wrong) -> Any:
    if value is None:
        return None
    try:
        converted = convert(value)
        pa.scalar(converted, kind)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        wrong.add(at)
        return None
    return converted


def _only(*types: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) not in types:
            raise TypeError
        return value

    return convert


def _as_float(value: Any) -> float:
    return float(_only(int, float)(value))


def _as_decimal(value: Any) -> Decimal:
    return Decimal(_only(int, str)(value))


def _as_date(value: Any) -> date:
    return date.fromisoformat(_only(str)(value))


def _as_moment(value: Any) -> datetime:
    """Read msgpack's own timestamp, or ISO 8601; without a zone it is UTC."""
    if type(value) is msgpack.Timestamp:
        return _EPOCH + timedelta(microseconds=value.to_unix_nano() // 1000)
    moment = datetime.fromisoformat(_only(str)(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _as_local_moment(value: Any) -> datetime:
    return _as_moment(value).astimezone(UTC).replace(tzinfo=None)


_Scalar = tuple[set[type], Callable[[Any], Any]]


def _scalar(kind: pa.DataType) -> _Scalar:
    """Return the types that Arrow takes as they are, and what makes others fit or raises."""
    for is_kind, scalar in _scalars():
        if is_kind(kind):
            return scalar
    if pa.types.is_timestamp(kind):
        return set(), _as_moment if kind.tz else _as_local_moment
    raise TypeError(f"no payload decodes to {kind}: take one of the types in docs/spark.md")


def _scalars() -> Iterator[tuple[Callable[[pa.DataType], bool], _Scalar]]:
    yield pa.types.is_integer, ({int}, _only(int))
    yield pa.types.is_floating, ({float}, _as_float)
    yield pa.types.is_boolean, ({bool}, _only(bool))
    yield lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), ({str}, _only(str))
    yield lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), ({bytes}, _only(bytes))
    yield pa.types.is_decimal, (set(), _as_decimal)
    yield pa.types.is_date, (set(), _as_date)
    yield pa.types.is_null, (set(), _only())
