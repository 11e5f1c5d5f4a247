"""Messages of a multicast publisher. The module numbers the messages, packs them into frames, and adds records.

Theory of operation
-------------------
Every message gets its number before it is sent. If the message is then dropped, or the send is interrupted, subscribers
report a gap. A frame with several messages fits into one packet. A larger message is alone in its frame, which PGM
splits into packets.

Several times a second the publisher sends a *record* with its next number, its rate and its age. A record shows that
the publisher is alive, and reveals the loss of the last messages. From the age, a subscriber computes whether the
publisher began before or after the subscriber. A record before a large message announces the time in which no other
frame can arrive.

The caller sends `frames` in order. The caller calls `sent` after ZeroMQ has accepted a frame, or `drop` to discard the
frame.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from oz.multicast.plan import SPARE, usable_kbps
from oz.options import Multicast
from oz.wire.datagrams import MAX_COUNT, MAX_QUIET, OVERHEAD, Record, encode_messages, encode_record

BEAT = 0.2
"""Seconds between two records of a publisher."""
FAREWELL = 3.0
"""Seconds from the last frame to the end of a closing publisher. In this time, libpgm sends lost packets again."""

_PACKET_OVERHEAD = 1.1  # Bytes on the network for each byte of a frame.
_ITEM_OVERHEAD = 12  # Bytes of MessagePack around subject, payload and nil.
# This number exceeds the size of a packet, so that a message with extras is alone in its frame.
_EXTRAS_OVERHEAD = 1 << 16


class Frame(NamedTuple):
    """A frame to send.

    Attributes:
        data: bytes of the frame.
        count: number of messages in the frame; 0 if the frame carries a record.
    """

    data: bytes
    count: int  # type: ignore[assignment]


class Sender:
    """Numbers and packs the messages of one publisher.

    Attributes:
        frames: frames to send, in order.
        is_announced: whether the publisher has an endpoint and sends records.
        sequence: number of the next message.
        epoch: epoch of the sequence. The epoch rises if an unknown number of messages is lost.
        next_beat: time in seconds at which the next record is due.
    """

    def __init__(self, origin: bytes, options: Multicast, *, epoch: int) -> None:
        """Start without messages.

        Args:
            origin: id of the publisher, 16 bytes.
            options: multicast options of the endpoint, such as the rate.
            epoch: epoch of the sequence. If this publisher replaces another publisher, its epoch must be higher.
        """
        self.frames: deque[Frame] = deque()
        self.is_announced = False
        self.sequence, self.epoch = 0, epoch
        self.next_beat = 0.0
        self._origin, self._rate = origin, options.rate_kbps
        self._bytes_per_second = options.rate_kbps * 125
        self._least_bytes_per_second = usable_kbps(options.rate_kbps, options.mtu) * 125
        self._packet = options.mtu - SPARE - OVERHEAD
        self._began_at: float | None = None
        self._busy_until = 0.0
        self._stays_from = 0.0
        self._is_leaving = False

    def resume(self, sequence: int, age: float, now: float) -> None:
        """Continue the sequence of a publisher that has ended. That publisher had the same origin and epoch.

        Args:
            sequence: number of the next message.
            age: seconds since the first message of the sequence.
            now: current time in seconds of the monotonic clock.
        """
        self.sequence = sequence
        if sequence:
            self._began_at = now - age

    def add(self, flat: list[Any], now: float) -> None:
        """Number messages and append their frames.

        Args:
            flat: list with three items for each message: the subject, the payload, and the extras or None.
            now: current time in seconds of the monotonic clock.
        """
        start = size = 0
        for at in range(0, len(flat), 3):
            own = len(flat[at]) + len(flat[at + 1]) + _ITEM_OVERHEAD
            if flat[at + 2] is not None:
                own += _EXTRAS_OVERHEAD
            if size and (size + own > self._packet or at - start >= 3 * MAX_COUNT):
                self._append(flat[start:at], now)
                start, size = at, 0
            size += own
        self._append(flat[start:], now)

    def _append(self, flat: list[Any], now: float) -> None:
        if self._began_at is None:
            self._began_at = now
        sequence, count = self.sequence, len(flat) // 3
        # The number rises before the frame is encoded. If an exception interrupts this method, subscribers report a
        # gap.
        self.sequence += count
        data = encode_messages(flat, self._origin, self.epoch, sequence)
        quiet = _PACKET_OVERHEAD * len(data) / self._least_bytes_per_second
        if quiet > BEAT and self.is_announced:
            self.frames.append(self._record(now, sequence, quiet=min(quiet, MAX_QUIET)))
        self.frames.append(Frame(data, count))

    def skip(self, count: int | None, now: float) -> None:
        """Assign numbers to lost messages, so that subscribers report a gap.

        Args:
            count: number of lost messages; None if unknown.
            now: current time in seconds of the monotonic clock.
        """
        if self._began_at is None:
            self._began_at = now
        if count is None:
            self.epoch += 1
        else:
            self.sequence += count

    def recover(self, now: float) -> None:
        """Drop all frames after an exception in `add`. The number of lost messages is unknown."""
        self.frames.clear()
        self.skip(None, now)

    def sent(self, now: float) -> None:
        """Remove the first frame, which ZeroMQ has accepted."""
        frame = self.frames.popleft()
        seconds = _PACKET_OVERHEAD * len(frame.data) / self._bytes_per_second
        self._busy_until = max(self._busy_until, now) + seconds
        if frame.count:
            self._stays_from = self._busy_until

    def drop(self) -> int:
        """Remove the first frame, and return its number of messages."""
        return self.frames.popleft().count

    @property
    def pending(self) -> int:
        """Number of messages in `frames`."""
        return sum(frame.count for frame in self.frames)

    def attach(self) -> None:
        """Begin to send records. The publisher has an endpoint now."""
        self.is_announced, self.next_beat = True, 0.0

    def beat(self, now: float) -> None:
        """Append a record if it is due and no frame waits. A waiting frame also shows that the publisher is alive."""
        if self.is_announced and now >= self.next_beat:
            self.next_beat = now + BEAT
            if not self.frames:
                self.frames.append(self._record(now, self.sequence))

    def _record(self, now: float, sequence: int, quiet: float = 0.0) -> Frame:
        age = 0.0
        if self._began_at is not None:
            # This is the age at the time when ZeroMQ has sent all earlier frames.
            age = max(now, self._busy_until) - self._began_at
        record = Record(self._rate, age, self._is_leaving, quiet)
        return Frame(encode_record(record, self._origin, self.epoch, sequence), 0)

    def leave(self, now: float) -> None:
        """Begin to announce the end of the publisher in the records."""
        self._is_leaving, self.next_beat = True, 0.0
        self._stays_from = max(self._busy_until, now)

    @property
    def stays_until(self) -> float:
        """Time in seconds until which a closing publisher stays open, so that libpgm can repair losses."""
        return self._stays_from + FAREWELL
