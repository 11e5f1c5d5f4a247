"""Records as Python objects, and their layout in the columns of a journal.

The column `headers` is a MessagePack map of the headers of a message. It has two further entries for parts of a message
that have no column. `oz-frames` is a list of the frames after the first payload frame. `oz-id` is the id of the
message: bytes, or a list of the id of a series and a number in this series.

`make_batches` accepts records in any form that `Writer.append` documents, and yields batches of at most 8,192
records and about 4 MiB. It converts an iterable of any length in pieces, so that it needs little memory.
"""

from __future__ import annotations

import difflib
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from oz.errors import JournalError
from oz.journal.format import COLUMNS, GAP, MESSAGE, SCHEMA, TYPES, int_scalar, int_sequence
from oz.message import Extras, Gap, Message

BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20
MAX_PAYLOAD = 1 << 30  # bytes; a binary column of one Arrow batch holds at most 2 GiB

_FRAMES, _ID = "oz-frames", "oz-id"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BYTES = frozenset({bytes, bytearray, memoryview})
_STEP = 256  # number of records of an iterable that are read between two checks of the size of a batch
_NUMBERS = int_sequence(BATCH_ROWS)
_WRONG_RECORD = "a record is a pair (subject, payload), a mapping of columns to values, or an oz.Message"


