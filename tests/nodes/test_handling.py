"""Handlers of nodes: order, concurrency, overflow, drain, close, acknowledgement."""

import asyncio
import threading
import time
from collections import Counter

import pytest

from oz.errors import PeerLost
from oz.node.aio import Node as AsyncNode
from oz.options import Delivery, NodeOptions
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def pair(make):
    """A subscriber and a publisher that know each other."""
    subscriber, publisher = make("subscriber"), make("publisher")
    subscriber.wait_ready("publisher", timeout=DEADLINE)
    publisher.wait_ready("subscriber", timeout=DEADLINE)
    return subscriber, publisher


class Gate:
    """Handler that records its messages and waits until it is opened. In a loop it awaits."""

    def __init__(self, node):
        self.seen, self.entered, self.opened = [], threading.Semaphore(0), threading.Event()
        self._is_asyncio = type(node).__name__ == "Looped"

    def __call__(self, message):
        self.seen.append(message.payload)
        self.entered.release()
        return self._wait_in_loop() if self._is_asyncio else self._wait()

    def _wait(self):
        assert self.opened.wait(DEADLINE)

    async def _wait_in_loop(self):
        await asyncio.to_thread(self._wait)

    def wait_until_entered(self):
        assert self.entered.acquire(timeout=DEADLINE)


def subscribe(pair, subject, handler, **options):
    subscriber, _ = pair
    subscription = subscriber.subscribe(subject, handler, **options)
    subscriber.wait_ready("publisher", timeout=DEADLINE)
    return subscription


def test_a_slow_handler_does_not_delay_other_handlers_and_is_reported(make):
    events = []
    subscriber, publisher = make("subscriber", on_event=events.append), make("publisher")
    gate, seen = Gate(subscriber), []
    slow = subscriber.subscribe("x", gate, delivery=Delivery(max_pending=5))
    subscriber.subscribe("x", lambda message: seen.append(message.payload))
    subscriber.wait_ready("publisher", timeout=DEADLINE)
    publisher.wait_ready("subscriber", timeout=DEADLINE)
    publisher.publish("x", 0)
    gate.wait_until_entered()
    for number in range(1, 20):
        publisher.publish("x", number)
    until(lambda: len(seen) == 20)
    assert (slow.pending, slow.dropped) == (5, 14)
    # Drops that follow a report are in the next report.
    until(lambda: sum(event.count for event in events if event.kind == "slow_handler") == 14)
    assert {event.about for event in events if event.kind == "slow_handler"} == {"x"}
    assert subscriber.stats.overflowed == 14
    gate.opened.set()
    until(lambda: len(gate.seen) == 6)
    assert gate.seen == list(range(6))


def test_a_drain_of_an_idle_subscription_does_not_wait_for_the_next_ping(pair):
    began = time.monotonic()
    for _ in range(40):
        assert subscribe(pair, "x", None).drain(timeout=DEADLINE)
    # Peers send a PING every 1.5 seconds, so that 40 PINGs take 60 seconds.
    assert time.monotonic() - began < 30.0


def test_a_drained_subscription_ends_its_iteration(pair):
    subscription = subscribe(pair, "x", None)
    for number in range(3):
        pair[1].publish("x", number)
    until(lambda: subscription.pending == 3)
    assert subscription.drain(timeout=DEADLINE)
    assert [message.payload for message in subscription] == [0, 1, 2]


def test_dropped_messages_are_acknowledged(pair):
    gate = Gate(pair[0])
    delivery = Delivery(max_pending=1)
    subscription = subscribe(pair, "x", gate, group="workers", ack="handled", delivery=delivery)
    pair[1].publish("x", 0)
    gate.wait_until_entered()
    for number in range(1, 10):
        pair[1].publish("x", number)
    until(lambda: subscription.dropped == 8)
    gate.opened.set()
    # The publisher counts the messages of a group that are not acknowledged.
    until(lambda: {"workers": 0} in [dict(link.groups) for link in pair[1].snapshot().links])


