"""Statistics of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from oz.publisher.stats import PublisherStats
from oz.subscriber.queue import Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStats:
    """Counters of a node since it was created: those of its publisher and of its subscriber.

    Attributes:
        peers: that are up now.
        published, sent, unmatched, refused, given_up, redelivered, rejected: see `oz.Publisher.stats`.
        dropped: messages that this node dropped for single peers, by reason.
        received, delivered, malformed, lost, repeated, unwanted, failed: see `oz.Subscriber.stats`.
        overflowed: messages that the queues of subscriptions dropped, because they were full.
        denied: subscriptions and messages that permissions refused.
    """

    peers: int
    published: int
    sent: int
    unmatched: int
    refused: int
    dropped: Mapping[str, int]
    given_up: int
    redelivered: int
    rejected: int
    received: int
    delivered: int
    malformed: int
    lost: int
    repeated: int
    unwanted: int
    failed: int
    overflowed: int
    denied: int

    @classmethod
    def of(cls, publisher: PublisherStats, subscriber: Stats, peers: int, direct: int) -> Self:
        """Return the statistics of a node from those of its two parts.

        Args:
            publisher: of the node.
            subscriber: of the node.
            peers: that are up.
            direct: messages that nodes sent to each other.
        """
        received = asdict(subscriber)
        received["received"] -= direct
        received["delivered"] -= direct
        overflowed, denied = received.pop("dropped"), received.pop("denied")
        # Nodes have no plain publishers, whose messages are filtered.
        del received["filtered"]
        return cls(
            **{**asdict(publisher), "denied": publisher.denied + denied},
            **received,
            overflowed=overflowed,
            peers=peers,
        )
