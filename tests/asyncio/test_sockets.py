import asyncio
import time

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio
from support.loops import Ticker, in_a_loop, pair, until
from support.waiting import DEADLINE


@in_a_loop
async def test_wildcards_pick_messages_in_an_async_for():
    async with pair("time.*.east", "end") as (pub, sub):
        for subject in ("time.us.east", "time.us.west", "time.eu.east", "end"):
            await pub.publish(subject, b"x")
        got = []
        async for message in sub:
            if message.subject == "end":
                break
            got.append(message.subject)
        assert got == ["time.us.east", "time.eu.east"]


@in_a_loop
async def test_nothing_is_lost_to_a_slow_start():
    context = zmq.asyncio.Context()
    for number in range(100):
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*", context=context) as pub,
            oz.asyncio.Subscriber(pub.endpoint, context=context) as sub,
        ):
            sub.subscribe("a.*")
            await pub.wait_for_subscribers(timeout=DEADLINE)
            await pub.publish("a.b", b"%d" % number)
            assert (await sub.receive(timeout=DEADLINE)).payload == b"%d" % number
    context.destroy(0)


@pytest.mark.parametrize("way", ["receive", "recv_multipart", "recv_string"])
@in_a_loop
async def test_cancelling_loses_nothing_and_keeps_the_order(way):
    count = 1_500
    async with pair("a.*" if way != "recv_string" else b"") as (pub, sub):

        async def publish():
            for number in range(count):
                if way == "recv_string":
                    await pub.send_string(str(number))
                else:
                    await pub.publish("a.b", b"%d" % number)
                if not number % 3:
                    await asyncio.sleep(0.0005)

        publishing = asyncio.create_task(publish())
        got = []
        cancelled = 0
        ends = time.monotonic() + DEADLINE
        while len(got) < count:
            assert time.monotonic() < ends
            try:
                taken = await asyncio.wait_for(getattr(sub, way)(), 0.0002)
            except TimeoutError:
                cancelled += 1
                continue
            got.append(
                int(taken.payload if way == "receive" else taken[1] if way == "recv_multipart" else taken)
            )
        await publishing
        assert got == list(range(count))
        assert cancelled > 10


@in_a_loop
async def test_cancelling_inside_an_async_handler_loses_neither_its_call_nor_the_message():
    async with pair("a.*") as (pub, sub):
        started, finished, got = [], [], []

        async def handle(message):
            started.append(message.payload)
            await asyncio.sleep(0.002)
            finished.append(message.payload)

        sub.subscribe("a.*", handler=handle)
        count = 100
        for number in range(count):
            await pub.publish("a.b", b"%d" % number)
        ends = time.monotonic() + DEADLINE
        while len(got) < count:
            assert time.monotonic() < ends
            try:
                got.append((await asyncio.wait_for(sub.receive(), 0.0005)).payload)
            except TimeoutError:
                continue
        assert got == [b"%d" % number for number in range(count)]
        assert started == got
        await until(lambda: len(finished) == count)
        assert sorted(finished) == sorted(got)


@in_a_loop
async def test_handlers_may_be_ordinary_or_async_and_one_that_raises_is_counted():
    async with pair("end") as (pub, sub):
        calls = []

        async def waits(message):
            await asyncio.sleep(0)
            calls.append("async")

        async def fails(message):
            await asyncio.sleep(0)
            raise RuntimeError("on purpose")

        def fails_at_once(message):
            raise RuntimeError("on purpose")

        for handler in (waits, fails, fails_at_once, lambda message: calls.append("plain")):
            sub.subscribe("a", handler=handler)
        await pub.wait_for_subscribers(2, timeout=DEADLINE)
        await pub.publish("a")
        await pub.publish("end")
        assert (await sub.receive(timeout=DEADLINE)).subject == "end"
        assert sorted(calls) == ["async", "plain"]
        assert sub.stats.failed == 2


@in_a_loop
async def test_a_handler_may_receive_and_end_other_subscriptions():
    async with pair("a", "end") as (pub, sub):
        got = []

        async def handle(message):
            own.unsubscribe()
            got.append((await sub.receive(timeout=DEADLINE)).subject)
            got.append((await sub.receive(timeout=DEADLINE)).subject)

        own = sub.subscribe("a", handler=handle)
        await pub.publish("a")
        await pub.publish("end")
        assert await sub.poll(DEADLINE * 1000)
        await pub.publish("end", b"last")
        assert (await sub.receive(timeout=DEADLINE)).payload == b"last"
        assert got == ["a", "end"]


# closing


@in_a_loop
async def test_closing_ends_what_waits():
    async with pair("a") as (_, sub):

        async def iterate():
            return [message async for message in sub]

        waiting = [
            asyncio.create_task(work)
            for work in (
                sub.receive(),
                sub.receive(timeout=DEADLINE),
                sub.recv_multipart(),
                iterate(),
                sub.run(),
            )
        ]
        await asyncio.sleep(0.01)
        sub.close()
        done = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), DEADLINE)
        assert [type(one) for one in done[:2]] == [oz.ClosedError] * 2
        assert isinstance(done[2], (oz.ClosedError, zmq.ZMQError))
        assert done[3:] == [[], 0]


@in_a_loop
async def test_closing_a_publisher_ends_waiting_for_subscribers():
    pub = oz.asyncio.Publisher("tcp://127.0.0.1:*")
    waiting = [asyncio.create_task(pub.wait_for_subscribers(timeout=time)) for time in (None, DEADLINE)]
    await asyncio.sleep(0.01)
    await pub.close()
    for task in waiting:
        with pytest.raises(oz.ClosedError):
            await asyncio.wait_for(task, DEADLINE)


