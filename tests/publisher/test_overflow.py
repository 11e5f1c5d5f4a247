"""Subscribers that are too slow: overflow policies, block and raise."""

import pytest

from support.waiting import Thread

SMALL = {"resume_bytes": 1_000, "high_water_mark": 50}


def publish(publisher, count, subjects=1):
    for number in range(count):
        publisher.publish(f"a.{number % subjects}", b"%04d" % number + b"x" * 60)
        publisher.flush()


def test_a_blocked_publisher_may_be_closed(make, join):
    publisher = make(on_full="block", **SMALL)
    peer = join(publisher, "a.*")
    peer.is_acking = False
    thread = Thread(lambda: publish(publisher, 1_000))
    peer.until(lambda: publisher.subscribers[0].pending >= 60)
    publisher.close(timeout=0)
    with pytest.raises(Exception, match="closed"):
        thread.outcome()
