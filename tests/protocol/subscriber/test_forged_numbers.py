"""Somebody else gives numbers of a publisher before that does: nothing honest is replaced in silence."""

import random

import pytest

import oz
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import CONTROL, MESSAGES, head_end, head_start, pack_array
from oz.wire.keys import DeliveryOptions
from support.sizes import size

NS = 1_000_000_000
ORIGIN = b"o" * 16
EPOCH = 3


class Heard:
    """A subscriber of one pattern, what it was given, and what it was told to be lost."""

    def __init__(self, *, is_shared=False):
        self.gaps, self.given, self.now = [], [], 1_000.0
        self.decoder = BatchDecoder(Streams(lambda count: bytes(range(count))), on_gap=self.gaps.append)
        subscription = Subscribed([oz.compile("a.>")], None, print)
        self.decoder.streams.add(subscription, DeliveryOptions(is_shared=is_shared), last_value=False)
        self.key = [*self.decoder.streams.by_key][-1]

    def frame(self, sequence, names, epoch=EPOCH):
        body = pack_array([part for name in names for part in (b"a.b", name)]) if names else b""
        flags = MESSAGES if names else CONTROL
        return head_start(self.key, flags, ORIGIN, epoch) + head_end(sequence, len(names)) + body

    def hear(self, *frames):
        """Take in a frame with those behind it; return what it gives."""
        message = self.decoder.accept(list(frames), round(self.now * NS))
        messages = [message] if message is not None else []
        while (message := self.decoder.next()) is not None:
            messages.append(message)
        payloads = [one.payload for one in messages]
        self.given += payloads
        return payloads

    @property
    def stats(self):
        return self.decoder.stats

    @property
    def reported(self):
        """The numbers that were told to be lost."""
        return {
            at for gap in self.gaps if gap.count for at in range(gap.sequence, gap.sequence + gap.count)
        }


def honest(number, count=1):
    return [b"honest %d" % one for one in range(number, number + count)]


def forged(number, count=1):
    return [b"forged %d" % one for one in range(number, number + count)]


@pytest.fixture
def heard():
    """A publisher that has sent 100 messages."""
    heard = Heard()
    heard.hear(heard.frame(0, honest(0, 100)))
    return heard


@pytest.mark.parametrize("batch", [1, 5, 20])
def test_who_stays_ahead_of_a_publisher_replaces_nothing_in_silence(heard, batch):
    number, ahead = 100, 20
    while number < 1_000:
        if number % batch == 0:
            heard.hear(heard.frame(number + ahead, forged(number + ahead, batch)))
        heard.hear(heard.frame(number, honest(number)))
        heard.now += 0.01
        number += 1
    silent = [
        one for one in range(1_000) if honest(one)[0] not in heard.given and one not in heard.reported
    ]
    assert silent == []
    assert heard.stats.contradictions > 0
