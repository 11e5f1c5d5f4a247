"""`oz forwarder --frontend … --backend …`: publishers and subscribers that know its endpoints."""

from contextlib import ExitStack

import pytest
import zmq

import oz
from oz.services.proxy import Proxy
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def proxy():
    with Proxy(frontend="tcp://127.0.0.1:*", backend="tcp://127.0.0.1:*") as made:
        running = Thread(made.run)
        yield made
        made.stop()
        running.outcome()


@pytest.fixture
def stage():
    with ExitStack() as made:
        yield made


def publisher(stage, proxy):
    return stage.enter_context(oz.Publisher(connect=proxy.frontends[0]))


def subscriber(stage, proxy):
    return stage.enter_context(oz.Subscriber(proxy.backends[0]))


def test_only_messages_with_a_prefix_of_the_pattern_reach_the_forwarder(stage, proxy):
    pub, sub = publisher(stage, proxy), subscriber(stage, proxy)
    sub.subscribe("wanted.*.b")
    sub.wait_ready(timeout=DEADLINE)
    pub.wait_for_subscribers("wanted.x", timeout=DEADLINE)
    for number in range(200):
        pub.publish(f"wanted.{number}.b", b"%d" % number)
        pub.publish(f"wanted.{number}.c", b"x")
        pub.publish(f"unwanted.{number}.b", b"x" * 10_000)
    got = [sub.receive(timeout=DEADLINE) for _ in range(200)]
    assert [message.payload for message in got] == [b"%d" % number for number in range(200)]
    assert pub.stats.unmatched == 200
    until(lambda: proxy.stats.messages)
    # 200 unwanted payloads are two megabytes.
    assert proxy.stats.message_bytes < 100_000


def test_a_group_behind_it_is_never_ready_and_the_error_has_the_reason(stage, proxy):
    publisher(stage, proxy)
    sub = subscriber(stage, proxy)
    sub.subscribe("a.b", group="workers")
    with pytest.raises(oz.Timeout, match=r"nothing answers at|need a link"):
        sub.wait_ready(timeout=1.5)


def test_plain_subscribers_and_publishers_pass_it_too(stage, proxy):
    context = stage.enter_context(zmq.Context())
    pub, sub = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    for item in (pub, sub):
        item.set(zmq.LINGER, 0)
        stage.callback(item.close)
    pub.connect(proxy.frontends[0])
    sub.connect(proxy.backends[0])
    sub.subscribe("time.")
    assert pub.poll(DEADLINE * 1000)
    assert pub.recv() == b"\x01time."
    pub.send_multipart([b"time.east", b"12:00"])
    assert sub.poll(DEADLINE * 1000)
    assert sub.recv_multipart() == [b"time.east", b"12:00"]


def test_every_subscription_passes_however_many_there_are_and_to_late_publishers(stage, proxy):
    """With the default high-water marks of ZeroMQ, about a thousand fit, and ZeroMQ drops further messages."""
    context = stage.enter_context(zmq.Context())
    early, late, sub = context.socket(zmq.XPUB), context.socket(zmq.XPUB), context.socket(zmq.SUB)
    for item in (early, late, sub):
        item.set(zmq.LINGER, 0)
        item.set_hwm(0)
        stage.callback(item.close)
    early.connect(proxy.frontends[0])
    sub.connect(proxy.backends[0])
    for number in range(6_000):
        sub.subscribe(f"p.{number}.")
    for pub in (early, late):
        if pub is late:
            late.connect(proxy.frontends[0])
        for _ in range(6_000):
            assert pub.poll(DEADLINE * 1000)
            pub.recv()


def test_forwarders_in_a_row(stage, proxy):
    with Proxy(connect=proxy.backends[0], backend="tcp://127.0.0.1:*") as second:
        running = Thread(second.run)
        pub, sub = publisher(stage, proxy), subscriber(stage, second)
        sub.subscribe("*.b")
        sub.wait_ready(timeout=DEADLINE)
        pub.wait_for_subscribers("a.b", timeout=DEADLINE)
        pub.publish("a.b", b"far")
        assert sub.receive(timeout=DEADLINE).payload == b"far"
        second.stop()
        running.outcome()


def test_a_side_without_endpoints_is_refused():
    with pytest.raises(ValueError, match="backend= for subscribers"):
        Proxy(frontend="tcp://127.0.0.1:*")
    with pytest.raises(ValueError, match="frontend= or connect="):
        Proxy(backend="tcp://127.0.0.1:*")
