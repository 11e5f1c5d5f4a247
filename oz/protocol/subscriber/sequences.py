"""A subscriber's view of one publisher on one key: where its sequence stands, what it has answered."""

from __future__ import annotations

from typing import TypeVar

from oz.protocol.subscriber.contradictions import NS, PATIENCE, Doubt, StreamPlace, can_be
from oz.wire.batch import Head
from oz.wire.denials import Denial

S = TypeVar("S", bound="Source")

ESTABLISHED = 5.0
"""Seconds over which a publisher has been heard before it counts as known, and within which it was heard."""


class Source:
    """One publisher, on one key.

    Attributes:
        epoch: which life of the key this is at the publisher; None before anything came.
        expected: the sequence that comes next.
        answered: the chunks that it has said are live.
        refused: those that it will not serve, and why.
        denials: those of the reasons that are denials, by the number under which each chunk was denied first.
        paths: over how many connections it serves the stream.
        heard_at: when it was last heard, in nanoseconds.
        missed_at: `heard_at` when it was found to be gone without a goodbye.
        unreported: messages that are lost but came before no message yet.
        served: of each declaration that asked for last values, under which number it was given them.
        is_reported: a loss was logged; the counters tell of further ones.
        is_in_place: it goes on for another publisher that is gone, and has sent no message yet: nobody knows
            how many were lost before its first.
        has_loss_to_show: its next message shows `unreported`, or is the first of one in place of another.
        heartbeat: the last one, as it came; empty before, and while anything speaks against the publisher.
        first_at: when it was first heard, in nanoseconds.
        since: the same, or when it was last said to be farther on than expected.
        doubt: what speaks against it; None as a rule.
        position: that of its next message, by the last record that said where it stands; for display only.
    """

    __slots__ = (
        "_remembered",
        "_turned_at",
        "answered",
        "denials",
        "doubt",
        "epoch",
        "expected",
        "first_at",
        "has_loss_to_show",
        "heard_at",
        "heartbeat",
        "is_in_place",
        "is_reported",
        "missed_at",
        "paths",
        "position",
        "refused",
        "served",
        "since",
        "unreported",
    )

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.epoch: int | None = None
        self.expected = 0
        self.answered: frozenset[int] = frozenset()
        self.refused: dict[int, str] = {}
        self.denials: dict[int, list[Denial]] = {}
        self.paths = 0
        self.heard_at = 0
        self.missed_at = -1
        self.unreported = 0
        self.is_reported = False
        self.is_in_place = False
        self.has_loss_to_show = False
        self.heartbeat = b""
        self.served: dict[int, int] = {}
        self.since = self.first_at = 0
        self.doubt: Doubt | None = None
        self.position: int | None = None
        self._remembered = self._turned_at = (0, 0)

    def advance(self, head: Head, time_ns: int, *, is_shared: bool) -> tuple[int | None, bool]:
        """Record a control record, or a batch that was not given yet: one that comes again is not for here.

        Args:
            head: its head.
            time_ns: now.
            is_shared: others read this key too, so that it did not begin with this subscriber.

        Returns:
            How many messages were lost before it (None: some, but nobody knows how many); and whether its
            own are to be given.
        """
        epoch, sequence, count = head.epoch, head.sequence, head.count
        if self.epoch is None or epoch > self.epoch or (epoch == self.epoch and sequence > self.expected):
            return self._rise(head, time_ns, is_shared=is_shared)
        if epoch < self.epoch or sequence < self.expected:
            return self._look_back(head, time_ns)
        self.heard_at = time_ns
        lost: int | None = 0
        if self.is_in_place and count:
            self.is_in_place, lost = False, None
        self.expected += count
        if self.doubt is not None and self.doubt.is_over(time_ns):
            self.doubt = None
        return lost, True

    @property
    def is_established(self) -> bool:
        """Whether it has been heard for some time."""
        return self.heard_at - self.first_at >= ESTABLISHED * NS

    @property
    def is_contested(self) -> bool:
        """Whether it has contradicted itself: perhaps somebody else speaks in its name."""
        return self.doubt is not None and self.doubt.is_contested

    def answer(self, answered: frozenset[int], refused: dict[int, str]) -> None:
        """Record which chunks it has answered.

        Of two who speak in one name, who asked does not know which it is: what either says counts, so that
        neither takes back what the other has answered.
        """
        if self.is_contested:
            answered, refused = self.answered | answered, {**self.refused, **refused}
        self.answered, self.refused = answered, refused

    def forget_frames(self) -> None:
        """Record that the frames are forgotten of which messages were given before this was last called."""
        self._remembered, self._turned_at = self._turned_at, (self.epoch or 0, self.expected)

    def show_loss(self) -> None:
        """Record that a message has shown what was lost before it."""
        self.unreported = 0
        # Whoever has rivals takes no short way: they may have given the same frame.
        self.has_loss_to_show = self.is_contested

    def outlive(self, time_ns: int) -> None:
        """Record that it goes on though it has said goodbye: that is not believed another time."""
        self.doubt = self.doubt or Doubt(self.first_at)
        self.doubt.outlive()
        self.doubt.note(time_ns)

    def _rise(self, head: Head, time_ns: int, *, is_shared: bool) -> tuple[int | None, bool]:
        """Take in a record that is ahead."""
        is_first, doubt = self.epoch is None, self.doubt
        seconds = (time_ns - self.since) / NS
        is_possible = can_be(head, self.epoch, self.expected, seconds, is_shared=is_shared)
        if is_first:
            self.first_at = time_ns
        if doubt is None and not (is_first and head.sequence == 0):
            doubt = self.doubt = Doubt(self.first_at, head.sequence if is_first else 0)
        lost: int | None = 0 if is_possible and (is_first or head.epoch == self.epoch) else None
        if doubt is not None and self.epoch is not None:
            if is_possible and self._may_be_announced(doubt, head):
                if doubt.is_contested:
                    return self._hear_rival(doubt, head, time_ns)
            else:
                # In honest worlds, too, a control record by one path is ahead of messages by another.
                doubt.news += doubt.is_contested or not is_possible
                if not doubt.is_claimed(head, time_ns) or time_ns - self.heard_at < PATIENCE * NS:
                    return 0, False
                lost = None
            doubt.fork(self._place(doubt), head, self.answered, time_ns)
        self.since = self.heard_at = time_ns
        if head.epoch != self.epoch:
            self._stand(head.epoch, head.sequence if is_shared else 0)
        if self.is_in_place and head.count:
            self.is_in_place, lost = False, None
        self.heartbeat = b""
        missing, self.expected = head.sequence - self.expected, head.sequence + head.count
        return (missing if lost is not None else None), True

    def _may_be_announced(self, doubt: Doubt, head: Head) -> bool:
        """Tell whether a record that is ahead may say so, or has to have messages."""
        if head.count:
            return True
        return not doubt.is_contested and (doubt.believes_records or head.epoch != self.epoch)

    def _look_back(self, head: Head, time_ns: int) -> tuple[int | None, bool]:
        """Take in a record from before: it was overtaken, or contradicts what was given or overtook it."""
        doubt = self.doubt
        if doubt is not None and doubt.is_contested:
            return self._hear_rival(doubt, head, time_ns)
        self.heard_at = time_ns
        if doubt is None:
            if head.epoch == self.epoch and not head.count:
                return 0, False
            doubt = self.doubt = Doubt(self.first_at)
        present = self._place(doubt)
        is_given = doubt.has_given(head, present)
        is_remembered = self._remembered <= (head.epoch, head.sequence)
        if (is_given and not is_remembered) or (not is_given and doubt.may_have_given(head)):
            # Nobody remembers whether these were given, or lost, or others had their numbers.
            return (None if doubt.may_tell(time_ns) else 0), False
        if is_given or doubt.contradicts(head, present, time_ns):
            return self._contest(doubt, head, present, time_ns)
        return 0, False

    def _contest(
        self, doubt: Doubt, head: Head, present: StreamPlace, time_ns: int
    ) -> tuple[int | None, bool]:
        """Begin to follow more than one place, from that of a record that contradicts the present one on."""
        place = doubt.contest(head, present, time_ns)
        doubt.note(time_ns)
        place.take(head, time_ns)
        answered = self.answered if place.epoch == present.epoch else doubt.answered(place.epoch)
        self._stand(place.epoch, place.expected, answered)
        self.has_loss_to_show = True
        return None, True

    def _place(self, doubt: Doubt) -> StreamPlace:
        assert self.epoch is not None
        return doubt.present(self.epoch, self.expected, self.heard_at)

    def _hear_rival(self, doubt: Doubt, head: Head, time_ns: int) -> tuple[int | None, bool]:
        """Take in a record of a publisher that is contested, from another place than where it stands."""
        present = self._place(doubt)
        place = doubt.find(head)
        lost: int | None = 0
        if place is None:
            if not head.count:
                doubt.news += head.epoch != present.epoch
                return 0, False
            place = doubt.add(head, time_ns)
            lost = None if doubt.may_tell(time_ns) else 0
        doubt.note(time_ns)
        place.take(head, time_ns)
        if present.is_silent(time_ns) and place in doubt.rivals:
            doubt.promote(place, present)
            self._stand(place.epoch, place.expected)
            self.heard_at = time_ns
        return lost, True

    def _stand(self, epoch: int, expected: int, answered: frozenset[int] = frozenset()) -> None:
        """Go on from another place."""
        self.epoch, self.expected = epoch, expected
        if self.is_contested:
            self.answered |= answered
        else:
            self.answered, self.refused = answered, {}
        self.heartbeat = b""


def source_of(sources: dict[bytes, Source], origin: bytes) -> Source:
    """Return the source of a publisher, a new one if need be."""
    source = sources.get(origin)
    if source is None:
        source = sources[origin] = Source()
    return source


def forget_some(sources: dict[bytes, S], time_ns: int) -> dict[bytes, S]:
    """Forget an eighth of the publishers, one at least; those that have gone on for long are forgotten last.

    So a thousand names that come at once do not push out those that are known. Among equals those that have
    been silent for longest go first.

    Args:
        sources: what is known of each, by origin.
        time_ns: now.

    Returns:
        Those that have been heard for some time, so that they will be missed.
    """

    def worth(origin: bytes) -> tuple[bool, int]:
        source = sources[origin]
        return source.is_established and time_ns - source.heard_at < ESTABLISHED * NS, source.heard_at

    gone = sorted(sources, key=worth)[: max(1, len(sources) // 8)]
    forgotten = {origin: sources.pop(origin) for origin in gone}
    return {origin: source for origin, source in forgotten.items() if source.is_established}
