"""Statistics of a publisher and its subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REASONS = ("full", "conflated", "too_large", "denied")
"""Reasons for which a publisher drops messages, in the order of `Stream.drops`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats:
    """Counters of a publisher since it was created: `published` is the sum of `sent` and `unmatched`.

    Attributes:
        published: number of messages that `publish` accepted.
        sent: number of messages with at least one subscriber.
        unmatched: number of messages without a subscriber.
        refused: number of messages that `publish` refused with `WouldBlock`.
        dropped: number of dropped messages for each reason. A message counts once for each subscriber that misses it,
            and each of these subscribers gets a gap. Reason "full": the queue of the subscriber was full. Reason
            "conflated": a newer message with the same subject replaced the message. Reason "too_large": the message
            exceeds the size that the subscriber accepts. Reason "denied": permissions do not allow the message.
        given_up: number of messages that subscribers had not received when their links ended. A message for a group
            with `ack="handled"` counts if it was not handled. A message that several subscribers miss counts several
            times.
        redelivered: number of messages that moved to another member of their group.
        rejected: number of invalid frames that subscribers sent.
        denied: number of subscriptions that permissions refused.
    """

    published: int
    sent: int
    unmatched: int
    refused: int
    dropped: Mapping[str, int]
    given_up: int
    redelivered: int
    rejected: int
    denied: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberInfo:
    """State of the link of one subscriber, as its publisher sees it.

    Attributes:
        member: id of the subscriber, 32 hexadecimal digits.
        patterns: patterns of the subscriber's subscriptions.
        state: "up" while the link is connected, otherwise "down".
        pending: number of messages that wait to be sent, or that the subscriber has not acknowledged. A message for a
            group with `ack="handled"` counts until the subscriber has handled it.
        pending_bytes: size in bytes of the pending messages, and of messages that the group may have to redeliver.
        oldest: age of the oldest pending message in seconds; None without pending messages. Messages that wait in a
            conflating subscription have no age.
        dropped: number of dropped messages for each reason, as in `PublisherStats.dropped`.
    """

    member: str
    patterns: tuple[str | bytes, ...]
    state: str
    pending: int
    pending_bytes: int
    oldest: float | None
    dropped: Mapping[str, int]
