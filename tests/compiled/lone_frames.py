"""Frames of one message, and decoders that they come to, in two that are alike."""

import oz
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.sequences import source_of
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import MESSAGES, VERSION, head_end, head_start, pack_array
from oz.wire.keys import DeliveryOptions

A, B = b"a" * 16, b"b" * 16


class Denying:
    """Publishers may publish nothing."""

    has_denied = False

    def owns(self, origin, count):
        return False


def decoder(codec=None, *texts, **delivery):
    """A decoder with one stream, on which A has been heard."""
    streams = Streams(lambda count: b"\xaa" * count)
    one = Subscribed([oz.compile(text) for text in texts or ("a.*", "b")], None, lambda _: None)
    streams.add(one, DeliveryOptions(**delivery), last_value=False)
    (stream,) = streams.by_key.values()
    source = source_of(stream.sources, A)
    source.epoch, source.heard_at, source.first_at = 1, 1, 1
    return BatchDecoder(streams, codec)


def frame(
    sequence=0, subject=b"a.b", payload=b"x", *, epoch=1, origin=A, flags=MESSAGES, version=VERSION,
    position=5, count=1, width=0, rest=b"", key=None,
):  # fmt: skip
    """A frame as a publisher sends it, or one that differs somewhere."""
    key = key or next(iter(decoder().streams.by_key))
    start = key + bytes((version,)) + head_start(key, flags, origin, epoch)[len(key) + 1 :]
    return start + head_end(sequence, count, position, width) + pack_array([subject, payload]) + rest


def shown(message):
    if message is None:
        return None
    names = ("subject", "payload", "body", "origin", "sequence", "time_ns", "position")
    return type(message), [getattr(message, name) for name in names], message.route.subject


def standing(one):
    """What is known of publishers, and counted."""
    (stream,) = one.streams.by_key.values()
    sources = {
        origin: (source.epoch, source.expected, source.heard_at, source.has_loss_to_show, source.unreported)
        for origin, source in stream.sources.items()
    }
    return sources, one.stats, one.given.recent, len(one.waiting), list(stream.table.routes)
