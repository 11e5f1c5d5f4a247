"""What tests of multicast on the loopback interface have in common; no privilege is needed there."""

import pytest
import zmq

import oz
from support.inside import engine_of
from support.waiting import DEADLINE, until

GROUP = "239.192.7.2"
# A machine that is busy for seconds is no silence: nothing of what these tests send is lost.
FAST = oz.Multicast(rate_kbps=100_000, recovery=10.0, stale_after=30)
SLOW = oz.Multicast(rate_kbps=1_000, recovery=10.0, stale_after=30)


def joined(subscriber, count):
    """Wait until so many publishers were heard: from now on everything of theirs is accounted for."""

    def is_heard():
        with pytest.raises(oz.Timeout):
            subscriber.receive(timeout=0)
        return len(engine_of(subscriber).receiver.senders) >= count

    until(is_heard)


def payloads(subscriber, count):
    return [subscriber.receive(timeout=DEADLINE).payload for _ in range(count)]


def receive_nothing(subscriber):
    with pytest.raises(oz.Timeout):
        subscriber.receive(timeout=0.02)
    return True


def raw_publisher(context, endpoint, **options):
    socket = context.socket(zmq.PUB)
    socket.linger = 0
    socket.rate, socket.recovery_ivl = FAST.rate_kbps, 1000
    socket.bind(endpoint.replace("//lo;", "//127.0.0.1;"))
    return socket
