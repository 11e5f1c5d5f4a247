"""Somebody else gives numbers of a publisher before that does: nothing honest is replaced in silence."""

import random

import pytest

import oz
from oz.protocol.subscriber import decoder
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
        return {at for gap in self.gaps if gap.count for at in range(gap.sequence, gap.sequence + gap.count)}


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


def silent(heard, numbers):
    """Return those honest messages that were neither given nor told to be lost."""
    given = set(heard.given)
    return [one for one in numbers if honest(one)[0] not in given and one not in heard.reported]


@pytest.mark.parametrize("ahead", [0, 1, 20])
@pytest.mark.parametrize("batch", [1, 5, 20])
def test_who_stays_ahead_of_a_publisher_replaces_nothing_in_silence(heard, ahead, batch):
    for number in range(100, 1_000):
        if number % batch == 0:
            heard.hear(heard.frame(number + ahead, forged(number + ahead, batch)))
        heard.hear(heard.frame(number, honest(number)))
        heard.now += 0.01
    assert silent(heard, range(1_000)) == []
    # Those that it left out were lost as far as anybody can tell; all others came, in order.
    assert len(heard.reported) <= ahead
    came = [one for one in heard.given if one.startswith(b"honest")]
    assert came == honest(0, 100) + honest(100 + len(heard.reported), 900 - len(heard.reported))
    assert heard.stats.contradictions > 800 // batch


def test_messages_of_a_batch_are_not_replaced_by_one_within_it(heard):
    heard.hear(heard.frame(103, forged(103)))
    assert heard.hear(heard.frame(100, honest(100, 10))) == honest(100, 10)
    assert heard.hear(heard.frame(110, honest(110, 10))) == honest(110, 10)


def test_one_huge_batch_ahead_replaces_nothing(heard):
    heard.hear(heard.frame(100, forged(100, 16_384)))
    for number in range(100, 200):
        assert heard.hear(heard.frame(number, honest(number))) == honest(number)
    assert heard.stats.contradictions >= 1


def test_payloads_that_stand_behind_a_batch_are_told_apart_too(heard):
    def large(payload):
        start = head_start(heard.key, MESSAGES, ORIGIN, EPOCH) + head_end(100, 1)
        return start + pack_array([b"a.b", None]), payload

    assert heard.hear(*large(b"forged" * 20_000))
    assert heard.hear(*large(b"honest" * 20_000)) == [b"honest" * 20_000]
    assert heard.hear(*large(b"honest" * 20_000)) == []


def test_numbers_that_are_forged_on_the_key_of_a_shared_pattern_replace_nothing():
    heard = Heard(is_shared=True)
    heard.hear(heard.frame(50, honest(50)))
    heard.hear(heard.frame(51, forged(51, 3)))
    for number in range(51, 60):
        assert heard.hear(heard.frame(number, honest(number))) == honest(number)


def test_a_contradiction_names_its_publisher(heard, caplog):
    heard.hear(heard.frame(100, forged(100)))
    heard.hear(heard.frame(100, honest(100)))
    assert [gap.origin for gap in heard.gaps] == [ORIGIN]
    assert ORIGIN.hex() in caplog.text
    assert heard.stats.contradictions == 1


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(size(5, 300)))
def test_two_ways_that_lose_and_are_late_contradict_nothing(seed):
    """Batches of any size, by two ways of which one is slower: what both lose is told, nothing is twice."""
    heard, drawn = Heard(), random.Random(seed)
    lag, loss = drawn.uniform(0.0, 2.9), drawn.choice([0.0, 0.05, 0.4])
    sent, at, now = [], 0, 0.0
    for _ in range(300):
        now += drawn.choice([0.0, 0.001, 0.05])
        count = drawn.choice([0, 1, 1, 5, 50])
        for delay in (0.0, lag):
            if drawn.random() >= loss:
                sent.append((now + delay, delay, at, count))
        at += count
    begins = heard.now
    for arrives, _, sequence, count in sorted(sent):
        heard.now = begins + arrives
        heard.hear(heard.frame(sequence, honest(sequence, count)))
    assert heard.stats.contradictions == 0
    assert len(heard.given) == len(set(heard.given))
    heard.hear(heard.frame(at, honest(at)))
    assert silent(heard, range(at)) == []


def test_who_gives_very_many_frames_has_what_is_replaced_told_too(heard, monkeypatch):
    monkeypatch.setattr(decoder, "FRAMES", 50)
    for number in range(100, 120):
        at = 100 + 150 * (number - 100)
        for one in range(at, at + 150):
            heard.hear(heard.frame(one, forged(one)))
        heard.now += 1.0
        before = len(heard.gaps)
        assert heard.hear(heard.frame(number, honest(number))) or len(heard.gaps) > before


def test_a_frame_that_nobody_remembers_is_told_and_not_given_twice(heard, monkeypatch):
    monkeypatch.setattr(decoder, "FRAMES", 50)
    for number in range(100, 300):
        heard.hear(heard.frame(number, honest(number)))
    assert heard.hear(heard.frame(250, honest(250))) == []
    assert heard.gaps == []
    assert heard.hear(heard.frame(110, honest(110))) == []
    assert [gap.count for gap in heard.gaps] == [None]
    assert heard.stats.contradictions == 0


def test_what_is_remembered_is_bounded(heard, monkeypatch):
    monkeypatch.setattr(decoder, "FRAMES", 50)
    given = heard.decoder.given
    for number in range(1_000):
        heard.hear(heard.frame(100 + number, honest(number, 1)))
        assert len(given.recent) <= 50
        assert len(given) <= 100


def test_losses_without_number_leave_no_room_to_replace_messages_in_silence(heard):
    """So many places that some are joined, so that nobody knows what was given in between."""
    number = 100
    for turn in range(300):
        heard.hear(heard.frame(200 + 2 * turn, forged(turn)))
    while number < 800:
        heard.now += 0.01
        before = len(heard.gaps)
        came = heard.hear(heard.frame(number, honest(number)))
        assert came or number in heard.reported or heard.gaps[-1].count is None or len(heard.gaps) > before
        number += 1
    assert heard.stats.contradictions > 0