def test_subscriptions_share_a_thread(make):
    """A subscription whose queue is never empty does not block another subscription."""
    node, done = make("alone", threads=1), threading.Event()
    bare = getattr(node, "wrapped", node)
    node.subscribe("busy", lambda message: None if done.is_set() else bare.publish("busy"))
    node.subscribe("other", lambda message: done.set())
    node.publish("busy")
    node.publish("other")
    assert done.wait(DEADLINE)


def test_close_ends_at_its_timeout_although_a_handler_runs(pair):
    gate = Gate(pair[0])
    subscribe(pair, "x", gate)
    pair[1].publish("x", 0)
    gate.wait_until_entered()
    pair[0].close(timeout=0.1)
    assert pair[0].closed
    gate.opened.set()


def test_a_cancelled_request_leaves_nothing(directory):
    async def main():
        options = NodeOptions(directory=directory)
        async with (
            AsyncNode("server", options=options) as server,
            AsyncNode("client", options=options) as client,
        ):
            asked = []
            server.subscribe("svc", asked.append)
            await client.wait_ready(subscriber="svc", timeout=DEADLINE)
            task = asyncio.create_task(client.request("svc", timeout=None))
            while not asked:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client.stats.requests == 0
            await asked[0].reply("late")
            while not client.stats.late_replies:
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_pool_has_as_many_threads_as_the_node_allows(make):
    subscriber, publisher = make("subscriber", threads=2), make("publisher")
    if type(subscriber).__name__ == "Looped":
        pytest.skip("handlers of a loop have no threads")
    gates = [Gate(subscriber) for _ in range(3)]
    for at, gate in enumerate(gates):
        subscriber.subscribe(f"x.{at}", gate)
    publisher.wait_ready("subscriber", subscriber="x.2", timeout=DEADLINE)
    for at in range(3):
        publisher.publish(f"x.{at}")
    counts = Counter(thread.name for thread in threading.enumerate())
    for gate in gates[:2]:
        gate.wait_until_entered()
    assert gates[2].seen == []
    assert Counter(thread.name for thread in threading.enumerate())["oz handler"] - counts["oz handler"] <= 2
    for gate in gates[:2]:
        gate.opened.set()
    gates[2].wait_until_entered()
    gates[2].opened.set()


def test_a_message_that_waits_for_a_thread_is_no_running_call(make):
    node = make("alone", threads=1)
    if type(node).__name__ == "Looped":
        pytest.skip("handlers of a loop have no threads")
    first, second = Gate(node), Gate(node)
    node.subscribe("first", first)
    node.subscribe("second", second)

    def times():
        return node.snapshot().subscriptions[0].handler

    node.publish("first")
    first.wait_until_entered()
    # The call began before the first snapshot, so that only its beginning is known.
    until(lambda: times().running is not None)
    first.opened.set()
    until(lambda: times().running is None)
    node.publish("second")
    second.wait_until_entered()
    node.publish("first")
    until(lambda: node.subscriptions[0].pending)
    assert times().running is None
    second.opened.set()
    until(lambda: times().calls == 1)


def test_a_handler_that_ends_after_its_node_is_not_a_fault(pair, caplog):
    subscriber, publisher = pair
    entered, opened, ended = threading.Event(), threading.Event(), threading.Event()

    def reply_late(message):
        entered.set()
        assert opened.wait(DEADLINE)
        try:
            message.reply("late")
        finally:
            ended.set()

    if type(subscriber).__name__ == "Looped":
        pytest.skip("the loop cancels its handlers")
    subscribe(pair, "svc", reply_late)
    publisher.wait_ready("subscriber", subscriber="svc", timeout=DEADLINE)
    work = Thread(lambda: publisher.request("svc", timeout=None))
    assert entered.wait(DEADLINE)
    subscriber.close(timeout=0)
    opened.set()
    assert ended.wait(DEADLINE)
    with pytest.raises(PeerLost):
        work.outcome()
    until(lambda: not any(thread.name == "oz handler" for thread in threading.enumerate()))
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
