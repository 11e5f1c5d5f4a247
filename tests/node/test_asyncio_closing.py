"""How nodes of a loop are closed: cancelled, by another loop, at the end of their own."""

import asyncio
import os
import threading
import time

import pytest

import oz
import oz.asyncio
from node.looped import Node, met, run, until
from oz.transport.node.node import NodeEngine
from support import waiting
from support.inside import engine_of, shell_of
from support.waiting import DEADLINE


def test_closing_ends_iteration_and_waiting(place):
    async def main():
        node = await Node("a", directory=place).start()
        mailbox = node.subscribe("a")

        async def read():
            return [message.payload async for message in mailbox]

        reading = asyncio.create_task(read())
        waiting = asyncio.create_task(node.wait_for_peers(3))
        await node.wait_ready(DEADLINE)
        await node.publish("a", 1)
        await asyncio.gather(node.close(), node.close())
        await node.close()
        assert await reading == [1]
        with pytest.raises(oz.ClosedError):
            await waiting
        for call in (node.publish("a"), node.request("a"), node.wait_ready(1), mailbox.receive(1)):
            with pytest.raises(oz.ClosedError):
                await call

    run(main)


def test_a_handler_may_close_its_own_node(place):
    async def main():
        node = await Node("a", directory=place).start()
        done = asyncio.Event()

        async def handler(_):
            await node.close(timeout=DEADLINE)
            done.set()

        node.subscribe("a", handler=handler)
        await node.wait_ready(DEADLINE)
        await node.publish("a")
        await asyncio.wait_for(done.wait(), DEADLINE)

    run(main)


@pytest.mark.timeout(DEADLINE)
@pytest.mark.parametrize("inline", [False, True])
def test_a_node_drains_where_its_loop_ends_by_the_exit_of_a_handler(place, inline):
    """Such a loop has cancelled all tasks before the node is closed."""
    heard = []

    async def main():
        node = await Node("a", directory=place).start()
        listener = await Node("b", directory=place).start()
        try:
            node.subscribe("a", handler=exit_with_3, inline=inline)
            listener.subscribe("last", handler=lambda message: heard.append(message.payload), inline=True)
            await node.wait_for_peers("b", timeout=DEADLINE)
            await node.wait_ready(DEADLINE)
            await node.publish("a")
            await asyncio.sleep(DEADLINE)
        finally:
            await node.publish("last", 1)
            # Without a drain that ends these take all of their time.
            await node.close(timeout=3 * DEADLINE)
            await listener.close(timeout=3 * DEADLINE)

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert heard == [1]


@pytest.mark.timeout(DEADLINE)
def test_a_node_that_wakes_by_the_clock_as_it_closes_drains_like_any_other(place, monkeypatch):
    """A time that is up cancels the task that waits, for a moment."""
    monkeypatch.setattr(NodeEngine, "seconds_left", lambda engine: 0.0)

    async def main():
        for turns in range(10):
            node = await Node("a", directory=place).start()
            for _ in range(turns):
                await asyncio.sleep(0)
            await node.close(timeout=3 * DEADLINE)

    asyncio.run(main())


def exit_with_3(message):
    raise SystemExit(3)


@pytest.mark.parametrize("turns", range(7))
def test_a_close_that_is_cancelled_goes_on_and_the_next_one_awaits_it(place, turns):
    async def main():
        node = await Node("a", directory=place).start()
        context = engine_of(node).sockets.context
        closing = asyncio.create_task(node.close(timeout=DEADLINE))
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await node.close()
        assert context.closed
        assert not [one for one in asyncio.all_tasks() if one.get_name().startswith("oz")]

    run(main)


def test_a_node_whose_tasks_are_cancelled_closes_in_time(place):
    """As `asyncio.run` does when a program is interrupted."""

    async def main():
        async with Node("a", directory=place) as node:
            node.subscribe("a", handler=lambda message: None)
            await node.wait_ready(DEADLINE)
            assert shell_of(node).tasks
            for task in asyncio.all_tasks():
                if task.get_name().startswith("oz"):
                    task.cancel()
            await asyncio.sleep(0)
            began = time.monotonic()
            await node.close(timeout=1.0)
            assert time.monotonic() - began < DEADLINE

    run(main)


def test_what_is_cancelled_within_async_with_leaves_nothing(place):
    async def main():
        async def use():
            async with Node("a", directory=place) as node:
                await node.wait_for_peers(1)

        using = asyncio.create_task(use())
        await until(lambda: os.path.exists(place) and os.listdir(place))
        await asyncio.sleep(0.05)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        assert os.listdir(place) == []

    run(main)


