"""A publisher's thread sleeps until something comes or is due, and misses nothing by it."""

import pytest
import zmq

import oz
import oz.asyncio
from oz.protocol.publisher.dispatch import HEARTBEAT
from oz.protocol.publisher.router import Router
from oz.sync.ticker import Ticker
from waiting import DEADLINE, until

LOOPBACK = "tcp://127.0.0.1:*"


@pytest.fixture
def pub():
    with zmq.Context() as context, oz.Publisher(LOOPBACK, context=context) as made:
        yield made
        made.close(0)


def ticker_of(pub) -> Ticker:
    return pub._engine._ticker


def test_an_idle_publisher_sleeps_for_as_long_as_nobody_subscribes(pub):
    until(lambda: ticker_of(pub).is_dormant)
    assert pub._engine.rest_for(None) is None


def test_a_subscriber_is_answered_by_a_publisher_that_sleeps(pub):
    until(lambda: ticker_of(pub).is_dormant)
    with oz.Subscriber(pub.endpoint, context=pub.context, filtering="publisher") as sub:
        sub.subscribe("a")
        sub.wait_ready(timeout=DEADLINE)
        assert isinstance(pub._engine.router, Router)
        # From now on until the next record of where its stream stands.
        until(lambda: ticker_of(pub).is_dormant)
        rest = pub._engine.rest_for(None)
        assert rest is not None
        assert 0 <= rest <= HEARTBEAT


@pytest.mark.parametrize(
    "use",
    [
        lambda pub: pub.publish("a", b""),
        lambda pub: pub.send_multipart([b"a", b""]),
        lambda pub: pub._engine.get(zmq.EVENTS),
        lambda pub: pub.unbind(pub.endpoint),
        lambda pub: pub.bind(LOOPBACK),
        lambda pub: pub.report_loss(1),
    ],
    ids=["publish", "send", "events", "unbind", "bind", "report_loss"],
)
def test_who_uses_the_socket_has_its_thread_look_now_and_then(pub, use):
    """Any of these may take the only sign of a subscription that comes meanwhile."""
    with oz.Subscriber(pub.endpoint, context=pub.context) as sub:
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        ticker = ticker_of(pub)
        until(lambda: ticker.is_dormant)
        before = ticker._used_at
        use(pub)
        assert ticker._used_at > before
        until(lambda: ticker.is_dormant)
