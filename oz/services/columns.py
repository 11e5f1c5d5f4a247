"""Messages as the columns of a journal; with little Python for each of them, since there are many."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from oz.journal import Kind
from oz.journal.columns import arranged
from oz.journal.schema import BATCH_BYTES, BATCH_ROWS
from oz.logs import peer_logger
from oz.message import Extras, LoneMessage, Message, RoutedMessage
from oz.protocol.subscriber.columns import Arrived, MessageBatch, PlainBatch
from oz.subjects.pattern import Pattern
from oz.wire.extras import STORED, restore_extras, stored_extras

_log = peer_logger("oz.recorder")

MORE = "oz-more"
"""The header that holds the frames behind the payload, where a message has any."""

MOST = (1 << 63) - 1
"""The largest number that a column takes."""

_MEMORY = pa.system_memory_pool()
"""For columns that one thread makes and another frees: Arrow's own pool gives their memory back to the
system each time, and to have it anew costs more than to fill it."""

_PAYLOAD, _FRAMES, _SUBJECT = attrgetter("payload"), attrgetter("frames"), attrgetter("subject")
_TIME, _PLAIN = attrgetter("time_ns"), {2}
_BARE = {RoutedMessage, LoneMessage}
_OWN = {MORE, *STORED}
_ORIGIN, _SEQUENCE, _POSITION = attrgetter("origin"), attrgetter("sequence"), attrgetter("position")


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


def columns_of(arrived: Sequence[Arrived]) -> dict[str, Any]:
    """Lay messages out in columns, as `Writer.append_columns` takes them.

    Args:
        arrived: at least one; either messages only, or batches of one kind only.

    Raises:
        ValueError: one of them cannot be stored.
    """
    if isinstance(arrived[0], MessageBatch):
        return _columns_of_batches(arrived)  # type: ignore[arg-type]
    if isinstance(arrived[0], PlainBatch):
        return _columns_of_plain(arrived)  # type: ignore[arg-type]
    return _columns_of_messages(arrived)  # type: ignore[arg-type]


def _columns_of_plain(batches: Sequence[PlainBatch]) -> dict[str, Any]:
    subjects: list[str] = []
    payloads: list[bytes] = []
    times: list[int] = []
    for batch in batches:
        subjects += batch.subjects
        payloads += batch.payloads
        times += batch.times
    columns = _bodies(subjects, payloads, pa.string())
    columns["time_ns"] = times
    return columns


def _columns_of_batches(batches: Sequence[MessageBatch]) -> dict[str, Any]:
    subjects: list[bytes] = []
    payloads: list[bytes] = []
    for batch in batches:
        subjects += batch.subjects
        payloads += batch.payloads
    is_text = all(batch.is_text for batch in batches)
    columns = _bodies(subjects, payloads, pa.binary(), is_text=is_text)
    columns["origin"] = _origins(batches)
    columns["time_ns"] = _times(batches)
    columns["sequence"] = _numbers([range(one.sequence, one.sequence + len(one)) for one in batches])
    columns["position"] = _numbers([one.positions or [None] * len(one) for one in batches])
    return columns


def _origins(batches: Sequence[MessageBatch]) -> Any:
    """Pair each message with the publisher of its batch; where all have the same, that alone is enough."""
    origins = [batch.origin for batch in batches]
    if len(set(origins)) == 1:
        return origins[0]
    # One call, not one for each batch: after each the thread may have to wait for the interpreter's lock.
    ends = pa.array(accumulate(map(len, batches)), pa.int32())
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, pa.array(origins, pa.binary())))


def _times(batches: Sequence[MessageBatch]) -> pa.Array:
    """Pair each message with the time of its batch; in Python, so that no other thread comes between."""
    times = b"".join(batch.time_ns.to_bytes(8, sys.byteorder, signed=True) * len(batch) for batch in batches)
    return pa.Array.from_buffers(pa.int64(), len(times) // 8, [None, pa.py_buffer(times)])


def _numbers(parts: Sequence[Sequence[int | None]]) -> range | pa.Array:
    """Number the messages: as a range, if they follow one another, which the writer makes a column of."""
    first = parts[0]
    if type(first) is range:
        stops = accumulate(map(len, parts), initial=first.start)
        follow = all(
            type(part) is range and part.start == start for part, start in zip(parts, stops, strict=False)
        )
        if follow and (end := first.start + sum(map(len, parts))) <= MOST:
            return range(first.start, end)
    # Only a publisher that means harm counts beyond that.
    return pa.array(chain.from_iterable(map(_storable, parts)), pa.int64())


def _bodies(
    subjects: Sequence[str | bytes], payloads: list[Any], of_subjects: pa.DataType, *, is_text: bool = False
) -> dict[str, Any]:
    # Without a codec a payload is bytes, so there is nothing to check.
    columns: dict[str, Any] = {"payload": pa.array(payloads, pa.binary(), memory_pool=_MEMORY)}
    try:
        made = pa.array(subjects, of_subjects, memory_pool=_MEMORY)
        columns["subject"] = made.view(pa.string()) if is_text else made.cast(pa.string())
    except (pa.ArrowInvalid, UnicodeEncodeError):
        # Some are not UTF-8: whoever writes tells them from the others, one by one.
        columns["subject"] = subjects
    return columns


def _columns_of_messages(messages: Sequence[Message]) -> dict[str, Any]:
    columns = _bodies(list(map(_SUBJECT, messages)), list(map(_PAYLOAD, messages)), pa.string())
    columns["time_ns"] = list(map(_TIME, messages))
    kinds = set(map(type, messages))
    if Message in kinds:
        has_more = not set(map(len, map(_FRAMES, messages))) <= _PLAIN
    else:
        columns["origin"] = list(map(_ORIGIN, messages))
        columns["sequence"] = _storable(list(map(_SEQUENCE, messages)))
        columns["position"] = _storable(list(map(_POSITION, messages)))
        has_more = not kinds <= _BARE
        if has_more:
            columns["reply_to"] = [message.reply_to for message in messages]
    if has_more:
        columns["headers"] = [_packed(message) for message in messages]
    return columns


def _storable(numbers: Sequence[int | None]) -> Sequence[int | None]:
    """Leave out what no column can hold; only a publisher that means harm counts so far."""
    if type(numbers) is range and numbers.stop <= MOST:
        return numbers
    return [number if number is not None and number <= MOST else None for number in numbers]


def _packed(message: Message) -> bytes | None:
    """Pack the headers, and with them the other extras and the frames behind the payload."""
    fields = {name: value for name, value in message.headers.items() if name not in _OWN}
    if more := message.frames[2:]:
        fields[MORE] = more
    fields |= stored_extras(message.extras)
    packed: bytes = msgpack.packb(fields, use_bin_type=True)
    return packed if fields else None


class Headers(NamedTuple):
    """The contents of a recorder's column `headers`.

    Attributes:
        fields: the headers that the message was published with.
        more: the frames behind the payload.
        extras: what else it was published with.
    """

    fields: dict[Any, Any]
    more: list[bytes]
    extras: Extras


def unpack_headers(packed: bytes | None) -> Headers:
    """Read headers as a recorder packs them; none when something else than a recorder wrote them."""
    try:
        fields = msgpack.unpackb(packed, raw=False, strict_map_key=False) if packed else {}
    except (ValueError, TypeError):  # a map or an array cannot be a key
        fields = {}
    if not isinstance(fields, dict):
        fields = {}
    more = fields.pop(MORE, [])
    if not isinstance(more, list) or any(type(frame) is not bytes for frame in more):
        more = []
    return Headers(fields, more, restore_extras(fields))


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
    """Name one pattern, as `oz.compile` takes it, that matches all that these do.

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