def test_joining_that_is_cancelled_leaves_nothing(place):
    async def main():
        node = Node("a", directory=place, nameserver="tcp://127.0.0.1:1")
        joining = asyncio.create_task(node.start())
        await until(lambda: os.path.exists(place) and os.listdir(place))
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        assert os.listdir(place) == []

    run(main)


async def start(place):
    node = await Node("a", directory=place).start()
    node.subscribe("a", handler=lambda message: None)
    await node.publish("a")
    return node


@pytest.mark.parametrize("is_closed", [True, False])
def test_another_loop_closes_a_node_whose_own_has_ended(place, is_closed):
    loop = asyncio.new_event_loop()
    node = loop.run_until_complete(start(place))
    if is_closed:
        # As `asyncio.run` ends.
        for task in shell_of(node).tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*shell_of(node).tasks, return_exceptions=True))
        loop.close()

    async def main():
        for call in (node.wait_ready(DEADLINE), node.request("a", timeout=DEADLINE)):
            with pytest.raises(oz.OwnershipError, match="belongs to the loop that started it"):
                await call
        await node.close()
        assert os.listdir(place) == []
        with pytest.raises(oz.ClosedError):
            await node.publish("a")

    asyncio.run(main())
    if not is_closed:
        loop.run_until_complete(asyncio.gather(*shell_of(node).tasks, return_exceptions=True))
        loop.close()


def test_a_node_is_closed_by_another_loop_while_its_own_runs(place):
    loop = asyncio.new_event_loop()
    thread = waiting.Thread(loop.run_forever)
    node = asyncio.run_coroutine_threadsafe(start(place), loop).result(DEADLINE)
    asyncio.run(node.close())
    assert os.listdir(place) == []
    loop.call_soon_threadsafe(loop.stop)
    thread.outcome()
    loop.close()


def test_a_node_is_closed_by_another_loop_though_its_own_ends_meanwhile(place):
    started, handling, ends = (threading.Event() for _ in range(3))
    nodes = []

    async def handle(_):
        handling.set()
        await asyncio.Event().wait()

    async def own():
        node = await Node("a", directory=place).start()
        node.subscribe("b", handler=handle)
        nodes.append(node)
        await node.publish("b")
        started.set()
        while not ends.is_set():
            await asyncio.sleep(0.01)

    async def other():
        closing = asyncio.create_task(nodes[0].close(timeout=DEADLINE))
        await until(lambda: shell_of(nodes[0])._is_closing)
        ends.set()
        await closing
        assert os.listdir(place) == []
        with pytest.raises(oz.ClosedError):
            await nodes[0].publish("a")

    thread = waiting.Thread(lambda: asyncio.run(own()))
    assert started.wait(DEADLINE)
    assert handling.wait(DEADLINE)
    asyncio.run(other())
    thread.outcome()


def test_a_close_that_the_end_of_its_loop_cuts_short_leaves_nothing_open(place):
    async def main():
        handling = asyncio.Event()

        async def handle(_):
            handling.set()
            await asyncio.Event().wait()

        node = await Node("a", directory=place).start()
        node.subscribe("b", handler=handle)
        await node.publish("b")
        await handling.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(node.close(timeout=DEADLINE), 0.01)

    run(main)
    assert os.listdir(place) == []


def test_before_it_has_joined_a_node_says_so(place):
    async def main():
        node = Node("a", directory=place)
        assert node.endpoint is None
        with pytest.raises(oz.ClosedError, match="has not joined yet"):
            await node.publish("a")
        with pytest.raises(oz.ClosedError, match="has not joined yet"):
            node.subscribe("a")
        assert node.peers == []
        repr(node)
        await node.close()

    run(main)


def test_nothing_is_left_after_many_rounds(place):
    async def round_trip():
        async with Node("a", directory=place) as a, Node("b", directory=place) as b:
            b.subscribe("svc", handler=lambda message: message.reply(1))
            await met(a, b)
            assert (await a.request("svc", timeout=DEADLINE)).payload == 1

    def left():
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    async def main():
        for _ in range(3):
            await round_trip()
        before = left()
        for _ in range(15):
            await round_trip()
        await until(lambda: left()[0] <= before[0] and left()[1] <= before[1])
        assert os.listdir(place) == []

    asyncio.run(main())
