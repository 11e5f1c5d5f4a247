"""`ack="handled"`: which messages count as handled."""

import pytest

from oz.errors import Timeout
from oz.wire import links
from support.waiting import DEADLINE, until

SIZE = len(links.encode_body([b"a", b"00", None]))  # bytes of a message with a number of two digits
HANDLED = {"group": "g", "ack": "handled"}


def unhandled(feed):
    """Return how many messages the publisher keeps until they are handled."""
    return feed.publisher.subscribers[0].pending_bytes // SIZE


def publish(feed, count):
    feed.publish_numbers("a", range(10, 10 + count))


def settle(sub, feed, expected):
    until(lambda: sub.run(timeout=0.03) is not None and unhandled(feed) == expected)


def subscribed(make, feed, handler=None):
    sub = make(feed.endpoint, filtering="publisher")
    one = sub.subscribe("a", handler, **HANDLED)
    sub.wait_ready(timeout=DEADLINE)
    return sub, one


def test_a_message_in_hand_is_not_handled(make, feed):
    sub, _ = subscribed(make, feed)
    publish(feed, 3)
    assert [int(sub.receive(timeout=DEADLINE).payload) for _ in range(2)] == [10, 11]
    settle(sub, feed, 2)
    assert int(sub.receive(timeout=DEADLINE).payload) == 12
    settle(sub, feed, 1)
    with pytest.raises(Timeout):
        sub.receive(timeout=0)
    settle(sub, feed, 0)


def test_a_handler_that_raises_has_handled(make, feed):
    seen = []

    def fail(message):
        seen.append(message)
        raise ValueError

    sub, _ = subscribed(make, feed, fail)
    publish(feed, 3)
    until(lambda: sub.run(timeout=0.03) is not None and len(seen) == 3)
    settle(sub, feed, 0)