class Record(Message):
    """A message that was read from a journal: an `oz.Message` with an offset.

    The attributes `subject`, `payload`, `time_ns`, `origin`, `sequence`, `position`, `reply_to`, `headers`, `id` and
    `frames` are those of the recorded `oz.Message`. `time_ns` is a multiple of 1,000, because a journal keeps
    microseconds.

    Attributes:
        offset: the number of the record in the journal, from 0.
        packed_headers: the value of the column `headers`, in MessagePack.
    """

    __slots__ = (
        "_body",
        "offset",
        "origin",
        "packed_headers",
        "payload",
        "position",
        "reply_to",
        "sequence",
        "subject",
        "time_ns",
    )

    subject: str
    payload: Any
    time_ns: int
    origin: bytes | None
    sequence: int | None
    position: int | None
    offset: int
    reply_to: str | None
    packed_headers: bytes | None

    def __init__(
        self,
        offset: int,
        time_us: int,
        subject: str,
        payload: bytes,
        reply_to: str | None = None,
        packed_headers: bytes | None = None,
        origin: bytes | None = None,
        sequence: int | None = None,
        position: int | None = None,
    ) -> None:
        """Create a record from the values of its columns."""
        self.offset = offset
        self.time_ns = time_us * 1000
        self.subject = subject
        self.payload = self._body = payload
        self.reply_to = reply_to
        self.packed_headers = packed_headers
        self.origin = origin
        self.sequence = sequence
        self.position = position

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the columns. After unpickling, `payload` is the original bytes and not the decoded payload."""
        names = ("reply_to", "packed_headers", "origin", "sequence", "position")
        fields = (self.offset, self.time_ns // 1000, self.subject, self._body)
        return Record, fields + tuple(getattr(self, name) for name in names)

    @property
    def _extras(self) -> Extras:
        headers, _, message_id = unpack_headers(self.packed_headers)
        return Extras(headers or None, self.reply_to, message_id)

    @property
    def frames(self) -> list[bytes]:
        """The frames of the message: subject, payload, further frames."""
        return [self.subject_bytes, self._body, *unpack_headers(self.packed_headers)[1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalGap(Gap):
    """Records that are missing in a journal, or messages that never reached the recorder.

    `count` is the number of records or messages; None if it is unknown. `origin` is the publisher of the messages if
    the recorder knew it, otherwise None.

    Attributes:
        first: the first missing offset. If the reason is "recorded", it is the offset of the gap record.
        end: the offset after the last missing offset, or after the gap record.
        reason: "retention": retention removed the records. "missing": the records are lost, through damage or
            a power cut. "recorded": the messages never reached the recorder, which wrote a gap record.
        time_ns: time of the loss, in nanoseconds since 1970. It is set only if the reason is "recorded".
        pattern: pattern that covers all patterns of the recorder. It is set only if the reason is "recorded".
    """

    first: int
    end: int
    time_ns: int | None = None
    pattern: str | None = None


def missing_gap(first: int, end: int, reason: str) -> JournalGap:
    """Return the gap for missing records, from the offset `first` up to the record before the offset `end`."""
    return JournalGap(origin=None, count=end - first, recovered=0, reason=reason, first=first, end=end)


def pack_headers(
    headers: Mapping[str, Any], frames: Sequence[bytes] = (), message_id: Any = None
) -> bytes | None:
    """Return the value of the column `headers`; None if all arguments are empty.

    Args:
        headers: dict from header names to values. A value is text, bytes, a number, a boolean or None.
        frames: the frames after the first payload frame.
        message_id: id of the message: bytes, or a pair of a series and a number; None without an id.

    Raises:
        TypeError, ValueError: MessagePack cannot represent a value.
    """
    fields = {name: value for name, value in headers.items() if name not in (_FRAMES, _ID)}
    if frames:
        fields[_FRAMES] = list(frames)
    if message_id is not None:
        fields[_ID] = message_id
    packed: bytes | None = msgpack.packb(fields, use_bin_type=True) if fields else None
    return packed


def unpack_headers(packed: bytes | None) -> tuple[dict[str, Any], list[bytes], Any]:
    """Return the parts of a value of the column `headers`: headers, frames after the first payload frame, and id.

    A malformed part is returned as empty.
    """
    if packed is None:
        return {}, [], None
    try:
        fields = msgpack.unpackb(packed, raw=False, strict_map_key=False)
    except (ValueError, TypeError):
        return {}, [], None
    if not isinstance(fields, dict):
        return {}, [], None
    frames, message_id = fields.pop(_FRAMES, None), fields.pop(_ID, None)
    if not isinstance(frames, list) or not all(type(frame) is bytes for frame in frames):
        frames = []
    message_id = _checked_id(message_id)
    return {name: value for name, value in fields.items() if type(name) is str}, frames, message_id


def _checked_id(value: Any) -> bytes | tuple[bytes, int] | None:
    if isinstance(value, list) and len(value) == 2:
        series, number = value
        is_number = type(number) is int and 0 <= number < 1 << 63
        return (series, number) if type(series) is bytes and series and is_number else None
    return value if type(value) is bytes and value else None


# --- from columns to objects ---


def read_records(
    table: pa.Table | pa.RecordBatch, decode: Callable[[bytes], Any] | None = None
) -> Iterator[Record | JournalGap]:
    """Yield a `Record` or a `JournalGap` for each row of a table.

    Args:
        table: the rows, with all columns. The column `subject` may be dictionary-encoded.
        decode: function that decodes a payload. With None, payloads are bytes.
    """
    offsets, payloads = table["offset"].to_pylist(), table["payload"].to_pylist()
    times = table["time"].cast(pa.int64()).to_pylist()
    subjects = _subjects(table)
    others = [_values(table[name]) for name in ("headers", "origin", "sequence", "position")]
    replies = _values(table["reply_to"])
    if not isinstance(replies, itertools.repeat):
        replies = [None if reply is None else reply.decode(errors="surrogateescape") for reply in replies]
    records: Iterator[Any] = map(Record, offsets, times, subjects, payloads, replies, *others)
    if pc.max(table["kind"]).as_py() != MESSAGE:
        lost = table["lost"].to_pylist()
        rows = zip(records, table["kind"].to_pylist(), lost, strict=True)
        records = (
            record if kind == MESSAGE else _recorded_gap(record, count) for record, kind, count in rows
        )
    return records if decode is None else _decoded(records, decode)


def _decoded(records: Iterable[Any], decode: Callable[[bytes], Any]) -> Iterator[Any]:
    for record in records:
        if isinstance(record, Record):
            try:
                record.payload = decode(record.payload)
            except Exception as error:
                raise JournalError(
                    f"offset {record.offset}: the codec does not decode the payload ({error}); use codec=None"
                ) from error
        yield record


def _values(column: Any) -> Any:
    # `to_pylist` takes 0.1 µs for each value, even if all values are null.
    return itertools.repeat(None) if column.null_count == len(column) else column.to_pylist()


def _subjects(table: pa.Table | pa.RecordBatch) -> list[str]:
    column, subjects = table["subject"], []
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if isinstance(chunk, pa.DictionaryArray):
            known = chunk.dictionary.to_pylist()
            subjects += [known[at] for at in chunk.indices.to_pylist()]
        else:
            subjects += chunk.to_pylist()
    raw = table["subject_raw"]
    if raw.null_count < len(raw):
        pairs = zip(subjects, raw.to_pylist(), strict=True)
        subjects = [text if own is None else own.decode(errors="surrogateescape") for text, own in pairs]
    return subjects


def _recorded_gap(record: Record, count: int | None) -> JournalGap:
    return JournalGap(
        origin=record.origin,
        count=count,
        recovered=0,
        first=record.offset,
        end=record.offset + 1,
        reason="recorded",
        time_ns=record.time_ns,
        pattern=record.subject,
    )


# --- from records to columns ---


def make_batches(records: Any, first: int, now_ns: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Convert records to batches.

    Args:
        records: the records, in any form that `Writer.append` documents.
        first: the offset of the first record.
        now_ns: the time of receipt for records without a time, in nanoseconds since 1970.

    Yields:
        Pairs of a batch and the offset of its first record.

    Raises:
        TypeError, ValueError: a value has a wrong type, or does not fit the column.
    """
    for columns in _pieces(records):
        batch = _batch(columns, first, now_ns)
        yield batch, first
        first += batch.num_rows


