"""Messages as the columns of a journal; with little Python for each of them, since there are many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgpack
import pyarrow as pa

from oz.journal import Kind
from oz.journal.schema import BATCH_ROWS, offsets
from oz.message import LoneMessage, Message, RoutedMessage
from oz.subjects.pattern import Pattern

MORE = "oz-more"
"""The header that holds the frames behind the payload, where a message has any."""

MOST = (1 << 63) - 1
"""The largest number that a column takes."""

_PAYLOAD, _FRAMES, _SUBJECT = attrgetter("payload"), attrgetter("frames"), attrgetter("subject")
_TIME, _PLAIN = attrgetter("time_ns"), {2}
_BARE = {RoutedMessage, LoneMessage}
_SMALL = 16  # messages in a batch from which on Arrow is quicker than Python
_PUBLISHED = attrgetter("origin", "sequence", "time_ns")


class Loss(NamedTuple):
    """Messages that are not in the journal.

    Attributes:
        count: how many; None when nobody knows.
        time_ns: when that was noticed.
        origin: the publisher, if it is known.
        sequence: the first number that is missing, if it is known.
    """

    count: int | None  # type: ignore[assignment]
    time_ns: int
    origin: bytes | None = None
    sequence: int | None = None


def columns_of(messages: Sequence[Message]) -> dict[str, Any]:
    """Lay messages out in columns, as `Writer.append_columns` takes them; at least one message.

    Raises:
        ValueError: one of them cannot be stored.
    """
    subjects = list(map(_SUBJECT, messages))
    # Without a codec a payload is bytes, so there is nothing to check.
    columns: dict[str, Any] = {"payload": pa.array(list(map(_PAYLOAD, messages)), pa.binary())}
    try:
        columns["subject"] = pa.array(subjects, pa.string())
    except pa.ArrowInvalid:
        columns["subject"] = subjects
    kinds = set(map(type, messages))
    if Message in kinds:
        columns["time_ns"] = list(map(_TIME, messages))
        has_more = not set(map(len, map(_FRAMES, messages))) <= _PLAIN
    else:
        columns |= _published(messages)
        has_more = not kinds <= _BARE
        if has_more:
            columns["reply_to"] = [message.reply_to for message in messages]
    if has_more:
        columns["headers"] = [_packed(message) for message in messages]
    return columns


def sizes_of(columns: dict[str, Any]) -> tuple[int, int]:
    """Give the size of the payloads, and the memory that all columns take; both in bytes."""
    memory = sum(column.nbytes for column in columns.values() if isinstance(column, pa.Array))
    payloads = columns["payload"]
    return payloads.nbytes - 4 * len(payloads), memory


def _published(messages: Sequence[Message]) -> dict[str, Any]:
    """Give origin, sequence and time of routed messages; what a batch has in common is asked for once."""
    batches = list(_batches(messages))
    if len(batches) * _SMALL > len(messages):
        origins, sequences, times = zip(*map(_PUBLISHED, messages), strict=True)
        return {"origin": origins, "sequence": _numbers(sequences), "time_ns": times}
    first, last = messages[0], messages[-1]
    publishers = [messages[start].origin for start, _ in batches]
    columns: dict[str, Any] = {"origin": first.origin, "sequence": _sequences(messages, batches)}
    if len(set(publishers)) > 1:
        columns["origin"] = _spread(publishers, batches, pa.binary())
    if first.time_ns == last.time_ns:
        columns["time_ns"] = first.time_ns
    else:
        columns["time_ns"] = _spread([messages[start].time_ns for start, _ in batches], batches, pa.int64())
    return columns


def _sequences(messages: Sequence[Message], batches: list[tuple[int, int]]) -> pa.Array:
    count, low, high = len(messages), messages[0].sequence, messages[-1].sequence
    assert low is not None
    assert high is not None
    if (
        high - low == count - 1
        and high <= MOST
        and count <= BATCH_ROWS
        and _is_one_publisher(messages, batches)
    ):
        return offsets(low, count)
    spans = [(start, messages[start].sequence, end, messages[end - 1].sequence) for start, end in batches]
    numbers: list[int | None] = []
    for start, first, end, last in spans:
        assert first is not None
        assert last is not None
        if last - first == end - start - 1:
            numbers += range(first, last + 1)
        else:  # some of the batch were not for this subscriber
            numbers += [message.sequence for message in messages[start:end]]
    return pa.array(_numbers(numbers), pa.int64())


def _is_one_publisher(messages: Sequence[Message], batches: list[tuple[int, int]]) -> bool:
    """Tell whether the batches follow one another, without anything left out."""
    firsts = [messages[start] for start, _ in batches]
    return len({message.origin for message in firsts}) == 1 and all(
        message.sequence is not None and message.sequence - start == firsts[0].sequence
        for message, (start, _) in zip(firsts, batches, strict=True)
    )


def _spread(values: list[Any], batches: list[tuple[int, int]], kind: pa.DataType) -> pa.Array:
    """Repeat a value for each message of its batch."""
    parts = (
        pa.repeat(pa.scalar(value, kind), end - start)
        for value, (start, end) in zip(values, batches, strict=True)
    )
    return pa.concat_arrays(list(parts))


def _batches(messages: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Find where each batch begins and ends, without a look at each message: a batch is in one piece."""
    start, count = 0, len(messages)
    while start < count:
        arrival = getattr(messages[start], "arrival", None)
        end, step = start + 1, 1
        if arrival is not None:
            # Strides that double while they stay within the batch, and then halve.
            while end + step <= count and getattr(messages[end + step - 1], "arrival", None) is arrival:
                end, step = end + step, 2 * step
            while step := step // 2:
                if end + step <= count and getattr(messages[end + step - 1], "arrival", None) is arrival:
                    end += step
        yield start, end
        start = end


