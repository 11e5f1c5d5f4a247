"""Subscribers that are too slow: overflow policies, block and raise."""

import pytest

from oz.errors import WouldBlock
from support.waiting import Thread, until

SMALL = {"resume_bytes": 1_000, "high_water_mark": 50}


def publish(publisher, count, subjects=1):
    for number in range(count):
        publisher.publish(f"a.{number % subjects}", b"%04d" % number + b"x" * 60)
        publisher.flush()


def numbers(peer):
    return [int(payload[:4]) for payload in peer.payloads]


def catch_up(peer, count):
    """Acknowledge again, and receive until each message has arrived or was reported."""
    peer.is_acking = True
    peer.until(lambda: len(peer.messages) + sum(gap.count for gap in peer.gaps) >= count)


@pytest.mark.parametrize("overflow", [None, "drop_newest", "drop_oldest"])
def test_policies_that_drop(make, join, overflow):
    publisher = make(**SMALL)
    slow, healthy = join(publisher, "a.*", overflow=overflow), join(publisher, "a.*", ready=False)
    healthy.ready()
    slow.is_acking = False
    thread = healthy.in_background(lambda: len(healthy.messages) >= 500)
    for number in range(500):
        publisher.publish("a.0", b"%04d" % number + b"x" * 60)
        publisher.flush()
        until(lambda number=number: len(healthy.messages) > number)
    thread.outcome()
    catch_up(slow, 500)
    got = numbers(slow)
    assert healthy.gaps == []
    assert len(got) + sum(gap.count for gap in slow.gaps) == 500
    assert got == sorted(got)
    assert len(got) >= 50
    # The window holds the first messages. Behind them the policy decides.
    assert (got[-1] == 499) is (overflow == "drop_oldest")
    assert publisher.stats.dropped["full"] == 500 - len(got)


def test_max_pending_is_the_bound_of_a_subscription(make, join):
    publisher = make(**SMALL)
    peer = join(publisher, "a.*", max_pending=5, overflow="drop_oldest")
    peer.is_acking = False
    publish(publisher, 200)
    catch_up(peer, 200)
    assert numbers(peer)[-5:] == list(range(195, 200))
    assert numbers(peer)[-6] < 100


def test_conflation_keeps_the_newest_of_each_subject(make, join):
    publisher = make(**SMALL)
    peer = join(publisher, "a.*", overflow="conflate")
    peer.is_acking = False
    publish(publisher, 200, subjects=4)
    catch_up(peer, 200)
    assert numbers(peer)[-4:] == [196, 197, 198, 199]
    assert publisher.stats.dropped["conflated"] == 200 - len(peer.messages)


def test_raise_refuses_the_message(make, join):
    publisher = make(on_full="raise", **SMALL)
    peer = join(publisher, "a.*")
    peer.is_acking = False
    with pytest.raises(WouldBlock, match=r"a\.0.*high_water_mark"):
        publish(publisher, 1_000)
    stats = publisher.stats
    assert stats.refused == 1
    assert stats.sent >= 50
    peer.is_acking = True
    assert len(peer.receive(stats.sent)) == stats.sent
    peer.until(lambda: not publisher.subscribers[0].pending)
    publisher.publish("a.0", b"last")
    assert peer.receive(stats.sent + 1)[-1] == b"last"
    assert peer.gaps == []


def test_block_waits_until_there_is_space(make, join):
    publisher = make(on_full="block", **SMALL)
    peer = join(publisher, "a.*")
    peer.is_acking = False
    thread = Thread(lambda: publish(publisher, 1_000))
    peer.until(lambda: publisher.subscribers[0].pending >= 60)
    peer.is_acking = True
    peer.receive(1_000)
    thread.outcome()
    assert numbers(peer) == list(range(1_000))
    assert peer.gaps == []


def test_block_ends_after_send_timeout(make, join):
    publisher = make(on_full="block", send_timeout=0.05, **SMALL)
    peer = join(publisher, "a.*")
    peer.is_acking = False
    with pytest.raises(WouldBlock):
        publish(publisher, 1_000)
    # A session without connection is not waited for.
    peer.close()
    until(lambda: publisher.subscribers[0].state == "down")
    publish(publisher, 100)


def test_a_subscription_with_a_policy_never_blocks(make, join):
    publisher = make(on_full="block", **SMALL)
    peer = join(publisher, "a.*", overflow="drop_newest")
    peer.is_acking = False
    publish(publisher, 1_000)
    catch_up(peer, 1_000)


def test_a_blocked_publisher_may_be_closed(make, join):
    publisher = make(on_full="block", **SMALL)
    peer = join(publisher, "a.*")
    peer.is_acking = False
    thread = Thread(lambda: publish(publisher, 1_000))
    peer.until(lambda: publisher.subscribers[0].pending >= 60)
    publisher.close(timeout=0)
    with pytest.raises(Exception, match="closed"):
        thread.outcome()
