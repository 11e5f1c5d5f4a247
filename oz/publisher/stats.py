"""Statistics of a publisher and of its subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REASONS = ("full", "conflated", "too_large", "denied")
"""Reasons of drops, in the order of `Stream.drops`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats:
    """Counters of a publisher since it was created: `published` is the sum of `sent` and `unmatched`.

    Attributes:
        published: number of messages that `publish` accepted.
        sent: number of messages with at least one subscriber.
        unmatched: number of messages without a subscriber.
        refused: number of messages that `publish` refused with `WouldBlock`.
        dropped: number of dropped messages for each reason. The reason "full" means that the subscriber's queue was
            full. A newer message of the subject replaced "conflated" messages. The subscriber does not accept messages
            that are "too_large". Permissions do not allow "denied" messages. A message counts once for each subscriber
            that misses it, and the subscriber gets a gap.
        given_up: number of messages that subscribers had not received when their links ended. In a group with
            `ack="handled"`, unhandled messages count. A message counts once for each link.
        redelivered: number of messages that moved to another member of their group.
        rejected: number of frames from subscribers that the protocol does not allow.
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
        state: "up" with a connection, "down" without a connection.
        pending: number of messages that wait or that the subscriber has not acknowledged. In a group with
            `ack="handled"`, messages that the subscriber has not handled count too.
        pending_bytes: number of bytes of the pending messages, and of messages that a group may have to deliver again.
        oldest: age of the oldest pending message in seconds; None without messages. Messages that wait in a
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
