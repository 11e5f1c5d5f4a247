"""A subscription of a node that drains: handlers handle what was on its way, and the group's others go on."""

import asyncio
import threading
import time

import pytest

import oz
import oz.asyncio
from support.inside import engine_of
from support.traffic import Traffic
from support.waiting import DEADLINE, until


def test_a_worker_that_drains_hands_over_and_every_job_is_done_once(make, met, collected):
    boss, leaving, staying = make("boss"), make("leaving"), make("staying")
    mine, others = collected(), collected()

    def work(message):
        time.sleep(0.0001)
        mine(message)

    subscription = leaving.subscribe("job", group="workers", handler=work)
    staying.subscribe("job", group="workers", handler=others)
    met(boss, leaving, staying)
    traffic = Traffic(boss, "job", pause=0.001)
    until(lambda: len(mine) > 200)
    assert subscription.drain(timeout=DEADLINE)
    done = len(mine)
    has = len(others)
    until(lambda: len(others) > has + 200)
    traffic.stop()
    boss.flush()
    until(lambda: len(mine) + len(others) >= traffic.count)
    assert len(mine) == done
    assert sorted(mine + others) == list(range(traffic.count))
    assert leaving.stats.lost == staying.stats.lost == 0
    assert leaving.stats.handled >= done


def test_what_came_for_one_without_a_handler_can_still_be_received(make, met):
    one, two = make("one"), make("two")
    subscription = two.subscribe("a")
    met(one, two)
    for number in range(100):
        one.publish("a", number)
    one.flush()
    first = subscription.receive(timeout=DEADLINE)
    assert subscription.drain(timeout=DEADLINE)
    assert [first.payload, *(message.payload for message in subscription)] == list(range(100))
    with pytest.raises(oz.ClosedError):
        subscription.receive(timeout=DEADLINE)
    assert subscription.drain()


def test_a_handler_that_takes_longer_still_handles_what_has_come(make, met, collected):
    one, two = make("one"), make("two")
    go, got = threading.Event(), collected()

    def slow(message):
        go.wait(DEADLINE)
        got(message)

    subscription = two.subscribe("a", handler=slow)
    met(one, two)
    for number in range(20):
        one.publish("a", number)
    one.flush()
    # All have come, and the first is being handled.
    until(lambda: subscription.waiting == 19)
    assert not subscription.drain(timeout=0.1)
    assert not subscription.active
    go.set()
    got.wait(20)
    one.publish("a", 20)
    two.close(timeout=DEADLINE)
    assert got == list(range(20))


def test_a_handler_may_drain_its_own_subscription(make, collected):
    node, got, answers = make("node"), collected(), []
    sent = threading.Event()

    def handle(message):
        got(message)
        if len(got) == 3:
            sent.wait(DEADLINE)
            answers.append(subscription.drain(timeout=DEADLINE))

    subscription = node.subscribe("a", handler=handle)
    node.wait_ready(DEADLINE)
    for number in range(100):
        node.publish("a", number)
    node.flush()
    sent.set()
    got.wait(100)
    # What stood behind the message whose handler asked was not handled yet.
    assert len(answers) == 1
    node.publish("a", 100)
    node.close(timeout=DEADLINE)
    assert got == list(range(100))


def test_advisories_drain_and_end_like_any_other(make, met, collected):
    node, heard = make("node"), collected()
    subscription = node.subscribe("_OZ.ADVISORY.>", handler=heard)
    met(node, make("other"))
    until(lambda: heard)
    assert subscription.drain(timeout=DEADLINE)
    before = len(heard)
    met(node, make("third"))
    assert len(heard) == before


def test_a_closed_node_says_so(make):
    node = make("node")
    subscription = node.subscribe("a")
    node.close()
    with pytest.raises(oz.ClosedError):
        subscription.drain()


