"""Losses: telling the application what messages of a publisher were lost, or may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oz.logs import peer_logger
from oz.message import Gap
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.sequences import Source, find
from oz.protocol.subscriber.stream import Stream
from oz.protocol.subscriber.streams import Streams

_log = peer_logger("oz.subscriber")

OnGap = Callable[[Gap], Any]


class Losses:
    """Reports losses, each once."""

    __slots__ = ("_on_gap", "_stats", "_streams")

    def __init__(self, streams: Streams, stats: SubscriberStats, on_gap: OnGap | None) -> None:
        """Begin without any.

        Args:
            streams: what is subscribed to.
            stats: where they are counted.
            on_gap: called with each gap; None to log the first of each publisher.
        """
        self._streams = streams
        self._stats = stats
        self._on_gap = on_gap

    @property
    def has_callback(self) -> bool:
        """Whether the application is called with each; otherwise the first of a publisher is logged."""
        return self._on_gap is not None

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
            source = find(stream.sources, origin)
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
