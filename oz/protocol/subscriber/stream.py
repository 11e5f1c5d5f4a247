"""A stream of a subscriber: one key that messages come on, with its subscriptions and its publishers."""

from __future__ import annotations

from oz.protocol.subscriber.declarations import Chunk, Declarations
from oz.protocol.subscriber.sequences import Source
from oz.protocol.subscriber.subscriptions import SubscriptionTable
from oz.subjects.index.patterns import PatternIndex
from oz.wire.keys import DeliveryOptions

OUTLIVED = 5.0
"""Seconds behind a goodbye after which nothing is on its way on another path any more: who goes on has not
said it."""

_NS = 1_000_000_000
_MOST_ENDED = 16  # publishers that have said goodbye and are remembered, for each stream


class Stream:
    """One key that messages come on.

    Attributes:
        key: the ZeroMQ subscription.
        table: the subscriptions behind it.
        sources: what is known of each publisher, by origin.
        is_shared: whether others read the same key.
        only_answers: whether publishers only say here what they serve, and messages come on other streams.
        declarations: what is declared for it; None where others read the same key.
        ended: what is known of publishers that have said goodbye, by origin.
    """

    __slots__ = (
        "declarations",
        "ended",
        "is_shared",
        "key",
        "only_answers",
        "sources",
        "table",
    )

    def __init__(
        self,
        key: bytes,
        delivery: DeliveryOptions,
        *,
        is_shared: bool,
        index: type[PatternIndex] = PatternIndex,
    ) -> None:
        """Start without subscriptions."""
        self.key = key
        self.table = SubscriptionTable(index=index)
        self.sources: dict[bytes, Source] = {}
        self.is_shared = is_shared
        self.only_answers = delivery.is_shared and not is_shared
        self.declarations: Declarations | None = None
        self.ended: dict[bytes, Source] = {}

    def chunk(self, number: int) -> Chunk | None:
        """Return a declaration; None when it does not stand any more."""
        return None if self.declarations is None else self.declarations.chunks.get(number)

    @property
    def last_declared(self) -> int:
        """The highest number of a chunk that was declared; 0 when none was."""
        return 0 if self.declarations is None else self.declarations.last

    def has_answered(self, origin: bytes, number: int) -> bool:
        """Tell whether a publisher has answered a declaration or a later one, or has said goodbye."""
        source = self.sources.get(origin)
        if source is None:
            return self.has_said_goodbye(origin)
        return max(source.answered, default=0) >= number

    def end(self, origin: bytes) -> None:
        """Record that a publisher has said goodbye: it is not to be waited for."""
        source = self.sources.pop(origin, None)
        if source is None:
            return
        if len(self.ended) >= _MOST_ENDED:
            del self.ended[next(iter(self.ended))]
        self.ended[origin] = source

    def outlives(self, origin: bytes, time_ns: int) -> bool:
        """Take back that a publisher has ended, if it has gone on for long enough; tell whether it has.

        Args:
            origin: one of which something else than a goodbye has come.
            time_ns: now.
        """
        source = self.ended[origin]
        if time_ns - source.heard_at < OUTLIVED * _NS:
            return False
        source.outlive(time_ns)
        self.sources[origin] = self.ended.pop(origin)
        return True

    def has_said_goodbye(self, origin: bytes) -> bool:
        """Tell whether a publisher that is not known here has gone; otherwise its answer is on its way."""
        return origin in self.ended

    def has_ended(self, origin: bytes, epoch: int) -> bool:
        """Tell whether a publisher has said goodbye lately, so that what came before it is no news.

        Epochs rise, so that of an earlier one nothing is news either. But somebody of whom no more came than
        a goodbye may have said that of any epoch.
        """
        source = self.ended.get(origin)
        if source is None or source.epoch is None:
            return False
        return epoch == source.epoch or (epoch < source.epoch and source.first_at < source.heard_at)


class Interest:
    """The interest with one set of delivery options: its declarations, and the stream for the answers."""

    __slots__ = ("declarations", "delivery", "name", "stream")

    def __init__(
        self,
        name: bytes,
        delivery: DeliveryOptions,
        stream: Stream,
        *,
        greet_every: float,
        patience: float,
    ) -> None:
        """Start with none."""
        self.name = name
        self.delivery = delivery
        declarations = Declarations(name, delivery, greet_every=greet_every, patience=patience)
        self.declarations = stream.declarations = declarations
        self.stream = stream
