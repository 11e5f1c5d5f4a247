"""What goes out by the calls of pyzmq reaches routed subscribers too."""

import pytest
import zmq

import oz
from waiting import DEADLINE, until


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


def test_a_full_plain_subscriber_holds_up_no_raw_send_when_a_routed_one_comes():
    """Answering the one must not leave the socket set to wait for the other."""
    with (
        zmq.Context() as context,
        context.socket(zmq.SUB) as stalled,
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=2) as pub,
    ):
        stalled.set(zmq.RCVHWM, 2)
        stalled.subscribe(b"a")
        stalled.connect(pub.endpoint)
        pub.wait_for_subscribers(timeout=DEADLINE)
        for _ in range(100):
            pub.send_multipart([b"a", bytes(1_000_000)])
        pub._ticker.stop()
        with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
            sub.subscribe("b")
            until(lambda: pub.getsockopt(zmq.EVENTS) & zmq.POLLIN)
            pub.send_multipart([b"a", b"x"], zmq.NOBLOCK)
            assert pub._router.streams
        pub.close(0)
