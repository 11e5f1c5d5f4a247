"""How an asyncio publisher with routed subscribers closes: it says goodbye, and holds up nobody."""

import asyncio
from contextlib import suppress

import pytest
import zmq
import zmq.asyncio

import oz.asyncio
from oz.protocol.subscriber import publishers
from oz.transport.publisher import closing as publisher_closing
from support.inside import engine_of
from support.waiting import DEADLINE, Thread, until


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Only a goodbye makes a publisher count as gone."""
    monkeypatch.setattr(publishers, "SILENCE", 10 * DEADLINE)


@pytest.fixture
def sub():
    """A subscriber that publishers connect to, so that it does not know how many there are."""
    with oz.Subscriber(bind="tcp://127.0.0.1:*", filtering="publisher") as made:
        made.subscribe("a.*")
        yield made


@pytest.fixture
def other(sub):
    with oz.Publisher(connect=sub.endpoint) as made:
        until(lambda: len(heard(sub)) == 1)
        yield made


@pytest.fixture
def farewell():
    """Set for how long a publisher stays when it has said goodbye. Undone before the other one is closed."""
    with pytest.MonkeyPatch.context() as patch:
        yield lambda seconds: patch.setattr(publisher_closing, "_FAREWELL", seconds)


def heard(sub):
    """The publishers that count."""
    try:
        sub.wait_ready(timeout=0)
    except oz.Timeout:
        return []
    return engine_of(sub).declarer.streams.publishers.alive()


async def met(sub, **options):
    """Make a publisher that the subscriber counts."""
    before = len(heard(sub))
    pub = oz.asyncio.Publisher(connect=sub.endpoint, **options)
    ends = asyncio.get_running_loop().time() + DEADLINE
    while len(heard(sub)) == before:
        assert asyncio.get_running_loop().time() < ends
        await asyncio.sleep(0.002)
    return pub


def check_gone(sub):
    """Only the other publisher is waited for."""
    until(lambda: len(heard(sub)) == 1)
    sub.subscribe("b.*")
    sub.wait_ready(timeout=DEADLINE)


def test_one_that_closed_in_order_is_not_waited_for(sub, other):
    async def main():
        async with await met(sub):
            assert len(heard(sub)) == 2

    asyncio.run(main())
    check_gone(sub)


def test_one_whose_closing_is_not_awaited_says_goodbye_too(sub, other):
    async def main():
        pub = await met(sub)
        pub.close()
        # The loop ends before the closing has begun.
        return pub

    assert asyncio.run(main()).closed
    check_gone(sub)


def test_closing_that_is_cancelled_goes_on(sub, other, farewell):
    farewell(10 * DEADLINE)

    async def main():
        pub = await met(sub)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pub.close(), 0.1)
        assert not pub.closed
        return pub

    assert asyncio.run(main()).closed
    check_gone(sub)


def test_the_loop_goes_on_meanwhile(sub, other, farewell):
    farewell(10 * DEADLINE)

    async def main():
        pub = await met(sub)
        closing = asyncio.ensure_future(pub.close())
        for _ in range(20):
            assert not closing.done()
            with pytest.raises(oz.ClosedError):
                await pub.publish("a.b")
            await asyncio.sleep(0.001)
        # Closing once more ends it.
        await pub.close()
        closing.cancel()

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    check_gone(sub)


def test_nobody_is_told_anything_after_the_goodbye(sub, other, farewell):
    farewell(0.5)

    async def main():
        pub = await met(sub)
        engine_of(pub).records.beats_at = 0.0
        closing = pub.close()
        while len(heard(sub)) == 2:
            await asyncio.sleep(0.002)
        # It would answer that.
        sub.subscribe("b.*")
        sub.wait_ready(timeout=DEADLINE)
        await closing

    asyncio.run(main())
    assert len(heard(sub)) == 1


def test_closing_again_ends_it(sub, other, farewell):
    farewell(10 * DEADLINE)

    async def main():
        pub = await met(sub)
        pub.close()
        await asyncio.sleep(0.01)
        await pub.close()
        assert pub.closed

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    check_gone(sub)


def test_a_context_of_ones_own_can_be_ended_right_after_closing(sub, other):
    async def main():
        context = zmq.asyncio.Context()
        pub = await met(sub, context=context)
        pub.close()
        context.term()

    asyncio.run(main())
    check_gone(sub)


def test_it_closes_after_its_context_was_ended(sub, other):
    async def main():
        context = zmq.asyncio.Context()
        pub = await met(sub, context=context)
        ending = asyncio.ensure_future(asyncio.to_thread(context.term))
        await asyncio.sleep(0.1)
        await pub.close()
        await asyncio.wait_for(ending, DEADLINE)
        assert pub.closed

    asyncio.run(main())


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_the_loop_ends_though_a_close_that_is_cancelled_would_wait_for_ever(filtering):
    async def publish_and_close(pub):
        for _ in range(2_000):
            await pub.publish("a.b", bytes(20_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pub.close(linger=-1), 0.2)

    async def main():
        pub = oz.asyncio.Publisher("tcp://127.0.0.1:*", high_water_mark=0)
        with oz.Subscriber(pub.endpoint, filtering=filtering, high_water_mark=1) as reader:
            reader.subscribe("a.*")
            await pub.wait_for_subscribers(timeout=DEADLINE)
            await publish_and_close(pub)
        # What comes now is the end of the loop.

    thread = Thread(lambda: asyncio.run(main()))
    thread.outcome()


@pytest.mark.parametrize("shared", [False, True], ids=["plain", "shared"])
def test_a_full_subscriber_learns_of_lost_messages_when_it_closes(shared):
    published = 2_000

    async def main():
        pub = oz.asyncio.Publisher("tcp://127.0.0.1:*", high_water_mark=2)
        with oz.Subscriber(pub.endpoint, filtering="publisher", shared=shared, high_water_mark=2) as reader:
            for number in range(15):
                reader.subscribe(f"n.{number}")
            await asyncio.to_thread(reader.wait_ready, timeout=DEADLINE)
            for number in range(published):
                await pub.publish(f"n.{number % 15}", bytes(5_000))
                await pub.flush()
            closing = asyncio.ensure_future(close(pub))
            # It would have given up by then.
            await asyncio.wait([closing], timeout=0.3)
            await asyncio.to_thread(until, lambda: counted(reader) >= published)
            await closing
            assert counted(reader) == published
            assert reader.stats.lost > 0

    async def close(pub):
        await pub.close(timeout=DEADLINE)

    def counted(reader):
        with suppress(oz.Timeout):
            reader.receive_many(1_000, timeout=0.02)
        return reader.stats.delivered + reader.stats.lost

    asyncio.run(main())


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_a_poll_that_begins_when_all_is_drained_does_not_wait_for_what_never_comes(filtering):
    async def main():
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
            oz.asyncio.Subscriber(pub.endpoint, filtering=filtering) as reader,
        ):
            reader.subscribe("a.*")
            await pub.wait_for_subscribers(timeout=DEADLINE)
            await reader.drain(timeout=DEADLINE if filtering == "publisher" else 0.1)
            async with asyncio.timeout(DEADLINE):
                # As one that waited meanwhile: what it is told to read is that it is over.
                assert await reader.poll() == zmq.POLLIN
            with pytest.raises(zmq.ZMQError):
                await reader.recv_multipart(zmq.NOBLOCK)
            assert await reader.poll(0) == 0

    asyncio.run(main())
