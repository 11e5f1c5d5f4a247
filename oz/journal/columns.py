"""Records that come as columns, for writers of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from oz.journal.record import Kind
from oz.journal.schema import (
    BATCH_BYTES,
    BATCH_ROWS,
    COLUMNS,
    MAX_PAYLOAD,
    SCHEMA,
    TYPES,
    bytes_column,
    numbers_column,
    offsets,
    reply_bytes,
    subject_columns,
    whole_number,
)

_NEEDED = ("subject", "payload")
_GIVEN = frozenset(COLUMNS) - {"offset"}
_NULLS = {name: pa.nulls(BATCH_ROWS, kind) for name, kind in TYPES.items()}
_MESSAGES = pa.repeat(whole_number(int(Kind.MESSAGE), pa.int8()), BATCH_ROWS)
_SERIES = (list, tuple, range, pa.Array)


def pieces(columns: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Split columns into pieces that each make one batch of bounded size.

    Raises:
        ValueError: a column is missing, unknown or of another length; or a payload is too large.
    """
    unknown = set(columns) - _GIVEN
    missing = [name for name in _NEEDED if not isinstance(columns.get(name), _SERIES)]
    if unknown or missing:
        raise ValueError(
            f"no column {min(unknown)!r} can be given; there are {', '.join(sorted(_GIVEN))}"
            if unknown
            else f"the column {missing[0]!r} is needed: a list or an Arrow array, a value for each record"
        )
    lengths = {len(values) for values in columns.values() if isinstance(values, _SERIES)}
    if len(lengths) > 1:
        raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    return _split(columns, lengths.pop())


def _split(columns: Mapping[str, Any], rows: int) -> Iterator[Mapping[str, Any]]:
    if not rows:
        return
    payloads = columns["payload"]
    size = _size(payloads)
    if rows == 1 and size > MAX_PAYLOAD:
        raise ValueError(f"a payload of {size} bytes; the most is {MAX_PAYLOAD}")
    if rows == 1 or (rows <= BATCH_ROWS and size <= BATCH_BYTES):
        yield columns
        return
    middle = min(BATCH_ROWS, rows // 2) if size > BATCH_BYTES else BATCH_ROWS
    for part in (slice(0, middle), slice(middle, rows)):
        some = {
            name: values[part] if isinstance(values, _SERIES) else values for name, values in columns.items()
        }
        yield from _split(some, len(some["payload"]))


def _size(payloads: Any) -> int:
    if not isinstance(payloads, pa.Array):
        return sum(map(len, payloads))
    return int(payloads.nbytes) - 4 * len(payloads)


def arranged(columns: Mapping[str, Any]) -> dict[str, pa.Array]:
    """Make Arrow arrays of the columns that are lists, one piece of at most 1 GiB; others stay as they are.

    Ranges too: `batch_of_columns` makes arrays of them, by a call that lets other threads run.

    Raises:
        TypeError: a value has the wrong type.
        ValueError: a value cannot be stored.
    """
    made: dict[str, Any] = dict(columns)
    size = _size(columns["payload"])
    if size > MAX_PAYLOAD:
        raise ValueError(f"{size} bytes of payload; the most is {MAX_PAYLOAD}")
    if "subject_raw" not in columns:
        made["subject"], made["subject_raw"] = _subjects(columns["subject"])
    for name, values in columns.items():
        if isinstance(values, (list, tuple)) and name != "subject":
            made[name] = _column(name, values, len(values))
    return made


def batch_of_columns(columns: Mapping[str, Any], first_offset: int, now_ns: int) -> pa.RecordBatch:
    """Make a batch of one piece.

    Args:
        columns: as `pieces` gives them.
        first_offset: the offset of the first record; the others follow.
        now_ns: the time of those that have none, in nanoseconds since 1970.

    Raises:
        TypeError: a value has the wrong type.
        ValueError: a value cannot be stored.
    """
    rows = len(columns["payload"])
    made = arranged(columns)
    made["offset"] = offsets(first_offset, rows)
    defaults = {"time_ns": now_ns, "kind": _MESSAGES.slice(0, rows)}
    for name in COLUMNS:
        values = made.get(name)
        made[name] = _column(name, defaults.get(name) if values is None else values, rows)
    batch = pa.RecordBatch.from_arrays([made[name] for name in COLUMNS], schema=SCHEMA)
    for field in SCHEMA:
        if not field.nullable and batch.column(field.name).null_count:
            raise TypeError(f"{field.name} cannot be None")
    return batch


def _subjects(subjects: Any) -> tuple[pa.Array, pa.Array | None]:
    if not isinstance(subjects, pa.Array):
        return subject_columns(subjects)
    if subjects.type != TYPES["subject"]:
        raise TypeError(f"an Arrow array of subjects is of type string, not {subjects.type}")
    return subjects, None


def _column(name: str, values: Any, rows: int) -> pa.Array:
    kind = TYPES[name]
    if isinstance(values, pa.Array):
        if values.type != kind:
            raise TypeError(f"{name} is of type {kind}, not {values.type}")
        return values
    if isinstance(values, range) and values.step == 1 and rows <= BATCH_ROWS and kind == pa.int64():
        return offsets(values.start, rows)
    if not isinstance(values, (list, tuple, range)):
        one = reply_bytes(values) if name == "reply_to" else values
        return _NULLS[name].slice(0, rows) if one is None else pa.repeat(_listed(name, [one])[0], rows)
    if name == "reply_to":
        values = [reply_bytes(value) for value in values]
    return _listed(name, values)


def _listed(name: str, values: Sequence[Any]) -> pa.Array:
    return bytes_column(name, values) if TYPES[name] == pa.binary() else numbers_column(name, values)
