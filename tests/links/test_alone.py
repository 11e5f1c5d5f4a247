"""Single messages between a publisher and a subscriber for threads, which the compiled part handles."""

import sys

import pytest

import oz
from oz.compiled import HOT


@pytest.fixture
def pair():
    with oz.Publisher("tcp://127.0.0.1:*") as publisher, oz.Subscriber(publisher.endpoint) as subscriber:
        yield publisher, subscriber


def ready(publisher, subscriber, *patterns):
    made = [subscriber.subscribe(pattern) for pattern in patterns]
    subscriber.wait_ready()
    return made


def exchange(publisher, subscriber, subject, payload=b"p", **options):
    publisher.publish(subject, payload, **options)
    return subscriber.receive(timeout=10)


def test_lone_messages_have_all_fields(pair):
    publisher, subscriber = pair
    ready(publisher, subscriber, "a.*")
    for number in range(100):
        payload = b"x" * (number * 7)
        message = exchange(publisher, subscriber, f"a.{number % 3}", payload)
        assert (message.subject, message.payload) == (f"a.{number % 3}", payload)
        assert (message.sequence, message.position, message.gap) == (number, number, 0)
        assert (message.redelivered, message.headers, message.frames) == (
            False,
            {},
            [message.subject_bytes, payload],
        )
        assert message.time_ns > 0
    assert (subscriber.stats.received, subscriber.stats.delivered) == (100, 100)
    assert publisher.stats.sent == 100


@pytest.mark.skipif(HOT is None, reason="needs the compiled part")
def test_the_compiled_part_takes_most_lone_messages(pair):
    publisher, subscriber = pair
    ready(publisher, subscriber, "a.*")
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append((event, frame.f_code.co_name)))
    try:
        for _ in range(200):
            exchange(publisher, subscriber, "a.1")
    finally:
        sys.setprofile(None)
    # The Python part reads after each run of the engine, and each 32nd message.
    assert calls.count(("call", "read_alone")) < 150


def test_other_messages_between_lone_ones_keep_their_order(pair):
    publisher, subscriber = pair
    ready(publisher, subscriber, "a.*")
    for number in range(30):
        assert exchange(publisher, subscriber, "a.1").sequence == 6 * number
        assert exchange(publisher, subscriber, "a.2", headers={"n": number}).headers == {"n": number}
        assert len(exchange(publisher, subscriber, "a.3", b"y" * 100_000).payload) == 100_000
        publisher.publish_many([("a.4", b"1"), ("a.5", b"2"), ("a.6", b"3")])
        found = [subscriber.receive(timeout=10) for _ in range(3)]
        assert [message.payload for message in found] == [b"1", b"2", b"3"]
        assert [item.position for item in found] == [6 * number + 3, 6 * number + 4, 6 * number + 5]


def test_a_change_of_subscriptions_holds_for_the_next_message(pair):
    publisher, subscriber = pair
    (first,) = ready(publisher, subscriber, "a.*")
    for _ in range(10):
        exchange(publisher, subscriber, "a.1")
    (second,) = ready(publisher, subscriber, "*.1")
    assert exchange(publisher, subscriber, "a.1").subscriptions == (first, second)
    handled = []
    subscriber.subscribe("a.2", handler=handled.append)
    subscriber.wait_ready()
    for _ in range(10):
        exchange(publisher, subscriber, "a.2")
    assert len(handled) >= 9
    first.unsubscribe()
    subscriber.wait_ready()
    assert exchange(publisher, subscriber, "a.1").subscriptions == (second,)