def test_asyncio_drains_alike(make, place):
    boss = make("boss")

    async def scenario():
        async with (
            oz.asyncio.Node("leaving", directory=place) as leaving,
            oz.asyncio.Node("staying", directory=place) as staying,
        ):
            mine, others = [], []

            async def work(message):
                await asyncio.sleep(0)
                mine.append(message.payload)

            subscription = leaving.subscribe("job", group="workers", handler=work)
            listed = leaving.subscribe("job")
            staying.subscribe("job", group="workers", handler=lambda message: others.append(message.payload))
            for node in (leaving, staying):
                await node.wait_for_peers(2, timeout=DEADLINE)
                await node.wait_ready(DEADLINE)
            await asyncio.to_thread(boss.wait_ready, DEADLINE)
            traffic = Traffic(boss, "job", pause=0.001)
            ends = time.monotonic() + DEADLINE
            while len(mine) < 200 and time.monotonic() < ends:
                await asyncio.sleep(0.001)
            assert await subscription.drain(timeout=DEADLINE)
            done = len(mine)
            await asyncio.to_thread(traffic.stop)
            while len(mine) + len(others) < traffic.count and time.monotonic() < ends:
                await asyncio.sleep(0.01)
            assert len(mine) == done
            assert sorted(mine + others) == list(range(traffic.count))
            assert await listed.drain(timeout=DEADLINE)
            assert [message.payload async for message in listed] == list(range(traffic.count))
            assert await listed.drain()

    asyncio.run(asyncio.wait_for(scenario(), 2 * DEADLINE))


def test_closing_lets_one_that_has_had_its_last_message_handle_what_came(make, collected):
    node, got = make("node"), collected()

    def slow(message):
        time.sleep(0.02)
        got(message)

    subscription = node.subscribe("a", handler=slow, max_messages=10)
    node.wait_ready(DEADLINE)
    for number in range(15):
        node.publish("a", number)
    node.flush()
    until(lambda: not subscription.active)
    node.close(timeout=DEADLINE)
    assert got == list(range(10))


def test_asyncio_closes_alike(place):
    got, counts = [], []

    async def slow(message):
        await asyncio.sleep(0.01)
        got.append(message.payload)

    async def scenario():
        async with oz.asyncio.Node("node", directory=place) as node:
            subscription = node.subscribe("a", handler=slow, max_messages=10)
            await node.wait_ready(DEADLINE)
            for number in range(15):
                await node.publish("a", number)
            await node.flush()
            ends = time.monotonic() + DEADLINE
            while subscription.active and time.monotonic() < ends:
                await asyncio.sleep(0.001)
            await node.close(timeout=DEADLINE)
            counts.append(node.stats.handled)

    asyncio.run(asyncio.wait_for(scenario(), 2 * DEADLINE))
    assert got == list(range(10))
    assert counts == [10]


def test_what_ended_subscriptions_handled_is_counted_to_the_last(make, collected):
    node, got = make("node"), collected()
    go = threading.Event()

    def slow(message):
        got(message)
        go.wait(DEADLINE)

    counted = node.subscribe("a", handler=slow, max_messages=3)
    undone = node.subscribe("b", handler=slow)
    node.wait_ready(DEADLINE)
    for _ in range(5):
        node.publish("a", "counted")
        node.publish("b", "undone")
    node.flush()
    until(lambda: not counted.active and len(got) == 2)
    undone.unsubscribe()
    assert node.stats.handled == 0
    go.set()
    # Three of the one, and of the other that which was being handled.
    until(lambda: node.stats.handled == 4)
    assert sorted(got) == ["counted"] * 3 + ["undone"]
    until(lambda: not engine_of(node).subscriptions.ended)
    assert node.stats.handled == 4


@pytest.mark.parametrize("ends", ["drain", "close"])
def test_asyncio_handles_what_it_published_before_it_had_heard_of_itself(place, ends):
    async def main():
        got = []
        async with oz.asyncio.Node("alone", directory=place) as node:
            subscription = node.subscribe("a", handler=lambda message: got.append(message.payload))
            await node.publish("a", 1)
            if ends == "drain":
                assert await subscription.drain(DEADLINE)
            else:
                await node.close()
        assert got == [1]

    asyncio.run(main())
