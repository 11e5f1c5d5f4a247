"""A publisher that comes back with a key that is not trusted, while a subscriber waits for messages."""

import asyncio

import pytest
import zmq

import oz
import oz.asyncio
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

LAST = b"last"

WAITS = {
    "receive": lambda sub: sub.receive(),
    "receive within": lambda sub: sub.receive(timeout=DEADLINE),
    "iteration": lambda sub: next(iter(sub)),
    "receive_many": lambda sub: sub.receive_many(),
    "receive_batches": lambda sub: sub.receive_batches(),
    "run": lambda sub: sub.run(),
    "recv_multipart": lambda sub: sub.recv_multipart(),
}


@pytest.fixture
def waits_behind_the_last_message(ring):
    """Wait at a publisher that has another key, which is not trusted, as soon as all has come."""
    threads = []

    def wait(work):
        heard = []
        with oz.Publisher("tcp://127.0.0.1:*", security=ring.security("feed")) as pub:
            endpoint = pub.endpoint
            threads.append(Thread(lambda: work(endpoint, heard)))

            def is_heard():
                pub.publish("md.x", b"")
                return bool(heard)

            until(is_heard)
            pub.publish("md.x", LAST)
        ring.make("stranger")
        with oz.Publisher(endpoint, security=ring.security("stranger")):
            threads[0].outcome()

    return wait


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
@pytest.mark.parametrize("way", WAITS)
def test_whoever_waits_without_end_is_told(ring, waits_behind_the_last_message, filtering, way):
    def work(endpoint, heard):
        with oz.Subscriber(endpoint, filtering=filtering, security=ring.security("desk")) as sub:
            sub.subscribe("md.>")
            while (message := sub.receive()).payload != LAST:
                heard.append(message)
            WAITS[way](sub)

    with pytest.raises(oz.PermissionDenied, match="has no key that this side trusts"):
        waits_behind_the_last_message(work)


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_the_same_on_asyncio(ring, waits_behind_the_last_message, filtering):
    async def run(endpoint, heard):
        security = ring.security("desk")
        async with oz.asyncio.Subscriber(endpoint, filtering=filtering, security=security) as sub:
            sub.subscribe("md.>")
            while (message := await sub.receive()).payload != LAST:
                heard.append(message)
            await sub.receive()

    with pytest.raises(oz.PermissionDenied, match="has no key that this side trusts"):
        waits_behind_the_last_message(lambda *given: asyncio.run(run(*given)))
