"""Sockets of a loop that have much to do: floods, tasks that share one, publishers without room."""

import asyncio
import time

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio
from support.loops import Ticker, in_a_loop, pair, until
from support.waiting import DEADLINE


@pytest.mark.parametrize("is_handled", [False, True])
@in_a_loop
async def test_a_timeout_is_kept_under_a_flood_of_messages_for_others(is_handled):
    async with pair("a.*.c", pub={"on_full": "block", "high_water_mark": 1_000}) as (pub, sub):
        if is_handled:
            sub.subscribe("a.b.d", handler=lambda message: None)

        async def flood():
            while True:
                for _ in range(500):
                    await pub.publish("a.b.d", b"x")
                await asyncio.sleep(0)

        flooding = asyncio.create_task(flood())
        try:
            for timeout in (0.1, 0):
                started = time.monotonic()
                with pytest.raises(oz.Timeout):
                    await sub.receive(timeout=timeout)
                assert time.monotonic() - started < DEADLINE
        finally:
            flooding.cancel()


@in_a_loop
async def test_a_task_that_waits_is_woken_though_another_took_the_first_message():
    context = zmq.asyncio.Context()
    async with (
        oz.asyncio.Publisher("inproc://x", context=context) as pub,
        oz.asyncio.Subscriber("inproc://x", context=context) as sub,
    ):
        sub.subscribe("a")
        await pub.wait_for_subscribers(timeout=DEADLINE)
        waiting = asyncio.create_task(sub.receive())
        await asyncio.sleep(0.01)
        await pub.publish("a", b"1")
        await pub.publish("a", b"2")
        assert (await sub.receive(timeout=0)).payload == b"1"
        assert (await asyncio.wait_for(waiting, DEADLINE)).payload == b"2"
    context.destroy(0)


@in_a_loop
async def test_several_tasks_share_a_subscriber_and_each_message_goes_to_one():
    async with pair("a") as (pub, sub):
        got = []

        async def take():
            async for message in sub:
                got.append(int(message.payload))

        tasks = [asyncio.create_task(take()) for _ in range(5)]
        for number in range(2_000):
            await pub.publish("a", b"%d" % number)
            if not number % 100:
                await asyncio.sleep(0)
        await until(lambda: len(got) == 2_000)
        assert got == list(range(2_000))
        sub.close()
        await asyncio.gather(*tasks)


# publishing


@in_a_loop
async def test_on_full_block_waits_and_then_goes_on():
    large = bytes(1_000_000)
    async with oz.asyncio.Publisher("tcp://127.0.0.1:*", on_full="block", high_water_mark=2) as pub:
        with zmq.Context() as context, context.socket(zmq.SUB) as raw:
            raw.set(zmq.RCVHWM, 2)
            raw.set(zmq.RCVBUF, 4096)
            raw.subscribe(b"")
            raw.connect(pub.endpoint)
            await pub.wait_for_subscribers(timeout=DEADLINE)

            async def publish():
                for number in range(40):
                    await pub.publish("a", b"%d" % number + large)

            publishing = asyncio.create_task(publish())
            ticker = Ticker()
            done, _ = await asyncio.wait([publishing], timeout=0.3)
            assert not done
            before = ticker.count
            await until(lambda: ticker.count > before + 10)
            assert not publishing.done()
            ticker.stop()
            got = []
            while len(got) < 40:
                if raw.poll(0):
                    got.append(int(raw.recv_multipart()[1].partition(b"\0")[0]))
                await asyncio.sleep(0)
            await publishing
            assert got == list(range(40))


@pytest.mark.parametrize("policy", ["error", "block"])
@in_a_loop
async def test_a_stalled_subscriber_is_reported(policy):
    async with oz.asyncio.Publisher(
        "tcp://127.0.0.1:*",
        on_full=policy,
        full_timeout=0.1 if policy == "block" else None,
        high_water_mark=2,
    ) as pub:
        with zmq.Context() as context, context.socket(zmq.SUB) as raw:
            raw.set(zmq.RCVHWM, 2)
            raw.subscribe(b"")
            raw.connect(pub.endpoint)
            await pub.wait_for_subscribers(timeout=DEADLINE)
            with pytest.raises(oz.WouldBlock):
                await pub.publish_many(("a", bytes(1_000_000)) for _ in range(200))
            pub.close(0)


@in_a_loop
async def test_publish_many_takes_either_kind_of_iterable():
    async with pair("a") as (pub, sub):

        async def pairs():
            for number in range(3):
                await asyncio.sleep(0)
                yield "a", b"%d" % number

        assert await pub.publish_many(pairs()) == 3
        assert await pub.publish_many([("a", b"3")]) == 1
        assert [int((await sub.receive(timeout=DEADLINE)).payload) for _ in range(4)] == [0, 1, 2, 3]
