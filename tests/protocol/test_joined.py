"""A publisher and subscribers of `oz.protocol`, joined in memory: no socket, no thread, no clock."""

from random import Random

import pytest

import oz
from oz.protocol.publisher.lifetimes import GRACE
from oz.protocol.publisher.records import HEARTBEAT
from oz.protocol.publisher.send_buffer import SEND_BUFFERS, ConflatingSendBuffer
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.keys import DeliveryOptions
from protocol.in_memory import (
    BUFFERED,
    ROOM,
    SUBJECTS,
    Publisher,
    Subscriber,
    accounted,
    act,
    act_in_group,
    in_order,
    joined,
    numbers,
    settle,
)
from support.cases import each
from support.sizes import size


def test_subscriber_is_ready_once_its_declaration_is_answered():
    publisher = Publisher()
    one = Subscriber(publisher)
    assert not one.is_ready
    publisher.tick()
    assert not one.is_ready
    one.take()
    assert one.is_ready
    publisher.publish(b"a.x")
    publisher.publish(b"b.x")
    publisher.publish(b"a.y", b"b.y", b"a.z")
    one.take()
    assert one.read() == [1, 3, 5]
    assert sum(publisher.published.values()) == accounted(one) == 3


def test_full_subscriber_finds_by_the_numbers_what_was_dropped_for_it():
    publisher = Publisher()
    slow, quick = Subscriber(publisher), Subscriber(publisher)
    joined(publisher, slow, quick)
    for _ in range(10):
        publisher.publish(b"a.x")
        quick.take()
    assert publisher.stats.missed == 10 - ROOM
    assert quick.read() == list(range(1, 11))
    settle(publisher)
    assert slow.read() == [1, 2, 3, 4]
    assert [gap.count for gap in slow.gaps] == [10 - ROOM]
    publisher.publish(b"a.x")
    slow.take()
    assert slow.read()[-1] == 11
    assert accounted(slow) == accounted(quick) + len(quick.arriving) == 11


def test_publisher_that_waits_loses_nothing_and_is_blocked_until_there_is_room():
    publisher = Publisher(drops=False)
    slow = Subscriber(publisher)
    joined(publisher, slow)
    for _ in range(10):
        publisher.publish(b"a.x")
    assert publisher.batches.is_blocked
    settle(publisher)
    assert not publisher.batches.is_blocked
    assert slow.read() == list(range(1, 11))
    assert accounted(slow) == 10
    assert not slow.gaps


def test_full_one_of_those_who_share_a_pattern_is_left_out_alone():
    publisher = Publisher()
    slow, quick = (Subscriber(publisher, is_shared=True) for _ in range(2))
    joined(publisher, slow, quick)
    for _ in range(10):
        publisher.publish(b"a.x")
        quick.take()
    assert quick.read() == list(range(1, 11))
    settle(publisher)
    assert slow.read() == [1, 2, 3, 4]
    assert [gap.count for gap in slow.gaps] == [10 - ROOM]
    assert not quick.gaps
    assert accounted(slow) == accounted(quick) == 10


@each("drops", [True, False])
def test_drop_oldest_holds_the_newest_for_a_full_subscriber(drops):
    publisher = Publisher(drops=drops)
    slow = Subscriber(publisher, overflow="drop_oldest", limit=BUFFERED)
    joined(publisher, slow)
    for _ in range(30):
        publisher.publish(b"a.x")
    assert not publisher.batches.is_blocked
    settle(publisher)
    # Four were on their way, and the last ten waited.
    assert slow.read() == [*range(1, ROOM + 1), *range(21, 31)]
    assert slow.stats.lost == 30 - ROOM - BUFFERED
    assert publisher.stats.missed == slow.stats.lost
    assert accounted(slow) == 30


@each("drops", [True, False])
def test_drop_newest_gives_the_oldest_to_a_full_subscriber(drops):
    publisher = Publisher(drops=drops)
    slow = Subscriber(publisher, overflow="drop_newest", limit=BUFFERED)
    joined(publisher, slow)
    for _ in range(30):
        publisher.publish(b"a.x")
    assert not publisher.batches.is_blocked
    settle(publisher)
    assert slow.read() == [1, 2, 3, 4]
    assert publisher.stats.missed == slow.stats.lost == 30 - ROOM
    assert accounted(slow) == 30


def test_conflation_gives_a_full_subscriber_the_newest_of_each_subject_without_a_gap():
    publisher = Publisher()
    slow = Subscriber(publisher, overflow="conflate", limit=BUFFERED)
    joined(publisher, slow)
    for _ in range(10):
        publisher.publish(*SUBJECTS)
    settle(publisher)
    assert slow.read() == [*range(1, 3 * ROOM + 1), 28, 29, 30]
    assert not slow.gaps
    # What waited was conflated here, before it was numbered; four batches were on their way.
    conflated = 3 * (10 - ROOM) - 3
    assert accounted(slow) + conflated == 30
    publisher.publish(b"a.x")
    settle(publisher)
    assert slow.read()[-1] == 31


@each("overflow", ["drop_oldest", "conflate"])
def test_subscription_has_drained_only_when_it_was_given_what_waited_at_the_publisher(overflow):
    delivery = {"overflow": overflow, "limit": BUFFERED}
    publisher = Publisher()
    one = Subscriber(publisher, **delivery)
    parting = Subscribed([oz.compile("b.*")], None, lambda _: None)
    one.apply(one.streams.add(parting, DeliveryOptions(**delivery), last_value=False))
    joined(publisher, one)
    for _ in range(ROOM):
        publisher.publish(b"a.x")
    publisher.publish(b"a.y")
    publisher.publish(b"b.x")
    for changes in one.streams.part(parting):
        one.apply(changes)
    while not one.streams.has_drained(parting):
        # Room for one frame: for what waited, or for the answer that nothing more comes.
        one.take(1)
        publisher.tick()
    assert ROOM + 2 in one.read()


