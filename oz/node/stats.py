"""Statistics of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from oz.publisher.stats import PublisherStats
from oz.subscriber.queue import SubscriberStats


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStats:
    """Counters of a node since its creation. They combine the counters of its publisher and its subscriber.

    Attributes:
        peers: number of peers that are up.
        requests: number of requests of this node that have not ended.
        late_replies: replies that arrived after the end of their request.
        lost_replies: replies that this node could not send, because the requester had left or was too slow.
        published, sent, unmatched, refused, given_up, redelivered, rejected: see `oz.Publisher.stats`.
        dropped: messages that the publisher of this node dropped for some of its peers, by reason.
        received, delivered, malformed, lost, repeated, unwanted, failed: see `oz.Subscriber.stats`.
        overflowed: messages that the queues of subscriptions dropped, because they were full.
        denied: subscriptions and messages that permissions refused.
    """

    peers: int
    requests: int
    late_replies: int
    lost_replies: int
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
    def of(
        cls,
        publisher: PublisherStats,
        subscriber: SubscriberStats,
        peers: int,
        direct: int,
        requests: dict[str, Any],
    ) -> Self:
        """Return the statistics of a node from the statistics of its two parts.

        Args:
            publisher: statistics of the node's publisher.
            subscriber: statistics of the node's subscriber.
            peers: number of peers that are up.
            direct: number of direct messages that this node has received.
            requests: counters of requests and replies.
        """
        parts = (subscriber, publisher)
        known = {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
        known |= requests | {
            "peers": peers,
            "received": subscriber.received - direct,
            "delivered": subscriber.delivered - direct,
            "overflowed": subscriber.dropped,
            "denied": publisher.denied + subscriber.denied,
        }
        return cls(**{field.name: known[field.name] for field in fields(cls)})
