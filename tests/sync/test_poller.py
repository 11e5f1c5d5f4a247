import os
import time

import pytest
import zmq

import oz
from support.inside import engine_of
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def poller():
    return oz.Poller()


def test_an_unwanted_message_does_not_make_a_subscriber_readable(pair, poller):
    two = pair("a.*.c")
    poller.register(two.sub, zmq.POLLIN)
    two.pub.publish("a.b.d", b"x")
    until(lambda: not poller.poll(0) and two.sub.stats.filtered)
    two.pub.publish("a.b.c", b"x")
    assert poller.poll(DEADLINE * 1000) == [(two.sub, zmq.POLLIN)]
    assert two.sub.recv_multipart(zmq.NOBLOCK) == [b"a.b.c", b"x"]
    assert poller.poll(0) == []


def test_a_message_stays_reported_until_it_is_received(pair, poller):
    two = pair("a")
    poller.register(two.sub, zmq.POLLIN)
    two.pub.publish("a", [b"x", b"y"])
    for _ in range(3):
        assert poller.poll(DEADLINE * 1000) == [(two.sub, zmq.POLLIN)]
    assert two.sub.poll(0) == zmq.POLLIN
    assert two.sub.recv() == b"a"
    assert poller.poll() == [(two.sub, zmq.POLLIN)]
    assert two.sub.recv_multipart() == [b"x", b"y"]
    assert poller.poll(0) == []


def test_ending_the_subscription_takes_back_what_was_reported(pair, poller):
    two = pair("a")
    poller.register(two.sub, zmq.POLLIN)
    two.pub.publish("a", b"x")
    assert poller.poll(DEADLINE * 1000)
    two.subscriptions[0].unsubscribe()
    assert poller.poll(0) == []


def test_handlers_run_while_it_polls(pair, poller):
    two = pair()
    seen = []
    two.sub.subscribe("a", handler=seen.append)
    two.pub.wait_for_subscribers(timeout=DEADLINE)
    poller.register(two.sub, zmq.POLLIN)
    two.pub.publish("a", b"x")
    until(lambda: not poller.poll(5) and seen)
    assert len(seen) == 1


def test_subscribers_plain_sockets_and_file_descriptors_mix(pair, poller, context):
    two = pair("a")
    reading, writing = os.pipe()
    left, right = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    left.bind("inproc://pair")
    right.connect("inproc://pair")
    try:
        for each in (two.sub, left, reading):
            poller.register(each, zmq.POLLIN)
        assert poller.poll(10) == []
        right.send(b"x")
        os.write(writing, b"x")
        two.pub.publish("a", b"x")
        until(lambda: dict(poller.poll(100)).keys() == {two.sub, left, reading})
        two.sub.receive(timeout=0)
        assert dict(poller.poll(0)).keys() == {left, reading}
        poller.unregister(left)
        assert dict(poller.poll(0)).keys() == {reading}
    finally:
        os.close(reading)
        os.close(writing)
        left.close(0)
        right.close(0)


def test_a_timeout_is_in_milliseconds_and_unwanted_messages_do_not_shorten_it(pair, poller):
    two = pair("a.*.c")
    poller.register(two.sub, zmq.POLLIN)
    for _ in range(10):
        two.pub.publish("a.b.d", b"x")
    started = time.monotonic()
    assert poller.poll(300) == []
    assert 0.29 < time.monotonic() - started < DEADLINE


@pytest.mark.parametrize("timeout", [None, -1])
def test_without_a_timeout_it_waits(pair, poller, timeout):
    two = pair("a.*")
    poller.register(two.sub, zmq.POLLIN)
    waiting = Thread(lambda: poller.poll(timeout))
    waiting.join(0.05)
    assert waiting.is_alive()
    two.pub.publish("a.b", b"x")
    assert waiting.outcome() == [(two.sub, zmq.POLLIN)]


def test_pollout_is_reported_as_ever(pair, poller):
    two = pair("a")
    poller.register(two.pub, zmq.POLLOUT)
    assert poller.poll(0) == [(two.pub, zmq.POLLOUT)]


def test_a_plain_poller_reports_a_hint(pair):
    two = pair("a.*.c")
    plain = zmq.Poller()
    plain.register(two.sub, zmq.POLLIN)
    two.pub.publish("a.b.d", b"x")
    assert plain.poll(DEADLINE * 1000) == [(two.sub, zmq.POLLIN)]
    with pytest.raises(zmq.Again):
        two.sub.recv_multipart(zmq.NOBLOCK)


def test_a_subscriber_that_another_thread_polls_is_not_closed_under_it(pair, poller):
    two = pair("a")
    poller.register(two.sub, zmq.POLLIN)
    polled = Thread(lambda: poller.poll(DEADLINE * 1000))
    polled.wait_until_stuck()
    with pytest.raises(oz.OwnershipError, match="another thread is using this subscriber"):
        two.sub.close()
    two.pub.publish("a", b"x")
    assert polled.outcome() == [(two.sub, zmq.POLLIN)]
    assert two.sub.receive(timeout=DEADLINE).payload == b"x"


def test_a_poll_is_refused_beside_a_thread_that_receives(pair, poller):
    two = pair("a")
    poller.register(two.sub, zmq.POLLIN)
    with engine_of(two.sub).declarer.guard:
        polled = Thread(lambda: poller.poll(0))
        with pytest.raises(oz.OwnershipError):
            polled.outcome()


def test_a_publisher_that_another_thread_polls_may_be_closed(poller):
    pub = oz.Publisher("tcp://127.0.0.1:*")
    poller.register(pub, zmq.POLLIN)
    polled = Thread(lambda: poller.poll(DEADLINE * 1000))
    polled.wait_until_stuck()
    pub.close()
    with pytest.raises(zmq.ZMQError) as refused:
        polled.outcome()
    assert refused.value.errno == zmq.ENOTSOCK


def test_a_poll_ends_when_another_thread_closes_one_of_several_sockets(pair, poller):
    two, pub = pair("a"), oz.Publisher("tcp://127.0.0.1:*")
    for socket in (two.sub, two.pub, pub):
        poller.register(socket, zmq.POLLIN)
    polled = Thread(lambda: poller.poll())
    polled.wait_until_stuck()
    pub.close()
    with pytest.raises(zmq.ZMQError) as refused:
        polled.outcome()
    assert refused.value.errno == zmq.ENOTSOCK
    assert not engine_of(pub)._closings


def test_a_publisher_can_be_written_to_and_never_read(pair, poller):
    two = pair("a")
    poller.register(two.pub)
    poller.register(two.sub, zmq.POLLIN)
    assert poller.poll() == [(two.pub, zmq.POLLOUT)]
    two.pub.publish("a", b"x")
    until(lambda: dict(poller.poll(100)) == {two.pub: zmq.POLLOUT, two.sub: zmq.POLLIN})
    poller.register(two.pub, zmq.POLLIN)
    poller.unregister(two.sub)
    assert poller.poll(1) == []