@in_a_loop
async def test_a_cancelled_wait_is_a_cancelled_task_and_the_socket_goes_on():
    async with pair("a") as (pub, sub):
        for work in (sub.receive(), sub.recv_multipart(), pub.wait_for_subscribers(5)):
            task = asyncio.create_task(work)
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await pub.publish("a", b"x")
        assert (await sub.receive(timeout=DEADLINE)).payload == b"x"


@in_a_loop
async def test_use_after_close_is_a_clear_error():
    async with pair("a") as (pub, sub):
        await sub.close()
        await sub.close()
        await pub.close()
        await pub.close()
        for use in (
            lambda: sub.receive(),
            lambda: sub.receive(timeout=0),
            lambda: pub.publish("a"),
            lambda: pub.wait_for_subscribers(timeout=0),
        ):
            with pytest.raises(oz.ClosedError):
                await use()


@in_a_loop
async def test_closing_sends_what_was_published_and_holds_up_nobody():
    async with pair("a.*") as (pub, sub):
        for number in range(20_000):
            await pub.publish("a.b", b"%d" % number)
        ticker = Ticker()
        closing = pub.close(timeout=DEADLINE)
        for number in range(20_000):
            assert (await sub.receive(timeout=DEADLINE)).payload == b"%d" % number
        await closing
        assert ticker.count > 20
        ticker.stop()


# fairness


@pytest.mark.parametrize("kind", ["received", "handled", "unwanted"])
@in_a_loop
async def test_other_tasks_have_their_turn_under_a_flood(kind):
    count = 30_000
    async with pair("end", *(["a.*"] if kind == "received" else ["a.*.c"])) as (pub, sub):
        if kind == "handled":
            sub.subscribe("a.b", handler=lambda message: None)
            await pub.wait_for_subscribers(3, timeout=DEADLINE)
        for _ in range(count):
            await pub.publish("a.b" if kind != "unwanted" else "a.b.d")
        await pub.publish("end")
        # Wait until some have arrived, without taking them.
        await sub.poll(DEADLINE * 1000)
        ticker = Ticker()
        started = time.monotonic()
        longest = 0.0
        async for message in sub:
            longest = max(longest, time.monotonic() - started)
            if message.subject == "end":
                break
        assert sub.stats.received == count + 1
        # A turn is 10 ms at most; how many there are depends on the machine.
        assert ticker.count > 1
        ticker.stop()


@in_a_loop
async def test_waiting_for_subscribers_goes_on_while_another_task_publishes():
    for _ in range(20):
        async with oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub, oz.asyncio.Subscriber() as sub:
            sub.subscribe("a")
            waiting = asyncio.create_task(pub.wait_for_subscribers(timeout=DEADLINE))
            await asyncio.sleep(0)
            sub.connect(pub.endpoint)
            while not waiting.done():
                await pub.publish("a")
                await asyncio.sleep(0)
            await waiting


# loops and the pyzmq surface


def test_sockets_work_in_two_successive_loops():
    context = zmq.asyncio.Context()

    async def first():
        pub = oz.asyncio.Publisher("tcp://127.0.0.1:*", context=context)
        sub = oz.asyncio.Subscriber(pub.endpoint, context=context)
        sub.subscribe("a")
        await pub.wait_for_subscribers(timeout=DEADLINE)
        await pub.publish("a", b"1")
        assert (await sub.receive(timeout=DEADLINE)).payload == b"1"
        with pytest.raises(oz.Timeout):
            await sub.receive(timeout=0.01)
        return pub, sub

    async def second(pub, sub):
        waiting = asyncio.create_task(sub.receive(timeout=DEADLINE))
        await asyncio.sleep(0.01)
        await pub.publish("a", b"2")
        assert (await waiting).payload == b"2"

    pub, sub = asyncio.run(first())
    asyncio.run(second(pub, sub))
    sub.close()
    pub.close()
    context.destroy(0)


@in_a_loop
async def test_the_calls_of_pyzmq_give_only_what_is_wanted():
    async with pair("a.*.c") as (pub, sub):
        for subject in ("a.b.d", "a.b.c", "a.b.d", "a.x.c", "a.y.c"):
            await pub.publish(subject, b'{"n": 1}')
        assert await sub.recv_multipart() == [b"a.b.c", b'{"n": 1}']
        assert await sub.recv_string() == "a.x.c"
        assert sub.getsockopt(zmq.RCVMORE)
        assert await sub.poll(0) == zmq.POLLIN
        assert await sub.recv_json() == {"n": 1}
        assert not sub.getsockopt(zmq.RCVMORE)
        assert await sub.recv() == b"a.y.c"
        assert await sub.recv_multipart() == [b'{"n": 1}']
        with pytest.raises(zmq.Again):
            await sub.recv_multipart(zmq.NOBLOCK)
        sub.set(zmq.RCVTIMEO, 10)
        with pytest.raises(zmq.Again):
            await sub.recv_multipart()


@in_a_loop
async def test_unsubscribing_stops_also_what_run_has_put_in_line():
    async with pair("a", "b") as (pub, sub):
        await pub.publish("a")
        await pub.publish("b")
        running = asyncio.create_task(sub.run())
        await until(lambda: sub.stats.delivered == 2)
        sub.unsubscribe("a")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await sub.receive(timeout=0)).subject == "b"


@in_a_loop
async def test_a_failed_construction_in_a_loop_leaves_nothing_open():
    for options in ({"bind": "tcp://192.0.2.1:1"}, {"connect": "nonsense"}, {"high_water_mark": -1}):
        for kind in (oz.asyncio.Publisher, oz.asyncio.Subscriber):
            with pytest.raises((ValueError, zmq.ZMQError)):
                kind(**options)
