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
        published: messages that `publish` accepted.
        sent: messages with at least one subscriber.
        unmatched: messages without a subscriber.
        refused: messages that `publish` refused with `WouldBlock`.
        dropped: messages dropped for single subscribers, by reason: "full" (the queue of the subscriber),
            "conflated" (a newer message of the subject came), "too_large" (for the subscriber), "denied". A message
            counts once for each subscriber that misses it. The subscriber gets a gap.
        given_up: messages that subscribers had not received when their links ended. For a group with
            `ack="handled"`, messages that were not handled. A message counts once for each link.
        redelivered: messages that moved to another member of their group.
        rejected: frames from subscribers that the protocol does not allow.
        denied: subscriptions that permissions refused.
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
        patterns: of its subscriptions.
        state: "up", or "down" without a connection.
        pending: messages that wait, that it has not acknowledged, or that it has not handled as a member of a
            group with `ack="handled"`.
        pending_bytes: bytes of these messages, and of messages that a group may have to deliver again.
        oldest: age of the oldest of these messages in seconds; None without messages. Messages that wait in a
            conflating subscription have no age.
        dropped: dropped messages, by reason, as in `PublisherStats.dropped`.
    """

    member: str
    patterns: tuple[str | bytes, ...]
    state: str
    pending: int
    pending_bytes: int
    oldest: float | None
    dropped: Mapping[str, int]
