"""Batches of a publisher: messages that are sent together, packed into bodies that several sessions may share.

Theory of operation
-------------------
`publish` adds a message with its recipients. If the publisher is quiet, the message is sent at once. Otherwise the
message waits until `batch` messages wait or `batch_delay` seconds have passed. A flush packs the messages into bodies.
Streams that receive the same messages share one `Body`, which is packed once.

The publisher is quiet if no send has ended within the last `(20 µs + duration of the last send ÷ 4) × (1 + unmatched
messages since the last send)`. 20 µs alone would be too short, because a send to 50 subscribers takes longer. The last
factor detects a program that publishes in a loop while few of its messages match a subscription.

A body with several messages has at most `body_bytes` bytes. A message of `alone_bytes` or more gets its own body, so
that a subscriber with a small `largest_frame` loses only this message. The head of a batch stores the difference of
successive positions in 32 bits (`oz.wire.links`). If a difference is not between 1 and 2³² − 1, a new body begins.

The recipients of a message are a tuple of streams. Equal tuples are the same object (see `oz.publisher.routing`).
Therefore a flush usually compares tuples by identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from oz.compiled import HOT
from oz.wire import links

if TYPE_CHECKING:
    from oz.publisher.session import Stream

BODY_BYTES = 1 << 20
"""Maximum size in bytes of a body with several messages."""
ALONE_BYTES = 1 << 16
"""A message of at least this number of bytes gets its own body."""
QUIET = 20e-6
"""Seconds after which the publisher is quiet again, if the last send was short."""
_OVERHEAD = 12  # Maximum number of bytes that MessagePack adds to a message without extras.

Recipients = tuple["Stream", ...]

_pack_waiting = None if HOT is None else HOT.pack_waiting


class Body:
    """Packed messages, which one or more sessions send.

    Attributes:
        count: number of messages.
        frame: packed messages as a BODY frame.
        size: size of the frame in bytes.
        position: position of the first message.
        differences: differences between successive positions, encoded as in `oz.wire.links.Head`.
        at: time of the flush in seconds; 0 until the flush sets the time.
    """

    __slots__ = ("_flat", "_positions", "at", "count", "differences", "frame", "position", "size")

    def __init__(self, flat: list[Any] | None, positions: Sequence[int], frame: bytes | None = None) -> None:
        """Pack messages, or use packed messages.

        Args:
            flat: list with three items for each message: subject, payload and extras; None if `frame` is given.
            positions: position of each message, in rising order.
            frame: packed messages as a BODY frame; None to pack the messages of `flat`.
        """
        self.count = len(positions)
        self.frame = links.encode_body(flat or ()) if frame is None else frame
        self.size = len(self.frame)
        self.position = positions[0]
        self.differences = b"" if type(positions) is range else links.encode_differences(positions)
        self.at = 0.0
        self._positions = positions
        self._flat = flat

    def drop_unpacked(self) -> None:
        """Free the unpacked messages. All recipients must have received the body."""
        self._flat = None

    @property
    def positions(self) -> Sequence[int]:
        """Positions of the messages."""
        return self._positions

    def flat(self) -> list[Any]:
        """Return a list with three items for each message: subject, payload and extras."""
        return self._flat if self._flat is not None else links.decode_body(self.frame, self.count)

    def messages(self) -> Iterator[tuple[int, bytes, bytes, Any]]:
        """Return each message as a tuple of position, subject, payload and extras."""
        flat = self.flat()
        return zip(self._positions, flat[0::3], flat[1::3], flat[2::3], strict=True)

    def part(self, start: int, stop: int) -> Body:
        """Return a new body with the messages from index `start` to index `stop`, exclusive."""
        body = Body(self.flat()[3 * start : 3 * stop], self._positions[start:stop])
        body.at = self.at
        body.drop_unpacked()
        return body


class Batcher:
    """Messages that wait for the next flush.

    Attributes:
        waiting: list with four items for each message: recipients, subject, payload and extras. `publish` appends
            to this list.
        position: position of the first message that waits.
        unmatched: number of messages without recipients, counted by `publish`.
    """

    # C code reads and writes these slots.
    __slots__ = ("__dict__", "_pause", "_sent_at", "_unmatched_then", "position", "unmatched")

    def __init__(
        self,
        *,
        batch: int = 512,
        batch_delay: float = 0.0005,
        body_bytes: int = BODY_BYTES,
        alone_bytes: int = ALONE_BYTES,
    ) -> None:
        """Start empty.

        Args:
            batch: maximum number of messages in a batch; a number above `oz.wire.links.MAX_COUNT` means `MAX_COUNT`.
            batch_delay: maximum time in seconds that a message waits.
            body_bytes: maximum size in bytes of a body with several messages.
            alone_bytes: a message of at least this number of bytes gets its own body.
        """
        self.waiting: list[Any] = []
        self.position = 0
        self.unmatched = 0
        self.batch = min(batch, links.MAX_COUNT)
        self.batch_delay = batch_delay
        self._body_bytes, self._alone_bytes = body_bytes, alone_bytes
        self._one_body = min(body_bytes, alone_bytes)
        self._sent_at, self._pause, self._unmatched_then = float("-inf"), QUIET, 0

    def add(self, recipients: Recipients, subject: bytes, payload: bytes, extras: Any = None) -> None:
        """Add a message.

        Args:
            recipients: streams that receive the message.
            subject: subject as bytes.
            payload: payload as bytes.
            extras: map with the headers and other optional fields of the message; None if there are none.
        """
        self.waiting += (recipients, subject, payload, extras)

    def is_due(self, now: float) -> bool:
        """Return whether the waiting messages must be sent now.

        They must be sent if the batch is full or old, or if one message waits and the publisher is quiet.
        """
        waiting = len(self.waiting)
        if waiting >= 4 * self.batch:
            return True
        if waiting == 4:
            return self.is_quiet(now)
        return waiting > 0 and now - self._sent_at >= self.batch_delay

    def is_quiet(self, now: float) -> bool:
        """Return whether the publisher is quiet; see the theory of operation."""
        return now - self._sent_at > self._pause * (1 + self.unmatched - self._unmatched_then)

    def sent(self, began: float, ended: float) -> None:
        """Record the times in seconds at which a send began and ended."""
        self._pause = QUIET + (ended - began) / 4
        self._sent_at, self._unmatched_then = ended, self.unmatched

    def deadline(self) -> float | None:
        """Return the time in seconds at which the waiting messages must be sent; None if no message waits."""
        return self._sent_at + self.batch_delay if self.waiting else None

    def flush(self) -> list[tuple[Recipients, Body]]:
        """Return the waiting messages as bodies, each with the streams that receive it.

        The bodies of each stream are in the order of their positions.
        """
        waiting = self.waiting
        if not waiting:
            return []
        if _pack_waiting is not None:
            packed = _pack_waiting(waiting, self.batch, self._one_body)
            if packed is not None:
                chosen, number, frame = packed
                base, self.position = self.position, self.position + number
                del waiting[: 4 * number]
                return [(chosen, Body(None, range(base, base + number), frame))] if chosen else []
        items = waiting[:]
        recipients: list[Recipients] = items[0::4]
        first, count = recipients[0], len(recipients)
        # Advance the position first: if a signal handler raises here, no position is used twice.
        base, self.position = self.position, self.position + count
        # `publish` may have appended messages since the copy. Remove only the copied messages.
        del self.waiting[: len(items)]
        del items[0::4]
        if recipients.count(first) == count:
            if not first:
                return []
            return [(first, body) for body in self._bodies(items, range(base, base + count))]
        return self._mixed(recipients, items, base)

    def _mixed(
        self, recipients: list[Recipients], items: list[Any], base: int
    ) -> list[tuple[Recipients, Body]]:
        """Pack the messages of each stream. Streams with equal messages share bodies."""
        by_choice: dict[Recipients, list[int]] = {}
        for index, chosen in enumerate(recipients):
            indexes = by_choice.get(chosen)
            if indexes is None:
                by_choice[chosen] = [index]
            else:
                indexes.append(index)
        of_stream: dict[Stream, list[Recipients]] = {}
        for chosen in by_choice:
            for stream in chosen:
                of_stream.setdefault(stream, []).append(chosen)
        shared: dict[tuple[Recipients, ...], list[Stream]] = {}
        for stream, choices in of_stream.items():
            shared.setdefault(tuple(choices), []).append(stream)
        found: list[tuple[Recipients, Body]] = []
        for key, streams in shared.items():
            indexes = (
                by_choice[key[0]] if len(key) == 1 else sorted(i for choice in key for i in by_choice[choice])
            )
            own = [part for i in indexes for part in items[3 * i : 3 * i + 3]]
            found += [(tuple(streams), body) for body in self._bodies(own, [base + i for i in indexes])]
        return found

    def _bodies(self, flat: list[Any], positions: Sequence[int]) -> Iterator[Body]:
        count = len(positions)
        # Estimate the total size from the first payload, so that large messages are seldom packed twice.
        is_small = len(flat[1]) * count < self._one_body
        if is_small and count <= self.batch:
            # Do not add up the sizes first, because the addition takes longer than the packing.
            frame = links.encode_body(flat)
            if len(frame) < self._one_body:
                return iter((Body(flat, positions, frame),))
        return split(flat, positions, self._body_bytes, self._alone_bytes, self.batch)


def split(
    flat: list[Any], positions: Sequence[int], body_bytes: int = BODY_BYTES, alone_bytes: int = ALONE_BYTES,
    batch: int = 512,
) -> Iterator[Body]:  # fmt: skip
    """Pack messages into bodies that respect the limits of the protocol.

    Args:
        flat: list with three items for each message: subject, payload and extras.
        positions: position of each message.
        body_bytes: maximum size in bytes of a body with several messages.
        alone_bytes: a message of at least this number of bytes gets its own body.
        batch: maximum number of messages in a body.
    """
    start = size = 0
    for index in range(len(positions)):
        own = len(flat[3 * index]) + len(flat[3 * index + 1]) + _OVERHEAD
        extras = flat[3 * index + 2]
        if extras is not None:
            own += len(links.encode_body([extras]))
        step = positions[index] - positions[index - 1] if index > start else 1
        is_full = (
            size + own > body_bytes or size >= alone_bytes or own >= alone_bytes or index - start >= batch
        )
        if index > start and (is_full or not 0 < step <= links.MAX_DIFFERENCE):
            yield Body(flat[3 * start : 3 * index], positions[start:index])
            start, size = index, 0
        size += own
    yield Body(flat[3 * start :], positions[start:])
