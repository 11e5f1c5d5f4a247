"""One subscriber that takes nothing, beside others that do; and one that stands in its own way."""

from contextlib import suppress

import pytest

import oz
from support.fault_proxy import FaultProxy
from support.sizes import in_suite
from support.waiting import DEADLINE, until

FILLER = bytes(20_000)


def counted(sub):
    """Receive what is there; how many messages were delivered or reported lost in all."""
    with suppress(oz.Timeout):
        sub.receive_many(1_000, timeout=0.01)
    return sub.stats.delivered + sub.stats.lost


@pytest.fixture
def opened():
    """Make subscribers of all that is published."""
    subs = []

    def make(endpoint, *, patterns=1, **options):
        sub = oz.Subscriber(endpoint, filtering="publisher", **options)
        subs.append(sub)
        for number in range(patterns):
            sub.subscribe(f"n.{number}")
        sub.wait_ready(timeout=DEADLINE)
        return sub

    yield make
    for one in subs:
        one.close(linger=0)


def publish_beside(pub, readers, count):
    """Publish at the pace of those who read."""
    published = readers[0].stats.delivered + readers[0].stats.lost
    for _ in range(count):
        pub.publish("n.0", FILLER)
        pub.flush()
        published += 1
        until(lambda: all(counted(one) >= published for one in readers))  # noqa: B023
    return published


def fill(pub, readers):
    """Publish until whoever does not read has no room left."""
    published = 0
    while not pub.stats.missed:
        published = publish_beside(pub, readers, 10)
    return published


def test_one_stuck_subscriber_of_a_shared_pattern_costs_the_others_nothing(opened):
    with oz.Publisher("tcp://127.0.0.1:*", high_water_mark=10) as pub:
        stuck, *readers = (opened(pub.endpoint, shared=True, high_water_mark=10) for _ in range(3))
        fill(pub, readers)
        published = publish_beside(pub, readers, 100)
        assert [one.stats.lost for one in readers] == [0, 0]
        until(lambda: counted(stuck) >= published)
        assert stuck.stats.delivered + stuck.stats.lost == published
        assert stuck.stats.lost > 0
        pub.close(timeout=0.1)


def test_the_tail_of_a_shared_pattern_shows_beside_a_stuck_subscriber(opened):
    with oz.Publisher("tcp://127.0.0.1:*", high_water_mark=5) as pub:
        stuck = opened(pub.endpoint, shared=True, high_water_mark=5)
        slow = opened(pub.endpoint, shared=True, high_water_mark=5)
        count = 0
        # Whoever was left out is not counted again, until there was room for it once more.
        while not pub.stats.missed or count < 1_000:
            pub.publish("n.0", FILLER)
            pub.flush()
            count += 1
        until(lambda: counted(slow) >= count)
        assert slow.stats.delivered + slow.stats.lost == count
        until(lambda: counted(stuck) >= count)
        assert stuck.stats.delivered + stuck.stats.lost == count
        pub.close(timeout=0.1)


@pytest.mark.parametrize("shared", [False, True], ids=["plain", "shared"])
def test_a_subscriber_that_came_back_is_not_starved_by_its_own_dead_connection(opened, shared):
    with oz.Publisher("tcp://127.0.0.1:*", high_water_mark=5) as pub, FaultProxy(pub.endpoint) as proxy:
        sub = opened(proxy.endpoint, shared=shared, high_water_mark=5)
        proxy.half_open()
        published = 0
        # Until the dead one is full, and well beyond.
        while not pub.stats.missed or published < 500:
            pub.publish("n.0", FILLER)
            pub.flush()
            published += 1
            counted(sub)
        before = sub.stats.delivered
        until(lambda: counted(sub) >= published)
        for _ in range(20):
            pub.publish("n.0")
            pub.flush()
            published += 1
            until(lambda: counted(sub) >= published)  # noqa: B023
        assert sub.stats.delivered + sub.stats.lost == published
        assert sub.stats.delivered > before
        pub.close(timeout=0.1)


@pytest.mark.parametrize("overflow", in_suite(["drop_oldest"], ["conflate", "drop_newest"]))
def test_a_keep_is_not_starved_by_a_dead_connection_either(overflow):
    with (
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=2) as pub,
        FaultProxy(pub.endpoint) as proxy,
        oz.Subscriber(proxy.endpoint, filtering="publisher", high_water_mark=2) as sub,
    ):
        sub.subscribe("n.*", overflow=overflow)
        sub.wait_ready(timeout=DEADLINE)
        proxy.half_open()
        for number in range(500):
            pub.publish(f"n.{number % 3}", FILLER)
            pub.flush()

        def hears_what_is_new():
            pub.publish("n.new", b"new")
            pub.flush()
            try:
                return any(one.payload == b"new" for one in sub.receive_many(1_000, timeout=0.02))
            except oz.Timeout:
                return False

        until(hears_what_is_new)
        pub.close(timeout=0.1)


def test_a_member_of_a_group_is_not_starved_by_its_own_dead_connection():
    with (
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=2) as pub,
        FaultProxy(pub.endpoint) as proxy,
        oz.Subscriber(proxy.endpoint, filtering="publisher", high_water_mark=2) as sub,
        oz.Subscriber(pub.endpoint, filtering="publisher") as other,
    ):
        for one in (sub, other):
            one.subscribe("n.*", group="g")
            one.wait_ready(timeout=DEADLINE)
        proxy.half_open()

        def is_served():
            for _ in range(20):
                pub.publish("n.0", FILLER)
            pub.flush()
            counted(other)
            before = sub.stats.delivered
            counted(sub)
            return sub.stats.delivered > before

        for _ in range(20):
            until(is_served)
        pub.close(timeout=0.1)


def test_a_publisher_that_blocks_leaves_nobody_out(opened):
    with oz.Publisher(
        "tcp://127.0.0.1:*", high_water_mark=5, on_full="block", full_timeout=0.05, max_batch=1
    ) as pub:
        stuck, reader = (opened(pub.endpoint, shared=True, high_water_mark=5) for _ in range(2))
        published = 0
        with suppress(oz.WouldBlock):
            while True:
                pub.publish("n.0", FILLER)
                published += 1
                counted(reader)
        until(lambda: counted(stuck) >= published and counted(reader) >= published)
        assert (stuck.stats.lost, reader.stats.lost) == (0, 0)
        assert (stuck.stats.delivered, reader.stats.delivered) == (published, published)
