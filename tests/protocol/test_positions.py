"""Positions: whoever gets a message gets it with the same one, whatever happens on the way."""

from itertools import chain
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from oz.protocol.publisher.last_value_cache import LastValueCache
from oz.protocol.publisher.records import Records
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import (
    MESSAGES,
    head_end,
    head_start,
    pack_array,
)
from oz.wire.keys import DeliveryOptions
from protocol.in_memory import (
    BUFFERED,
    SUBJECTS,
    Publisher,
    Subscriber,
    act,
    act_in_group,
    joined,
    settle,
)
from support.cases import each
from support.sizes import size

ORIGIN = b"p" * 16


class Keeping(Publisher):
    """A publisher that keeps last values."""

    def __init__(self, **options):
        super().__init__(**options)
        self.kept = LastValueCache()
        self.records = Records(self.router, self.batches, self.kept, self.wire, self.clock)

    def collect(self, *subjects):
        for subject in subjects:
            before = len(self._accumulated)
            super().collect(subject)
            position = self.batches.position + before // 3
            if len(self._accumulated) == before:
                # Nobody wants it: it has its position all the same.
                self.flush()
                self.batches.position += 1
            self.kept.put(subject, b"%d" % self._number, position)


def positions_of(subscribers):
    """Return the positions by the numbers of the messages; each has the same for everybody, and alone."""
    found = {}
    for message in (message for one in subscribers for message in one.got):
        number = int(message.payload)
        assert found.setdefault(number, message.position) == message.position
    given = [position for position in found.values() if position is not None]
    assert len(set(given)) == len(given)
    return found


def rises(one):
    positions = [message.position for message in one.got]
    return positions == sorted(set(positions))


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=size(10, 300), deadline=None)
def test_slow_subscribers_that_come_and_go_have_the_same_rising_positions(seed, drops):
    random, publisher = Random(seed), Publisher(drops=drops)
    rising = [
        Subscriber(publisher),
        Subscriber(publisher, "a.x"),
        Subscriber(publisher, is_shared=True),
        Subscriber(publisher, "a.y", is_shared=True),
        Subscriber(publisher, overflow="drop_oldest", limit=BUFFERED),
        Subscriber(publisher, overflow="drop_newest", limit=BUFFERED),
    ]
    conflating = Subscriber(publisher, overflow="conflate", limit=BUFFERED)
    everybody = [*rising, conflating]
    settle(publisher)
    for _ in range(150):
        act(random, publisher, everybody)
    for one in everybody:
        if not one.is_connected:
            one.come_back()
    settle(publisher)
    publisher.publish(*SUBJECTS)
    settle(publisher)
    positions = positions_of(everybody)
    assert None not in positions.values()
    assert all(rises(one) for one in rising)
    # A position goes by the order of publishing, whoever got the message.
    assert sorted(positions, key=positions.get) == sorted(positions)


@given(st.integers(0, 2**32), st.sampled_from(["round_robin", "sticky", "failover"]))
@settings(max_examples=size(10, 300), deadline=None)
def test_members_of_a_group_have_the_positions_of_those_who_get_all(seed, policy):
    random, publisher = Random(seed), Publisher(drops=False)

    def join():
        return Subscriber(publisher, group="g", policy=policy)

    everything, members, leaving = Subscriber(publisher), [join() for _ in range(3)], []
    joined(publisher, everything, *members)
    for _ in range(150):
        leaving.append(act_in_group(random, publisher, members, join))
        everything.take()
    settle(publisher)
    positions = positions_of([everything, *members, *filter(None, leaving)])
    assert None not in positions.values()
    assert sorted(positions, key=positions.get) == sorted(positions)


@given(st.lists(st.lists(st.sampled_from([*SUBJECTS, b"b.x"]), min_size=1, max_size=5), max_size=12))
@settings(max_examples=size(15, 500), deadline=None)
def test_last_values_have_the_positions_that_they_were_published_with(rounds):
    publisher = Keeping()
    one = Subscriber(publisher, "*.x")
    joined(publisher, one)
    for subjects in rounds:
        publisher.publish(*subjects)
        settle(publisher)
    late = Subscriber(publisher, "nothing")
    wanted = Subscribed([oz.compile(">")], None, lambda _: None)
    late.apply(late.streams.add(wanted, DeliveryOptions(), last_value=True))
    settle(publisher)
    positions = positions_of([one, late])
    last = {subject: number for number, subject in enumerate(chain.from_iterable(rounds), 1)}
    assert [int(message.payload) for message in late.got] == sorted(last.values())
    # All that was published has a position, and this publisher leaves none out.
    assert positions == {number: number - 1 for number in positions}


@each("is_shared", [False, True])
def test_who_gets_nothing_knows_where_the_publisher_stands(is_shared):
    publisher = Publisher()
    busy, idle = Subscriber(publisher), Subscriber(publisher, "b.*", is_shared=is_shared)
    settle(publisher)
    publisher.publish(b"a.x", b"a.y", b"a.z")
    settle(publisher)
    assert [message.position for message in busy.got] == [0, 1, 2]
    (stream,) = [one for one in idle.streams.by_key.values() if one.is_shared == is_shared]
    assert stream.sources[ORIGIN].position == 3


def test_no_position_is_given_again_after_what_was_being_sent_is_lost():
    publisher = Publisher()
    one = Subscriber(publisher)
    joined(publisher, one)
    publisher.publish(b"a.x", b"a.y")
    before = publisher.batches.position
    publisher.batches.lose_count()
    settle(publisher)
    publisher.publish(b"a.x")
    settle(publisher)
    assert one.got[-1].position >= before + 2


class TestLies:
    """A position is shown and believed for nothing: a lie costs the frame at most, and nothing else."""

    @pytest.fixture
    def one(self):
        publisher = Publisher()
        made = Subscriber(publisher)
        settle(publisher)
        return made

    def say(self, one, sequence, position, width=0, differences=b"", *numbers):
        (key,) = [key for key, stream in one.streams.by_key.items() if stream.table]
        items = [part for number in numbers for part in (b"a.x", b"%d" % number)]
        head = head_start(key, MESSAGES, b"o" * 16, 1) + head_end(sequence, len(numbers), position, width)
        one.arriving.append([head + differences + pack_array(items)])
        one.take()
        one.read()

    def test_what_falls_back_is_shown_as_it_is_said(self, one):
        self.say(one, 0, 2**64 - 1, 0, b"", 1)
        self.say(one, 1, 5, 0, b"", 2, 3)
        self.say(one, 3, 5, 1, b"\xff", 4, 5)
        assert [message.position for message in one.got] == [2**64 - 1, 5, 6, 5, 4]
        assert (one.stats.lost, one.stats.malformed) == (0, 0)

    @pytest.mark.parametrize(
        ("position", "width", "differences"),
        [(2**64 - 1, 0, b""), (0, 1, b"\xff"), (2**64 - 1, 1, b"\1"), (0, 3, bytes(3)), (0, 8, b"\0")],
    )
    def test_what_cannot_be_costs_its_own_frame(self, one, position, width, differences):
        self.say(one, 0, 0, 0, b"", 1)
        self.say(one, 1, position, width, differences, 2, 3)
        assert one.stats.malformed == 1
        self.say(one, 1, 1, 0, b"", 2, 3)
        assert [message.payload for message in one.got] == [b"1", b"2", b"3"]
        assert one.stats.lost == 0
