"""`receive_batches`: what a publisher sent together is taken without a message made of each."""

import pytest

import oz
from oz.message import Message, MessageBatch


@pytest.fixture
def pair(context):
    """A publisher, and a subscriber that has it filter."""
    with (
        oz.Publisher("tcp://127.0.0.1:*", context=context) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher", context=context) as sub,
    ):
        yield pub, sub


def take(sub, count):
    """Receive until so many messages have come."""
    taken = []
    while sum(len(one) if isinstance(one, MessageBatch) else 1 for one in taken) < count:
        taken += sub.receive_batches(timeout=10)
    return taken


def expanded(taken):
    return [
        message for one in taken for message in (one.messages() if isinstance(one, MessageBatch) else [one])
    ]


def test_a_batch_comes_as_columns_that_say_what_its_messages_would(pair):
    pub, sub = pair
    subscription = sub.subscribe("md.>")
    sub.wait_ready(10)
    with pub.batch():
        for number in range(100):
            pub.publish(f"md.{number % 7}", b"%d" % number)
    [batch] = take(sub, 100)
    assert isinstance(batch, MessageBatch)
    assert (len(batch), batch.sequence, len(batch.origin)) == (100, 0, 16)
    assert batch.subjects[:2] == [b"md.0", b"md.1"]
    messages = batch.messages()
    assert [(one.subject, one.payload, one.sequence) for one in messages] == [
        (f"md.{number % 7}", b"%d" % number, number) for number in range(100)
    ]
    assert {one.time_ns for one in messages} == {batch.time_ns}
    assert all(one.subscriptions == (subscription,) for one in messages)
    assert sub.stats.delivered == 100


def test_messages_with_headers_come_one_by_one_and_in_their_place(pair):
    pub, sub = pair
    sub.subscribe("a")
    sub.wait_ready(10)
    for number in range(30):
        pub.publish("a", b"%d" % number, headers={"n": number} if number == 15 else None)
        pub.flush()
    messages = expanded(take(sub, 30))
    assert [int(one.payload) for one in messages] == list(range(30))
    assert messages[15].headers == {"n": 15}


def test_a_subscription_with_a_handler_keeps_getting_single_messages(pair):
    pub, sub = pair
    handled = []
    sub.subscribe("a", handler=handled.append)
    sub.subscribe("b")
    sub.wait_ready(10)
    with pub.batch():
        pub.publish("a", b"1")
        pub.publish("b", b"2")
    [message] = take(sub, 1)
    assert (type(message) is not MessageBatch, message.payload) == (True, b"2")
    assert [one.payload for one in handled] == [b"1"]


def test_receive_gives_messages_again_afterwards(pair):
    pub, sub = pair
    sub.subscribe("a")
    sub.wait_ready(10)
    for number in range(2):
        with pub.batch():
            pub.publish("a", b"x")
            pub.publish("a", b"y")
        if number == 0:
            assert isinstance(take(sub, 2)[0], MessageBatch)
    assert [sub.receive(10).payload, sub.receive(10).payload] == [b"x", b"y"]


def test_the_limit_is_of_messages(pair):
    pub, sub = pair
    sub.subscribe("a")
    sub.wait_ready(10)
    for number in range(3):
        with pub.batch():
            pub.publish("a", b"%d" % number)
            pub.publish("a", b"%d" % number)
    first = sub.receive_batches(1, timeout=10)
    assert [one.payload for one in expanded(first)] == [b"0", b"0"]
    assert [one.payload for one in expanded(take(sub, 4))] == [b"1", b"1", b"2", b"2"]


def test_a_plain_publishers_messages_come_as_they_are(context):
    with (
        oz.Publisher("tcp://127.0.0.1:*", context=context) as pub,
        oz.Subscriber(pub.endpoint, context=context) as sub,
    ):
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=10)
        pub.publish("a", b"1")
        [message] = sub.receive_batches(timeout=10)
        assert (type(message), message.payload) == (Message, b"1")


def test_nothing_is_a_timeout(pair):
    _, sub = pair
    sub.subscribe("a")
    with pytest.raises(oz.Timeout):
        sub.receive_batches(timeout=0.01)
