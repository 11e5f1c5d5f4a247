"""What a publisher tells streams: a part of many at a time, and long answers not too often."""

from __future__ import annotations

import pytest

import oz
from oz.protocol.declared import declare
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.records import ANSWERED_AT_ONCE, MOST_REASONS, MOST_TOLD, Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.keys import Declaration, Declared, DeliveryOptions, stream_key

NAME = b"n" * 16


class Sink:
    """Has room for everything."""

    def __init__(self):
        self.frames = []

    def try_send(self, frames, backlog=None):
        self.frames.append(frames[0])
        return True

    def look(self):
        pass

    make_lossless = make_lossy = look


class Publisher:
    def __init__(self):
        self.now, self.tick = 100.0, 0.0
        self.router = Router(bytes(16), PublisherStats())
        self.sink = Sink()
        self.batches = Batches(self.router, self.sink, self.clock, drops=True)
        self.records = Records(self.router, self.batches, None, self.sink, self.clock)

    def clock(self):
        self.now += self.tick
        return self.now

    def declare(self, chunk, *patterns, name=NAME):
        for key in (Declaration(name, chunk, patterns=patterns).encode(), stream_key(name)):
            self.router.learn(b"\1" + key, self.now)

    def told(self):
        """Return what was sent since, and forget it."""
        frames, self.sink.frames = self.sink.frames, []
        return frames


def test_many_streams_are_told_where_they_stand_a_part_at_a_time():
    pub = Publisher()
    names = [b"%016d" % number for number in range(2 * MOST_TOLD + 1)]
    for name in names:
        pub.declare(1, declare(oz.compile("a")), name=name)
    pub.records.answer()
    pub.told()
    parts = []
    while sum(parts) < len(names):
        pub.records.is_halfway = False
        pub.records.beat(pub.now)
        parts.append(len(pub.told()))
        assert pub.records.is_halfway == (sum(parts) < len(names))
    assert parts == [MOST_TOLD, MOST_TOLD, 1]


def test_a_stream_of_many_chunks_is_answered_the_less_often_the_longer_its_answer_is():
    pub = Publisher()
    for chunk in range(1, 5_001):
        pub.declare(chunk)
    pub.records.answer()
    (first,) = pub.told()
    answers = 0
    for chunk in range(5_001, 5_101):
        pub.declare(chunk)
        pub.now += 0.001
        pub.records.answer()
        answers += len(pub.told())
    assert answers <= 0.1 / (len(first) / 1_000_000)
    # What is left is answered as soon as it may be, without a sign.
    due = pub.records.next_deadline(pub.now)
    assert pub.now < due < pub.now + 0.02
    pub.now = due
    pub.records.answer()
    assert len(pub.told()) == 1
    assert not pub.router.to_answer


def test_a_stream_of_few_chunks_is_answered_at_once():
    pub = Publisher()
    for chunk in range(1, ANSWERED_AT_ONCE):
        pub.declare(chunk)
        pub.records.answer()
        assert len(pub.told()) == 1


def test_the_reasons_of_one_answer_are_bounded():
    pub = Publisher()
    for chunk in range(1, 2_001):
        pub.declare(chunk, Declared(1, b"a" * 200 + b"..%d" % chunk))
    assert sum(map(len, pub.router.streams[stream_key(NAME)].refused.values())) > 2 * MOST_REASONS
    pub.records.answer()
    (frame,) = pub.told()
    assert len(frame) < 2 * MOST_REASONS


def test_many_streams_are_answered_a_part_at_a_time_and_each_once():
    pub = Publisher()
    names = [bytes([number]) * 16 for number in range(1, 101)]
    for name in names:
        pub.declare(1, declare(oz.compile("a")), name=name)
    turns = 0
    pub.tick = 0.0001
    while pub.router.to_answer:
        pub.records.answer()
        turns += 1
        assert len(pub.sink.frames) <= 11 * turns
    assert turns > 5
    assert len(pub.sink.frames) == len(set(pub.sink.frames)) == 100


@pytest.mark.parametrize("count", [3, None])
def test_who_was_told_that_this_is_all_is_told_of_no_loss_behind_it(count):
    pub = Publisher()
    pub.declare(1, declare(oz.compile("a")))
    stream = pub.router.streams[stream_key(NAME)]
    pub.router.learn(b"\1" + Declaration(NAME, 2, is_closing=True).encode(), pub.now)
    before = stream.epoch, stream.sequence
    pub.batches.skip(count)
    # It was not answered yet, and learns of that by the answer.
    assert (stream.epoch, stream.sequence) != before
    pub.records.answer()
    before = stream.epoch, stream.sequence
    pub.batches.skip(count)
    assert (stream.epoch, stream.sequence) == before


def test_a_loss_for_a_group_is_told_to_a_member_that_stays():
    pub = Publisher()
    group, other = DeliveryOptions(group="g"), b"o" * 16
    for name in (NAME, other):
        for key in (
            Declaration(name, 1, group, patterns=(declare(oz.compile("a")),)).encode(),
            stream_key(name),
        ):
            pub.router.learn(b"\1" + key, pub.now)
    pub.router.learn(b"\1" + Declaration(NAME, 2, group, is_closing=True).encode(), pub.now)
    pub.records.answer()
    pub.batches.skip(3)
    assert [pub.router.streams[stream_key(name)].sequence for name in (NAME, other)] == [0, 3]
