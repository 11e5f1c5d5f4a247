"""What a node that waits knows of the interests of its peers."""

import pytest

from oz.protocol.node.inquiry import FIRST_PATIENCE, LONGEST_PATIENCE, Inquiry
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscription
from oz.subjects.pattern import compile
from oz.wire.keys import DECLARATION, DeliveryOptions

A, B = b"a" * 16, b"b" * 16


@pytest.fixture
def inquiry():
    made = Inquiry()
    made.number = 3
    return made


def test_a_peer_is_asked_again_with_more_and_more_patience(inquiry):
    assert inquiry.is_due(A, 10.0)
    now, patiences = 10.0, []
    for _ in range(6):
        inquiry.asked(A, now)
        assert not inquiry.is_due(A, now)
        patience = next(one / 8 for one in range(100) if inquiry.is_due(A, now + one / 8))
        patiences.append(patience)
        now += patience
    assert patiences == [FIRST_PATIENCE, 0.5, 1.0, LONGEST_PATIENCE, LONGEST_PATIENCE, LONGEST_PATIENCE]
    assert inquiry.is_due(B, 10.0)


@pytest.mark.parametrize(("number", "is_taken"), [(2, False), (3, True), (4, True)])
def test_only_answers_to_this_question_or_a_later_one_count(inquiry, number, is_taken):
    inquiry.take(A, number, {A: 1})
    assert inquiry.statement(A) == ({A: 1} if is_taken else None)
    assert inquiry.statement(B) is None


def test_what_a_later_answer_does_not_name_has_ended(inquiry):
    inquiry.take(A, 3, {A: 5, B: 1})
    inquiry.take(A, 3, {A: 7, b"c" * 16: 1})
    assert inquiry.statement(A) == {A: 5}
    inquiry.take(A, 3, {A: 4})
    assert inquiry.statement(A) == {A: 4}


def wanted(*patterns):
    return Subscription([compile(one, "nats") for one in patterns], None, lambda _: None)


def test_a_publisher_has_learned_all_when_it_has_the_newest_chunk_of_each_stream():
    streams, router = Streams(lambda size: b"s" * size), Router(b"o" * 16, PublisherStats())
    assert streams.asked() == {}
    keys = streams.add(wanted("a"), DeliveryOptions(), last_value=False).wanted
    keys += streams.add(wanted("b"), DeliveryOptions(group="g"), last_value=False).wanted
    for key in [key for key in keys if key.startswith(DECLARATION)]:
        assert not router.has_learned(streams.asked())
        router.learn(b"\1" + key, 0.0)
    assert router.has_learned(streams.asked())
    assert router.has_learned({})
    (key,) = streams.add(wanted("c"), DeliveryOptions(), last_value=False).wanted
    assert not router.has_learned(streams.asked())
    router.learn(b"\1" + key, 0.0)
    assert router.has_learned(streams.asked())


def test_a_chunk_that_was_taken_back_or_refused_has_been_learned():
    streams, router = Streams(lambda size: b"s" * size), Router(b"o" * 16, PublisherStats())
    first = wanted("a")
    changes = streams.add(first, DeliveryOptions(), last_value=False)
    before = streams.asked()
    for key in changes.wanted:
        router.learn(b"\1" + key, 0.0)
    changes = streams.add(wanted("b"), DeliveryOptions(), last_value=False)
    changes.add(streams.remove(first))
    for key in changes.wanted:
        router.learn(b"\1" + key, 0.0)
    for key in changes.dropped:
        router.learn(b"\0" + key, 0.0)
    assert router.has_learned(before)
    assert router.has_learned(streams.asked())
