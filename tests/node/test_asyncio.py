"""The node for asyncio: what threads do there is done here by tasks."""

import asyncio
import errno
import os
import threading
import time

import pytest
import zmq

import oz
import oz.asyncio
from oz.transport.node.connector import Connector
from support import waiting
from support.inside import engine_of, shell_of
from support.waiting import DEADLINE

Node = oz.asyncio.Node

LONG_ENOUGH = 5.0
"""Seconds in which answers come, also on a machine that has others to serve."""


async def until(condition, timeout=DEADLINE):
    ends = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < ends
        await asyncio.sleep(0.005)
    return value


async def met(*nodes):
    for node in nodes:
        await node.wait_for_peers({one.name for one in nodes} - {node.name}, timeout=DEADLINE)
    for node in nodes:
        await node.wait_ready(DEADLINE)


def run(main):
    """Run it; nothing is left of it."""
    threads = threading.active_count()
    asyncio.run(asyncio.wait_for(main(), 2 * DEADLINE))
    # ZeroMQ may take longer to end its context than a close that has little time waits for.
    waiting.until(lambda: threading.active_count() <= threads)


def test_nodes_of_a_loop_and_of_threads_speak_with_each_other(make, place):
    def main():
        threaded = make("threaded")
        threaded.subscribe("svc", handler=lambda message: message.reply([message.payload]))
        return threaded

    threaded = main()

    async def speak():
        async with Node("looped", directory=place) as node:

            async def answer(message):
                await message.reply({"got": message.payload}, headers={"by": "looped"})

            node.subscribe("svc.async", handler=answer)
            got = node.subscribe("a.*")
            await node.wait_for_peers("threaded", timeout=DEADLINE)
            await node.wait_ready(DEADLINE)
            await asyncio.to_thread(threaded.wait_ready, DEADLINE)
            threaded.publish("a.1", 1)
            assert (await got.receive(DEADLINE)).payload == 1
            assert (await node.request("svc", 2, timeout=DEADLINE)).payload == [2]
            reply = await asyncio.to_thread(threaded.request, "svc.async", 3, timeout=DEADLINE)
            assert (reply.payload, reply.headers) == ({"got": 3}, {"by": "looped"})
            with pytest.raises(oz.NoResponders):
                await node.request("nobody", timeout=DEADLINE)

    asyncio.run(speak())


def test_request_many_and_late_replies(place):
    async def main():
        async with Node("a", directory=place) as a, Node("b", directory=place) as b:
            b.subscribe("svc", handler=lambda message: [message.reply(number) for number in range(3)])
            await met(a, b)
            got = [one.payload async for one in a.request_many("svc", timeout=DEADLINE, limit=2)]
            assert got == [0, 1]
            await until(lambda: a.stats.late_replies == 1)
            assert [one.payload async for one in a.request_many("svc", timeout=LONG_ENOUGH)] == [0, 1, 2]
            assert not len(engine_of(a).requests)

    run(main)


def test_a_handler_that_raises_answers_with_its_error_and_one_that_returns_is_warned_of(place, caplog):
    async def refuse(message):
        await asyncio.sleep(0)
        raise ValueError("bad size")

    async def answer_and_raise(message):
        await asyncio.create_task(asyncio.sleep(0))
        await message.reply(1)
        raise ValueError("too late")

    async def returns(message):
        return 1

    async def main():
        async with Node("a", directory=place) as a, Node("b", directory=place) as b:
            for subject, handler in (("bad", refuse), ("late", answer_and_raise), ("returns", returns)):
                b.subscribe(subject, handler=handler)
            await met(a, b)
            with pytest.raises(oz.ReplyError, match="b raised ValueError at 'bad': bad size"):
                await a.request("bad", timeout=None)
            with pytest.raises(oz.ReplyError):
                [one async for one in a.request_many("bad", timeout=None, limit=1)]
            assert (await a.request("late", timeout=DEADLINE)).payload == 1
            for _ in range(2):
                with pytest.raises(oz.Timeout):
                    await a.request("returns", timeout=0.1)
            assert a.stats.late_replies == 0

    run(main)
    assert len([one for one in caplog.records if "returned a value" in one.message]) == 1


def test_threads_beside_the_loop_may_reply_though_something_waits_for_the_end_of_its_turn(place):
    async def main():
        async with Node("a", directory=place) as a, Node("b", directory=place) as b:
            asked = []
            b.subscribe("svc", handler=asked.append)
            await met(a, b)
            asking = [asyncio.create_task(a.request("svc", number, timeout=DEADLINE)) for number in range(3)]
            await until(lambda: len(asked) == 3)

            def reply():
                for message in asked:
                    message.reply(message.payload)

            # Two of them wait: the loop stands still meanwhile.
            thread = threading.Thread(target=reply)
            thread.start()
            thread.join(DEADLINE)
            assert [reply.payload for reply in await asyncio.gather(*asking)] == [0, 1, 2]

    run(main)


