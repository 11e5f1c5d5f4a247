"""What becomes of the last messages when a publisher closes: they are delivered, or reported lost."""

import time
from contextlib import suppress

import pytest

import oz
from oz.protocol.publisher.batches import Batches
from support.sizes import size
from support.waiting import DEADLINE, Thread, until

STREAMS = 15
FILLER = bytes(5_000)


def ready(pub, **options):
    sub = oz.Subscriber(pub.endpoint, filtering="publisher", **options)
    for number in range(STREAMS):
        sub.subscribe(f"n.{number}")
    sub.wait_ready(timeout=DEADLINE)
    return sub


def take(sub):
    with suppress(oz.Timeout):
        sub.receive_many(1_000, timeout=0.02)
    return sub.stats.delivered + sub.stats.lost


def fill(pub):
    """Publish until there is no room, and well beyond; how many messages."""
    count = 0
    while not pub.stats.missed or count < 3_000:
        pub.publish(f"n.{count % STREAMS}", FILLER)
        pub.flush()
        count += 1
    return count


@pytest.mark.parametrize("shared", [False, True], ids=["plain", "shared"])
def test_a_full_subscriber_learns_of_lost_messages_when_the_publisher_closes(shared):
    pub = oz.Publisher("tcp://127.0.0.1:*", high_water_mark=2)
    with ready(pub, shared=shared, high_water_mark=2) as sub:
        published = fill(pub)
        closing = Thread(lambda: pub.close(timeout=DEADLINE))
        # It would have given up by then, before it waited.
        closing.join(0.3)
        until(lambda: take(sub) >= published)
        assert sub.stats.delivered + sub.stats.lost == published
        closing.outcome()
        take(sub)
        assert sub.stats.delivered + sub.stats.lost == published


def test_a_shared_subscriber_that_was_left_out_learns_it_when_the_publisher_closes():
    pub = oz.Publisher("tcp://127.0.0.1:*", high_water_mark=2)
    with (
        ready(pub, shared=True, high_water_mark=2) as slow,
        ready(pub, shared=True, high_water_mark=2) as other,
    ):
        published = fill(pub)
        until(lambda: take(other) >= published)
        closing = Thread(lambda: pub.close(timeout=DEADLINE))
        # It would have given up by then, before it waited.
        closing.join(0.3)
        until(lambda: take(slow) >= published and take(other) >= published)
        closing.outcome()
        for sub in (slow, other):
            assert take(sub) == published


def test_closing_has_an_end_though_a_subscriber_takes_nothing():
    pub = oz.Publisher("tcp://127.0.0.1:*", high_water_mark=2)
    with ready(pub, shared=True, high_water_mark=2):
        fill(pub)
        started = time.monotonic()
        pub.close(timeout=0.2)
        assert time.monotonic() - started < DEADLINE


@pytest.mark.sized
@pytest.mark.parametrize("attempt", range(size(3, 10)))
def test_what_was_published_while_another_thread_closes_is_delivered(attempt):
    pub = oz.Publisher("tcp://127.0.0.1:*")
    gaps = []

    def publish():
        count = 0
        try:
            while True:
                pub.publish("n.1", b"x")
                count += 1
        except oz.ClosedError:
            return count

    with oz.Subscriber(pub.endpoint, filtering="publisher", on_gap=gaps.append) as sub:
        sub.subscribe("n.*")
        sub.wait_ready(timeout=DEADLINE)
        threads = [Thread(publish) for _ in range(2)]
        until(lambda: take(sub) > 2_000 + 100 * attempt)
        closing = Thread(lambda: pub.close(timeout=DEADLINE))
        until(lambda: take(sub) < 0 or not closing.is_alive())
        returned = sum(one.outcome() for one in threads)
        until(lambda: take(sub) >= returned)
        take(sub)
        # A call that was refused may have been in time after all, one in each thread.
        assert returned <= sub.stats.delivered <= returned + len(threads)
    assert gaps == []


def test_what_a_handler_that_closes_cuts_short_is_delivered_or_reported(monkeypatch):
    pub = oz.Publisher("tcp://127.0.0.1:*")
    gaps = [], []
    subs = [oz.Subscriber(pub.endpoint, filtering="publisher", on_gap=one.append) for one in gaps]
    for sub in subs:
        sub.subscribe("a")
        sub.wait_ready(timeout=DEADLINE)
    pub.publish("a", b"1")
    send, sent = Batches._send_batch, []

    def interrupted(*args, **options):
        sent.append(send(*args, **options))
        if len(sent) == 1:
            # As a signal handler does that runs between the first subscriber's batch and the second's.
            pub.close(timeout=DEADLINE)

    with suppress(oz.ClosedError), pub.batch():
        monkeypatch.setattr(Batches, "_send_batch", interrupted)
        pub.publish("a", b"2")
        pub.publish("a", b"3")
        pub.flush()
    for sub, told in zip(subs, gaps, strict=True):
        with sub:
            until(lambda sub=sub, told=told: take(sub) == 3 or any(gap.count is None for gap in told))
    assert sent
    assert pub.closed
