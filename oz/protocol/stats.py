"""Counters, plain integers that are cheap to keep and to read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PublisherStats:
    """The counts of a publisher: `published` is the sum of `sent`, `unwanted` and `dropped`."""

    sent: int = 0
    """Messages handed to ZeroMQ, for one subscriber or many, or about to be in a batch."""
    unwanted: int = 0
    """Messages withheld because nobody had asked for them."""
    dropped: int = 0
    """Messages refused because a subscriber was at its high-water mark; not with `on_full="drop"`."""
    missed: int = 0
    """Messages that one subscriber missed for that reason, counted for each: it learns of them by a gap."""
    timed_out: int = 0
    """Subjects on which a subscriber's pattern ran out of time, or was passed over for lack of it."""
    suspended: int = 0
    """Patterns of subscribers that took too long and are not served until they are declared again."""
    malformed: int = 0
    """Keys from subscribers that mean nothing here."""
    refused: int = 0
    """Keys from subscribers whose connection asks for more than the limits of the publisher allow."""
    denied: int = 0
    """Subscriptions refused because whoever asked may not have them; docs/permissions.md."""
    cut: int = 0
    """Connections ended here: they went on to ask for what they are refused, or took nothing."""

    @property
    def published(self) -> int:
        """Messages given to `publish`."""
        return self.sent + self.unwanted + self.dropped


@dataclass(slots=True)
class SubscriberStats:
    """The counts of the messages that a subscriber took from its socket."""

    received: int = 0
    """Messages that crossed the wire."""
    delivered: int = 0
    """Messages given to the application."""
    filtered: int = 0
    """Messages that passed ZeroMQ's prefix filter and matched no pattern."""
    malformed: int = 0
    """Messages skipped because subject or payload could not be decoded."""
    lost: int = 0
    """Messages known to be lost; a plain ZeroMQ publisher gives no way to know."""
    contradictions: int = 0
    """Frames that contradict what their publisher said before: perhaps somebody else uses its name."""
    dropped: int = 0
    """Messages that a subscription dropped because of its `overflow`."""
    denied: int = 0
    """Messages and records dropped because whoever sent them may not publish them; docs/permissions.md."""
    recovered: int = 0
    """Lost messages that were had again."""
    repeated: int = 0
    """Messages skipped because one with the same id was delivered before; see `dedupe`."""
    timed_out: int = 0
    """Messages not delivered to a subscription because its pattern ran out of time."""
    failed: int = 0
    """Calls of a handler that raised."""
    reconnects: int = 0
    """Times that a multicast subscriber connected anew, as packets of a publisher came and no messages."""


@dataclass
class ForwarderStats:
    """The counts of a forwarder so far: messages, unless it says otherwise."""

    received: int = 0
    """That came, because somebody on another bus wants them."""
    size: int = 0
    """Bytes of their payloads."""
    passed: int = 0
    """That were published on another bus; for each bus once."""
    unwanted: int = 0
    """That nobody wanted any more, or that may not come onto the bus."""
    looped: int = 0
    """That had passed this forwarder before."""
    refused: int = 0
    """That could not be published."""
    lost: int = 0
    """That were lost on their way here, which the other buses were told."""
    interests: int = 0
    """Patterns that are asked for on behalf of other buses now."""
    withheld: int = 0
    """Patterns that are not, as their connection asks for too many."""
    takeovers: int = 0
    """Times that it went on for another forwarder."""

    def add(self, other: ForwarderStats) -> None:
        """Add what another one counted."""
        self.received += other.received
        self.size += other.size
        self.passed += other.passed
        self.unwanted += other.unwanted
        self.looped += other.looped
        self.refused += other.refused
        self.lost += other.lost
        self.interests += other.interests
        self.withheld += other.withheld
        self.takeovers += other.takeovers
