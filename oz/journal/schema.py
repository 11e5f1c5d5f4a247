"""The columns of a journal, and records as Arrow batches and back."""

from __future__ import annotations

import itertools
import numbers
import operator
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oz.journal.record import Kind, Record

VERSION = 1
"""Version of the format. A reader refuses every other version."""

BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20
MAX_PAYLOAD = 1 << 30
_STEP = 256  # records taken from an iterable before their size is looked at

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("lost", pa.int64()),
        pa.field("origin", pa.binary()),
        pa.field("sequence", pa.int64()),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("subject_raw", pa.binary()),
        pa.field("reply_to", pa.binary()),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("position", pa.int64()),
    ]
)
COLUMNS = tuple(SCHEMA.names)
TYPES = {field.name: field.type for field in SCHEMA}
_NUMBERS = pa.Array.from_buffers(
    pa.int64(), BATCH_ROWS, [None, pa.py_buffer(array("q", range(BATCH_ROWS)))]
)  # see `whole_number`
_BYTES = frozenset({bytes, bytearray, memoryview})
_NUMBERS_OR_NONE = frozenset({int, type(None)})
_KINDS = frozenset(map(int, Kind))
_NOTHING = Record("")
_SUBJECT, _PAYLOAD = operator.itemgetter(0), operator.itemgetter(1)
_WHAT = "a record is an oz.journal.Record, or a pair of subject and payload bytes"

Appendable = Record | tuple[str | bytes, bytes]


def chunks(records: Iterable[Appendable]) -> Iterator[list[Appendable]]:
    """Split an iterable into lists that each make one batch of bounded size.

    Raises:
        TypeError: something is neither a `Record` nor a pair.
    """
    source = iter(records)
    chunk: list[Appendable] = []
    size = 0
    while step := list(itertools.islice(source, _STEP)):
        sizes = _sizes(step)
        if size + sum(sizes) <= BATCH_BYTES and len(chunk) + len(step) <= BATCH_ROWS:
            chunk += step
            size += sum(sizes)
            continue
        for record, length in zip(step, sizes, strict=True):
            if chunk and (size + length > BATCH_BYTES or len(chunk) == BATCH_ROWS):
                yield chunk
                chunk, size = [], 0
            chunk.append(record)
            size += length
    if chunk:
        yield chunk


def _sizes(records: list[Appendable]) -> list[int]:
    try:
        sizes = list(map(len, map(_PAYLOAD, records)))
        if set(map(type, records)) != {tuple}:
            headers = (record.headers or b"" if isinstance(record, Record) else b"" for record in records)
            sizes = list(map(operator.add, sizes, map(len, headers)))
    except (TypeError, IndexError):
        raise TypeError(_WHAT) from None
    if max(sizes) > MAX_PAYLOAD:
        raise ValueError(f"a payload of {max(sizes)} bytes; the most is {MAX_PAYLOAD}")
    return sizes


def batch_of(records: Sequence[Appendable], first_offset: int, now_ns: int) -> pa.RecordBatch:
    """Lay records out in columns.

    Args:
        records: at most `BATCH_ROWS` of them.
        first_offset: the offset of the first; the others follow.
        now_ns: the time of those that have none, in nanoseconds since 1970.

    Raises:
        TypeError: a field has the wrong type.
        ValueError: a field cannot be stored: a number that is too large, or text that UTF-8 cannot hold.
    """
    rows = len(records)
    columns = {"offset": offsets(first_offset, rows)}
    types = set(map(type, records))
    subjects: list[Any]
    payloads: list[Any]
    # Not zip(*records): that takes several times as long.
    if types == {tuple}:
        if set(map(len, records)) != {2}:
            raise TypeError(_WHAT)
        subjects, payloads = list(map(_SUBJECT, records)), list(map(_PAYLOAD, records))
        columns["time_ns"] = pa.repeat(whole_number(now_ns, pa.int64()), rows)
        columns["kind"] = pa.repeat(whole_number(int(Kind.MESSAGE), pa.int8()), rows)
    else:
        whole: Sequence[Any] = records if types == {Record} else [_record(record) for record in records]
        fields = {name: list(map(operator.itemgetter(at), whole)) for at, name in enumerate(Record._fields)}
        subjects, payloads = fields.pop("subject"), fields.pop("payload")
        columns |= _other_columns(fields, now_ns)
    columns["subject"], columns["subject_raw"] = subject_columns(subjects)
    columns["payload"] = bytes_column("payload", payloads)
    arrays = [columns[name] if name in columns else pa.nulls(rows, TYPES[name]) for name in COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _record(record: Any) -> Record:
    if isinstance(record, Record):
        return record
    try:
        subject, payload = record
    except (TypeError, ValueError):
        raise TypeError(_WHAT) from None
    return Record(subject, payload)


def _other_columns(fields: dict[str, list[Any]], now_ns: int) -> dict[str, pa.Array]:
    fields.pop("offset")
    times = fields.pop("time_ns")
    columns = {"time_ns": numbers_column("time_ns", [now_ns if time is None else time for time in times])}
    columns["kind"] = numbers_column("kind", fields.pop("kind"))
    for name, values in fields.items():
        if name == "reply_to":
            values = [reply_bytes(value) for value in values]
        if values.count(None) == len(values):
            continue
        is_binary = TYPES[name] == pa.binary()
        columns[name] = bytes_column(name, values) if is_binary else numbers_column(name, values)
    return columns


def offsets(first: int, rows: int) -> pa.Array:
    """Number rows; at most `BATCH_ROWS` of them."""
    return pc.add(_NUMBERS.slice(0, rows), whole_number(first, pa.int64()))


def whole_number(value: int, kind: pa.DataType) -> pa.Scalar:
    """Make a scalar of a type of signed integers.

    `pa.scalar`, `pa.array` and functions that are given a value of Python's import pandas where that is
    installed, to ask whether the value is one of its own: 0.2 to 0.6 s of each process that reads or writes a
    journal, and a query of Spark starts several.

    Raises:
        OverflowError: the type cannot hold it.
    """
    data = value.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def bytes_array(values: Sequence[bytes]) -> pa.Array:
    """Make an array of bytes, as `whole_number` makes a number: without pandas."""
    ends = array("i", itertools.accumulate(map(len, values), initial=0))
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    )


