"""Waiting for longer than anything inside waits at a time: every way to wait, side by side."""

import asyncio
import itertools
import time
from contextlib import suppress

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio
from oz.transport.subscriber.declarations import Declarer
from support.inside import engine_of
from support.waiting import DEADLINE, Thread, until

SILENCE = 1.2
"""Seconds before the first message; no wait inside is cut into pieces so long."""

FILTERINGS = {
    "prefix": {},
    "publisher": {"filtering": "publisher"},
    "shared": {"filtering": "publisher", "shared": True},
}


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    if request.param == "asyncio":
        return asyncio.run
    return pytest.importorskip("uvloop").run


# how to wait for one message; each gives its payload


async def receive(sub):
    return (await sub.receive()).payload


async def receive_with_timeout(sub):
    return (await sub.receive(timeout=DEADLINE)).payload


async def iterate(sub):
    async for message in sub:
        return message.payload


async def receive_many(sub):
    return (await sub.receive_many())[0].payload


async def receive_batches(sub):
    return (await sub.receive_batches())[0].payloads[0]


async def receive_batches_with_timeout(sub):
    return (await sub.receive_batches(timeout=DEADLINE))[0].payloads[0]


async def recv_multipart(sub):
    return (await sub.recv_multipart())[1]


async def recv(sub):
    return (await sub.recv(), await sub.recv())[1]


async def recv_string(sub):
    return (await sub.recv_string(), await sub.recv_string())[1].encode()


async def poll(sub):
    assert await sub.poll() == zmq.POLLIN
    return (await sub.recv_multipart())[1]


async def poll_with_timeout(sub):
    assert await sub.poll(int(1000 * DEADLINE)) == zmq.POLLIN
    return (await sub.recv_multipart())[1]


async def pyzmqs_poller(sub):
    poller = zmq.asyncio.Poller()
    poller.register(sub, zmq.POLLIN)
    assert await poller.poll() == [(sub, zmq.POLLIN)]
    return (await sub.recv_multipart())[1]


async def handler(sub):
    got = []
    with suppress(oz.ClosedError):
        one = sub.subscribe("a.*", handler=lambda message: (got.append(message.payload), sub.close()))
        if engine_of(sub).declarer.streams is not None:
            await sub.wait_ready(DEADLINE)
        assert one.active
        await sub.run()
    return got[0]


WAYS = [
    receive,
    receive_with_timeout,
    iterate,
    receive_many,
    receive_batches,
    receive_batches_with_timeout,
    recv_multipart,
    recv,
    recv_string,
    poll,
    poll_with_timeout,
    pyzmqs_poller,
    handler,
]


async def idle(way, options, *, rcvtimeo=None, is_cancelled=False):
    """Wait through the silence, and give what came then."""
    async with (
        oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
        oz.asyncio.Subscriber(pub.endpoint, **options) as sub,
    ):
        if rcvtimeo is not None:
            sub.rcvtimeo = rcvtimeo
        sub.subscribe("a.*")
        await pub.wait_for_subscribers(timeout=DEADLINE)
        waiting = asyncio.create_task(way(sub))
        if is_cancelled:
            await asyncio.sleep(SILENCE / 3)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            waiting = asyncio.create_task(way(sub))
        await asyncio.sleep(SILENCE)
        assert not waiting.done(), (way.__name__, options, waiting)
        await pub.publish("a.b", b"1")
        return await asyncio.wait_for(waiting, DEADLINE)


@pytest.mark.heavy
def test_every_way_to_wait_outlasts_a_silence(run):
    async def main():
        cases = [
            (way, options, {"is_cancelled": is_cancelled})
            for way in WAYS
            for options in FILTERINGS.values()
            for is_cancelled in ((False,) if way is handler else (False, True))
        ]
        got = await asyncio.gather(*(idle(way, options, **how) for way, options, how in cases))
        assert got == [b"1"] * len(cases)

    run(main())


def test_rcvtimeo_means_nothing_to_calls_of_oz_nor_to_polling(run):
    async def main():
        ways = [way for way in WAYS if not way.__name__.startswith(("recv", "poll", "pyzmq"))]
        ways.append(polling)
        cases = itertools.product(ways, FILTERINGS.values())
        got = await asyncio.gather(*(idle(way, options, rcvtimeo=100) for way, options in cases))
        assert set(got) == {b"1"}

    async def polling(sub):
        assert await sub.poll() == zmq.POLLIN
        sub.set(zmq.RCVTIMEO, -1)
        return (await sub.recv_multipart())[1]

    run(main())


def test_rcvtimeo_means_to_calls_of_pyzmq_what_it_does_there(run):
    async def main():
        await asyncio.gather(*(one(way, options) for way in RECV for options in FILTERINGS.values()))

    async def one(way, options):
        async with oz.asyncio.Subscriber(**options) as sub:
            sub.subscribe("a.*")
            with pytest.raises(zmq.ZMQError):
                sub.rcvtimeo = -2
            for setting in (lambda: sub.set(zmq.RCVTIMEO, 400), lambda: setattr(sub, "rcvtimeo", 600)):
                setting()
                began = time.monotonic()
                with pytest.raises(zmq.Again):
                    await asyncio.wait_for(way(sub), DEADLINE)
                assert sub.rcvtimeo == sub.get(zmq.RCVTIMEO) in (400, 600)
                assert time.monotonic() - began >= sub.rcvtimeo / 1000 - 0.01
            sub.close(timeout=0)

    RECV = [recv_multipart, recv, recv_string]
    run(main())


