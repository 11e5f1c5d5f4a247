"""Messages of one frame, as the weather example of the ZeroMQ guide and the original OZ send them."""

from __future__ import annotations

import asyncio

import pytest
import zmq

import oz
from support.cases import each
from support.waiting import DEADLINE

LOOPBACK = "tcp://127.0.0.1:*"


@pytest.fixture(params=[b" ", b"\0", b"::"], ids=["space", "nul", "colons"])
def delimiter(request):
    return request.param


def test_subject_and_payload_share_a_frame_and_come_apart_again(delimiter):
    with (
        oz.Publisher(LOOPBACK, delimiter=delimiter) as pub,
        oz.Subscriber(pub.endpoint, delimiter=delimiter) as sub,
    ):
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


def test_the_weather_example_of_the_zeromq_guide_works_with_one_more_argument():
    with zmq.Context() as context, context.socket(zmq.XPUB) as server:
        server.bind(LOOPBACK)
        endpoint = server.getsockopt_string(zmq.LAST_ENDPOINT)
        with oz.Subscriber(endpoint, delimiter=b" ", dialect="redis") as sub:
            sub.subscribe("1000?")
            assert server.recv() == b"\x011000"
            server.send_string("10010 -3 40")
            server.send_string("10001 21 55")
            message = sub.receive(timeout=DEADLINE)
            assert (message.subject, message.payload) == ("10001", b"21 55")


def test_a_literal_is_exact_on_the_wire(delimiter):
    with zmq.Context() as context, context.socket(zmq.XPUB) as server:
        server.bind(LOOPBACK)
        with oz.Subscriber(server.getsockopt_string(zmq.LAST_ENDPOINT), delimiter=delimiter) as sub:
            subscription = sub.subscribe("foo.bar")
            assert server.recv() == b"\x01foo.bar" + delimiter
            sub.subscribe("foo.*")
            assert server.recv() == b"\x01foo."
            subscription.unsubscribe()
            assert server.recv() == b"\x00foo.bar" + delimiter
            sub.subscribe(b"md")
            assert server.recv() == b"\x01md"


def test_a_publisher_counts_interest_in_literals_behind_a_delimiter(delimiter):
    with (
        oz.Publisher(LOOPBACK, delimiter=delimiter) as pub,
        oz.Subscriber(pub.endpoint, delimiter=delimiter) as sub,
    ):
        sub.subscribe("foo")
        pub.wait_for_subscribers(subject="foo", timeout=DEADLINE)
        assert pub.interest("foo")
        assert not pub.interest("foobar")


def test_a_message_without_delimiter_is_counted_and_skipped():
    with oz.Publisher(LOOPBACK, dialect="redis") as pub, oz.Subscriber(pub.endpoint, delimiter=b" ") as sub:
        sub.subscribe(b"")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("no-delimiter", b"payload apart")
        pub.publish("one two")
        assert sub.receive(timeout=DEADLINE).subject == "one"
        assert (sub.stats.malformed, sub.stats.received, sub.stats.delivered) == (1, 2, 1)


def test_a_subject_that_holds_the_delimiter_is_refused():
    with oz.Publisher(LOOPBACK, dialect="rv", delimiter=b" ") as pub:
        with pytest.raises(oz.SubjectError, match="delimiter") as caught:
            pub.publish("Foo Bar.baz", b"")
        assert caught.value.position == 3
        assert pub.stats.published == 0


@each(("delimiter", "error"), [(b"", ValueError), (" ", TypeError), (0, TypeError)])
@each("kind", [oz.Publisher, oz.Subscriber])
def test_a_delimiter_is_bytes_and_not_empty(kind, delimiter, error):
    with pytest.raises(error, match="delimiter"):
        kind(delimiter=delimiter)


def test_codec_and_several_frames_go_with_a_delimiter(delimiter):
    with (
        oz.Publisher(LOOPBACK, delimiter=delimiter, codec="msgpack") as pub,
        oz.Subscriber(pub.endpoint, delimiter=delimiter, codec="msgpack") as sub,
        oz.Publisher(LOOPBACK, delimiter=delimiter) as plain,
        oz.Subscriber(plain.endpoint, delimiter=delimiter) as raw,
    ):
        sub.subscribe("a")
        raw.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        plain.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("a", {"x": [1, None]})
        assert sub.receive(timeout=DEADLINE).payload == {"x": [1, None]}
        plain.publish("a", [b"one", b"two"])
        plain.publish("a", bytearray(b"last"))
        assert raw.receive(timeout=DEADLINE).frames == [b"a" + delimiter + b"one", b"two"]
        assert raw.receive(timeout=DEADLINE).payload == b"last"


def test_asyncio_sockets_take_a_delimiter_too(delimiter):
    async def talk():
        async with (
            oz.asyncio.Publisher(LOOPBACK, delimiter=delimiter) as pub,
            oz.asyncio.Subscriber(pub.endpoint, delimiter=delimiter) as sub,
        ):
            sub.subscribe("a.>")
            await pub.wait_for_subscribers(timeout=DEADLINE)
            await pub.publish("a.b", b"x")
            message = await sub.receive(timeout=DEADLINE)
            return message.subject, message.payload, message.frames

    assert asyncio.run(talk()) == ("a.b", b"x", [b"a.b" + delimiter + b"x"])
