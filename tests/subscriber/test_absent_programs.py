"""Programs that do not call oz for a while lose no message that a buffer holds."""

import time

import pytest

from oz.errors import ClosedError
from oz.options import Options
from subscriber.publishing import Feed, free_endpoint
from support.waiting import until

ABSENCE = 4.0
"""Seconds without a call: longer than the silence after which a link is replaced, and than `RESUME_SECONDS` + 2."""
RESUME_SECONDS = 1.0
COUNT = 1_000
OPTIONS = Options(resume_seconds=RESUME_SECONDS)


@pytest.mark.parametrize("make", ["sync"], indirect=True)
def test_a_program_may_sleep_between_subscribe_and_receive(make, open_feed):
    gaps, feed = [], open_feed(options=OPTIONS)
    sub = make(feed.endpoint, filtering="publisher", on_gap=gaps.append, options=OPTIONS)
    sub.subscribe("a")
    # The subscription arrives although the program does not call the subscriber.
    feed.wait_for_patterns()
    feed.publish_numbers("a", range(COUNT), batch=100)
    time.sleep(ABSENCE)
    feed.publish_numbers("a", range(COUNT, 2 * COUNT), batch=100)
    assert [int(sub.receive(timeout=40).payload) for _ in range(2 * COUNT)] == list(range(2 * COUNT))
    assert gaps == []


@pytest.mark.parametrize("make", ["asyncio"], indirect=True)
def test_a_handler_may_run_for_longer_than_the_limits(make, open_feed):
    gaps, numbers, feed = [], [], open_feed(options=OPTIONS)

    def handle(message):
        numbers.append(int(message.payload))
        if len(numbers) == 1:
            feed.publish_numbers("a", range(COUNT, 2 * COUNT), batch=100)
            time.sleep(ABSENCE)

    sub = make(feed.endpoint, on_gap=gaps.append, options=OPTIONS)
    sub.subscribe("a", handle, ack="handled")
    sub.wait_ready()
    feed.publish_numbers("a", range(COUNT), batch=100)
    until(lambda: sub.run(timeout=0.02) is not None and len(numbers) == 2 * COUNT)
    assert [one.state for one in feed.publisher.subscribers] == ["up"]
    assert numbers == list(range(2 * COUNT))
    assert gaps == []


@pytest.mark.parametrize(
    ("make", "end", "gap"),
    [("sync", Feed.close, []), ("asyncio", Feed.kill, [(None, "restarted")])],
    ids=["closed", "killed"],
    indirect=["make"],
)
def test_a_handler_that_runs_during_a_restart_of_the_publisher_loses_nothing_that_had_arrived(
    make, open_feed, end, gap
):
    endpoint, gaps, received = free_endpoint(), [], []
    feeds = [open_feed(endpoint, options=OPTIONS)]

    def handle(message):
        received.append(int(message.payload))
        if len(received) == 1:
            end(feeds[0])
            feeds.append(open_feed(endpoint, options=OPTIONS))
            time.sleep(ABSENCE)

    sub = make(endpoint, filtering="publisher", on_gap=gaps.append, options=OPTIONS)
    sub.subscribe("a", handle)
    sub.wait_ready()
    # One frame, because a killed publisher loses the frames that it has not sent.
    feeds[0].publish_numbers("a", range(COUNT), batch=COUNT)
    until(lambda: sub.run(timeout=0.02) is not None and len(received) >= COUNT)
    assert received == list(range(COUNT))
    until(lambda: sub.run(timeout=0.02) is not None and feeds[1].publisher.has_subscribers("a"))
    feeds[1].publish_numbers("a", [COUNT])
    until(lambda: sub.run(timeout=0.02) is not None and received[-1] == COUNT)
    assert [(one.count, one.reason) for one in gaps] == gap


def test_receive_after_close_is_refused(make, feed):
    sub = make(feed.endpoint)
    subscription = sub.subscribe("a")
    sub.wait_ready()
    feed.publish("a")
    until(lambda: sub.run(timeout=0.02) is not None and subscription.pending)
    sub.close()
    for call in (sub.receive, subscription.receive):
        with pytest.raises(ClosedError):
            call(timeout=1)
