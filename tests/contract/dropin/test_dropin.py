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
def sub(context):
    """Drop-in SUB of the context."""
    with sub_socket(context) as made:
        yield made


@pytest.fixture
def plain(context):
    """Plain XPUB of pyzmq, and its endpoint."""
    made = context.socket(zmq.XPUB)
    made.bind("tcp://127.0.0.1:*")
    return made, made.last_endpoint.decode()


def _subscribed(publisher, count=1):
    """Wait for subscriptions at a plain XPUB."""
    for _ in range(count):
        assert publisher.poll(DEADLINE * 1000)
        publisher.recv()


@promise("A SUB of a drop-in class receives the multipart messages that match, whole, and no others.")
def test_multipart_messages_that_match_arrive_whole(sub, plain):
    publisher, endpoint = plain
    sub.connect(endpoint)
    sub.subscribe("weather.*.wind", dialect="nats")
    _subscribed(publisher)
    for place in ("oslo", "bergen"):
        for what in ("temp", "wind"):
            publisher.send_multipart([f"weather.{place}.{what}".encode(), b"1", b"", b"2"])
    found = [sub.recv_multipart() for _ in range(2)]
    assert found == [[f"weather.{place}.wind".encode(), b"1", b"", b"2"] for place in ("oslo", "bergen")]


@promise('In dialect "zmq" text and bytes are plain prefixes, also when they contain a colon.')
def test_text_is_a_prefix(sub, plain):
    publisher, endpoint = plain
    sub.connect(endpoint)
    sub.subscribe("redis:keys")
    sub.setsockopt(zmq.SUBSCRIBE, b"news.*")
    sub.setsockopt_string(zmq.SUBSCRIBE, "end")
    _subscribed(publisher, 3)
    for subject in (b"redis:keys.1", b"redis", b"news.a", b"news.*a", b"end"):
        publisher.send_multipart([subject, b""])
    assert [sub.recv_multipart()[0] for _ in range(3)] == [b"redis:keys.1", b"news.*a", b"end"]


@promise("NOBLOCK and RCVTIMEO hold while only messages that do not match arrive.")
def test_timeouts_hold_without_a_match(sub, plain):
    publisher, endpoint = plain
    sub.connect(endpoint)
    sub.subscribe("a.*.z", dialect="nats")
    _subscribed(publisher)
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
def test_poller_reports_a_message(sub, plain):
    publisher, endpoint = plain
    sub.connect(endpoint)
    sub.subscribe("a.*", dialect="nats")
    _subscribed(publisher)
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
def test_surface_of_pyzmq(context, plain):
    publisher, endpoint = plain
    with sub_socket(context) as sub:
        sub.rcvhwm = 17
        assert sub.getsockopt(zmq.RCVHWM) == 17
        sub.connect(endpoint)
        sub.subscribe("a")
        _subscribed(publisher)
        publisher.send_string("abc")
        assert sub.recv_string() == "abc"
        assert isinstance(sub, zmq.Socket)
    assert sub.closed