def _pieces(records: Any) -> Iterator[dict[str, Any]]:
    if isinstance(records, (pa.Table, pa.RecordBatch)):
        if len(set(records.schema.names)) != len(records.schema.names):
            raise ValueError(f"a column occurs twice: {', '.join(records.schema.names)}; rename or drop one")
        columns: dict[str, Any] = {name: records[name] for name in records.schema.names}
        yield from _split(columns, records.num_rows)
    elif isinstance(records, Mapping):
        columns = dict(records)
        yield from _split(columns, _row_count(columns))
    elif isinstance(records, (str, bytes, Message)):
        raise TypeError(
            f"append takes an iterable of records, not one {type(records).__name__}: [{records!r}]"
        )
    else:
        for chunk in _chunks(records):
            yield from _halves(_columns_of(chunk), len(chunk))


def _is_column(value: Any) -> bool:
    return isinstance(value, (list, tuple, range, pa.Array, pa.ChunkedArray))


def _row_count(columns: Mapping[str, Any]) -> int:
    lengths = {name: len(value) for name, value in columns.items() if _is_column(value)}
    if not lengths:
        raise ValueError("no column is a list or an Arrow array, so that the number of records is unknown")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of different lengths: {lengths}")
    return next(iter(lengths.values()))


def _split(columns: dict[str, Any], rows: int) -> Iterator[dict[str, Any]]:
    for begin in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - begin)
        yield from _halves(columns if count == rows else _slice(columns, begin, count), count)


def _halves(columns: dict[str, Any], rows: int) -> Iterator[dict[str, Any]]:
    if rows > 1 and _size(columns.get("payload")) + _size(columns.get("headers")) > BATCH_BYTES:
        half = rows // 2
        yield from _halves(_slice(columns, 0, half), half)
        yield from _halves(_slice(columns, half, rows - half), rows - half)
    else:
        yield columns


def _slice(columns: dict[str, Any], begin: int, count: int) -> dict[str, Any]:
    return {
        name: (
            value.slice(begin, count)
            if isinstance(value, (pa.Array, pa.ChunkedArray))
            else value[begin : begin + count]
            if _is_column(value)
            else value
        )
        for name, value in columns.items()
    }


def _size(column: Any) -> int:
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return int(column.nbytes)
    try:
        return sum(map(len, column)) if _is_column(column) else 0
    except TypeError:  # a value is None or has a wrong type, for which the later conversion raises an error
        return 0


def _chunks(records: Iterable[Any]) -> Iterator[list[Any]]:
    source = iter(records)
    kept: list[Any] = []
    size = 0
    while step := list(itertools.islice(source, _STEP)):
        sizes = list(map(_record_size, step)) if set(map(type, step)) != {tuple} else _pair_sizes(step)
        kept += step
        size += sum(sizes)
        if size >= BATCH_BYTES or len(kept) >= BATCH_ROWS:
            yield kept
            kept, size = [], 0
    if kept:
        yield kept


def _pair_sizes(pairs: list[Any]) -> list[int]:
    if set(map(len, pairs)) != {2}:
        raise TypeError(_WRONG_RECORD)
    try:
        return list(map(len, map(operator.itemgetter(1), pairs)))
    except TypeError:
        raise TypeError("payload is bytes: encode it") from None


def _record_size(record: Any) -> int:
    if isinstance(record, Mapping):
        return sum(len(record.get(name) or b"") for name in ("payload", "headers"))
    if isinstance(record, Message):
        return sum(map(len, record.frames))
    return len(record[1]) if isinstance(record, tuple) and len(record) == 2 else 0


