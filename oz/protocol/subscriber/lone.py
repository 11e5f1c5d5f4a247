"""The shortest way of what a subscriber with publisher-side filtering is sent."""

from __future__ import annotations

from collections.abc import Callable

from oz.compiled import HOT
from oz.protocol.messages import LoneMessage, Message
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.dedupe import FRAMES
from oz.protocol.subscriber.sequences import Source
from oz.protocol.subscriber.stream import Stream
from oz.protocol.subscriber.subscriptions import Route, SubscriptionTable
from oz.wire.batch import SHORT
from oz.wire.keys import STREAM_SIZE

if HOT is not None:
    HOT.know_lone(LoneMessage, Stream, Source, SubscriptionTable, Route)


def shortest(decoder: BatchDecoder) -> Callable[[list[bytes], int], Message | None]:
    """Return `accept` of a decoder, compiled where that is possible."""
    if HOT is None or type(decoder) is not BatchDecoder or decoder.decode is not None:
        return decoder.accept
    return HOT.AcceptLone(
        twin=decoder.accept,
        decoder=decoder,
        waiting=decoder.waiting,
        by_key=decoder.streams.by_key,
        stats=decoder.stats,
        recent=decoder.given.recent,
        forget=decoder.forget_frames,
        key_size=STREAM_SIZE,
        longest=SHORT,
        most=FRAMES,
    )
