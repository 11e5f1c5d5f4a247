"""Plain ZeroMQ subscribers of a publisher: SUB and XSUB, beside links, behind proxies, and without links."""

import time

import pytest
import zmq

from oz.errors import WouldBlock
from oz.publisher.sync import Publisher
from support.waiting import DEADLINE


class Sockets(zmq.Context):
    sockets = None


@pytest.fixture
def context():
    """A context that closes its sockets when the test ends."""
    context = Sockets()
    context.sockets = []
    yield context
    for socket in context.sockets:
        socket.close(0)
    context.term()


def socket_of(context, kind):
    socket = context.socket(kind)
    context.sockets.append(socket)
    return socket


def plain(context, endpoint, *prefixes, kind=zmq.SUB):
    socket = socket_of(context, kind)
    socket.set(zmq.RCVTIMEO, 20_000)
    socket.connect(endpoint)
    for prefix in prefixes:
        if kind == zmq.SUB:
            socket.subscribe(prefix)
        else:
            socket.send(b"\x01" + prefix)
    return socket


def test_a_subscriber_to_everything_sees_only_messages_of_the_program(make, join, context):
    publisher = make()
    socket = plain(context, publisher.endpoint, b"")
    publisher.wait_for_subscribers("z", timeout=DEADLINE)
    peer = join(publisher, "a")
    publisher.publish("z", b"1", headers={"n": 1})
    peer.until(lambda: 6 in peer.frames)  # A PING.
    publisher.publish("a", b"2")
    assert [socket.recv_multipart(), socket.recv_multipart()] == [[b"z", b"1"], [b"a", b"2"]]


@pytest.mark.parametrize("on_full", ["block", "raise"])
def test_a_full_plain_subscriber_refuses(make, context, on_full):
    publisher = make(on_full=on_full, high_water_mark=10, send_timeout=0.05)
    socket = plain(context, publisher.endpoint)
    socket.set(zmq.RCVHWM, 1)
    socket.subscribe(b"a")
    publisher.wait_for_subscribers("a", timeout=DEADLINE)
    with pytest.raises(WouldBlock):
        publisher.publish_many([("a", b"x" * 100_000)] * 1_000)
    stats = publisher.stats
    assert stats.refused == 1
    assert stats.published == stats.sent


def test_a_plain_subscriber_may_join_while_others_receive():
    """The publisher does not poll its socket for plain subscribers before each send."""
    with Publisher("tcp://127.0.0.1:*") as pub, zmq.Context() as context:
        with context.socket(zmq.SUB) as first, context.socket(zmq.SUB) as second:
            for item in (first, second):
                item.setsockopt(zmq.LINGER, 0)
                item.connect(pub.endpoint)
            first.subscribe(b"a.")
            pub.wait_for_subscribers("a.x", timeout=DEADLINE)
            for number in range(100):
                pub.publish("a.x", b"%d" % number)
            pub.publish("b.x", b"early")
            second.subscribe(b"b.")
            end = time.monotonic() + 20
            while not pub.has_subscribers("b.x") and time.monotonic() < end:
                pub.publish("a.x", b"more")
            pub.publish("b.x", b"late")
            assert second.poll(20_000)
            assert second.recv_multipart() == [b"b.x", b"late"]
            assert [first.recv_multipart()[1] for _ in range(100)] == [b"%d" % n for n in range(100)]
        assert pub.stats.unmatched == 1
