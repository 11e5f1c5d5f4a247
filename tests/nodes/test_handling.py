"""Handlers of nodes: order, concurrency, overflow, drain, close, acknowledgement."""

import asyncio
import threading
import time
from collections import Counter

import pytest

from oz.errors import ClosedError, PeerLost
from oz.node.aio import Node as AsyncNode
from oz.options import Delivery, NodeOptions
from support.waiting import Thread, until

DEADLINE = 30.0


@pytest.fixture
def pair(make):
    """A subscriber and a publisher that know each other."""
    subscriber, publisher = make("subscriber"), make("publisher")
    subscriber.wait_ready("publisher")
    publisher.wait_ready("subscriber")
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
    subscriber.wait_ready("publisher")
    return subscription


def test_messages_are_handled_in_order(pair):
    seen = []
    subscribe(pair, "x", lambda message: seen.append(message.payload))
    for number in range(1_000):
        pair[1].publish("x", number)
    until(lambda: len(seen) == 1_000)
    assert seen == list(range(1_000))


def test_concurrency_keeps_the_order_of_each_subject(pair):
    seen = {at: [] for at in range(10)}
    subscribe(pair, "x.*", lambda m: seen[int(m.subject[2:])].append(m.payload), concurrency=4)
    for number in range(1_000):
        pair[1].publish(f"x.{number % 10}", number)
    until(lambda: sum(map(len, seen.values())) == 1_000)
    assert seen == {at: list(range(at, 1_000, 10)) for at in range(10)}


def test_a_slow_handler_holds_up_nobody_and_is_reported(make):
    events = []
    subscriber, publisher = make("subscriber", on_event=events.append), make("publisher")
    gate, seen = Gate(subscriber), []
    slow = subscriber.subscribe("x", gate, delivery=Delivery(max_pending=5))
    subscriber.subscribe("x", lambda message: seen.append(message.payload))
    subscriber.wait_ready("publisher")
    publisher.wait_ready("subscriber")
    publisher.publish("x", 0)
    gate.wait_until_entered()
    for number in range(1, 20):
        publisher.publish("x", number)
    until(lambda: len(seen) == 20)
    assert (slow.pending, slow.dropped) == (5, 14)
    until(lambda: any(one.kind == "slow_handler" for one in events))
    found = [one for one in events if one.kind == "slow_handler"]
    assert found[0].about == "x"
    assert sum(one.count for one in found) == 14
    assert subscriber.stats.overflowed == 14
    gate.opened.set()
    until(lambda: len(gate.seen) == 6)
    assert gate.seen == list(range(6))


@pytest.mark.parametrize(
    ("overflow", "expected"), [("drop_oldest", [0, 8, 9, 10]), ("conflate", [0, 4, 9, 10])]
)
def test_overflow_of_a_handler(pair, overflow, expected):
    gate = Gate(pair[0])
    subscription = subscribe(pair, "x.*", gate, overflow=overflow, delivery=Delivery(max_pending=3))
    pair[1].publish("x.first", 0)
    gate.wait_until_entered()
    # With "conflate" x.b keeps the message 4, and the messages of x.a and x.c are replaced.
    for number in range(3, 9):
        pair[1].publish("x.b" if number == 4 else "x.a", number)
    pair[1].publish("x.a", 9)
    pair[1].publish("x.c", 10)
    until(lambda: subscription.dropped == 5)
    gate.opened.set()
    until(lambda: len(gate.seen) == 4)
    assert gate.seen == expected


def test_a_drain_waits_for_the_handler(pair):
    gate = Gate(pair[0])
    subscription = subscribe(pair, "x", gate)
    for number in range(5):
        pair[1].publish("x", number)
    gate.wait_until_entered()
    assert not subscription.drain(timeout=0.1)
    assert not subscription.active
    gate.opened.set()
    until(lambda: len(gate.seen) == 5)
    other = subscribe(pair, "y", lambda message: None)
    pair[1].publish("y", 1)
    assert other.drain(timeout=DEADLINE)


def test_a_drain_of_an_idle_subscription_does_not_wait_for_the_next_ping(pair):
    began = time.monotonic()
    for _ in range(10):
        assert subscribe(pair, "x", None).drain(timeout=DEADLINE)
    # Peers send a PING every second.
    assert time.monotonic() - began < 5.0


def test_a_drain_handles_what_was_published_before(pair):
    seen = []
    subscription = subscribe(pair, "x", lambda message: seen.append(message.payload))
    for number in range(500):
        pair[1].publish("x", number)
    pair[1].flush()
    assert subscription.drain(timeout=DEADLINE)
    assert seen == list(range(500))


def test_unsubscribe_drops_what_waits(pair):
    gate = Gate(pair[0])
    subscription = subscribe(pair, "x", gate)
    for number in range(5):
        pair[1].publish("x", number)
    gate.wait_until_entered()
    until(lambda: subscription.pending == 4)
    subscription.unsubscribe()
    assert subscription.pending == 0
    gate.opened.set()
    subscribe(pair, "y", gate)
    pair[1].publish("y", "y")
    until(lambda: "y" in gate.seen)
    assert gate.seen == [0, "y"]


