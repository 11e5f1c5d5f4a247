"""What a publisher tells streams: a part of many at a time, and long answers not too often."""

from __future__ import annotations

import oz
from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.lifetimes import FEW
from oz.protocol.publisher.records import (
    ANSWERED_AT_ONCE,
    CROWD_EVERY,
    CROWD_TIME,
    HEARTBEAT,
    MOST_LOOKED_AT,
    MOST_REASONS,
    MOST_TOLD,
    Records,
)
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.declared import declare
from oz.wire.keys import Declaration, Declared, DeliveryOptions, stream_key
from support.cases import each

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

    def declare(self, chunk, *patterns, name=NAME, account=None):
        for key in (Declaration(name, chunk, patterns=patterns).encode(), stream_key(name)):
            self.router.learn(b"\1" + key, self.now, account)

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


class Crowded(Publisher):
    """A publisher with a connection that has many streams, and another with one."""

    def __init__(self, count):
        super().__init__()
        self.account = Account(Peer(7, 70))
        self.crowd = [b"%016d" % number for number in range(count)]
        for name in self.crowd:
            self.declare(1, declare(oz.compile("a")), name=name, account=self.account)
        self.declare(1, declare(oz.compile("b")), account=Account(Peer(8, 80)))
        while self.router.to_answer:
            self.records.answer()
        self.told()

    def told_in_a_second(self):
        """Return the names of those that are told, in each of the looks of a second."""
        ends, looks = self.now + HEARTBEAT, []
        self.tick = CROWD_TIME / 10
        while self.now < ends:
            self.records.beat(self.now)
            looks.append([frame[3:19] for frame in self.told()])
            self.now = max(self.now, min(ends, self.records.next_deadline(self.now)))
        return looks


def test_a_crowd_of_one_connection_is_told_a_little_at_a_time_and_each_in_its_turn():
    pub = Crowded(700)
    told, seconds = set(), 0
    while not told >= set(pub.crowd):
        looks = pub.told_in_a_second()
        told |= {name for look in looks for name in look}
        seconds += 1
        assert {NAME, *pub.crowd[:FEW]} <= set(looks[0])
        assert all(len(look) <= 11 for look in looks[1:])
        assert len(looks) <= 2 + HEARTBEAT / CROWD_EVERY
    assert 5 < seconds < 20


def test_of_a_crowd_that_is_not_large_each_is_told_once_a_second():
    pub = Crowded(50)
    pub.told_in_a_second()
    for _ in range(3):
        told = [name for look in pub.told_in_a_second() for name in look]
        assert sorted(told) == sorted([NAME, *pub.crowd])


def test_a_crowd_with_little_room_is_told_as_there_is_room_and_not_a_few_in_each_second():
    pub = Crowded(20)
    send = pub.sink.try_send
    pub.sink.try_send = lambda frames, backlog=None: len(pub.sink.frames) < 2 and send(frames)
    told = set()
    for _ in range(20):
        pub.now = pub.records.next_deadline(pub.now)
        pub.records.beat(pub.now)
        told.update(frame[3:19] for frame in pub.told())
    assert told >= set(pub.crowd)
    assert pub.now < 100.0 + 5 * HEARTBEAT


def test_in_a_crowd_those_are_told_soon_on_which_something_was_sent():
    pub = Crowded(2 * MOST_LOOKED_AT)
    pub.told_in_a_second()
    some = pub.crowd[FEW:][-3:]
    for name in some:
        pub.router.streams[stream_key(name)].sequence += 1
    assert set(some) <= {name for look in pub.told_in_a_second() for name in look}


def test_who_leaves_a_crowd_is_not_told_any_more():
    pub = Crowded(50)
    for name in pub.crowd:
        pub.router.lifetimes.forget(pub.router.streams[stream_key(name)], pub.now)
    assert {name for look in pub.told_in_a_second() for name in look} == {NAME}
    assert pub.account.beating == 0
    assert not pub.router.lifetimes.crowd
    pub.declare(1, declare(oz.compile("a")), name=pub.crowd[0], account=pub.account)
    assert pub.account.beating == 1


def test_a_stream_that_comes_back_by_another_connection_counts_for_that():
    pub = Crowded(FEW)
    stream, other = pub.router.streams[stream_key(pub.crowd[0])], Account(Peer(9, 90))
    pub.router.learn(
        b"\0" + Declaration(pub.crowd[0], 1, patterns=(declare(oz.compile("a")),)).encode(), pub.now
    )
    pub.router.learn(b"\0" + stream.key, pub.now)
    assert stream.vanished_at is not None
    pub.declare(1, declare(oz.compile("a")), name=pub.crowd[0], account=other)
    assert (pub.account.beating, other.beating) == (FEW - 1, 1)


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


@each("count", [3, None])
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


def test_a_loss_of_what_was_for_some_is_told_to_nobody_else():
    pub, member = Publisher(), DeliveryOptions(group="g")
    names = [letter * 16 for letter in (b"a", b"b", b"m", b"n")]
    for name, delivery in zip(names, (DeliveryOptions(), DeliveryOptions(), member, member), strict=True):
        pattern = declare(oz.compile("b" if name == names[1] else "a"))
        for key in (Declaration(name, 1, delivery, patterns=(pattern,)).encode(), stream_key(name)):
            pub.router.learn(b"\1" + key, pub.now)
    pub.batches.skip(3, pub.router.find(b"a"))
    assert [pub.router.streams[stream_key(name)].sequence for name in names] == [3, 0, 3, 0]


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
