"""What a service receives with: an engine on a plain socket, waited for together with others."""

from contextlib import ExitStack
from math import inf

import pytest
import zmq

import oz
from oz.protocol.subscriber.columns import MessageBatch, PlainBatch
from oz.services.sockets import ServiceSubscriber
from oz.services.waiting import wait
from oz.transport.subscriber.subscribing import EVERYTHING
from support.waiting import DEADLINE, until

ENDPOINT = "tcp://127.0.0.1:*"


@pytest.fixture
def made():
    """Make things that are closed at the end."""
    with ExitStack() as stack:

        def make(one):
            stack.callback(one.close)
            return one

        yield make


@pytest.fixture
def both(made):
    """Make a publisher and a subscriber of a service that hears it."""

    def make(**options):
        publisher = made(oz.Publisher(ENDPOINT, on_full="block"))
        subscriber = made(ServiceSubscriber(publisher.endpoint, **options))
        subscriber.subscribe([EVERYTHING])
        publisher.wait_for_subscribers(timeout=DEADLINE)
        return publisher, subscriber

    return make


def await_some(subscriber):
    """Wait as a service does."""
    poller = zmq.Poller()
    poller.register(subscriber.socket, zmq.POLLIN)
    wait(poller, subscriber.next_deadline())


def taken_until(subscriber, take, count):
    """Take until so many messages came; what was taken."""
    got = []

    def is_all():
        await_some(subscriber)
        got.extend(take(1_000))
        return sum(len(one) if isinstance(one, (MessageBatch, PlainBatch)) else 1 for one in got) >= count

    until(is_all)
    return got


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_what_is_here_is_taken_in_order_and_no_more_than_was_asked_for(both, filtering):
    publisher, subscriber = both(filtering=filtering)
    with publisher.batch():
        for number in range(50):
            publisher.publish(f"a.{number}", b"%d" % number)
    got = taken_until(subscriber, lambda _: subscriber.take(20), 50)
    assert [one.subject for one in got] == [f"a.{number}" for number in range(50)]
    assert subscriber.take(20) == []


@pytest.mark.parametrize(("filtering", "kind"), [("prefix", PlainBatch), ("publisher", MessageBatch)])
def test_what_came_in_columns_is_taken_so(both, filtering, kind):
    publisher, subscriber = both(filtering=filtering)
    with publisher.batch():
        for number in range(50):
            publisher.publish("a", b"%d" % number)
    got = taken_until(subscriber, subscriber.take_batches, 50)
    assert any(isinstance(one, kind) for one in got)
    assert b"".join(payload for one in got for payload in payloads(one)) == b"".join(
        b"%d" % number for number in range(50)
    )


def payloads(one):
    return one.payloads if isinstance(one, (MessageBatch, PlainBatch)) else [one.payload]


@pytest.mark.parametrize("take", ["take", "take_batches"])
def test_payloads_are_decoded_where_a_codec_is_given(both, take):
    publisher, subscriber = both(codec="json")
    publisher.publish("a", b'{"b": 1}')
    assert [one.payload for one in taken_until(subscriber, getattr(subscriber, take), 1)] == [{"b": 1}]


def test_messages_that_were_unpacked_are_not_waited_for(both):
    publisher, subscriber = both(filtering="publisher")
    with publisher.batch():
        for number in range(50):
            publisher.publish("a", b"%d" % number)
    assert taken_until(subscriber, lambda _: subscriber.take(1), 1)
    # The socket has nothing more to tell; the next 49 would wait for the message after them.
    while subscriber.engine.has_some:
        assert subscriber.next_deadline() < inf
        assert len(subscriber.take(1)) == 1
    assert subscriber.stats.delivered == 50


def test_what_was_on_its_way_when_it_drained_is_taken_after_it(both):
    publisher, subscriber = both(filtering="publisher")
    subscriber.wait_ready(DEADLINE)
    for number in range(50):
        publisher.publish("a", b"%d" % number)
    subscriber.drain(DEADLINE)
    got = taken_until(subscriber, subscriber.take_batches, 50)
    assert sum(len(payloads(one)) for one in got) == 50
    assert subscriber.take_batches(10) == []


def test_without_duties_it_waits_for_ever_and_with_them_until_they_are_due(made):
    plain = made(ServiceSubscriber(bind=ENDPOINT))
    routed = made(ServiceSubscriber(bind=ENDPOINT, filtering="publisher"))
    for one in (plain, routed):
        one.subscribe([EVERYTHING])
    assert plain.next_deadline() == inf
    assert routed.next_deadline() < inf


def test_a_closed_one_says_so_and_has_no_endpoint(made):
    subscriber = made(ServiceSubscriber(bind=ENDPOINT))
    assert subscriber.endpoint.startswith("tcp://127.0.0.1:")
    subscriber.close()
    assert subscriber.endpoint is None
    for take in (subscriber.take, subscriber.take_batches):
        with pytest.raises(oz.ClosedError):
            take(1)


def test_what_cannot_be_bound_leaves_nothing_open(made):
    there = made(ServiceSubscriber(bind=ENDPOINT))
    context = zmq.Context()
    with pytest.raises(zmq.ZMQError):
        ServiceSubscriber(bind=there.endpoint, context=context)
    # It would wait for ever for a socket that is open.
    context.term()