class LaidOut(NamedTuple):
    """Messages that were received one after another, laid out to be written.

    Attributes:
        columns: as `Writer.append_columns` takes them.
        count: how many they are.
        bytes: the size of their payloads.
        time_ns: when the first was received.
    """

    columns: dict[str, Any]
    count: int  # type: ignore[assignment]
    bytes: int
    time_ns: int

    def halves(self) -> tuple[LaidOut, LaidOut]:
        """Divide them in two; there are two at least."""
        return self._part(0, self.count // 2), self._part(self.count // 2, self.count)

    def _part(self, start: int, end: int) -> LaidOut:
        columns = {
            name: values[start:end] if isinstance(values, (list, tuple, range, pa.Array)) else values
            for name, values in self.columns.items()
        }
        payloads = columns["payload"]
        sizes = pc.sum(pc.binary_length(payloads)).as_py() or 0
        time_ns = columns.get("time_ns")
        first_ns = time_ns[0].as_py() if isinstance(time_ns, pa.Array) else self.time_ns
        return LaidOut(columns, end - start, sizes, first_ns)


class Collector:
    """Collects messages until they are laid out, all at once: each Arrow batch has its price.

    That is done in the thread that receives. Another would have to wait for the interpreter's lock again and
    again, and while one waits each call into ZeroMQ costs several times as much.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._arrived: list[Arrived] = []
        self.count = 0
        """Messages."""
        self.bytes = 0
        """The size of their payloads, about."""

    @property
    def oldest_ns(self) -> int | None:
        """When the first was received; None when there is none."""
        return self._arrived[0].time_ns if self._arrived else None

    def add(self, arrived: Arrived) -> bool:
        """Take in what was received; False, and not so, if that exceeded a batch."""
        count, size = self.count + count_of(arrived), self.bytes + _bytes_of(arrived)
        if self._arrived and (count > BATCH_ROWS or size > BATCH_BYTES):
            return False
        self._arrived.append(arrived)
        self.count, self.bytes = count, size
        return True

    def take(self) -> list[LaidOut | Loss]:
        """Lay out what is there, in order, and hold it no longer; what cannot be stored is lost."""
        by_kind = groupby(self._arrived, _kind_of)
        rows = [one for _, some in by_kind for one in _laid_out(list(some))]
        self._arrived = []
        self.count = self.bytes = 0
        return rows


def _kind_of(arrived: Arrived) -> type:
    """Tell batches from messages, all of whose kinds can be laid out together."""
    return Message if isinstance(arrived, Message) else type(arrived)


def count_of(arrived: Arrived) -> int:
    """Count messages."""
    return len(arrived) if isinstance(arrived, (MessageBatch, PlainBatch)) else 1


def _bytes_of(arrived: Arrived) -> int:
    if isinstance(arrived, MessageBatch):
        return arrived.size
    return len(arrived.payload) if isinstance(arrived, Message) else sum(map(len, arrived.payloads))


def _laid_out(arrived: list[Arrived]) -> Iterator[LaidOut | Loss]:
    try:
        columns = arranged(columns_of(arrived))
    except (ValueError, TypeError, OverflowError) as error:
        yield from _divided(arrived, error)
        return
    payloads = columns["payload"]
    yield LaidOut(columns, len(payloads), payloads.nbytes - 4 * len(payloads), arrived[0].time_ns)


def _divided(arrived: list[Arrived], error: Exception) -> Iterator[LaidOut | Loss]:
    """Lay out those that can be stored of messages that cannot all be."""
    first, middle = arrived[0], len(arrived) // 2
    if middle:
        yield from _laid_out(arrived[:middle])
        yield from _laid_out(arrived[middle:])
    elif not isinstance(first, Message):
        yield from _laid_out([*first.messages()])
    else:
        _log.warning("a message cannot be recorded, and becomes a gap: %r: %s", first.subject, error)
        yield Loss(1, first.time_ns, first.origin, first.sequence)


def place_of(loss: Loss, arrived: list[Arrived]) -> int:
    """Find the message before which a loss belongs; its end when what follows the loss is still to come."""
    previous = -1
    first: int | None = None
    for place, message in enumerate(arrived):
        if message.origin != loss.origin or message.sequence is None:
            continue
        if loss.sequence is not None and loss.count is not None:
            if message.sequence >= loss.sequence + loss.count:
                return place
        elif message.sequence < previous:  # the publisher counts anew after it
            return place
        elif first is None:
            first = place
        previous = message.sequence
    return len(arrived) if first is None else first
