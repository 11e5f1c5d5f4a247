"""Streams of a subscriber, and publishers whose answers and frames they are fed."""

import oz
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.sequences import source_of
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import CONTROL, MESSAGES, head_end, head_start, pack_array, pack_control
from oz.wire.keys import DeliveryOptions

NS = 1_000_000_000
A, B = b"a" * 16, b"b" * 16


def add(streams, *texts, last_value=False, **delivery):
    one = Subscribed([oz.compile(text) for text in texts], None, lambda _: None)
    return one, streams.add(one, DeliveryOptions(**delivery), last_value=last_value)


def answer(streams, origin, at=1.0, paths=1):
    """A publisher has answered everything on every stream."""
    for stream in streams.by_key.values():
        source = source_of(stream.sources, origin)
        source.heard_at = round(at * NS)
        source.paths = paths
    for interest in streams.interests.values():
        found = interest.stream.sources[origin]
        found.answered = frozenset(interest.declarations.chunks)


class Feed:
    """A publisher's frames for the only stream there is."""

    def __init__(self, streams, origin=A, on_gap=None):
        (self._key,) = streams.by_key
        self._origin = origin
        self.gaps = []
        self.decoder = BatchDecoder(streams, None, on_gap or self.gaps.append)

    def batch(self, sequence, *subjects, epoch=1):
        items = [part for subject in subjects for part in (subject.encode(), b"")]
        start = head_start(self._key, MESSAGES, self._origin, epoch)
        self.decoder.accept([start + head_end(sequence, len(subjects)) + pack_array(items)], NS)

    def control(self, sequence, epoch=1, at=1, **fields):
        start = head_start(self._key, CONTROL, self._origin, epoch)
        body = pack_control(**fields) if fields else b""
        self.decoder.accept([start + head_end(sequence, 0) + body], at * NS)

    def taken(self):
        found = [(one.subject, one.sequence, one.gap) for one in self.decoder.waiting]
        self.decoder.waiting.clear()
        return found
