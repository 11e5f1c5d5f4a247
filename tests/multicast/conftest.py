"""An endpoint on the loopback interface, and a publisher and a subscriber there that have met."""

import pytest

import oz
from multicast.loopback import FAST, GROUP, joined
from support.ports import lasting_udp_port


@pytest.fixture
def endpoint():
    return f"epgm://lo;{GROUP}:{lasting_udp_port()}"


@pytest.fixture
def pair(endpoint):
    with (
        oz.Subscriber(endpoint, multicast=FAST) as subscriber,
        oz.Publisher(endpoint, multicast=FAST) as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        yield publisher, subscriber
        publisher.close(0)
