"""Publisher of asyncio: turns of the loop, cancellation, other loops, no thread."""

import asyncio
import gc
import threading

import pytest

from oz.errors import Timeout
from oz.options import Options
from oz.publisher.aio import Publisher
from publisher.scripted import Peer

uvloop = pytest.importorskip("uvloop")

SMALL = Options(resume_bytes=1_000, high_water_mark=50)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    def run(work):
        if request.param == "asyncio":
            return asyncio.run(asyncio.wait_for(work, 60))
        return uvloop.run(asyncio.wait_for(work, 60))

    return run


async def turned(peer, condition):
    """Turn a subscriber until a condition holds, while the loop runs."""
    while not condition():
        peer.turn(0)
        await asyncio.sleep(0.001)


async def joined(publisher, *texts, **options):
    peer = Peer(publisher.link_endpoints[0], *texts, **options)
    await turned(peer, lambda: peer.link.is_answered)
    return peer


def test_a_publisher_has_no_thread(run):
    async def main():
        before = threading.active_count()
        publisher = Publisher("tcp://127.0.0.1:*")
        peer = await joined(publisher, "a")
        assert threading.active_count() == before
        peer.close()
        await publisher.close(timeout=0)

    run(main())


def test_a_cancelled_wait_leaves_the_publisher_usable(run):
    async def main():
        publisher = Publisher("tcp://127.0.0.1:*")
        waiting = asyncio.ensure_future(publisher.wait_for_subscribers("a", timeout=None))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(Timeout):
            await publisher.wait_for_subscribers("a", timeout=0.01)
        assert not publisher._engine.waiters
        peer = await joined(publisher, "a")
        await publisher.publish("a", b"x")
        await turned(peer, lambda: peer.messages)
        peer.close()
        await publisher.close(timeout=0)

    run(main())


def test_a_cancelled_publish_that_waits_is_not_published(run):
    async def main():
        publisher = Publisher("tcp://127.0.0.1:*", on_full="block", options=SMALL)
        peer = await joined(publisher, "a")
        peer.is_acking = False
        count = 0

        async def publish():
            nonlocal count
            while True:
                async with asyncio.timeout(1):
                    await publisher.publish("a", b"%d" % count + b"x" * 60)
                count += 1

        with pytest.raises(TimeoutError):
            await publish()
        peer.is_acking = True
        await turned(peer, lambda: len(peer.messages) >= count)
        await publisher.publish("a", b"last")
        await turned(peer, lambda: peer.payloads[-1] == b"last")
        assert len(peer.messages) == count + 1
        peer.close()
        await publisher.close(timeout=0)

    run(main())


def test_publish_many_from_an_asynchronous_iterable(run):
    async def pairs():
        for number in range(10):
            yield "a", b"%d" % number

    async def main():
        async with Publisher("tcp://127.0.0.1:*") as publisher:
            peer = await joined(publisher, "a")
            assert await publisher.publish_many(pairs()) == 10
            await turned(peer, lambda: len(peer.messages) == 10)
            peer.close()

    run(main())


def test_endpoints_change_at_the_call_and_may_be_awaited(run):
    async def main():
        async with Publisher() as publisher:
            await publisher.bind("tcp://127.0.0.1:*")
            endpoint = publisher.endpoint
            await publisher.connect("tcp://127.0.0.1:9")
            assert publisher.endpoints == (endpoint, "tcp://127.0.0.1:9")
            await publisher.disconnect("tcp://127.0.0.1:9")
            publisher.unbind(endpoint)
            assert publisher.endpoints == ()

    run(main())


def test_a_publisher_that_is_made_outside_a_loop(run):
    publisher = Publisher("tcp://127.0.0.1:*")

    async def main():
        with pytest.raises(Timeout):
            await publisher.wait_for_subscribers(timeout=0)
        peer = await joined(publisher, "a")
        publisher.publish("a", b"x")
        await turned(peer, lambda: peer.messages)
        peer.close()
        await publisher.close(timeout=0)

    run(main())


def test_a_publisher_that_is_garbage_warns_and_closes(run):
    async def main():
        publisher = Publisher("tcp://127.0.0.1:*")
        endpoint = publisher.endpoint
        await asyncio.sleep(0)
        with pytest.warns(ResourceWarning, match="unclosed"):  # noqa: PT031
            del publisher
            gc.collect()
        await asyncio.sleep(0.01)
        again = Publisher(endpoint)
        await again.close()

    run(main())


def test_a_cancelled_close_may_be_called_again(run):
    async def main():
        publisher = Publisher("tcp://127.0.0.1:*")
        peer = await joined(publisher, "a")
        publisher.publish("a", b"x")
        closing = asyncio.ensure_future(publisher.close(timeout=None))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        again = asyncio.ensure_future(publisher.close())
        await turned(peer, lambda: peer.link.state == "ended")
        assert await again == 0
        peer.close()

    run(main())