def test_queue_group_hands_over_what_a_full_member_has_no_room_for():
    publisher = Publisher()
    slow, quick = (Subscriber(publisher, group="g", policy="round_robin") for _ in range(2))
    joined(publisher, slow, quick)
    for _ in range(20):
        publisher.publish(*SUBJECTS)
        quick.take()
        quick.read()
    settle(publisher)
    assert sorted(slow.read() + quick.read()) == list(range(1, 61))
    assert publisher.stats.missed == 0
    assert len(quick.got) > len(slow.got) > 0
    assert in_order(slow)
    assert in_order(quick)
    assert accounted(slow) + accounted(quick) == 60


def test_queue_group_without_any_room_reports_what_it_misses():
    publisher = Publisher()
    members = [Subscriber(publisher, group="g", policy="round_robin") for _ in range(2)]
    joined(publisher, *members)
    for _ in range(20):
        publisher.publish(*SUBJECTS)
    settle(publisher)
    assert publisher.stats.missed == sum(one.stats.lost for one in members) > 0
    assert sum(map(accounted, members)) == 60


def test_subscriber_that_reconnects_learns_what_it_lost_meanwhile():
    publisher = Publisher()
    one = Subscriber(publisher)
    joined(publisher, one)
    publisher.publish(b"a.x")
    one.take()
    publisher.publish(b"a.x", b"a.y")
    one.cut()
    publisher.publish(b"a.z")
    publisher.tick(5.0)
    one.come_back()
    publisher.publish(b"a.x")
    settle(publisher)
    assert one.is_ready
    assert one.read() == [1, 5]
    assert [gap.count for gap in one.gaps] == [3]
    assert accounted(one) == 5


def test_subscriber_that_is_away_for_too_long_learns_that_nobody_counted():
    publisher = Publisher()
    one = Subscriber(publisher)
    joined(publisher, one)
    publisher.publish(b"a.x")
    one.take()
    one.cut()
    publisher.tick(GRACE + HEARTBEAT)
    publisher.publish(b"a.x")
    assert publisher.published[b"a.x"] == 1
    one.come_back()
    settle(publisher)
    assert [gap.count for gap in one.gaps] == [None]
    publisher.publish(b"a.x")
    settle(publisher)
    assert len(one.read()) == 2


@pytest.fixture
def conflated(monkeypatch):
    """Collects how many messages publishers conflate, which no counter tells."""
    counts = []

    class Counting(ConflatingSendBuffer):
        def put(self, stream, items, positions):
            before = len(self._newest) + len(items) // 2
            missed = super().put(stream, items, positions)
            counts.append(before - len(self._newest) - missed)
            return missed

    monkeypatch.setitem(SEND_BUFFERS, "conflate", Counting)
    return counts


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(size(3, 30)))
@pytest.mark.parametrize("drops", [True, False])
def test_all_that_is_published_is_delivered_reported_lost_or_dropped(drops, seed, conflated):
    random, publisher = Random(seed), Publisher(drops=drops)
    counted = [
        Subscriber(publisher),
        Subscriber(publisher, overflow="drop_oldest", limit=BUFFERED),
        Subscriber(publisher, overflow="drop_newest", limit=BUFFERED),
    ]
    conflating = Subscriber(publisher, overflow="conflate", limit=BUFFERED)
    # It has no room for all subjects, so that it misses some beside what is conflated.
    tight = Subscriber(publisher, overflow="conflate", limit=len(SUBJECTS) - 1)
    subscribers = [*counted, conflating, tight]
    joined(publisher, *subscribers)
    for _ in range(200):
        act(random, publisher, subscribers)
    for one in subscribers:
        if not one.is_connected:
            one.come_back()
    settle(publisher)
    # The newest of each subject is what conflation is for.
    publisher.publish(*SUBJECTS)
    settle(publisher)
    total = publisher.published.total()
    assert [accounted(one) for one in counted] == [total] * len(counted)
    assert all(map(in_order, subscribers))
    assert accounted(conflating) + accounted(tight) + sum(conflated) == 2 * total
    newest = {one.subject: int(one.payload) for one in conflating.got}
    assert sorted(newest.values()) == sorted(conflating.read())[-len(SUBJECTS) :]


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(size(2, 30)))
@pytest.mark.parametrize("policy", ["round_robin", "sticky", "failover"])
@pytest.mark.parametrize("drops", [True, False])
def test_one_member_of_a_queue_group_gets_each_message_while_others_leave_and_join(drops, policy, seed):
    random, publisher = Random(seed), Publisher(drops=drops)

    def join():
        return Subscriber(publisher, group="g", policy=policy)

    members, leaving = [join() for _ in range(3)], []
    joined(publisher, *members)
    for _ in range(300):
        leaving.append(act_in_group(random, publisher, members, join))
    settle(publisher)
    leaving = [one for one in leaving if one is not None]
    assert leaving
    assert all(one.has_left for one in leaving)
    given = [number for one in (*members, *leaving) for number in numbers(one)]
    lost = sum(one.stats.lost for one in (*members, *leaving))
    assert len(set(given)) == len(given)
    assert set(given) <= set(publisher.handed)
    assert len(given) + lost == len(publisher.handed)
    assert lost == publisher.stats.missed
    assert drops or not lost
    assert all(map(in_order, (*members, *leaving)))
