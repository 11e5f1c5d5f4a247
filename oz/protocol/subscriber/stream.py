"""A stream of a subscriber: one key that messages come on, and what is known there of each publisher."""

from __future__ import annotations

from oz.protocol.subscriber import receive_buffer
from oz.protocol.subscriber.declarations import Declarations
from oz.protocol.subscriber.dedupe import Repeats
from oz.protocol.subscriber.subscriptions import SubscriptionTable
from oz.subjects.index.patterns import PatternIndex
from oz.wire.batch import Head
from oz.wire.keys import DeliveryOptions, stream_key

MOST = 1_000
"""Publishers remembered for each key; the one silent for longest is forgotten first."""

_MOST_ENDED = 16  # publishers that have said goodbye and are remembered, for each stream


class Source:
    """One publisher, on one key.

    Attributes:
        epoch: which life of the key this is at the publisher; None before anything came.
        expected: the sequence that comes next.
        answered: the chunks that it has said are live.
        refused: those that it will not serve, and why.
        paths: over how many connections it serves the stream.
        heard_at: when it was last heard, in nanoseconds.
        missed_at: `heard_at` when it was found to be gone without a goodbye.
        unreported: messages that are lost but came before no message yet.
        served: of each declaration that asked for last values, under which number it was given them.
        is_reported: a loss was logged; the counters tell of further ones.
        is_in_place: it goes on for another publisher that is gone, and has sent no message yet: nobody knows
            how many were lost before its first.
        heartbeat: the last one, as it came; empty before.
    """

    __slots__ = (
        "answered",
        "epoch",
        "expected",
        "heard_at",
        "heartbeat",
        "is_in_place",
        "is_reported",
        "missed_at",
        "paths",
        "refused",
        "served",
        "unreported",
    )

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.epoch: int | None = None
        self.expected = 0
        self.answered: frozenset[int] = frozenset()
        self.refused: dict[int, str] = {}
        self.paths = 0
        self.heard_at = 0
        self.missed_at = -1
        self.unreported = 0
        self.is_reported = False
        self.is_in_place = False
        self.heartbeat = b""
        self.served: dict[int, int] = {}

    def advance(self, head: Head, time_ns: int, *, is_shared: bool) -> tuple[int | None, int]:
        """Record a batch or a control record.

        Args:
            head: its head.
            time_ns: now.
            is_shared: others read this key too, so that it did not begin with this subscriber.

        Returns:
            How many messages were lost before it (None: some, but nobody knows how many); and how many of
            its own were here before and must be passed over.
        """
        self.heard_at = time_ns
        _, _, epoch, sequence, count = head
        lost: int | None = 0
        if epoch != self.epoch:
            if self.epoch is not None and epoch < self.epoch:
                # Overtaken by a later life of the key, on another path.
                return 0, count
            if self.epoch is not None:
                lost = None
            self.epoch = epoch
            self.answered = frozenset()
            self.refused = {}
            self.expected = sequence if is_shared else 0
        if self.is_in_place and count:
            self.is_in_place, lost = False, None
        missing = sequence - self.expected
        if missing > 0:
            self.expected = sequence + count
            return (lost if lost is None else missing), 0
        if sequence + count > self.expected:
            self.expected = sequence + count
            return lost, -missing
        return lost, count


def find(sources: dict[bytes, Source], origin: bytes) -> Source:
    """Return the source of a publisher, a new one if need be."""
    source = sources.get(origin)
    if source is None:
        if len(sources) >= MOST:
            del sources[min(sources, key=lambda known: sources[known].heard_at)]
        source = sources[origin] = Source()
    return source


class Stream:
    """One key that messages come on.

    Attributes:
        key: the ZeroMQ subscription.
        table: the subscriptions behind it.
        sources: what is known of each publisher, by origin.
        receive_buffer: what holds messages back, unless `overflow` is None.
        is_shared: whether others read the same key.
        only_answers: whether publishers only say here what they serve, and messages come on other streams.
        repeats: the ids of what came, where repeats are dropped.
    """

    __slots__ = (
        "_ended",
        "is_shared",
        "key",
        "only_answers",
        "receive_buffer",
        "repeats",
        "sources",
        "table",
    )

    def __init__(
        self,
        key: bytes,
        delivery: DeliveryOptions,
        *,
        is_shared: bool,
        dedupe: bool = False,
        index: type[PatternIndex] = PatternIndex,
    ) -> None:
        """Start without subscriptions."""
        self.key = key
        self.table = SubscriptionTable(index=index)
        self.sources: dict[bytes, Source] = {}
        self.receive_buffer = receive_buffer.make(delivery.overflow, delivery.limit)
        self.is_shared = is_shared
        self.only_answers = delivery.is_shared and not is_shared
        # For each stream: subscriptions with other delivery options get a message again, and are to.
        self.repeats = Repeats() if dedupe else None
        self._ended: dict[bytes, int] = {}

    def end(self, origin: bytes, epoch: int) -> None:
        """Record that a publisher has said goodbye: it is not to be waited for."""
        self.sources.pop(origin, None)
        if len(self._ended) >= _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[origin] = epoch

    def has_said_goodbye(self, origin: bytes) -> bool:
        """Tell whether a publisher that is not known here has gone; otherwise its answer is on its way."""
        return origin in self._ended

    def has_ended(self, origin: bytes, epoch: int) -> bool:
        """Tell whether a publisher has said goodbye lately, so that where its sequence stands is no news."""
        return self._ended.get(origin) == epoch


class Interest:
    """The interest with one set of delivery options: its declarations, and the stream for the answers."""

    __slots__ = ("declarations", "delivery", "name", "stream")

    def __init__(
        self,
        name: bytes,
        delivery: DeliveryOptions,
        *,
        dedupe: bool,
        index: type[PatternIndex],
        greet_every: float,
    ) -> None:
        """Start with none."""
        self.name = name
        self.delivery = delivery
        self.declarations = Declarations(name, delivery, greet_every=greet_every)
        self.stream = Stream(stream_key(name), delivery, is_shared=False, dedupe=dedupe, index=index)
