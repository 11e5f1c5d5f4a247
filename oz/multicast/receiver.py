"""Decoder of multicast frames at a subscriber. It also detects losses, even before the first received message.

Theory of operation
-------------------
A subscriber reads all messages of its endpoints, even if no subscription matches. A publisher numbers its messages
without gaps, so that the subscriber detects every loss. One question remains: were the messages before the first
received message lost? They were lost if the publisher began after the subscriber.

The records of a publisher contain its age (`oz.multicast.sender`), from which the subscriber computes the start time of
the publisher. If a record has waited in a queue, the computed start time is too late. Therefore two records must agree
within `STEADY_NS`. Before the subscriber reports a loss, it also computes an earliest start time from the last time at
which all frames were read. If the publisher began after the subscriber, the messages before its first received message
count as lost. If the publisher began less than `JOINING_NS` after the subscriber, the number of lost messages is
unknown.

`Receiver` reads no clock. Times are in nanoseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from oz.errors import ProtocolError
from oz.logs import peer_logger
from oz.wire.datagrams import Head, Record, decode

JOINING_NS = 500_000_000
"""Time in nanoseconds that a new subscriber needs to join the group. The subscriber may miss messages in this time."""
STEADY_NS = 50_000_000
"""Maximum difference in nanoseconds between two start times of a publisher, each computed from one record."""
MAX_SENDERS = 1_024
"""Maximum number of known publishers. A further publisher replaces the publisher whose last frame is oldest."""

_log = peer_logger("oz.subscriber")


class Messages(NamedTuple):
    """Messages of one frame.

    Attributes:
        origin: id of the publisher.
        sequence: number of the first message of the frame.
        flat: list with three items for each message: the subject, the payload, and the extras or None.
    """

    origin: bytes
    sequence: int
    flat: list[Any]


@dataclass(frozen=True, slots=True)
class Loss:
    """Lost messages of one publisher.

    Attributes:
        origin: id of the publisher.
        sequence: number of the first lost message; None if unknown.
        count: number of lost messages; None if unknown.
        reason: "lost" (numbers are missing), "restarted" (the publisher has a higher epoch) or "silent" (no frame
            arrives).
    """

    origin: bytes
    sequence: int | None
    count: int | None
    reason: str


Effect = Messages | Loss


class HeardSender:
    """State of one publisher from which frames have arrived.

    Attributes:
        epoch: epoch of the publisher. When a publisher starts a new sequence, its epoch rises.
        expected: number of the next message.
        rate: rate in kilobits per second, from the last record of the publisher; 0 before the first record.
        heard_at: time of the last frame of the publisher.
        has_left: whether the last record of the publisher announced its end.
        quiet: seconds of silence that the last record announced; 0 after a frame with messages.
        first: number of the first received message; None after the receiver has decided whether earlier messages were
            lost.
        began_by: start time of the publisher according to its last record; None before the first record.
    """

    __slots__ = ("began_by", "epoch", "expected", "first", "has_left", "heard_at", "quiet", "rate")

    def __init__(self, head: Head) -> None:
        self.epoch, self.expected = head.epoch, head.sequence
        self.first: int | None = head.sequence or None
        self.rate = self.heard_at = 0
        self.has_left = False
        self.quiet = 0.0
        self.began_by: int | None = None


class Receiver:
    """Decodes frames and detects losses.

    Attributes:
        senders: state of each publisher from which frames have arrived, by the id of the publisher.
        joined_at: time at which the subscriber began to listen.
        idle_at: last time at which all frames were read.
        last_heard_at: time of the last frame of any publisher; 0 before the first frame.
        malformed: number of frames that were damaged or did not decode.
        repeated: number of received duplicates.
    """

    def __init__(self, now: int) -> None:
        """Start without publishers.

        Args:
            now: current time in nanoseconds since 1970.
        """
        self.senders: dict[bytes, HeardSender] = {}
        self.joined_at = self.idle_at = now
        self.last_heard_at = self.malformed = self.repeated = 0

    def on_frame(self, frame: bytes, now: int) -> list[Effect]:
        """Decode a frame. Return its messages, after the loss that its sequence number reveals.

        Args:
            frame: received bytes, which may be damaged.
            now: current time in nanoseconds since 1970.
        """
        try:
            head, content = decode(frame)
        except ProtocolError as error:
            # The messages of this frame count as lost when the next frame arrives, because their numbers are missing.
            self.malformed += 1
            if self.malformed == 1:
                _log.warning(
                    "a multicast frame was dropped: %s; stats.malformed counts further frames", error
                )
            return []
        self.last_heard_at = now
        sender = self.senders.get(head.origin) or self._add(head)
        effects: list[Effect] = []
        is_current = self._advance(sender, head, effects)
        if head.epoch == sender.epoch:
            sender.heard_at = now
            sender.quiet = 0.0
        if isinstance(content, Record):
            if is_current:
                self._on_record(sender, head.origin, content, now, effects)
            return effects
        skipped = sender.expected - head.sequence if is_current else head.count
        self.repeated += min(skipped, head.count)
        if skipped < head.count:
            sender.expected = head.sequence + head.count
            effects.append(Messages(head.origin, head.sequence + skipped, content[3 * skipped :]))
        return effects

    def _add(self, head: Head) -> HeardSender:
        if len(self.senders) >= MAX_SENDERS:
            oldest = min(self.senders, key=lambda origin: self.senders[origin].heard_at)
            del self.senders[oldest]
        sender = self.senders[head.origin] = HeardSender(head)
        return sender

    @staticmethod
    def _advance(sender: HeardSender, head: Head, effects: list[Effect]) -> bool:
        """Append the loss before a frame to `effects`.

        Return whether the frame has the current epoch and is not out of date.
        """
        if head.epoch < sender.epoch:
            return False
        if head.epoch > sender.epoch:
            effects.append(Loss(head.origin, sender.expected, None, "restarted"))
            sender.epoch, sender.expected = head.epoch, head.sequence
        elif head.sequence > sender.expected:
            missing = head.sequence - sender.expected
            effects.append(Loss(head.origin, sender.expected, missing, "lost"))
            sender.expected = head.sequence
        # A record contains the number of the next message. A record with a smaller number is out of date.
        return head.count > 0 or head.sequence == sender.expected

    def _on_record(
        self, sender: HeardSender, origin: bytes, record: Record, now: int, effects: list[Effect]
    ) -> None:
        sender.rate, sender.quiet = record.rate, record.quiet
        sender.has_left = record.bye
        age = round(1e9 * record.age)
        before, began_by = sender.began_by, now - age
        sender.began_by = began_by
        if sender.first is None or before is None or before - began_by > STEADY_NS:
            return
        if self._is_older(began_by):
            if began_by - before <= STEADY_NS:
                sender.first = None
        elif not self._is_older(self.idle_at - age):
            missing, sender.first = sender.first, None
            is_known = self.idle_at - age > self.joined_at + JOINING_NS
            effects.append(Loss(origin, 0, missing if is_known else None, "lost"))

    def _is_older(self, began_at: int) -> bool:
        return began_at <= self.joined_at - STEADY_NS

    def on_idle(self, now: int) -> list[Effect]:
        """Record that all frames were read. Return the possible losses of publishers that have ended."""
        self.idle_at = now
        effects: list[Effect] = []
        for origin, sender in self.senders.items():
            if sender.has_left and sender.first is not None:
                sender.first = None
                if sender.began_by is None or not self._is_older(sender.began_by):
                    effects.append(Loss(origin, None, None, "lost"))
        return effects

    def on_silence(self, origin: bytes) -> list[Effect]:
        """Return a loss of unknown size, because messages of a silent publisher may be missing."""
        return [Loss(origin, None, None, "silent")] if origin in self.senders else []
