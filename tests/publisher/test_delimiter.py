"""Messages of one frame, as the weather example of the ZeroMQ guide sends them."""

import contextlib

import pytest
import zmq

import oz.publisher.aio
import oz.publisher.sync
import oz.subscriber.aio
import oz.subscriber.sync
from oz.errors import ConfigurationError, SubjectError
from oz.options import Options
from support.waiting import DEADLINE

LOOPBACK = "tcp://127.0.0.1:*"


@pytest.fixture(params=[b" ", b"\0", b"::"], ids=["space", "nul", "colons"])
def delimiter(request):
    return request.param


@contextlib.contextmanager
def raw(kind):
    with zmq.Context() as context, context.socket(kind) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, round(1000 * DEADLINE))
        yield socket


def subscriber(endpoint, delimiter, **options):
    return oz.subscriber.sync.Subscriber(
        endpoint, filtering="prefix", options=Options(delimiter=delimiter), **options
    )


def publisher(delimiter, **options):
    return oz.publisher.sync.Publisher(LOOPBACK, links=False, options=Options(delimiter=delimiter), **options)


def test_subject_and_payload_share_a_frame(delimiter):
    with publisher(delimiter) as pub, raw(zmq.SUB) as sub:
        sub.connect(pub.endpoint)
        sub.subscribe(b"time.")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("time.east", b"noon")
        pub.publish("time.west")
        assert sub.recv_multipart() == [b"time.east" + delimiter + b"noon"]
        assert sub.recv_multipart() == [b"time.west" + delimiter]


def test_a_message_is_split_at_the_first_delimiter(delimiter):
    with publisher(delimiter) as pub, subscriber(pub.endpoint, delimiter) as sub:
        sub.subscribe("time.*.east")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("time.us.west", b"no")
        pub.publish("time.us.east", b"noon" + delimiter + b"sharp")
        pub.publish("time.eu.east")
        first = sub.receive(timeout=DEADLINE)
        assert (first.subject, first.payload) == ("time.us.east", b"noon" + delimiter + b"sharp")
        assert first.frames == [b"time.us.east" + delimiter + b"noon" + delimiter + b"sharp"]
        assert sub.receive(timeout=DEADLINE).payload == b""
        assert (sub.stats.received, sub.stats.filtered) == (3, 1)


def test_a_literal_is_exact_on_the_wire(delimiter):
    with raw(zmq.XPUB) as server:
        server.bind(LOOPBACK)
        with subscriber(server.getsockopt_string(zmq.LAST_ENDPOINT), delimiter) as sub:
            subscription = sub.subscribe("foo.bar")
            assert server.recv() == b"\x01foo.bar" + delimiter
            sub.subscribe("foo.*")
            assert server.recv() == b"\x01foo."
            subscription.unsubscribe()
            assert server.recv() == b"\x00foo.bar" + delimiter
            sub.subscribe(b"md")
            assert server.recv() == b"\x01md"


def test_a_message_without_delimiter_is_malformed():
    with raw(zmq.XPUB) as server:
        server.bind(LOOPBACK)
        with subscriber(server.getsockopt_string(zmq.LAST_ENDPOINT), b" ") as sub:
            sub.subscribe(b"")
            server.recv()
            server.send_multipart([b"no-delimiter", b"payload apart"])
            server.send_multipart([b"one two", b"more"])
            message = sub.receive(timeout=DEADLINE)
            assert (message.subject, message.payload) == ("one", b"two")
            assert message.frames == [b"one two", b"more"]
            assert (sub.stats.malformed, sub.stats.received, sub.stats.delivered) == (1, 2, 1)


def test_links_and_plain_subscribers_of_one_publisher(delimiter):
    options = Options(delimiter=delimiter)
    with (
        oz.publisher.sync.Publisher(LOOPBACK, options=options, codec="msgpack") as pub,
        oz.subscriber.sync.Subscriber(
            pub.endpoint, filtering="publisher", links=pub.link_endpoints[0], codec="msgpack"
        ) as link,
        subscriber(pub.endpoint, delimiter, codec="msgpack") as plain,
    ):
        for item in (link, plain):
            item.subscribe("a.*")
        link.wait_ready(timeout=DEADLINE)
        pub.wait_for_subscribers(count=2, timeout=DEADLINE)
        pub.publish("a.b", {"x": [1, None]})
        assert [item.receive(timeout=DEADLINE).payload for item in (link, plain)] == [{"x": [1, None]}] * 2


def test_a_subject_with_the_delimiter_is_refused():
    with publisher(b" ", dialect="rv") as pub:
        with pytest.raises(SubjectError, match="delimiter") as caught:
            pub.publish("Foo Bar.baz", b"")
        assert caught.value.position == 3
        assert pub.stats.published == 0


@pytest.mark.parametrize("wrong", [b"", " ", 0])
def test_a_delimiter_is_bytes_and_not_empty(wrong):
    with pytest.raises(ConfigurationError, match="delimiter"):
        Options(delimiter=wrong)


def test_a_subscriber_with_links_only_needs_no_delimiter():
    with pytest.raises(ConfigurationError, match="links need none"):
        oz.subscriber.sync.Subscriber(filtering="publisher", options=Options(delimiter=b" "))
