"""Life of a subscriber: threads, handlers, garbage, the end of a loop or a context, descriptors."""

import asyncio
import gc
import os
import sys
import threading

import pytest
import zmq

import oz
from oz.errors import ClosedError
from oz.options import Delivery, Options
from oz.subscriber import aio, sync
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def sub(feed):
    with sync.Subscriber(feed.endpoint, filtering="publisher") as made:
        yield made


def ready(sub, *patterns):
    for pattern in patterns:
        sub.subscribe(pattern)
    sub.wait_ready(timeout=DEADLINE)


@pytest.mark.parametrize("wait", ["receive", "run", "iterate", "own"])
def test_close_ends_a_wait_of_another_thread(sub, wait):
    made = sub.subscribe("a")
    sub.wait_ready(timeout=DEADLINE)
    calls = {"receive": sub.receive, "run": sub.run, "iterate": lambda: list(sub), "own": made.receive}
    threads = [Thread(calls[wait]) for _ in range(2)]
    for thread in threads:
        thread.wait_until_stuck()
    sub.close()
    for thread in threads:
        if wait in ("receive", "own"):
            with pytest.raises(ClosedError):
                thread.outcome()
        else:
            assert thread.outcome() in (0, [])


def test_a_thread_subscribes_while_another_waits(sub, feed):
    ready(sub, "a")
    thread = Thread(lambda: sub.receive(timeout=DEADLINE))
    thread.wait_until_stuck()
    sub.subscribe("b")
    feed.wait_for_patterns(2)
    feed.publish("b")
    assert thread.outcome().subject == "b"


def test_threads_share_the_messages(sub, feed):
    ready(sub, "a")
    got, lock = [], threading.Lock()

    def work():
        while True:
            try:
                message = sub.receive(timeout=DEADLINE)
            except ClosedError:
                return
            with lock:
                got.append(int(message.payload))

    threads = [Thread(work) for _ in range(4)]
    for first in range(0, 5_000, 500):
        feed.publish_numbers("a", range(first, first + 500), batch=10)
    until(lambda: len(got) >= 5_000)
    sub.close()
    for thread in threads:
        thread.outcome()
    assert sorted(got) == list(range(5_000))


def test_a_full_queue_blocks_other_subscriptions_only_until_it_is_read(sub, feed):
    full = sub.subscribe("a", delivery=Delivery(max_pending=10))
    other = sub.subscribe("b")
    sub.wait_ready(timeout=DEADLINE)
    feed.publish("a", "b")
    assert full.receive(timeout=DEADLINE).subject == "a"
    assert other.receive(timeout=DEADLINE).subject == "b"
    for _ in range(200):
        feed.publish("a")
    feed.publish("b")
    thread = Thread(lambda: other.receive(timeout=DEADLINE))
    until(lambda: full.pending >= 10)
    thread.wait_until_stuck()
    # Reading continues as the program takes messages of the full queue.
    assert [full.receive(timeout=DEADLINE).subject for _ in range(200)] == ["a"] * 200
    assert thread.outcome().subject == "b"


def test_close_ends_waits_and_cancels_handlers_in_a_loop(feed):
    async def main():
        sub = aio.Subscriber(feed.endpoint)
        begun, cancelled = asyncio.Event(), []

        async def handle(message):
            begun.set()
            try:
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                cancelled.append(message.subject)
                raise

        await sub.subscribe("a", handle)
        await sub.subscribe("b")
        await sub.wait_ready(timeout=DEADLINE)
        waiting = asyncio.create_task(sub.receive())
        await asyncio.to_thread(feed.publish, "a")
        await begun.wait()
        await sub.close()
        with pytest.raises(ClosedError):
            await waiting
        assert cancelled == ["a"]

    asyncio.run(main())


def test_subscribing_before_the_loop_runs(feed):
    seen = []
    sub = aio.Subscriber(feed.endpoint)
    sub.subscribe("a", seen.append)

    async def main():
        await sub.wait_ready(timeout=DEADLINE)
        await asyncio.to_thread(feed.publish, "a")
        while not seen:
            await sub.run(timeout=0.05)
        await sub.close()

    asyncio.run(main())
    assert [message.subject for message in seen] == ["a"]


def test_many_subscribers_leave_no_descriptors(feed):
    def count():
        return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0

    def once():
        with sync.Subscriber(feed.endpoint) as sub:
            ready(sub, "a")

    once()
    before = count()
    for _ in range(10):
        once()
    until(lambda: count() <= before)


CALLS = {
    "receive": lambda sub, item: sub.receive(timeout=0),
    "receive_many": lambda sub, item: sub.receive_many(timeout=0),
    "receive of a subscription": lambda sub, item: item.receive(timeout=0),
    "drain": lambda sub, item: sub.drain(timeout=0),
    "drain of a subscription": lambda sub, item: item.drain(timeout=0),
    "subscribe": lambda sub, item: sub.subscribe("b"),
    "unsubscribe": lambda sub, item: item.unsubscribe(),
    "connect": lambda sub, item: sub.connect("tcp://127.0.0.1:9"),
    "bind": lambda sub, item: sub.bind("tcp://127.0.0.1:*"),
    "disconnect": lambda sub, item: sub.disconnect(sub.endpoint),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_destruction_of_its_context_is_a_closed_error_in_each_call(make, feed, call):
    context, foreign = zmq.Context(), zmq.Context()
    plain = foreign.socket(zmq.PUB)
    port = plain.bind_to_random_port("tcp://127.0.0.1")
    sub = make([feed.endpoint, f"tcp://127.0.0.1:{port}"], context=context)
    made = sub.subscribe("a")
    sub.wait_ready(timeout=DEADLINE)
    context.destroy(0)
    for _ in range(2):
        with pytest.raises(ClosedError):
            CALLS[call](sub, made)
    sub.close()
    plain.close(0)
    foreign.term()


def test_the_end_of_its_context_closes_a_subscriber_of_asyncio(feed):
    context, errors = zmq.Context(), []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, about: errors.append(about))
        async with aio.Subscriber(feed.endpoint, context=context) as sub:
            sub.subscribe("a")
            await sub.wait_ready(timeout=DEADLINE)
            waiting = asyncio.create_task(sub.receive())
            await asyncio.sleep(0)
            ending = Thread(context.term)
            with pytest.raises(ClosedError):
                await waiting
            ending.outcome()

    asyncio.run(main())
    assert errors == []


def test_a_subscriber_that_is_garbage_sends_bye_although_its_sockets_are_finalized_first():
    gc.collect()
    gc.disable()
    try:
        with oz.Publisher("tcp://127.0.0.1:*", options=Options(resume_seconds=600.0)) as publisher:
            sub = sync.Subscriber(filtering="publisher")
            # The subscriber moves to an older generation than its sockets, which a full collection finalizes
            # after generation 0.
            gc.collect(0)
            sub.connect(publisher.endpoint)
            ready(sub, "a")
            publisher.wait_for_subscribers(timeout=DEADLINE)
            del sub
            with pytest.warns(ResourceWarning, match="unclosed <oz.Subscriber"):  # noqa: PT031
                gc.collect()
                until(lambda: not publisher.has_subscribers("a"), 5)
    finally:
        gc.enable()
