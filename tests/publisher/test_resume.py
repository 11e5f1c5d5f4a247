"""Links whose connection is cut, stalled or half-open."""

import threading
import time

import pytest

import oz
from support.fault_proxy import FaultProxy
from support.waiting import Thread, until


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


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_a_cut_loses_nothing(proxied, how):
    count = 20_000
    # The subscriber may be slow: only the cut may lose messages.
    publisher, proxy, peer = proxied("a", high_water_mark=count)
    is_over = threading.Event()

    def publish():
        for number in range(count):
            publisher.publish("a", b"%d" % number)
            if number % 4_000 == 2_000:
                proxy.cut(how)
        is_over.set()

    thread = Thread(publish)
    peer.until(lambda: len(peer.messages) >= count)
    thread.outcome()
    assert peer.payloads == [b"%d" % number for number in range(count)]
    assert peer.gaps == []
    assert publisher.stats.given_up == 0


@pytest.mark.parametrize("end", ["near", "far"])
def test_a_half_open_connection_loses_nothing(proxied, end):
    publisher, proxy, peer = proxied("a")
    publisher.publish("a", b"0")
    peer.receive(1)
    proxy.half_open(end)
    for number in range(1, 100):
        publisher.publish("a", b"%d" % number)
    publisher.flush()
    peer.receive(100)
    assert peer.payloads == [b"%d" % number for number in range(100)]
    assert peer.gaps == []


def test_a_stall_loses_nothing(proxied):
    publisher, proxy, peer = proxied("a")
    proxy.stall()
    for number in range(5_000):
        publisher.publish("a", b"%d" % number)
    publisher.flush()
    proxy.resume()
    assert peer.receive(5_000) == [b"%d" % number for number in range(5_000)]
    assert peer.gaps == []


def test_over_resume_bytes_the_exact_count_is_reported(proxied):
    publisher, proxy, peer = proxied("a", resume_bytes=10_000, high_water_mark=100)
    proxy.stall()
    for number in range(1_000):
        publisher.publish("a", b"%04d" % number + b"x" * 100)
        publisher.flush()
    proxy.cut()
    proxy.resume()
    peer.until(lambda: len(peer.messages) + sum(gap.count for gap in peer.gaps) >= 1_000)
    numbers = [int(payload[:4]) for payload in peer.payloads]
    assert numbers == sorted(set(numbers))
    assert {reason for _, reason in peer.lost} == {"dropped"}
    assert len(numbers) + sum(gap.count for gap in peer.gaps) == 1_000
    assert publisher.stats.dropped["full"] == sum(gap.count for gap in peer.gaps)
    assert len(numbers) >= 100


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


def test_a_restarted_publisher_reports_an_unknown_loss(make, proxied):
    publisher, proxy, peer = proxied("a")
    publisher.publish("a", b"1")
    peer.receive(1)
    peer.until(lambda: publisher.subscribers[0].pending == 0)
    again = make()
    proxy.pass_on_to(again.link_endpoints[0])
    proxy.cut()
    peer.until(lambda: peer.gaps)
    peer.ready()
    again.publish("a", b"2")
    assert peer.receive(2) == [b"1", b"2"]
    assert peer.lost == [(None, "restarted")]
    assert publisher.subscribers
