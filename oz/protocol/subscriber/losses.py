"""Losses: following the sequences of publishers, and telling the application what was lost, or may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oz.logs import peer_logger
from oz.protocol.messages import Gap
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.refusals import Refusals
from oz.protocol.subscriber.sequences import Source, forget_some, source_of
from oz.protocol.subscriber.stream import Stream
from oz.protocol.subscriber.streams import Streams
from oz.wire.batch import Head

_log = peer_logger("oz.subscriber")

OnGap = Callable[[Gap], Any]


class Losses:
    """Follows the sequences of publishers, and reports losses, each once."""

    __slots__ = ("_most_sources", "_on_gap", "_refusals", "_stats", "_streams")

    def __init__(
        self,
        streams: Streams,
        stats: SubscriberStats,
        on_gap: OnGap | None,
        refusals: Refusals,
        most_sources: float,
    ) -> None:
        """Begin without any.

        Args:
            streams: what is subscribed to.
            stats: where they are counted.
            on_gap: called with each gap; None to log the first of each publisher.
            refusals: where it is logged that publishers contradict themselves.
            most_sources: publishers that are kept in mind of each stream.
        """
        self._streams = streams
        self._stats = stats
        self._on_gap = on_gap
        self._refusals = refusals
        self._most_sources = most_sources

    def is_late(self, stream: Stream, head: Head, time_ns: int, *, is_goodbye: bool = False) -> bool:
        """Tell whether a publisher has said goodbye, so that this came by a slower path."""
        if head.origin in stream.sources:
            return False
        if is_goodbye and stream.has_said_goodbye(head.origin):
            # In whatever epoch: it would be believed of one that nothing was heard of.
            return True
        if not stream.has_ended(head.origin, head.epoch):
            return False
        if not stream.outlives(head.origin, time_ns):
            return True
        self._streams.note_news()
        return False

    def find(self, stream: Stream, origin: bytes, time_ns: int) -> Source:
        """Return what is known of a publisher; for a new one others may have to be forgotten."""
        source = stream.sources.get(origin)
        if source is not None:
            return source
        self.make_room(stream, time_ns)
        return source_of(stream.sources, origin)

    def make_room(self, stream: Stream, time_ns: int) -> None:
        """Forget some publishers of a stream, if it has as many as are kept in mind."""
        if len(stream.sources) >= self._most_sources:
            for origin, known in forget_some(stream.sources, time_ns).items():
                self.report(stream, known, origin, None)

    def _count_contradictions(self, source: Source, origin: bytes) -> None:
        """Count what speaks against a publisher, and log the first."""
        assert source.doubt is not None
        self._stats.contradictions += source.doubt.news
        source.doubt.news = 0
        self._refusals.warn_once(
            "contradiction",
            "publisher %s contradicts itself, or somebody else uses its name: see stats.contradictions",
            origin.hex(),
        )

    def advance(self, stream: Stream, source: Source, head: Head, time_ns: int) -> bool:
        """Record where the key stands; tell whether the messages of the batch are to be given."""
        if source.epoch != head.epoch:
            # A new one, or one that has begun anew, has answered nothing yet.
            self._streams.note_news()
        lost, is_new = source.advance(head, time_ns, is_shared=stream.is_shared)
        if source.doubt is not None and source.doubt.news:
            self._count_contradictions(source, head.origin)
        if lost != 0:
            self.report(stream, source, head.origin, lost, head.sequence)
        return is_new

    def lose_track(self, origin: bytes, besides: Stream | None, *, is_in_place: bool) -> None:
        """Report that messages of a publisher may be missing which nobody counted.

        Args:
            origin: the publisher.
            besides: a stream that it sends nothing on.
            is_in_place: it has only begun, for another one that is gone; the same is reported once more
                before its first message. Otherwise it is gone itself, as far as it was there and has not said
                goodbye; that is reported once, unless it has been heard since.
        """
        for stream in self._streams.by_key.values():
            if stream is besides or not (is_in_place or origin in stream.sources):
                continue
            source = source_of(stream.sources, origin)
            source.is_in_place = is_in_place
            source.has_loss_to_show |= is_in_place
            if stream.only_answers and not is_in_place:
                continue
            if is_in_place or source.missed_at != source.heard_at:
                source.missed_at = source.heard_at
                self.report(stream, source, origin, None)

    def report(
        self, stream: Stream, source: Source, origin: bytes, lost: int | None, sequence: int = 0
    ) -> None:
        """Report one loss.

        Args:
            stream: where messages are missing.
            source: what is known of the publisher there.
            origin: the publisher.
            lost: how many; None when nobody knows.
            sequence: the number of the message that comes next.
        """
        if lost is not None:
            self._stats.lost += lost
            source.unreported += lost
            source.has_loss_to_show = True
        subscriptions = tuple(stream.table)
        only = subscriptions[0] if len(subscriptions) == 1 else None
        gap = Gap(origin, only, lost, sequence=None if lost is None else sequence - lost)
        if self._on_gap is None:
            if not source.is_reported:
                source.is_reported = True
                _log.warning("%s messages from publisher %s were lost", lost or "some", origin.hex())
            return
        try:
            self._on_gap(gap)
        except Exception:
            _log.exception("on_gap raised on %r", gap)
