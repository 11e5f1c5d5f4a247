"""The node for asyncio: what threads do there is done here by tasks."""

import asyncio
import errno
import os
import threading

import pytest
import zmq

import oz
import oz.asyncio
from node.looped import Node, met, run, until
from oz.transport.node.connector import Connector
from support.inside import engine_of
from support.waiting import DEADLINE

LONG_ENOUGH = 5.0
"""Seconds in which answers come, also on a machine that has others to serve."""


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
