"""Programs that do not call oz for a while lose no message that a buffer holds."""

import time

import pytest

from oz.options import Options
from support.waiting import DEADLINE, until

ABSENCE = 4.0
"""Seconds without a call: longer than the silence after which a link is replaced, and than `RESUME_SECONDS` + 2."""
RESUME_SECONDS = 1.0
COUNT = 1_000
OPTIONS = Options(resume_seconds=RESUME_SECONDS)


@pytest.mark.parametrize("kind", ["sync"])
def test_a_program_may_sleep_between_subscribe_and_receive(make, open_feed):
    gaps, feed = [], open_feed(options=OPTIONS)
    sub = make(feed.endpoint, filtering="publisher", on_gap=gaps.append, options=OPTIONS)
    sub.subscribe("a")
    # The subscription arrives although the program does not call the subscriber.
    feed.wait_for_patterns()
    feed.publish_numbers("a", range(COUNT), batch=100)
    time.sleep(ABSENCE)
    feed.publish_numbers("a", range(COUNT, 2 * COUNT), batch=100)
    assert [int(sub.receive(timeout=DEADLINE).payload) for _ in range(2 * COUNT)] == list(range(2 * COUNT))
    assert gaps == []


@pytest.mark.parametrize("kind", ["asyncio"])
def test_a_handler_may_run_for_longer_than_the_limits(make, open_feed):
    gaps, numbers, feed = [], [], open_feed(options=OPTIONS)

    def handle(message):
        numbers.append(int(message.payload))
        if len(numbers) == 1:
            feed.publish_numbers("a", range(COUNT, 2 * COUNT), batch=100)
            time.sleep(ABSENCE)

    sub = make(feed.endpoint, on_gap=gaps.append, options=OPTIONS)
    sub.subscribe("a", handle, ack="handled")
    sub.wait_ready(timeout=DEADLINE)
    feed.publish_numbers("a", range(COUNT), batch=100)
    until(lambda: sub.run(timeout=0.02) is not None and len(numbers) == 2 * COUNT)
    assert [subscriber.state for subscriber in feed.publisher.subscribers] == ["up"]
    assert numbers == list(range(2 * COUNT))
    assert gaps == []
