"""Batches, sizes, several publishers, and the ways to read."""

from contextlib import suppress
from itertools import islice

import pytest

from contract.adapter import errors
from contract.promises import promise
from support.waiting import until


def _numbers(*interval):
    return [b"%d" % number for number in range(*interval)]


@promise("publish, publish_many and batch() keep one order; an exception in batch() loses no message.")
def test_batches_keep_the_order(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "a.*")

    def publish(*interval):
        for number in _numbers(*interval):
            publisher.publish("a.1", number)

    publish(10)
    publisher.publish_many(("a.2", number) for number in _numbers(10, 700))
    publish(700, 703)
    with publisher.batch():
        publish(703, 800)
    with suppress(KeyError), publisher.batch():
        publish(800, 810)
        raise KeyError
    publisher.publish_many([])
    publish(810, 820)
    assert got.receive_all(820) == _numbers(820)


@promise(
    "A message of any size arrives whole and in order, with its payload in one frame.",
    not_for={"node": "A node encodes payloads with its codec."},
)
def test_large_messages_arrive_whole(pair):
    sizes = [0, 1, 65_535, 65_536, 65_537, 3, 2_000_000, 0, 100_000]
    payloads = [bytes([at]) * size for at, size in enumerate(sizes)]
    got = pair.subscribe("*.a")
    for payload in payloads:
        pair.publisher.publish("big.a", payload)
    messages = [got.receive() for _ in payloads]
    assert [message.payload for message in messages] == payloads
    assert [message.frames[1:] for message in messages] == [[payload] for payload in payloads]


@promise(
    "receive_many returns messages in order, at most its limit; later calls return the other messages.",
    not_for={"node": "A node has no receive_many."},
)
def test_receive_many_leaves_messages_above_its_limit(pair):
    pair.subscribe("a.*")
    pair.publisher.publish_many(("a.1", number) for number in _numbers(1000))
    received, limits = [], [1, 7, 100, 3]
    while len(received) < 990:
        limit = limits[len(received) % 4]
        messages = pair.subscriber.receive_many(limit)
        assert 1 <= len(messages) <= limit
        received += messages
    received += (pair.subscriber.receive() for _ in range(1000 - len(received)))
    assert [message.payload for message in received] == _numbers(1000)
    with pytest.raises(errors.Timeout):
        pair.subscriber.receive_many(timeout=0)


@promise("Iteration delivers each message; the last message of a burst does not wait for a later message.")
def test_iteration_delivers_each_message(pair):
    got = pair.subscribe("a.*")
    for number in _numbers(600):
        pair.publisher.publish("a.1", number)
    readable = got if pair.carrier == "node" else pair.subscriber
    assert [message.payload for message in islice(readable, 600)] == _numbers(600)


@promise(
    "drain delivers the messages on their way; after them iteration ends and receive raises ClosedError.",
    not_for={"prefix": "A plain publisher does not confirm that nothing more comes."},
)
def test_drain_delivers_messages_on_their_way(proxied, api):
    proxied.subscribe("a.*")
    proxied.publisher.publish("a.1", b"first")
    assert proxied.subscriber.receive().payload == b"first"
    proxied.proxy.stall()
    proxied.publisher.publish_many(("a.1", number) for number in _numbers(500))
    drain = api.start(proxied.subscriber.drain)
    drain.wait_until_blocked()
    proxied.proxy.resume()
    drain.outcome()
    assert [message.payload for message in proxied.subscriber] == _numbers(500)
    with pytest.raises(errors.ClosedError):
        proxied.subscriber.receive(timeout=0)
    with pytest.raises(errors.ClosedError):
        proxied.subscriber.subscribe("b.*")


@promise(
    "Draining a subscription handles each message on its way and no later message.",
    not_for={"prefix": "A plain publisher does not confirm that nothing more comes."},
)
def test_drain_of_a_subscription_handles_messages_on_their_way(proxied, api):
    handled = []
    drained = proxied.subscribe("a.*", lambda message: handled.append(message.payload))
    other = proxied.subscribe("end")
    proxied.publisher.publish("end")
    assert other.receive().subject == "end"
    proxied.proxy.stall()
    proxied.publisher.publish_many(("a.1", number) for number in _numbers(300))
    drain = api.start(drained.drain)
    drain.wait_until_blocked()
    proxied.proxy.resume()
    assert drain.outcome()
    proxied.publisher.publish("a.1", b"late")
    proxied.publisher.publish("end")
    assert other.receive().subject == "end"
    assert handled == _numbers(300)
    assert not drained.active


