"""Making batches of what was published: each message is packed once, however many get it."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import chain
from typing import Any

from oz.compiled import HOT
from oz.protocol.publisher.interest import Recipients
from oz.protocol.publisher.stream import OutStream
from oz.wire.batch import array_header, pack_array, strip_header
from oz.wire.extras import Rich, sticky_bytes

if HOT is not None:
    HOT.know_recipients(Recipients)

STEP = 3
"""A flat list is accumulated: recipients, subject and payload of each message in turn. Flat, so that one
`list.extend` adds a message whole, whatever other threads do."""


class Batch:
    """A batch: the messages that go out on one stream at once.

    Attributes:
        stream: the stream.
        items: subjects and payloads in turn; only where the stream may have to hold them back.
        positions: of each message; a list where more may be put in.
    """

    __slots__ = ("_body", "_parts", "items", "positions", "stream")

    def __init__(self, stream: OutStream) -> None:
        """Start empty."""
        self.stream = stream
        self.items: list[Any] | None = (
            None if stream.delivery.overflow is None and not stream.delivery.group else []
        )
        self.positions: Any = []
        self._parts: list[bytes] = []
        self._body: bytes | None = None

    def add(self, packed: bytes, items: list[Any], positions: Sequence[int]) -> None:
        """Add messages: packed, without the header of an array, and as they are."""
        self.positions += positions
        self._parts.append(packed)
        if self.items is not None:
            self.items += items

    def whole(self, body: bytes, items: list[Any], positions: Sequence[int]) -> Batch:
        """Make it of one body that others share."""
        self.positions = list(positions) if self.stream.delivery.group else positions
        self._body = body
        if self.items is not None:
            self.items = items
        return self

    def of_parts(self, parts: list[bytes], positions: list[int]) -> Batch:
        """Make it of packed messages; only where the stream never holds any back."""
        self._parts = parts
        self.positions = positions
        return self

    def put(self, position: int, item: list[Any]) -> None:
        """Put in a message where it belongs by its position."""
        assert self.items is not None
        at = bisect(self.positions, position)
        self.positions.insert(at, position)
        self.items[2 * at : 2 * at] = item
        self._parts.insert(at, strip_header(pack_array(item), 2))
        self._body = None

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.positions)

    @property
    def body(self) -> bytes:
        """The body of the batch."""
        if self._body is None:
            self._body = array_header(2 * self.count) + b"".join(self._parts)
        return self._body


def split(accumulated: list[Any], first: int) -> list[Batch]:
    """Make the batches of what was accumulated.

    Args:
        accumulated: see `STEP`; it is used up.
        first: the position of the first message.
    """
    recipient_sets = accumulated[0::STEP]
    recipients = recipient_sets[0]
    if recipients.is_simple and recipient_sets.count(recipients) == len(recipient_sets):
        del accumulated[0::STEP]
        body, positions = pack_array(accumulated), range(first, first + len(recipient_sets))
        return [Batch(stream).whole(body, accumulated, positions) for stream in recipients.streams]
    del accumulated[0::STEP]
    plain = None if HOT is None else HOT.split(recipient_sets, accumulated, first)
    if plain is not None:
        return [Batch(stream).of_parts(*packed) for stream, packed in plain.items()]
    return list(_split_runs(recipient_sets, accumulated, first).values())


def _split_runs(
    recipient_sets: list[Recipients], accumulated: list[Any], first: int
) -> dict[OutStream, Batch]:
    """Pack runs of messages with the same recipients, and give each stream its runs, in order.

    Args:
        recipient_sets: of each message.
        accumulated: subjects and payloads in turn.
        first: the position of the first message.
    """
    batches: dict[OutStream, Batch] = {}
    start = 0
    for end in chain(_ends(recipient_sets), (len(recipient_sets),)):
        items = accumulated[2 * start : 2 * end]
        recipients = recipient_sets[start]
        if recipients.streams:
            packed = strip_header(pack_array(items), len(items))
            # Most runs are of one message, and a tuple is had for a third of the price of a range.
            at = first + start
            positions = (at,) if end - start == 1 else range(at, first + end)
            for stream in recipients.streams:
                _batch(batches, stream).add(packed, items, positions)
        for choice in recipients.choices:
            _hand_out(batches, choice, items, first + start)
        start = end
    return batches


def _ends(recipient_sets: list[Recipients]) -> Any:
    previous = recipient_sets[0]
    for place, recipients in enumerate(recipient_sets):
        if recipients is not previous:
            yield place
            previous = recipients


def _hand_out(batches: dict[OutStream, Batch], choice: Any, items: list[Any], start: int) -> None:
    """Assign each message to one member of a group; `start` is the position of the first."""
    for at in range(0, len(items), 2):
        item = items[at : at + 2]
        batch = _batch(batches, choice.now(item[0]).pick(sticky_key(*item)))
        batch.add(strip_header(pack_array(item), 2), item, (start + at // 2,))


def sticky_key(subject: bytes, payload: Any) -> bytes:
    """Return what a sticky choice goes by: the key that was published with a message, or its subject."""
    key = payload.extras.key if type(payload) is Rich else None
    return sticky_bytes(key) if key else subject


def _batch(batches: dict[OutStream, Batch], stream: OutStream) -> Batch:
    batch = batches.get(stream)
    if batch is None:
        batch = batches[stream] = Batch(stream)
    return batch