def test_close_handles_what_has_arrived(pair):
    gate, seen = Gate(pair[0]), pair[1].subscribe("done")
    subscriber, publisher = pair

    def finish(message):
        result = gate(message)
        bare = getattr(subscriber, "wrapped", subscriber) if result is not None else subscriber

        async def later():
            await result
            bare.publish("done", message.payload)

        if result is not None:
            return later()
        bare.publish("done", message.payload)
        return None

    subscription = subscribe(pair, "x", finish)
    publisher.wait_ready("subscriber")
    for number in range(5):
        publisher.publish("x", number)
    gate.wait_until_entered()
    until(lambda: subscription.pending == 4)
    work = Thread(lambda: subscriber.close(timeout=DEADLINE))
    gate.opened.set()
    assert work.outcome() == 0
    assert [seen.receive(timeout=DEADLINE).payload for _ in range(5)] == list(range(5))


def test_close_does_not_wait_for_ever(pair):
    gate = Gate(pair[0])
    subscribe(pair, "x", gate)
    pair[1].publish("x", 0)
    gate.wait_until_entered()
    pair[0].close(timeout=0.1)
    assert pair[0].closed
    gate.opened.set()


def test_a_handler_may_close_its_node(make):
    subscriber, publisher = make("subscriber"), make("publisher")
    done = threading.Event()

    def leave(message):
        subscriber.close(timeout=DEADLINE)
        done.set()

    if type(subscriber).__name__ == "Looped":

        async def leave(message):
            await subscriber.wrapped.close(timeout=DEADLINE)
            done.set()

    subscriber.subscribe("x", leave)
    subscriber.wait_ready("publisher")
    publisher.wait_ready("subscriber", subscriber="x")
    publisher.publish("x", 1)
    assert done.wait(DEADLINE)
    until(lambda: publisher.peers == [])
    with pytest.raises(ClosedError):
        subscriber.publish("y")


def test_an_exception_does_not_stop_a_subscription(pair):
    seen = []

    def handle(message):
        if message.payload == 1:
            raise ValueError(message.payload)
        seen.append(message.payload)

    subscribe(pair, "x", handle)
    for number in range(3):
        pair[1].publish("x", number)
    until(lambda: seen == [0, 2])
    assert pair[0].stats.failed == 1


def test_a_handled_message_is_acknowledged_after_its_handler(make):
    """A member that leaves with messages that are not handled passes them on."""
    first, second, publisher = make("first"), make("second"), make("publisher")
    gate, seen = Gate(first), []
    options = {"group": "g", "ack": "handled", "delivery": Delivery(redeliver=True, policy="failover")}
    first.subscribe("x", gate, **options)
    publisher.wait_ready("first", subscriber="x")
    second.subscribe("x", lambda message: seen.append((message.payload, message.redelivered)), **options)
    publisher.wait_ready("first", "second")
    for number in range(3):
        publisher.publish("x", number)
    gate.wait_until_entered()
    first.close(timeout=0)
    until(lambda: len(seen) == 3)
    assert sorted(seen) == [(number, True) for number in range(3)]
    gate.opened.set()


def test_a_thousand_tasks_ask_at_once(directory):
    async def main():
        options = NodeOptions(directory=directory)
        async with (
            AsyncNode("server", options=options) as server,
            AsyncNode("client", options=options) as client,
        ):

            async def handle(message):
                await asyncio.sleep(0)
                return message.payload * 2

            server.subscribe("double.*", handle, concurrency=16)
            await client.wait_ready(subscriber="double.1")
            found = await asyncio.gather(
                *(client.request(f"double.{at % 50}", at, timeout=DEADLINE) for at in range(1_000))
            )
            assert [one.payload for one in found] == [2 * at for at in range(1_000)]
            assert client.stats.requests == client.stats.late_replies == 0

    asyncio.run(main())


def test_a_cancelled_request_leaves_nothing(directory):
    async def main():
        options = NodeOptions(directory=directory)
        async with (
            AsyncNode("server", options=options) as server,
            AsyncNode("client", options=options) as client,
        ):
            asked = []
            server.subscribe("svc", asked.append)
            await client.wait_ready(subscriber="svc")
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
    publisher.wait_ready("subscriber", subscriber="x.2")
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
    publisher.wait_ready("subscriber", subscriber="svc")
    work = Thread(lambda: publisher.request("svc", timeout=None))
    assert entered.wait(DEADLINE)
    subscriber.close(timeout=0)
    opened.set()
    assert ended.wait(DEADLINE)
    with pytest.raises(PeerLost):
        work.outcome()
    until(lambda: not any(thread.name == "oz handler" for thread in threading.enumerate()))
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []
