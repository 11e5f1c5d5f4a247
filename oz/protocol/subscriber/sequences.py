"""A subscriber's view of one publisher on one key: where its sequence stands, what it has answered."""

from __future__ import annotations

from oz.wire.batch import Head

MOST = 1_000
"""Publishers remembered for each key; the one silent for longest is forgotten first."""


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
        has_loss_to_show: its next message shows `unreported`, or is the first of one in place of another.
        heartbeat: the last one, as it came; empty before.
    """

    __slots__ = (
        "answered",
        "epoch",
        "expected",
        "has_loss_to_show",
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
        self.has_loss_to_show = False
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
