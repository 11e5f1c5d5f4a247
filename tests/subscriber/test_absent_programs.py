"""Programs that do not call oz for a while lose no message that a buffer holds."""

import time

import pytest

from oz.errors import ClosedError
from oz.options import Options
from oz.publisher.sync import Publisher
from subscriber.publishing import LinkPublisher, free_endpoint
from support.waiting import until

ABSENCE = 4.0
"""Seconds without a call: longer than the silence after which a link is replaced, and than `RESUME_SECONDS` + 2."""
RESUME_SECONDS = 1.0
COUNT = 1_000
OPTIONS = Options(resume_seconds=RESUME_SECONDS)


def publish_numbers(publisher, numbers):
    for number in numbers:
        publisher.publish("a", b"%d" % number)


@pytest.mark.parametrize("filtering", ["auto", "publisher"])
def test_a_program_may_sleep_between_subscribe_and_receive(make, filtering):
    gaps = []
    with Publisher("tcp://127.0.0.1:*", options=OPTIONS) as publisher:
        sub = make(publisher.endpoint, filtering=filtering, on_gap=gaps.append, options=OPTIONS)
        sub.subscribe("a")
        # The subscription arrives although the program does not call the subscriber.
        publisher.wait_for_subscribers("a")
        publish_numbers(publisher, range(COUNT))
        time.sleep(ABSENCE)
        publish_numbers(publisher, range(COUNT, 2 * COUNT))
        numbers = [int(sub.receive(timeout=40).payload) for _ in range(2 * COUNT)]
    assert numbers == list(range(2 * COUNT))
    assert gaps == []


@pytest.mark.parametrize("ack", ["received", "handled"])
def test_a_handler_may_run_for_longer_than_the_limits(make, ack):
    gaps, numbers = [], []
    with Publisher("tcp://127.0.0.1:*", options=OPTIONS) as publisher:

        def handle(message):
            numbers.append(int(message.payload))
            if len(numbers) == 1:
                publish_numbers(publisher, range(COUNT, 2 * COUNT))
                time.sleep(ABSENCE)

        sub = make(publisher.endpoint, on_gap=gaps.append, options=OPTIONS)
        sub.subscribe("a", handle, ack=ack)
        sub.wait_ready()
        publish_numbers(publisher, range(COUNT))
        until(lambda: sub.run(timeout=0.02) is not None and len(numbers) == 2 * COUNT)
        assert [one.state for one in publisher.subscribers] == ["up"]
    assert numbers == list(range(2 * COUNT))
    assert gaps == []


def closed(publisher):
    publisher.close(timeout=0.5)


def killed(publisher):
    publisher.kill()


@pytest.mark.parametrize(
    ("start", "end", "gap"),
    [
        (lambda endpoint: Publisher(endpoint, options=OPTIONS), closed, []),
        (
            lambda endpoint: LinkPublisher(endpoint, resume_seconds=RESUME_SECONDS),
            killed,
            [(None, "restarted")],
        ),
    ],
    ids=["closed", "killed"],
)
def test_a_handler_that_runs_during_a_restart_of_the_publisher_loses_nothing_that_had_arrived(
    make, start, end, gap
):
    endpoint, gaps, received = free_endpoint(), [], []
    publishers = [start(endpoint)]

    def handle(message):
        received.append(int(message.payload))
        if len(received) == 1:
            end(publishers[0])
            publishers.append(start(endpoint))
            time.sleep(ABSENCE)

    try:
        sub = make(endpoint, filtering="publisher", on_gap=gaps.append, options=OPTIONS)
        sub.subscribe("a", handle)
        sub.wait_ready()
        first = publishers[0]
        if isinstance(first, LinkPublisher):
            # One frame, because a killed publisher loses the frames that it has not sent.
            first.publish_numbers("a", range(COUNT), batch=COUNT)
        else:
            publish_numbers(first, range(COUNT))
        until(lambda: sub.run(timeout=0.02) is not None and len(received) >= COUNT)
        assert received == list(range(COUNT))
        until(lambda: sub.run(timeout=0.02) is not None and is_served(sub, publishers[1]))
        second = publishers[1]
        if isinstance(second, LinkPublisher):
            second.publish_numbers("a", [COUNT])
        else:
            publish_numbers(second, [COUNT])
        until(lambda: sub.run(timeout=0.02) is not None and received[-1] == COUNT)
        assert [(one.count, one.reason) for one in gaps] == gap
    finally:
        for one in publishers:
            one.close()


def is_served(sub, publisher):
    if isinstance(publisher, Publisher):
        return publisher.has_subscribers("a")
    return sub.publishers[0].origin == publisher.origin and not sub._engine.missing()


def test_receive_after_close_is_refused(make, publisher):
    sub = make(publisher.endpoint)
    subscription = sub.subscribe("a")
    sub.wait_ready()
    publisher.publish("a")
    until(lambda: sub.run(timeout=0.02) is not None and subscription.pending)
    sub.close()
    for call in (sub.receive, subscription.receive):
        with pytest.raises(ClosedError):
            call(timeout=1)