def bytes_column(name: str, values: Sequence[Any]) -> pa.Array:
    """Make a column of bytes, or of None.

    Raises:
        TypeError: a value is neither; or is None, and a payload.
    """
    for wrong in set(map(type, values)) - _BYTES:
        if wrong is not type(None) and not issubclass(wrong, bytes):
            raise TypeError(f"{name} is bytes, not {wrong.__name__}: encode it")
    column = pa.array(values, pa.binary())
    if column.null_count and name == "payload":
        raise TypeError("a payload is bytes, not None")
    return column


def numbers_column(name: str, values: Sequence[Any]) -> pa.Array:
    """Make a column of whole numbers, or of None where the column may have that.

    Raises:
        TypeError: a value is no whole number, such as a time in seconds.
        ValueError: a number is too large; or is a kind, and none of `Kind`.
    """
    for wrong in set(map(type, values)) - _NUMBERS_OR_NONE:
        if not issubclass(wrong, numbers.Integral):
            raise TypeError(f"{name} is a whole number, not {wrong.__name__}")
    try:
        column = pa.array(values, TYPES[name])
    except (OverflowError, pa.ArrowInvalid):
        raise ValueError(f"a {name} that {TYPES[name]} cannot hold") from None
    if column.null_count and not SCHEMA.field(name).nullable:
        raise TypeError(f"{name} cannot be None")
    if name == "kind" and not _KINDS.issuperset(values):
        raise ValueError(
            f"kind {min(set(values) - _KINDS)}; it is one of {sorted(_KINDS)}, see oz.journal.Kind"
        )
    return column


def subject_columns(subjects: Sequence[str | bytes]) -> tuple[pa.Array, pa.Array]:
    """Make the columns `subject` and `subject_raw`.

    Raises:
        TypeError: a subject is neither text nor bytes.
        ValueError: text with a lone surrogate that `surrogateescape` did not make.
    """
    if set(map(type, subjects)) == {str}:
        with suppress(UnicodeEncodeError):
            return pa.array(subjects, pa.string()), pa.nulls(len(subjects), pa.binary())
    text, raw = zip(*map(_text_and_raw, subjects), strict=True)
    return pa.array(text, pa.string()), pa.array(raw, pa.binary())


def _text_and_raw(subject: str | bytes) -> tuple[str, bytes | None]:
    if isinstance(subject, str):
        subject = subject.encode(errors="surrogateescape")
    if not isinstance(subject, bytes):
        raise TypeError(f"a subject is text or bytes, not {type(subject).__name__}")
    try:
        return subject.decode(), None
    except UnicodeDecodeError:
        return subject.decode(errors="replace"), bytes(subject)


def reply_bytes(subject: Any) -> Any:
    """Return the bytes of a subject to answer on; what is no text is left as it is."""
    return subject.encode(errors="surrogateescape") if isinstance(subject, str) else subject


def damaged(first_offset: int, rows: int, time_ns: int) -> pa.RecordBatch:
    """Make records that stand for lost ones.

    Args:
        first_offset: the offset of the first.
        rows: how many, at most `BATCH_ROWS`.
        time_ns: the time to give them, in nanoseconds since 1970.
    """
    same = {"time_ns": time_ns, "kind": int(Kind.DAMAGED), "subject": "", "payload": b""}
    columns = {name: pa.repeat(pa.scalar(value, TYPES[name]), rows) for name, value in same.items()}
    columns["offset"] = offsets(first_offset, rows)
    arrays = [columns[name] if name in columns else pa.nulls(rows, TYPES[name]) for name in COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def with_subject(names: Sequence[str]) -> list[str]:
    """Return names of columns, and of a subject both columns if there is one: each alone is not exact."""
    both = ("subject", "subject_raw")
    return [*names, *(name for name in both if name not in names and not set(both).isdisjoint(names))]


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """Read records from a batch; fields whose column is not there are as in a bare `Record`.

    Of `subject` and `subject_raw` the batch has both or neither.
    """
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    raw = columns.pop("subject_raw", None)
    if raw is not None and any(one is not None for one in raw):
        columns["subject"] = [
            text if one is None else one for text, one in zip(columns["subject"], raw, strict=True)
        ]
    if "reply_to" in columns:
        columns["reply_to"] = [None if value is None else _text(value) for value in columns["reply_to"]]
    fields = [columns.get(name) or itertools.repeat(getattr(_NOTHING, name)) for name in Record._fields]
    if not columns:
        return itertools.repeat(_NOTHING, batch.num_rows)
    return map(Record._make, zip(*fields, strict=False))


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