def _columns_of(records: list[Any]) -> dict[str, Any]:
    if set(map(type, records)) == {tuple}:
        # `zip(*records)` takes four times as long.
        return {
            "subject": list(map(operator.itemgetter(0), records)),
            "payload": list(map(operator.itemgetter(1), records)),
        }
    rows = [_fields(record) for record in records]
    names = {name for row in rows for name in row}
    return {name: [row.get(name, _ABSENT.get(name)) for row in rows] for name in names}


_ABSENT = {"kind": MESSAGE}
"""Default value of a column for records that do not set it. In all other columns the default is None."""


def _fields(record: Any) -> dict[str, Any]:
    """Return a dict from column names to the values of one record. The key for the time is `time_ns`."""
    if isinstance(record, Message):
        return _message_fields(record)
    if isinstance(record, JournalGap):
        return {
            "subject": record.pattern or "",
            "payload": b"",
            "kind": GAP,
            "time_ns": record.time_ns,
            "origin": record.origin,
            "lost": record.count,
        }
    if isinstance(record, Mapping):
        fields = dict(record)
        if "time" in fields:
            fields["time_ns"] = _nanoseconds(fields.pop("time"))
        if isinstance(fields.get("headers"), Mapping):
            fields["headers"] = pack_headers(fields["headers"])
        return fields
    if isinstance(record, tuple) and len(record) == 2:
        return {"subject": record[0], "payload": record[1]}
    raise TypeError(f"{_WRONG_RECORD}, not {type(record).__name__}")


def _message_fields(message: Message) -> dict[str, Any]:
    subject, *frames = message.frames
    fields = {
        "subject": subject,
        "payload": frames[0] if frames else b"",
        "time_ns": message.time_ns,
        "origin": message.origin,
        "sequence": message.sequence,
        "position": message.position,
        "reply_to": message.reply_to,
    }
    if packed := pack_headers(message.headers, frames[1:], message.id):
        fields["headers"] = packed
    return fields


