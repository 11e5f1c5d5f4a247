"""Links whose connection is cut, stalled or half-open."""

import time

import pytest

import oz
from support.fault_proxy import FaultProxy
from support.waiting import until


@pytest.fixture
def proxied(make, join):
    """Return a publisher, the proxy before its links, and a subscriber behind it."""
    proxies = []

    def proxied(*texts, options=None, **settings):
        publisher = make(**settings)
        proxy = FaultProxy(publisher.link_endpoints[0])
        proxies.append(proxy)
        return publisher, proxy, join(proxy.endpoint, *texts, **(options or {}))

    yield proxied
    for proxy in proxies:
        proxy.close()


def test_over_resume_seconds_the_loss_is_unknown(proxied):
    publisher, proxy, peer = proxied("a", resume_seconds=0.2)
    proxy.pass_on_to("tcp://127.0.0.1:1")
    proxy.cut()
    publisher.publish("a", b"lost")
    publisher.flush()
    ends = time.monotonic() + 40
    while publisher.subscribers and time.monotonic() < ends:
        peer.turn(0.01)
    assert publisher.stats.given_up == 1
    # The patterns of the session go too, without another event.
    engine = getattr(publisher, "raw", publisher)._engine
    until(lambda: not engine._sessions.has_work)
    proxy.pass_on_to(publisher.link_endpoints[0])
    peer.until(lambda: peer.gaps and peer.link.is_answered)
    publisher.publish("a", b"next")
    peer.receive(1)
    assert peer.payloads == [b"next"]
    assert peer.lost == [(None, "restarted")]


def test_a_subscriber_that_is_away_is_down(proxied):
    publisher, proxy, peer = proxied("a")
    proxy.pass_on_to("tcp://127.0.0.1:1")
    proxy.cut()
    peer.until(lambda: publisher.subscribers[0].state == "down")
    publisher.publish("a", b"1")
    publisher.flush()
    assert publisher.subscribers[0].pending == 1
    # Messages for it wait, and a program that waits for subscribers waits for a living one.
    assert publisher.has_subscribers("a")
    for subject in (None, "a"):
        with pytest.raises(oz.Timeout):
            publisher.wait_for_subscribers(subject, timeout=0)
    proxy.pass_on_to(publisher.link_endpoints[0])
    assert peer.receive(1) == [b"1"]
    publisher.wait_for_subscribers("a", timeout=0)
    assert publisher.subscribers[0].state == "up"
