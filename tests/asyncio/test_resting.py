"""A publisher in a loop is looked after when something comes or is due, and misses nothing by it."""

import asyncio
import select

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio
from support.inside import engine_of
from support.waiting import DEADLINE

LOOPBACK = "tcp://127.0.0.1:*"


async def rests(pub):
    async with asyncio.timeout(DEADLINE):
        while engine_of(pub)._timer is not None:
            await asyncio.sleep(0.01)


def test_a_subscriber_is_answered_by_a_publisher_that_rests():
    async def main():
        with zmq.asyncio.Context() as context:
            async with oz.asyncio.Publisher(LOOPBACK, context=context) as pub:
                await rests(pub)
                async with oz.asyncio.Subscriber(pub.endpoint, context=context, filtering="publisher") as sub:
                    sub.subscribe("a")
                    await sub.wait_ready(timeout=DEADLINE)
                    # Its streams are told where they stand.
                    assert engine_of(pub)._timer is not None
                await pub.close(0)

    asyncio.run(main())


def test_who_uses_the_socket_in_a_burst_has_the_loop_look_again():
    async def main():
        with zmq.asyncio.Context() as context:
            async with (
                oz.asyncio.Publisher(LOOPBACK, context=context) as pub,
                oz.asyncio.Subscriber(pub.endpoint, context=context) as sub,
            ):
                sub.subscribe("a")
                await pub.wait_for_subscribers(timeout=DEADLINE)
                await rests(pub)
                # It looks itself, as it was quiet.
                await pub.publish("a", b"")
                assert engine_of(pub)._timer is None
                # As if it had looked a moment ago.
                engine_of(pub).sender.listened_at = float("inf")
                await pub.publish("a", b"")
                assert engine_of(pub)._timer is not None
                await rests(pub)
                await pub.close(0)

    asyncio.run(main())


def counted(pub, name):
    """Return what grows by one whenever a method of the engine is called."""
    method, calls = getattr(engine_of(pub), name), []
    setattr(engine_of(pub), name, lambda *given: (calls.append(1), method(*given))[1])
    return calls


def test_waiting_for_subscribers_looks_only_when_there_is_news():
    async def main():
        async with oz.asyncio.Publisher(LOOPBACK) as pub:
            looks = counted(pub, "enough")
            with pytest.raises(oz.Timeout):
                await pub.wait_for_subscribers(timeout=0.5)
            assert len(looks) < 6

    asyncio.run(main())


def test_waiting_for_subscribers_ends_when_the_publisher_is_closed():
    async def main():
        async with oz.asyncio.Publisher(LOOPBACK) as pub:
            looks = counted(pub, "enough")
            waiting = asyncio.ensure_future(pub.wait_for_subscribers())
            while not looks:
                await asyncio.sleep(0)
            await pub.close()
            with pytest.raises(oz.ClosedError):
                async with asyncio.timeout(DEADLINE):
                    await waiting

    asyncio.run(main())


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_a_publisher_without_room_tries_again_only_when_there_may_be_some(filtering):
    """libzmq tells of room by the socket's file descriptor, which the loop watches."""

    async def main():
        with zmq.asyncio.Context() as context:
            async with (
                oz.asyncio.Publisher(LOOPBACK, context=context, on_full="block", high_water_mark=1) as pub,
                oz.asyncio.Subscriber(
                    pub.endpoint, context=context, filtering=filtering, high_water_mark=1
                ) as sub,
            ):
                sub.subscribe("a")
                await pub.wait_for_subscribers(timeout=DEADLINE)
                attempts = counted(pub, "publish_again")
                sending = [asyncio.create_task(pub.publish_many(("a", bytes(1_000_000)) for _ in range(20)))]
                async with asyncio.timeout(DEADLINE):
                    while not attempts:
                        await asyncio.sleep(0)
                    begun = len(attempts)
                    await asyncio.wait(sending, timeout=0.5)
                    # Some for each message that libzmq writes; looking all the time comes to thousands.
                    assert len(attempts) - begun < 200
                    for _ in range(20):
                        await sub.receive()
                    assert await sending[0] == 20
                await pub.close(0)

    asyncio.run(main())


def test_uvloop_may_be_about_to_look_when_the_socket_is_used():
    uvloop = pytest.importorskip("uvloop")

    async def main():
        async with oz.asyncio.Publisher(LOOPBACK) as pub:
            engine_of(pub)._come_back(0.0)
            engine_of(pub).stay_watchful()

    uvloop.run(main())


def subscribe_while_it_is_not_looked(pub, sub, subject):
    """Subscribe, and wait without the loop until the publisher's socket has the sign of it."""
    sub.subscribe(subject)
    select.select([engine_of(pub).socket.fileno()], [], [], DEADLINE)


async def hears_by_itself(pub, subject):
    """Wait until a subscription counts, without any call that would look for it."""
    async with asyncio.timeout(DEADLINE):
        while not engine_of(pub).sender.routes.count(subject):
            await asyncio.sleep(0.01)


def through_poller(flags):
    def poll(pub):
        poller = zmq.asyncio.Poller()
        poller.register(pub, flags)
        return poller.poll(100)

    return poll


POLLS = {
    "at once": lambda pub: pub.poll(0),
    "room at once": lambda pub: pub.poll(0, zmq.POLLOUT),
    "news": lambda pub: pub.poll(100),
    "room": lambda pub: pub.poll(100, zmq.POLLOUT),
    "news through a poller": through_poller(zmq.POLLIN),
    "room through a poller": through_poller(zmq.POLLOUT),
}


@pytest.mark.parametrize("polled", POLLS)
def test_who_polls_a_publisher_takes_no_subscription_from_it(polled):
    async def main():
        async with oz.asyncio.Publisher(LOOPBACK) as pub:
            with oz.Subscriber(pub.endpoint, filtering="prefix") as sub:
                sub.subscribe("first")
                await pub.wait_for_subscribers(subject="first", timeout=DEADLINE)
                await rests(pub)
                subscribe_while_it_is_not_looked(pub, sub, "second")
                await POLLS[polled](pub)
                await hears_by_itself(pub, "second")
            await pub.close(0)

    asyncio.run(main())


def test_what_comes_while_pyzmq_asks_for_events_is_heard(monkeypatch):
    ask, asked = zmq.asyncio.Socket._handle_events, []

    async def main():
        async with oz.asyncio.Publisher(LOOPBACK) as pub:
            with oz.Subscriber(pub.endpoint, filtering="prefix") as sub:
                sub.subscribe("first")
                await pub.wait_for_subscribers(subject="first", timeout=DEADLINE)
                polling = asyncio.ensure_future(pub.poll())
                await rests(pub)

                def ask_late(socket, *given):
                    if not asked:
                        asked.append(socket)
                        subscribe_while_it_is_not_looked(pub, sub, "third")
                    ask(socket, *given)

                monkeypatch.setattr(zmq.asyncio.Socket, "_handle_events", ask_late)
                sub.subscribe("second")
                await hears_by_itself(pub, "third")
                assert asked == [pub]
                polling.cancel()
            await pub.close(0)

    asyncio.run(main())