@promise("A subscriber of two publishers gets each message of both; the messages of each are in order.")
def test_two_publishers(sockets):
    publishers = [sockets.publisher(), sockets.publisher()]
    subscriber = sockets.subscriber(*publishers)
    for publisher in publishers:
        sockets.subscribe(publisher, subscriber, "*.a")
    for number in _numbers(300):
        for name, publisher in zip("xy", publishers, strict=True):
            publisher.publish(f"{name}.a", number)
    received = {"x.a": [], "y.a": []}
    for _ in range(600):
        message = subscriber.receive()
        received[message.subject].append(message.payload)
    assert received == {"x.a": _numbers(300), "y.a": _numbers(300)}


@promise("Threads that share a publisher lose no message; the messages of each thread stay in order.")
def test_threads_share_a_publisher(sockets, api):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, "*.a")

    def publish(name):
        for number in _numbers(150):
            publisher.publish(f"{name}.a", number)

    works = [api.start(lambda name=name: publish(name)) for name in "xyz"]
    received = {"x.a": [], "y.a": [], "z.a": []}
    for _ in range(450):
        message = subscriber.receive()
        received[message.subject].append(message.payload)
    for work in works:
        work.outcome()
    assert received == dict.fromkeys(received, _numbers(150))


@promise("Two calls of receive that wait at the same time get one message each.")
def test_waiting_calls_of_receive_get_one_message_each(sockets, api):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, "a")
    for number in _numbers(20):
        publisher.publish("a", number)
        assert subscriber.receive().payload == number
    works = [api.start(lambda: subscriber.receive(timeout=30).payload) for _ in range(2)]
    for work in works:
        work.wait_until_blocked()
    publisher.publish("a", b"one")
    until(lambda: any(work.has_ended for work in works))
    publisher.publish("a", b"two")
    assert {work.outcome() for work in works} == {b"one", b"two"}


@promise("Each subscriber of a publisher gets only the messages that it subscribed to.")
def test_subscribers_of_one_publisher(sockets):
    publisher = sockets.publisher()
    patterns = ["a.*", "*.x", "a.x", ">"]
    subscribers = [sockets.subscriber(publisher) for _ in patterns]
    made = [
        sockets.subscribe(publisher, item, text) for item, text in zip(subscribers, patterns, strict=True)
    ]
    # Two patterns have the same prefix, so that the publisher seems to serve the second before it does.
    publisher.wait_for_subscribers(count=len(patterns))
    for subject in ("a.x", "a.y", "b.x", "b.y"):
        publisher.publish(subject, subject.encode())
    publisher.publish("a.x", b"end")
    expected = [
        [b"a.x", b"a.y", b"end"],
        [b"a.x", b"b.x", b"end"],
        [b"a.x", b"end"],
        [b"a.x", b"a.y", b"b.x", b"b.y", b"end"],
    ]
    assert [item.receive_all(len(want)) for item, want in zip(made, expected, strict=True)] == expected


@promise(
    "Subscribers that join at different times all get each later message.",
    not_for={"prefix": "A plain publisher does not confirm subscriptions."},
)
def test_subscribers_that_join_at_different_times(sockets):
    publisher = sockets.publisher()

    def join():
        made = [sockets.subscriber(publisher) for _ in range(2)]
        return [sockets.subscribe(publisher, item, "a.*") for item in made]

    early = join()
    publisher.publish("a.1", b"0")
    late = join()
    # A large batch is one frame for all subscribers with equal numbers, and another for the others.
    payloads = [number * 10 for number in _numbers(1, 400)]
    publisher.publish_many(("a.1", payload) for payload in payloads)
    assert [item.receive_all(400) for item in early] == [[b"0", *payloads]] * 2
    assert [item.receive_all(399) for item in late] == [payloads] * 2


@promise("A subscription with max_messages delivers exactly that number and ends; other subscriptions go on.")
def test_max_messages_delivers_exactly_its_number(pair):
    handled = []
    limited = pair.subscribe("a.*", lambda message: handled.append(message.payload), max_messages=7)
    other = pair.subscribe("*.x")
    for number in _numbers(50):
        pair.publisher.publish("a.x", number)
    assert other.receive_all(50) == _numbers(50)
    pair.handle_until(lambda: len(handled) >= 7)
    pair.publisher.publish("a.x", b"late")
    assert other.receive().payload == b"late"
    assert handled == _numbers(7)
    assert not limited.active


@promise("An exception of a handler affects no other message or handler, and is counted in stats.failed.")
def test_handler_that_raises(sockets, logged_errors):
    logged_errors.expected.append("the handler of")
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    handled = []

    def fail(message):
        raise KeyError(message.payload)

    sockets.subscribe(publisher, subscriber, "a.*", fail)
    sockets.subscribe(publisher, subscriber, "a.*", lambda message: handled.append(message.payload))
    got = sockets.subscribe(publisher, subscriber, "a.1")
    for number in _numbers(20):
        publisher.publish("a.1", number)
    assert got.receive_all(20) == _numbers(20)
    # In asyncio handlers run in tasks of their own.
    until(lambda: len(handled) == 20 and subscriber.stats.failed == 20)
    assert handled == _numbers(20)
