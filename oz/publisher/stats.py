"""Statistics of a publisher and of its subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REASONS = ("full", "conflated", "too_large", "denied")
"""Reasons of drops, in the order of `Stream.drops`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats:
    """Counters of a publisher: `published` is the sum of `sent`, `unmatched` and `dropped`.

    Attributes:
        published: messages given to `publish`.
        sent: messages for at least one subscriber.
        unmatched: messages for which there was no subscriber.
        dropped: messages that `publish` refused with `WouldBlock`.
        missed: messages that sessions dropped, by reason ("full", "conflated", "too_large", "denied"). A
            message counts for each session that dropped it.
        given_up: messages that were lost with sessions that have ended, for each session.
        redelivered: messages that moved to another member of their group.
        rejected: frames from subscribers that the protocol does not allow.
        denied: subscriptions that permissions refused.
    """

    published: int
    sent: int
    unmatched: int
    dropped: int
    missed: Mapping[str, int]
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
        pending: messages that it has not acknowledged, and messages that wait.
        pending_bytes: bytes of them, and of messages that a group may have to deliver again.
        oldest: age of the oldest of these messages in seconds; None without messages. Messages that wait in a
            conflating subscription have no age.
        dropped: dropped messages, by reason, as in `PublisherStats.missed`.
    """

    member: str
    patterns: tuple[str | bytes, ...]
    state: str
    pending: int
    pending_bytes: int
    oldest: float | None
    dropped: Mapping[str, int]
