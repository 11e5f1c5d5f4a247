"""`ack="handled"`: what counts as handled, with handlers one by one and at once."""

import asyncio
import threading

import pytest

from oz.errors import Timeout
from oz.subscriber import aio, sync
from support.waiting import Thread, until


def marks(publisher):
    """Return the mark of each stream of the only session."""

    def call():
        (session,) = publisher.sessions.by_id.values()
        return [stream.mark for stream in session.streams.values()]

    return publisher.do(call)


def settle(sub, publisher, expected):
    until(lambda: sub.run(timeout=0.03) is not None and marks(publisher) == expected)


def subscribed(make, publisher, handler=None):
    sub = make(publisher.endpoint, filtering="publisher")
    one = sub.subscribe("a", handler, ack="handled")
    sub.wait_ready()
    return sub, one


def test_a_message_in_hand_is_not_handled(make, publisher):
    sub, _ = subscribed(make, publisher)
    publisher.publish_numbers("a", range(3))
    assert [int(sub.receive(timeout=10).payload) for _ in range(2)] == [0, 1]
    settle(sub, publisher, [1])
    assert int(sub.receive(timeout=10).payload) == 2
    settle(sub, publisher, [2])
    with pytest.raises(Timeout):
        sub.receive(timeout=0)
    settle(sub, publisher, [3])


def test_ack_handles_a_message_at_once(make, publisher):
    sub, _ = subscribed(make, publisher)
    publisher.publish_numbers("a", range(3))
    message = sub.receive(timeout=10)
    message.ack()
    message.ack()
    settle(sub, publisher, [1])


def test_ack_of_messages_that_are_handled_has_no_effect(make, publisher):
    sub, one = subscribed(make, publisher)
    publisher.publish_numbers("a", range(3))
    first = one.receive(timeout=10)
    second = one.receive(timeout=10)
    third = one.receive(timeout=10)
    settle(sub, publisher, [2])
    second.ack()
    third.ack()
    first.ack()
    settle(sub, publisher, [3])


def test_a_handler_that_raises_has_handled(make, publisher):
    seen = []

    def fail(message):
        seen.append(message)
        raise ValueError

    sub, _ = subscribed(make, publisher, fail)
    publisher.publish_numbers("a", range(3))
    until(lambda: sub.run(timeout=0.03) is not None and len(seen) == 3)
    settle(sub, publisher, [3])


def test_an_unsubscribed_message_passes_the_mark(make, publisher):
    sub, one = subscribed(make, publisher)
    publisher.publish_numbers("a", range(3))
    one.receive(timeout=10)
    until(lambda: sub.run(timeout=0.03) is not None and one.pending == 2)
    one.unsubscribe()
    sub.wait_ready()
    with pytest.raises(Timeout):
        sub.receive(timeout=0)
    settle(sub, publisher, [3])


def test_handlers_of_several_threads(publisher):
    begun, go, lock = [], threading.Event(), threading.Lock()

    def handle(message):
        with lock:
            begun.append(int(message.payload))
        if message.payload == b"0":
            assert go.wait(40)

    with sync.Subscriber(publisher.endpoint) as sub:
        sub.subscribe("a", handle, ack="handled")
        sub.wait_ready()
        threads = [Thread(sub.run) for _ in range(3)]
        publisher.publish_numbers("a", range(50))
        until(lambda: len(begun) == 50)
        # The first handler has not returned.
        assert marks(publisher) == [0]
        go.set()
        until(lambda: marks(publisher) == [50])
        sub.close()
        for one in threads:
            one.outcome()
    assert sorted(begun) == list(range(50))


def test_handlers_of_several_subscriptions_run_at_once_in_a_loop(publisher):
    async def main():
        go, seen = asyncio.Event(), []

        async def wait(message):
            await go.wait()

        async def note(message):
            seen.append(int(message.payload))

        async with aio.Subscriber(publisher.endpoint) as sub:
            sub.subscribe("a", wait, ack="handled")
            sub.subscribe("a", note, ack="handled")
            await sub.wait_ready()
            await asyncio.to_thread(publisher.publish_numbers, "a", range(5))
            while len(seen) < 5:
                await asyncio.sleep(0.01)
            # Each message belongs to both handlers.
            assert await asyncio.to_thread(marks, publisher) == [0]
            go.set()
            while await asyncio.to_thread(marks, publisher) != [5]:
                await asyncio.sleep(0.01)

    asyncio.run(main())
