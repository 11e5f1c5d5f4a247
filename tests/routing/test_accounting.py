"""Whatever the network does: what was published was delivered, or reported lost, or dropped."""

import time
from contextlib import suppress

import pytest

import oz
from support.fault_proxy import FaultProxy
from support.sizes import in_suite
from support.waiting import DEADLINE, Thread, until

FAULTS = 5
PACED = 50  # messages, then a moment for everybody


class Traffic:
    """Publishes on all the patterns in turn, until asked how much it was."""

    def __init__(self, pub, patterns):
        self._pub, self._patterns = pub, patterns
        self._is_over = False
        self._thread = Thread(self._run)

    def _run(self):
        count = 0
        while not self._is_over:
            for _ in range(PACED):
                self._pub.publish(f"n.{count % self._patterns}.x", bytes(200))
                count += 1
            time.sleep(0.001)
        self._pub.flush()
        return count

    def stop(self):
        self._is_over = True
        return self._thread.outcome()


class Account:
    """What a subscriber got, in which order of their numbers, and what it said it lost."""

    def __init__(self, pub_endpoint, patterns, overflow=None, **options):
        self.gaps = []
        self.sub = oz.Subscriber(pub_endpoint, filtering="publisher", on_gap=self.gaps.append, **options)
        for number in range(patterns):
            self.sub.subscribe(f"n.{number}.>", overflow=overflow)
        self.sub.wait_ready(timeout=DEADLINE)
        self.delivered = 0

    def take(self):
        with suppress(oz.Timeout):
            self.delivered += len(self.sub.receive_many(1_000, timeout=0.02))

    def settle(self, published):
        """Receive until all is accounted for, and see that nothing is accounted for twice."""

        def is_level():
            self.take()
            return self.delivered + self.sub.stats.lost + self.sub.stats.dropped >= published

        until(is_level)
        self.take()
        assert self.delivered + self.sub.stats.lost + self.sub.stats.dropped == published
        assert sum(gap.count for gap in self.gaps) == self.sub.stats.lost


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("high_water_mark", "shared", "patterns", "seed"),
    in_suite(
        [(1, True, 15, 2), (1, False, 1, 4), (10, True, 1, 4), (10, False, 15, 2), (None, True, 15, 2)],
        [
            (1, True, 1, 4), (1, False, 15, 2), (10, True, 15, 2), (10, False, 1, 4),
            (None, True, 1, 4), (None, False, 1, 4), (None, False, 15, 2),
        ],
    ),
)  # fmt: skip
def test_all_is_delivered_or_reported_whatever_the_network_does(patterns, seed, shared, high_water_mark):
    with (
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=high_water_mark) as pub,
        FaultProxy(pub.endpoint, seed) as proxy,
    ):
        account = Account(proxy.endpoint, patterns, shared=shared, high_water_mark=high_water_mark)
        with account.sub:
            traffic = Traffic(pub, patterns)
            shaking = Thread(lambda: proxy.shake(FAULTS))
            while shaking.is_alive():
                account.take()
            shaking.outcome()
            account.settle(traffic.stop())
        # Whatever is still half open is not waited for.
        proxy.release()


@pytest.mark.parametrize("overflow", in_suite(["drop_oldest"], ["drop_newest"]))
def test_what_a_keep_drops_is_counted_whatever_the_network_does(overflow):
    with (
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=10) as pub,
        FaultProxy(pub.endpoint, 2) as proxy,
    ):
        account = Account(proxy.endpoint, 1, overflow, high_water_mark=10)
        with account.sub:
            traffic = Traffic(pub, 1)
            shaking = Thread(lambda: proxy.shake(FAULTS))
            while shaking.is_alive():
                account.take()
            shaking.outcome()
            account.settle(traffic.stop())
        proxy.release()