def test_a_request_that_is_cancelled_waits_no_more(place):
    async def main():
        async with Node("a", directory=place) as node:
            node.subscribe("svc", handler=lambda message: None)
            asking = asyncio.create_task(node.request("svc", timeout=None))
            await until(lambda: len(engine_of(node).requests) == 1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert len(engine_of(node).requests) == 0

    run(main)


def test_a_request_without_a_timeout_ends_when_its_node_closes(place):
    async def main():
        async with Node("a", directory=place) as node:
            node.subscribe("svc", handler=lambda message: None)
            asking = asyncio.create_task(node.request("svc", timeout=None))
            await until(lambda: len(engine_of(node).requests) == 1)
            await node.close(drain=False)
            with pytest.raises(oz.ClosedError):
                await asyncio.wait_for(asking, DEADLINE)
            assert not len(engine_of(node).requests)

    run(main)


def test_on_peer_and_advisories_may_be_async(place):
    told = []

    async def on_peer(peer, what):
        await asyncio.sleep(0)
        told.append((peer.name, what))

    async def main():
        async with Node("a", directory=place, on_peer=on_peer) as node:
            advisories = node.subscribe("_OZ.ADVISORY.>")
            async with Node("b", directory=place):
                await node.wait_for_peers(1, timeout=DEADLINE)
            await until(lambda: told == [("b", "up"), ("b", "left")])
            assert (await advisories.receive(DEADLINE)).payload.kind == "peer_up"
            assert node.peers == []

    run(main)


def test_a_handler_that_raises_and_a_slow_one_harm_no_one(place):
    async def main():
        async with Node("a", directory=place) as node:
            go = asyncio.Event()
            quick = node.subscribe("a")

            async def fail(_):
                raise ValueError("on purpose")

            async def slow(_):
                await go.wait()

            node.subscribe("a", handler=fail)
            late = node.subscribe("a", handler=slow, max_pending=10)
            await node.wait_ready(DEADLINE)
            for number in range(100):
                await node.publish("a", number)
            assert [(await quick.receive(DEADLINE)).payload for _ in range(100)] == list(range(100))
            await until(lambda: node.stats.failed == 100)
            # The first was being handled, or it waited too.
            assert late.dropped in (89, 90)
            go.set()

    run(main)


def test_receiving_that_is_cancelled_loses_nothing(place):
    async def main():
        async with Node("a", directory=place) as node:
            mailbox = node.subscribe("a")
            await node.wait_ready(DEADLINE)
            got = []
            for number in range(50):
                await node.publish("a", number)
            while len(got) < 50:
                try:
                    async with asyncio.timeout(0.001 * (len(got) % 3)):
                        got.append((await mailbox.receive()).payload)
                except TimeoutError:
                    await asyncio.sleep(0)
            assert got == list(range(50))
            with pytest.raises(oz.Timeout):
                await mailbox.receive(0)

    run(main)


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


def test_a_node_whose_start_has_failed_has_not_joined(place, monkeypatch):
    def refuse(*_, **__):
        raise zmq.ZMQError(errno.EMFILE)

    async def main():
        node = Node("a", directory=place)
        monkeypatch.setattr(Connector, "dial", refuse)
        with pytest.raises(zmq.ZMQError):
            await node.start()
        assert node.endpoint is None
        with pytest.raises(oz.ClosedError, match="has not joined yet"):
            await node.publish("a")
        with pytest.raises(oz.ClosedError, match="has not joined yet"):
            node.subscribe("a")
        assert os.listdir(place) == []
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


def test_what_a_peer_had_sent_when_it_closed_arrives_though_the_loop_stood_still(make, place):
    async def main():
        async with Node("far", directory=place) as far:
            got = []
            far.subscribe("a", handler=lambda message: got.append(message.payload))
            near = await asyncio.to_thread(make, "near")
            await far.wait_for_peers("near", timeout=DEADLINE)
            await far.wait_ready(DEADLINE)
            await asyncio.to_thread(near.wait_ready, DEADLINE)
            for number in range(500):
                near.publish("a", number)
                near.flush()
            near.close(drain=False)
            await until(lambda: len(got) == 500)
            assert got == list(range(500))

    run(main)
