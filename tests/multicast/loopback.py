"""Publishers and subscribers of multicast on the loopback interface, which needs no privilege."""

from contextlib import suppress

import zmq

from oz.errors import Timeout
from oz.options import Multicast, Options
from oz.publisher.sync import Publisher
from oz.subscriber.sync import Subscriber
from support.waiting import DEADLINE

GROUP = "239.192.7.2"
# A machine that is busy for seconds is no silence: no message of these tests is lost.
FAST = Multicast(rate_kbps=100_000, recovery=10.0, stale_after=30)
SLOW = Multicast(rate_kbps=1_000, recovery=10.0, stale_after=30)


def options(multicast=FAST, **fields):
    return Options(multicast=multicast, **fields)


def publisher_at(endpoint, multicast=FAST, *, on_full="drop", codec=None, **fields):
    return Publisher(endpoint, on_full=on_full, codec=codec, options=options(multicast, **fields))


def subscriber_at(endpoint, multicast=FAST, *, on_gap=None, codec=None, **fields):
    return Subscriber(endpoint, on_gap=on_gap, codec=codec, options=options(multicast, **fields))


def joined(subscriber):
    """Wait until a publisher is heard: from now on every message is delivered or reported lost."""
    subscriber.wait_ready(timeout=DEADLINE)


def payloads(subscriber, count):
    return [subscriber.receive(timeout=DEADLINE).payload for _ in range(count)]


def receive_nothing(subscriber):
    """Receive for a moment; return whether nothing came."""
    with suppress(Timeout):
        subscriber.receive(timeout=0.02)
        return False
    return True


def raw_publisher(context, endpoint):
    socket = context.socket(zmq.PUB)
    socket.linger = 0
    socket.rate, socket.recovery_ivl = FAST.rate_kbps, 1000
    socket.bind(endpoint.replace("//lo;", "//127.0.0.1;"))
    return socket