def test_what_is_due_is_done_while_a_task_waits(run, monkeypatch):
    async def main():
        await asyncio.gather(*(one(way) for way in (receive, iterate, poll, pyzmqs_poller, receive_batches)))

    async def one(way):
        async with oz.asyncio.Subscriber(filtering="publisher") as sub:
            sub.subscribe("a.*")
            waiting = asyncio.create_task(way(sub))
            await asyncio.sleep(0)
            declarer = engine_of(sub).declarer
            before = done.count(declarer)
            while done.count(declarer) < before + 2:
                await asyncio.sleep(0.01)
            waiting.cancel()
            sub.close(timeout=0)

    done = []
    monkeypatch.setattr(Declarer, "look", lambda self, now, **_: done.append(self))
    run(asyncio.wait_for(main(), DEADLINE))


def test_what_one_task_has_read_is_news_to_one_that_waits_for_an_answer(run):
    async def main():
        async with oz.asyncio.Subscriber(filtering="publisher") as sub:

            def steps():
                yield 10 * DEADLINE
                return "looked"

            looking = asyncio.create_task(sub._waiter.run(steps()))
            await asyncio.sleep(0)
            # It looks for messages, may have taken in an answer, and waits on.
            receiving = asyncio.create_task(sub.receive())
            assert await looking == "looked"
            receiving.cancel()

    run(asyncio.wait_for(main(), DEADLINE))


@pytest.mark.parametrize("filtering", FILTERINGS)
def test_draining_ends_the_iteration_of_another_task(run, filtering):
    async def main():
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
            oz.asyncio.Subscriber(pub.endpoint, **FILTERINGS[filtering]) as sub,
        ):
            sub.subscribe("a")
            await pub.wait_for_subscribers(timeout=DEADLINE)

            async def iterate():
                async for message in sub:
                    assert message.payload == b"1"

            others = [asyncio.create_task(iterate()) for _ in range(2)]
            others.append(asyncio.create_task(raises_closed(sub.receive())))
            others.append(asyncio.create_task(raises_closed(sub.receive_many())))
            others.append(asyncio.create_task(raises_closed(sub.receive_batches())))
            await pub.publish("a", b"1")
            while not sub.stats.delivered:
                await asyncio.sleep(0.001)
            await sub.drain()
            await asyncio.gather(*others)

    async def raises_closed(waiting):
        with suppress(oz.ClosedError):
            # One of them has the message.
            await waiting

    run(asyncio.wait_for(main(), DEADLINE))


@pytest.mark.parametrize("filtering", FILTERINGS)
def test_closing_ends_polls_as_it_does_in_pyzmq(run, filtering):
    async def main():
        sub = oz.asyncio.Subscriber("tcp://127.0.0.1:1", **FILTERINGS[filtering])
        sub.subscribe("a")
        poller = zmq.asyncio.Poller()
        poller.register(sub, zmq.POLLIN)
        waiting = [asyncio.ensure_future(one) for one in (sub.poll(), sub.poll(10**6), poller.poll())]
        await asyncio.sleep(0.01)
        sub.close(timeout=0)
        await asyncio.wait(waiting)
        assert all(one.cancelled() for one in waiting)

    run(asyncio.wait_for(main(), DEADLINE))


def test_tasks_share_what_came_in_one_batch(run):
    async def main():
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
            oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub,
        ):
            sub.subscribe("a")
            await sub.wait_ready(DEADLINE)
            tasks = [asyncio.create_task(sub.receive()) for _ in range(5)]
            tasks.append(asyncio.ensure_future(sub.poll()))
            await asyncio.sleep(0)
            with pub.batch():
                for number in range(6):
                    await pub.publish("a", b"%d" % number)
            *messages, events = await asyncio.gather(*tasks)
            assert {one.payload for one in messages} < {b"%d" % number for number in range(6)}
            assert events == zmq.POLLIN

    run(asyncio.wait_for(main(), DEADLINE))


# the blocking subscriber waits the same ways, one thread each

BLOCKING = {
    "receive": lambda sub: sub.receive().payload,
    "receive with timeout": lambda sub: sub.receive(DEADLINE).payload,
    "iteration": lambda sub: next(iter(sub)).payload,
    "receive_many": lambda sub: sub.receive_many()[0].payload,
    "receive_batches": lambda sub: sub.receive_batches()[0].payloads[0],
    "recv_multipart": lambda sub: sub.recv_multipart()[1],
    "recv_string": lambda sub: (sub.recv_string(), sub.recv_string())[1].encode(),
    "poll": lambda sub: sub.poll() and sub.recv_multipart()[1],
    "oz.Poller": lambda sub: ozs_poller(sub),
}


def ozs_poller(sub):
    poller = oz.Poller()
    poller.register(sub, zmq.POLLIN)
    assert poller.poll() == [(sub, zmq.POLLIN)]
    return sub.recv_multipart()[1]


def test_every_way_to_block_outlasts_a_silence():
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        subs = []
        for way, options in itertools.product(BLOCKING.values(), FILTERINGS.values()):
            sub = oz.Subscriber(pub.endpoint, **options)
            sub.subscribe("a.*")
            subs.append((sub, way))
        pub.wait_for_subscribers(len(subs), timeout=DEADLINE)
        threads = [Thread(lambda sub=sub, way=way: way(sub)) for sub, way in subs]
        time.sleep(SILENCE)
        assert all(thread.is_alive() for thread in threads)
        until(lambda: pub.interest("a.b"))
        pub.publish("a.b", b"1")
        assert [thread.outcome() for thread in threads] == [b"1"] * len(threads)
        for sub, _ in subs:
            sub.close(0)
