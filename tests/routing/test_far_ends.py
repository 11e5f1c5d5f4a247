"""What becomes of messages that subscribers beyond TCP have not taken when a publisher closes."""

import socket
import threading
from contextlib import suppress
from math import inf

import pytest
import zmq

import oz
from oz.transport.publisher import untaken
from support.waiting import DEADLINE, until

ENDPOINT = "tcp://127.0.0.1:*"
SENT = 400
PAYLOAD = b"." * 3_000


def publish(pub):
    for _ in range(SENT):
        pub.publish("a.x", PAYLOAD)
        pub.flush()


def connected(subscriber):
    """Make a publisher that connects to a subscriber, which says what it wants while it waits."""
    pub = oz.Publisher(connect=subscriber.endpoint)

    def is_heard():
        with suppress(oz.Timeout):
            subscriber.receive(timeout=0.01)
        with suppress(oz.Timeout):
            pub.wait_for_subscribers(timeout=0)
            return True

    until(is_heard)
    return pub


def no_connection_is_kept():
    return all(one.name != "oz-untaken" for one in threading.enumerate())


@pytest.fixture
def context():
    with zmq.Context() as context:
        yield context


@pytest.fixture
def gaps():
    return []


@pytest.fixture
def subscriber(gaps):
    """A subscriber that listens, whose queue is soon full."""
    options = {"high_water_mark": 2, "filtering": "publisher"}
    with oz.Subscriber(bind=ENDPOINT, on_gap=lambda gap: gaps.append(gap.count), **options) as subscriber:
        subscriber.subscribe("a.>")
        yield subscriber


def received_while_it_says_more(subscriber):
    for number in range(SENT):
        # On a connection that is closed at the other end whatever is said is answered by a reset.
        subscriber.subscribe(f"b.{number}")
        assert subscriber.receive(timeout=DEADLINE).payload == PAYLOAD


def test_what_a_publisher_sent_before_it_closed_arrives_though_the_subscriber_says_more(subscriber, gaps):
    pub = connected(subscriber)
    publish(pub)
    pub.close(timeout=DEADLINE)
    received_while_it_says_more(subscriber)
    assert gaps == []
    until(no_connection_is_kept)


def test_the_same_holds_where_the_publisher_listens_in_a_context_of_yours(context, gaps):
    pub = oz.Publisher(bind=ENDPOINT, context=context)
    with oz.Subscriber(
        pub.endpoint, filtering="publisher", high_water_mark=2, on_gap=lambda gap: gaps.append(gap.count)
    ) as subscriber:
        subscriber.subscribe("a.>")
        subscriber.wait_ready(timeout=DEADLINE)
        publish(pub)
        pub.close(timeout=DEADLINE)
        received_while_it_says_more(subscriber)
    assert gaps == []
    until(no_connection_is_kept)


def test_closing_without_a_limit_waits_for_no_connection_of_another_publisher(subscriber):
    pub = connected(subscriber)
    with connected(subscriber) as other:
        closing = threading.Thread(target=pub.close, kwargs={"timeout": inf})
        closing.start()
        closing.join(DEADLINE)
        assert not closing.is_alive()
        other.publish("a.x", PAYLOAD)
        assert subscriber.receive(timeout=DEADLINE).payload == PAYLOAD


def test_somebody_who_only_connects_holds_up_no_close_without_a_limit(monkeypatch):
    monkeypatch.setattr(untaken, "_LONGEST_READ", 0.05)
    pub = oz.Publisher(bind=ENDPOINT)
    host, port = pub.endpoint.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as stranger:
        # The greeting of ZeroMQ: the connection stands.
        assert stranger.recv(1)
        closing = threading.Thread(target=pub.close, kwargs={"timeout": inf})
        closing.start()
        closing.join(DEADLINE)
        assert not closing.is_alive()
