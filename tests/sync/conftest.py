from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import zmq

import oz
from waiting import DEADLINE


@pytest.fixture
def pair():
    """Make a publisher and a subscriber that have met: each pattern's subscriptions have arrived."""
    with ExitStack() as stack:

        def make(*patterns, pub=None, sub=None, **both):
            publisher = stack.enter_context(oz.Publisher("tcp://127.0.0.1:*", **both, **(pub or {})))
            subscriber = stack.enter_context(oz.Subscriber(publisher.endpoint, **both, **(sub or {})))
            subscriptions = [subscriber.subscribe(pattern) for pattern in patterns]
            wanted = {prefix for one in subscriptions for prefix in one.prefixes}
            publisher.wait_for_subscribers(len(wanted), timeout=DEADLINE)
            return SimpleNamespace(pub=publisher, sub=subscriber, subscriptions=subscriptions)

        yield make


@pytest.fixture
def context():
    """A context to share; what is still open in it at the end is closed."""
    ctx = zmq.Context()
    yield ctx
    ctx.destroy(0)
