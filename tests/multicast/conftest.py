"""An endpoint on the loopback interface, and a publisher and a subscriber there that have met."""

import pytest

from multicast.loopback import GROUP, joined, publisher_at, subscriber_at
from support.ports import lasting_udp_port


@pytest.fixture
def endpoint():
    return f"epgm://lo;{GROUP}:{lasting_udp_port()}"


@pytest.fixture
def pair(endpoint):
    with subscriber_at(endpoint) as subscriber, publisher_at(endpoint) as publisher:
        subscriber.subscribe("md.>")
        joined(subscriber)
        yield publisher, subscriber
        publisher.close(timeout=0)
