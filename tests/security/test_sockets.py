"""Limits as an option of sockets and nodes."""

from __future__ import annotations

import pytest
import zmq

import oz

KINDS = [oz.Publisher, oz.Subscriber, oz.asyncio.Publisher, oz.asyncio.Subscriber, oz.Node, oz.asyncio.Node]


@pytest.mark.parametrize("kind", KINDS)
def test_what_are_no_limits_is_refused(kind):
    with pytest.raises(TypeError, match=r"^limits is oz\.Limits\(…\), not 5$"):
        kind(limits=5)


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_a_subscriber_takes_frames_up_to_its_limit(filtering):
    with oz.Subscriber(filtering=filtering, limits=oz.Limits(message_size=1_000, handshake=2.5)) as sub:
        assert sub.get(zmq.MAXMSGSIZE) == 1_000
        assert sub.get(zmq.HANDSHAKE_IVL) == 2_500


def test_a_publisher_takes_longer_prefixes_if_it_is_told_to():
    prefix = b"p" * 2_000
    with (
        oz.Publisher("tcp://127.0.0.1:*", limits=oz.Limits(plain_size=4_000)) as pub,
        zmq.Context() as context,
        context.socket(zmq.SUB) as sub,
    ):
        sub.subscribe(prefix)
        sub.connect(pub.endpoint)
        pub.wait_for_subscribers(timeout=40)
        pub.publish(prefix + b".x", b"payload")
        assert sub.poll(40_000)
        assert sub.recv() == prefix + b".x"
