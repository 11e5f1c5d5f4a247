"""Laws of what comes to a subscriber, and does not come to its application.

A signal handler raises while a frame is taken in, or a pattern takes too long: each is told or counted.
"""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import oz
from oz.errors import PatternTimeout
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.subjects import pattern
from oz.wire.batch import MESSAGES, head_end, head_start, pack_array
from oz.wire.keys import DeliveryOptions
from simulation.changing import changed
from simulation.ledger import check

NOW, FRAMES = 1_000_000_000_000, 12


def check_interrupted(random):
    """What is taken in while a handler raises is lost, told with its number, and nothing else is."""
    is_interrupted, gaps = [False], []

    def decode(payload):
        if is_interrupted[0]:
            raise KeyboardInterrupt
        return payload

    streams = Streams(random.randbytes)
    decoder = BatchDecoder(streams, SimpleNamespace(decode=decode), gaps.append)
    stream = _subscribe(streams, oz.compile(">"))
    first, lost = 0, []
    for _ in range(FRAMES):
        count = random.randrange(1, 4)
        is_interrupted[0] = first > 0 and random.random() < 0.3
        if is_interrupted[0]:
            lost += range(first, first + count)
        given = []
        with suppress(KeyboardInterrupt):
            given = _accept(decoder, _frame(stream, first, count))
        expected = [] if is_interrupted[0] else list(range(first, first + count))
        check([one.sequence for one in given] == expected, "{} are to be given, not {}", expected, given)
        first += count
    is_interrupted[0] = False
    _accept(decoder, _frame(stream, first, 1))
    told = [at for gap in gaps for at in range(gap.sequence, gap.sequence + gap.count)]
    check(told == lost, "{} were interrupted, and {} told as lost", lost, told)
    check(decoder.stats.lost == len(lost), "{} are counted as lost of {}", decoder.stats.lost, len(lost))


def check_timeouts(random):
    """A pattern that takes too long gets nothing; that is counted for each message, and others get theirs."""
    streams, count = Streams(random.randbytes), random.randrange(2, 5)
    decoder = BatchDecoder(streams)
    is_alone = random.random() < 0.5
    stream = _subscribe(streams, oz.compile("(a|b)+.*x", "regex"))
    if not is_alone:
        _subscribe(streams, oz.compile("*.*"))
    with changed((pattern, "decides", _take_long)):
        given = [one for at in range(count) for one in _accept(decoder, _frame(stream, at, 1))]
    check(len(given) == count * (not is_alone), "{} are given of {}", len(given), count)
    found = decoder.stats.timed_out
    check(found == count, "{} patterns took too long, and {} are counted", count, found)


def _take_long(one, subject, seconds):
    raise PatternTimeout(one.text, subject, seconds)


def _subscribe(streams, *patterns):
    subscription = Subscribed(list(patterns), None, print)
    streams.add(subscription, DeliveryOptions(), last_value=False)
    return streams.stream(subscription)


def _frame(stream, sequence, count):
    body = pack_array([part for at in range(count) for part in (b"a.x", b"%d" % at)])
    return head_start(stream.key, MESSAGES, b"o" * 16, 1) + head_end(sequence, count) + body


def _accept(decoder, frame):
    message = decoder.accept([frame], NOW)
    given = [] if message is None else [message]
    while (message := decoder.next()) is not None:
        given.append(message)
    return given