def _numbers(numbers: Sequence[int | None]) -> list[int | None]:
    """Leave out what no column can hold; only a publisher that means harm counts so far."""
    if None not in numbers and max(numbers) <= MOST:  # type: ignore[type-var, operator]
        return list(numbers)
    return [number if number is not None and number <= MOST else None for number in numbers]


def _packed(message: Message) -> bytes | None:
    """Pack the headers, and the frames behind the payload with them."""
    headers: Mapping[Any, Any] = message.headers
    more = message.frames[2:]
    if not headers and not more:
        return None
    fields = {name: value for name, value in headers.items() if name != MORE}
    packed: bytes = msgpack.packb(fields | ({MORE: more} if more else {}), use_bin_type=True)
    return packed


def unpack_headers(packed: bytes | None) -> tuple[dict[Any, Any], list[bytes]]:
    """Read headers and the frames behind the payload, as a recorder packs them.

    Returns:
        Both empty when there are none, or when something else than a recorder wrote them.
    """
    try:
        headers = msgpack.unpackb(packed, raw=False, strict_map_key=False) if packed else {}
    except ValueError:
        return {}, []
    if not isinstance(headers, dict):
        return {}, []
    more = headers.pop(MORE, [])
    if not isinstance(more, list) or any(type(frame) is not bytes for frame in more):
        more = []
    return headers, more


def columns_of_loss(pattern: str, loss: Loss) -> dict[str, Any]:
    """Lay a loss out in columns, of one record.

    Args:
        pattern: what was lost matched it.
        loss: what is known of it.
    """
    lost = None if loss.count is None else min(loss.count, MOST)
    sequence = loss.sequence if loss.sequence is not None and loss.sequence <= MOST else None
    return {
        "subject": [pattern],
        "payload": [b""],
        "kind": int(Kind.GAP),
        "time_ns": loss.time_ns,
        "origin": loss.origin,
        "lost": lost,
        "sequence": sequence,
    }


def spanning(patterns: Sequence[Pattern]) -> str:
    """Name one pattern, as `oz.parse` takes it, that matches all that these do.

    For a single one that is itself; otherwise the prefix that all their subjects begin with.
    """
    [pattern, *others] = patterns
    if not others and not pattern.flags and not pattern.named_lists and (text := _as_text(pattern.text)):
        return f"{pattern.dialect}:{text}"
    prefixes = [prefix for one in patterns for prefix in one.prefixes]
    low, high = min(prefixes), max(prefixes)
    shared = next(
        (at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high))
    )
    while (text := _as_text(low[:shared])) is None:
        shared -= 1
    return f"zmq:{text}"


def _as_text(value: str | bytes) -> str | None:
    try:
        return value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        return None
