"""Drop-in sockets: programs with pyzmq get patterns."""

import time

import pytest
import zmq

from contract.adapter import pub_socket, sub_socket
from contract.promises import promise
from support.waiting import DEADLINE, until


@pytest.fixture
def context():
    made = zmq.Context()
    yield made
    made.destroy(0)


@pytest.fixture
def publisher(context):
    """Plain XPUB of pyzmq."""
    made = context.socket(zmq.XPUB)
    made.bind("tcp://127.0.0.1:*")
    return made


@pytest.fixture
def sub(context, publisher):
    """Drop-in SUB that is connected to the publisher."""
    with sub_socket(context) as made:
        made.connect(publisher.last_endpoint.decode())
        yield made


def _subscribe(publisher, sub, *prefixes, **options):
    """Subscribe to patterns; return when the publisher has the subscriptions."""
    for one in prefixes:
        sub.subscribe(one, **options)
    _wait_for_subscriptions(publisher, len(prefixes))


def _wait_for_subscriptions(publisher, count):
    for _ in range(count):
        assert publisher.poll(DEADLINE * 1000)
        publisher.recv()


@promise("A SUB of a drop-in class receives the multipart messages that match, whole, and no others.")
def test_multipart_messages_that_match_arrive_whole(sub, publisher):
    _subscribe(publisher, sub, "weather.*.wind", dialect="nats")
    for place in ("oslo", "bergen"):
        for what in ("temp", "wind"):
            publisher.send_multipart([f"weather.{place}.{what}".encode(), b"1", b"", b"2"])
    found = [sub.recv_multipart() for _ in range(2)]
    assert found == [[f"weather.{place}.wind".encode(), b"1", b"", b"2"] for place in ("oslo", "bergen")]


@promise('In dialect "zmq" text and bytes are plain prefixes, also when they contain a colon.')
def test_text_is_a_prefix(sub, publisher):
    sub.subscribe("redis:keys")
    sub.setsockopt(zmq.SUBSCRIBE, b"news.*")
    sub.setsockopt_string(zmq.SUBSCRIBE, "end")
    _wait_for_subscriptions(publisher, 3)
    for subject in (b"redis:keys.1", b"redis", b"news.a", b"news.*a", b"end"):
        publisher.send_multipart([subject, b""])
    assert [sub.recv_multipart()[0] for _ in range(3)] == [b"redis:keys.1", b"news.*a", b"end"]


@promise("NOBLOCK and RCVTIMEO hold while only messages that do not match arrive.")
def test_timeouts_hold_without_a_match(sub, publisher):
    _subscribe(publisher, sub, "a.*.z", dialect="nats")
    with pytest.raises(zmq.Again):
        sub.recv_multipart(zmq.NOBLOCK)
    for _ in range(100):
        publisher.send_multipart([b"a.b.c", b""])
    sub.rcvtimeo = 100
    began = time.monotonic()
    with pytest.raises(zmq.Again):
        sub.recv_multipart()
    assert 0.09 <= time.monotonic() - began < DEADLINE


@promise("zmq.Poller works with a drop-in SUB.")
def test_poller_reports_a_message(sub, publisher):
    _subscribe(publisher, sub, "a.*", dialect="nats")
    poller = zmq.Poller()
    poller.register(sub, zmq.POLLIN)
    assert poller.poll(0) == []
    publisher.send_multipart([b"a.b", b"1"])
    until(lambda: dict(poller.poll(100)).get(sub) == zmq.POLLIN)
    assert sub.recv_multipart(zmq.NOBLOCK) == [b"a.b", b"1"]


@promise("A PUB of a drop-in class serves plain SUBs of pyzmq.")
def test_plain_subscribers_are_served(context):
    with pub_socket(context) as publisher, context.socket(zmq.SUB) as plain:
        publisher.bind("tcp://127.0.0.1:*")
        plain.connect(publisher.getsockopt_string(zmq.LAST_ENDPOINT))
        plain.subscribe("news.")

        def arrives():
            publisher.send_multipart([b"news.oslo", b"snow", b"more"])
            return plain.poll(20)

        until(arrives)
        assert plain.recv_multipart() == [b"news.oslo", b"snow", b"more"]


@promise("Options, string receives and context managers of pyzmq work on a drop-in SUB.")
def test_surface_of_pyzmq(sub, publisher):
    with sub:
        sub.rcvhwm = 17
        assert sub.getsockopt(zmq.RCVHWM) == 17
        _subscribe(publisher, sub, "a")
        publisher.send_string("abc")
        assert sub.recv_string() == "abc"
        assert isinstance(sub, zmq.Socket)
    assert sub.closed
