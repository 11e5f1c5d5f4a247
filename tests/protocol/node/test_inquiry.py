"""What a node that waits knows of the interests of its peers."""

from types import SimpleNamespace

import pytest

from oz.protocol.node.inquiry import (
    FIRST_PATIENCE,
    LONGEST_PATIENCE,
    SAY_AGAIN,
    Inquiries,
    Inquiry,
    interest_subject,
)
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.subjects.pattern import compile
from oz.wire.codec import Asked, Question
from oz.wire.keys import DECLARATION, DeliveryOptions
from support.announcing import announcement

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


def chunks_of(inquiry, uuid):
    """Return the chunks that a publisher must have learned for a peer; None without an answer."""
    seen = [None]
    # False, so that the inquiry does not record that the publisher has learned them.
    inquiry.has_learned(uuid, [SimpleNamespace(has_learned=lambda chunks: seen.append(chunks))])
    return seen[-1]


@pytest.mark.parametrize(("number", "is_taken"), [(2, False), (3, True), (4, True)])
def test_only_answers_to_this_question_or_a_later_one_count(inquiry, number, is_taken):
    inquiry.take(A, number, {A: 1})
    assert chunks_of(inquiry, A) == ({A: 1} if is_taken else None)
    assert chunks_of(inquiry, B) is None


def test_what_a_later_answer_does_not_name_has_ended(inquiry):
    inquiry.take(A, 3, {A: 5, B: 1})
    inquiry.take(A, 3, {A: 7, b"c" * 16: 1})
    assert chunks_of(inquiry, A) == {A: 5}
    inquiry.take(A, 3, {A: 4})
    assert chunks_of(inquiry, A) == {A: 4}


def wanted(*patterns):
    return Subscribed([compile(one, "nats") for one in patterns], None, lambda _: None)


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


# the inquiries of a node, with all its sockets replaced ----------------------------------------------------

PEER = announcement(4)
SUBJECT = interest_subject(PEER.uuid)
NOT_ARRIVED = [f"what {PEER.name} has subscribed to has not arrived at this node"]


class Learned:
    """A publisher of the node: who asks for what, as far as it has arrived."""

    def __init__(self):
        self.chunks, self.subjects = {}, {SUBJECT}

    def has_learned(self, chunks):
        return all(self.chunks.get(name, 0) >= newest for name, newest in chunks.items())

    def interest(self, subject):
        return subject in self.subjects


class Bus:
    """What the node has published to its peers; there may be no room for more."""

    def __init__(self):
        self.published, self.has_room = [], True

    def publish(self, subject, value):
        if self.has_room:
            self.published.append((subject, value))
        return self.has_room


def of_peer(value):
    return SimpleNamespace(payload=value, origin=PEER.uuid)


@pytest.fixture
def bus():
    return Bus()


@pytest.fixture
def inquiries(bus):
    return Inquiries(lambda: {b"s": 7}, bus.publish)


def test_peer_is_asked_and_known_once_all_that_it_names_has_arrived(inquiries, bus):
    inquiry, learned = Inquiry(), Learned()
    peers = [(PEER, [learned])]
    assert inquiries.unknown(inquiry, peers, 10.0) == NOT_ARRIVED
    assert bus.published == [(SUBJECT, Question(1))]
    assert inquiries.take(of_peer(Asked(1, {b"s": 3})))
    assert inquiries.unknown(inquiry, peers, 10.1) == NOT_ARRIVED
    learned.chunks[b"s"] = 3
    assert inquiries.unknown(inquiry, peers, 10.2) == []
    assert len(bus.published) == 1


def test_every_publisher_that_the_peer_is_connected_to_has_to_learn_of_it(inquiries):
    inquiry, local, network = Inquiry(), Learned(), Learned()
    peers = [(PEER, [local, network])]
    inquiries.unknown(inquiry, peers, 10.0)
    inquiries.take(of_peer(Asked(1, {b"s": 3})))
    local.chunks[b"s"] = 3
    assert inquiries.unknown(inquiry, peers, 10.1) == NOT_ARRIVED
    network.chunks[b"s"] = 3
    assert inquiries.unknown(inquiry, peers, 10.2) == []


def test_question_that_found_no_room_is_put_again_soon(inquiries, bus):
    inquiry, peers = Inquiry(), [(PEER, [Learned()])]
    bus.has_room = False
    assert inquiries.unknown(inquiry, peers, 10.0) == NOT_ARRIVED
    at = inquiries.next_deadline(inquiry, 10.0)
    assert at == 10.0 + SAY_AGAIN
    bus.has_room = True
    inquiries.unknown(inquiry, peers, at)
    assert bus.published == [(SUBJECT, Question(1))]
    assert inquiries.next_deadline(inquiry, at) == at + FIRST_PATIENCE


def test_question_of_a_peer_is_answered_and_is_no_news(inquiries, bus):
    assert not inquiries.take(of_peer(Question(5)))
    assert bus.published == [(SUBJECT, Asked(5, {b"s": 7}))]


def test_two_who_wait_have_questions_of_their_own_and_a_late_answer_serves_the_first(inquiries, bus):
    first, second, peers = Inquiry(), Inquiry(), [(PEER, [Learned()])]
    inquiries.unknown(first, peers, 10.0)
    inquiries.unknown(second, peers, 10.0)
    assert [question.number for _, question in bus.published] == [1, 2]
    inquiries.take(of_peer(Asked(1, {})))
    assert inquiries.unknown(first, peers, 10.1) == []
    assert inquiries.unknown(second, peers, 10.1) == NOT_ARRIVED
