"""`receive_batches`: what a publisher sent together is taken without a message made of each."""

import time

import pytest
import zmq

import oz
from oz.protocol.messages import Message
from oz.protocol.subscriber.columns import MessageBatch, PlainBatch
from support.waiting import DEADLINE


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
        taken += sub.receive_batches(timeout=DEADLINE)
    return taken


def expanded(taken):
    return [
        message for one in taken for message in (one.messages() if isinstance(one, MessageBatch) else [one])
    ]


def test_a_batch_comes_as_columns_that_say_what_its_messages_would(pair):
    pub, sub = pair
    subscription = sub.subscribe("md.>")
    sub.wait_ready(DEADLINE)
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
    sub.wait_ready(DEADLINE)
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
    sub.wait_ready(DEADLINE)
    with pub.batch():
        pub.publish("a", b"1")
        pub.publish("b", b"2")
    [message] = take(sub, 1)
    assert (type(message) is not MessageBatch, message.payload) == (True, b"2")
    assert [one.payload for one in handled] == [b"1"]


def test_receive_gives_messages_again_afterwards(pair):
    pub, sub = pair
    sub.subscribe("a")
    sub.wait_ready(DEADLINE)
    for number in range(2):
        with pub.batch():
            pub.publish("a", b"x")
            pub.publish("a", b"y")
        if number == 0:
            assert isinstance(take(sub, 2)[0], MessageBatch)
    assert [sub.receive(DEADLINE).payload, sub.receive(DEADLINE).payload] == [b"x", b"y"]


def test_the_limit_is_of_messages(pair):
    pub, sub = pair
    sub.subscribe("a")
    sub.wait_ready(DEADLINE)
    for number in range(3):
        with pub.batch():
            pub.publish("a", b"%d" % number)
            pub.publish("a", b"%d" % number)
    first = sub.receive_batches(1, timeout=DEADLINE)
    assert [one.payload for one in expanded(first)] == [b"0", b"0"]
    assert [one.payload for one in expanded(take(sub, 4))] == [b"1", b"1", b"2", b"2"]


@pytest.fixture
def plain(context):
    """A plain socket that drops nothing, and a subscriber to `a.>` and `b` by prefix."""
    with context.socket(zmq.XPUB) as pub:
        pub.setsockopt(zmq.XPUB_NODROP, 1)
        port = pub.bind_to_random_port("tcp://127.0.0.1")
        with oz.Subscriber(f"tcp://127.0.0.1:{port}", context=context) as sub:
            yield pub, sub


def met(pub, count):
    """Wait until so many subscriptions have arrived at a plain socket."""
    for _ in range(count):
        assert pub.poll(1000 * DEADLINE)
        pub.recv()


def received(sub, count):
    """Receive so many messages, and what they came in."""
    taken, rows = [], 0
    while rows < count:
        some = sub.receive_batches(timeout=DEADLINE)
        rows += sum(len(one) if isinstance(one, PlainBatch) else 1 for one in some)
        taken += some
    messages = [
        message for one in taken for message in (one.messages() if isinstance(one, PlainBatch) else [one])
    ]
    return taken, messages


def test_what_a_plain_publisher_sent_comes_as_columns_in_the_order_in_which_it_was_sent(plain):
    """But for what is not subject and payload; subjects that are not UTF-8 are bytes."""
    pub, sub = plain
    sub.subscribe(["a.>", b"\xff"])
    met(pub, 2)
    frames = {3: [b"a.x"], 5: [b"a.x", b"5", b"more"], 6: [b"\xff\xfe", b"6"]}
    sent = [frames.get(at % 10, [b"a.%d" % (at % 3), b"%d" % at]) for at in range(1000)]
    for one in sent:
        pub.send_multipart(one)
    before = time.time_ns()
    taken, messages = received(sub, 1000)
    assert [message.frames for message in messages] == sent
    assert {message.subject for message in messages} == {"a.0", "a.1", "a.2", "a.x", "\udcff\udcfe"}
    assert [message.payload for message in messages[:4]] == [b"0", b"1", b"2", b""]
    times = [message.time_ns for message in messages]
    assert times == sorted(times)
    assert times[0] >= before
    assert [one.frames for one in taken if type(one) is Message] == [one for one in sent if len(one) != 2]
    assert (sub.stats.received, sub.stats.delivered) == (1000, 1000)


def test_what_only_the_prefix_lets_through_is_counted_and_not_given(plain):
    pub, sub = plain
    sub.subscribe("a.*")
    met(pub, 1)
    for at in range(300):
        pub.send_multipart([b"a.b" if at % 3 else b"a.b.c", b"%d" % at])
    _, messages = received(sub, 200)
    assert [int(message.payload) for message in messages] == [at for at in range(300) if at % 3]
    with pytest.raises(oz.Timeout):
        sub.receive_batches(timeout=0)
    stats = sub.stats
    assert (stats.received, stats.delivered, stats.filtered) == (300, 200, 100)


def test_of_a_plain_publisher_no_more_is_taken_than_the_limit(plain):
    pub, sub = plain
    sub.subscribe("a")
    met(pub, 1)
    for at in range(5):
        pub.send_multipart([b"a", b"%d" % at])
    first = sub.receive(DEADLINE)
    assert first.payload == b"0"
    taken = []
    while len(taken) < 4:
        [batch] = sub.receive_batches(2, timeout=DEADLINE)
        assert len(batch) <= 2
        taken += batch.payloads
    assert taken == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("what", ["handler", "codec", "count"])
def test_plain_messages_to_which_something_is_to_be_done_come_one_by_one(context, what):
    handled = []
    options = {"handler": {"handler": handled.append}, "count": {"max_messages": 2}}.get(what, {})
    with (
        oz.Publisher("tcp://127.0.0.1:*", context=context, codec="msgpack") as pub,
        oz.Subscriber(pub.endpoint, context=context, codec="msgpack" if what == "codec" else None) as sub,
    ):
        sub.subscribe("a", **options)
        sub.subscribe("b")
        pub.wait_for_subscribers(2, timeout=DEADLINE)
        for subject in "aab":
            pub.publish(subject, 7)
        messages = []
        while not messages or messages[-1].subject != "b":
            messages += sub.receive_batches(timeout=DEADLINE)
        assert {type(message) for message in messages} == {Message}
        assert [message.subject for message in messages] == (["b"] if what == "handler" else ["a", "a", "b"])
        assert messages[-1].payload == (7 if what == "codec" else b"\x07")
        assert len(handled) == (2 if what == "handler" else 0)


def test_a_closed_subscriber_of_a_plain_publisher_says_so(plain):
    _, sub = plain
    sub.subscribe("a")
    sub.close()
    with pytest.raises(oz.ClosedError):
        sub.receive_batches(timeout=1)


def test_nothing_is_a_timeout(pair):
    _, sub = pair
    sub.subscribe("a")
    with pytest.raises(oz.Timeout):
        sub.receive_batches(timeout=0.01)