def _nanoseconds(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise TypeError(f"time is a datetime, not {type(value).__name__}; integers belong to time_ns")
    return (value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000


def _batch(columns: dict[str, Any], first: int, now_ns: int) -> pa.RecordBatch:
    for name in columns:
        if name not in TYPES and name != "time_ns":
            near = difflib.get_close_matches(name, [*COLUMNS, "time_ns"], 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; the columns are {', '.join(COLUMNS)}"
            raise ValueError(f"no column {name!r}{hint}")
    if "subject" not in columns or "payload" not in columns:
        raise ValueError("records need the columns 'subject' and 'payload'")
    rows = _row_count(columns)
    subject, raw = _subject_columns(columns["subject"], rows)
    made = {
        "offset": pc.add(_NUMBERS.slice(0, rows), int_scalar(first, pa.int64())),
        "time": _time_column(columns, rows, now_ns),
        "subject": subject,
        "subject_raw": raw if columns.get("subject_raw") is None else _column("subject_raw", columns, rows),
    }
    arrays = [made[name] if name in made else _column(name, columns, rows) for name in COLUMNS]
    for field, array in zip(SCHEMA, arrays, strict=True):
        if not field.nullable and array.null_count:
            raise TypeError(f"{field.name} cannot be None")
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _column(name: str, columns: Mapping[str, Any], rows: int) -> pa.Array:
    value, kind = columns.get(name), TYPES[name]
    if value is None:
        return pa.repeat(int_scalar(MESSAGE, kind), rows) if name == "kind" else pa.nulls(rows, kind)
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        array = _cast(name, value)
    elif name == "reply_to":
        values = value if _is_column(value) else [value] * rows
        encoded = [
            item.encode(errors="surrogateescape") if isinstance(item, str) else item for item in values
        ]
        array = _from_values(name, encoded)
    elif _is_column(value):
        array = _from_values(name, value)
    else:
        array = pa.repeat(_from_values(name, [value])[0], rows)
    if name == "payload" and rows == 1 and array.nbytes > MAX_PAYLOAD + 64:
        raise ValueError(f"a payload of {array.nbytes} bytes; at most {MAX_PAYLOAD} fit a journal")
    if name == "kind" and not set(pc.unique(array).to_pylist()) <= {MESSAGE, GAP, None}:
        wrong = sorted(set(pc.unique(array).to_pylist()) - {MESSAGE, GAP, None})
        raise ValueError(f"kind is {MESSAGE} (message) or {GAP} (gap), not {wrong[0]}")
    return array


def _from_values(name: str, values: Sequence[Any]) -> pa.Array:
    kind = TYPES[name]
    if isinstance(values, range) and values.step == 1 and len(values) <= BATCH_ROWS and kind == pa.int64():
        return pc.add(_NUMBERS.slice(0, len(values)), int_scalar(values.start, kind))
    is_binary = kind == pa.binary()
    for wrong in set(map(type, values)) - (_BYTES if is_binary else {int}) - {type(None)}:
        if is_binary and not issubclass(wrong, bytes):
            raise TypeError(f"{name} is bytes, not {wrong.__name__}: encode it")
        if not is_binary and (wrong is bool or not issubclass(wrong, int)):
            raise TypeError(f"{name} is int, not {wrong.__name__}")
    try:
        return pa.array(values, kind)
    except (OverflowError, pa.ArrowException):
        raise ValueError(f"a value of {name} does not fit {kind}") from None


def _cast(name: str, value: Any) -> pa.Array:
    array = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    if isinstance(array, pa.ChunkedArray):
        # `combine_chunks` returns a chunked array for an empty column, and for more than 2 GiB.
        array = array.chunk(0) if array.num_chunks == 1 else pa.concat_arrays(array.chunks)
    try:
        return array if array.type == TYPES[name] else array.cast(TYPES[name])
    except pa.ArrowException as error:
        raise TypeError(f"{name} is {TYPES[name]}, not {array.type}: {error}") from None


def _time_column(columns: Mapping[str, Any], rows: int, now_ns: int) -> pa.Array:
    kind = TYPES["time"]
    value = columns.get("time")
    if value is not None and columns.get("time_ns") is not None:
        raise ValueError("records have time and time_ns; give one of them")
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        if not pa.types.is_timestamp(value.type):
            raise TypeError(f"time is an Arrow timestamp, not {value.type}; integers belong to time_ns")
        array = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
        return array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(kind)
    if value is not None:
        values = [_nanoseconds(element) for element in value] if _is_column(value) else _nanoseconds(value)
    else:
        values = columns.get("time_ns", now_ns)
    if values is None or isinstance(values, int):
        microseconds = pa.repeat(int_scalar((now_ns if values is None else values) // 1000, pa.int64()), rows)
    elif isinstance(values, (pa.Array, pa.ChunkedArray)):
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if whole.type != pa.int64() or whole.null_count:
            raise TypeError(f"time_ns is int64 without null, not {whole.type}")
        microseconds = pc.divide(whole, _THOUSAND)
    else:
        wrong = {
            type(item)
            for item in values
            if item is not None and (type(item) is bool or not isinstance(item, int))
        }
        if wrong:
            raise TypeError(f"time_ns is int, not {wrong.pop().__name__}")
        listed = [(now_ns if item is None else item) // 1000 for item in values]
        try:
            microseconds = pa.array(listed, pa.int64())
        except OverflowError:
            raise ValueError("a value of time_ns does not fit 64 bits") from None
    return microseconds.view(kind)


_THOUSAND = int_scalar(1000, pa.int64())


def _subject_columns(value: Any, rows: int) -> tuple[pa.Array, pa.Array]:
    """Return the columns `subject` and `subject_raw` for the subjects of `rows` records."""
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        with suppress(pa.ArrowException, TypeError):
            return _cast("subject", value), pa.nulls(rows, pa.binary())
        value = value.to_pylist()
    elif not _is_column(value):
        value = [value] * rows
    if set(map(type, value)) == {str}:
        with suppress(UnicodeEncodeError):
            return pa.array(value, pa.string()), pa.nulls(rows, pa.binary())
    texts, raws = zip(*map(_text_and_raw, value), strict=True)
    return pa.array(texts, pa.string()), pa.array(raws, pa.binary())


def _text_and_raw(subject: Any) -> tuple[str, bytes | None]:
    if isinstance(subject, str):
        subject = subject.encode(errors="surrogateescape")
    if not isinstance(subject, bytes):
        raise TypeError(f"subject is text or bytes, not {type(subject).__name__}")
    try:
        return subject.decode(), None
    except UnicodeDecodeError:
        return subject.decode(errors="replace"), subject
