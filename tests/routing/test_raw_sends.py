"""What goes out by the calls of pyzmq reaches routed subscribers too."""

from contextlib import suppress

import pytest
import zmq

import oz
from oz.transport.backend import PYZMQ
from oz.transport.frames import send_frames
from support.inside import engine_of, ticker_of
from support.waiting import DEADLINE, until


@pytest.mark.parametrize("delimiter", [None, b" "])
def test_raw_sends_reach_plain_and_routed_subscribers_alike(delimiter):
    large = b"y" * 70_000
    with (
        zmq.Context() as context,
        oz.Publisher("tcp://127.0.0.1:*", context=context, delimiter=delimiter) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher") as routed,
        oz.Subscriber(pub.endpoint, delimiter=delimiter) as plain,
    ):
        for sub in (routed, plain):
            sub.subscribe("a.*")
        routed.wait_ready(timeout=DEADLINE)
        pub.wait_for_subscribers(2, timeout=DEADLINE)
        if delimiter:
            pub.send_multipart([b"a.b 1", b"2"])
            pub.send(b"a.c x")
            pub.send(b"a.d " + large)
        else:
            pub.send_multipart([b"a.b", b"1", b"2"])
            pub.send(b"a.c", zmq.SNDMORE)
            pub.send(b"x")
            pub.send_multipart([b"a.d", large])
        pub.publish("a.end", b"")
        expected = [("a.b", b"1"), ("a.c", b"x"), ("a.d", large), ("a.end", b"")]
        for sub in (routed, plain):
            got = [sub.receive(timeout=DEADLINE) for _ in expected]
            assert [(message.subject, message.payload) for message in got] == expected
        assert routed.stats.lost == 0


def is_full(pub):
    """Send one more message; tell whether there was no room for it."""
    try:
        send_frames(PYZMQ.send, pub, [b"a"], zmq.NOBLOCK)
    except zmq.Again:
        return True
    return False


def test_a_full_plain_subscriber_holds_up_no_raw_send_when_a_routed_one_comes():
    """Answering the one must not leave the socket set to wait for the other."""
    with (
        zmq.Context() as context,
        context.socket(zmq.SUB) as stalled,
        oz.Publisher("inproc://full", context=context, high_water_mark=2) as pub,
    ):
        stalled.set(zmq.RCVHWM, 2)
        stalled.subscribe(b"a")
        stalled.connect("inproc://full")
        pub.wait_for_subscribers(timeout=DEADLINE)
        ticker_of(pub).stop()
        # Full to the brim: one who has been passed over already is not waited for anyway.
        engine_of(pub).dispatch._sink.make_lossless()
        until(lambda: is_full(engine_of(pub).socket))
        with oz.Subscriber("inproc://full", context=context, filtering="publisher") as sub:
            sub.subscribe("b")
            until(lambda: engine_of(pub).getsockopt(zmq.EVENTS) & zmq.POLLIN)
            pub.send_multipart([b"a", b"x"], zmq.NOBLOCK)
            assert engine_of(pub).router.streams
            pub.close(0)


@pytest.mark.parametrize("send", ["send_multipart", "send_string"])
def test_a_publisher_that_blocks_waits_for_those_who_filter_there_too(send):
    def call(pub, flags=0):
        if send == "send_string":
            pub.send_string("a", zmq.SNDMORE)
            pub.send_string("x" * 20_000, flags)
        else:
            pub.send_multipart([b"a", bytes(20_000)], flags)

    with (
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=2, on_full="block", full_timeout=0.05) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher", high_water_mark=2) as sub,
    ):
        sub.subscribe("a")
        sub.wait_ready(timeout=DEADLINE)
        sent = 0
        with suppress(zmq.Again):
            while sent < 5_000:
                call(pub)
                sent += 1
        assert sent < 5_000
        with pytest.raises(zmq.Again):
            pub.send_multipart([b"a", b"x"], zmq.NOBLOCK)
        for _ in range(sent):
            sub.receive(timeout=DEADLINE)
        assert sub.stats.lost == 0
        pub.close(timeout=0.1)
