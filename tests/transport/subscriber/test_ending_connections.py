"""Connections that end while ZeroMQ has the first frame of a message in hand, which would end the process."""

import pytest
import zmq

import oz
from support import scripts
from support.waiting import DEADLINE

_SYNC = """
import sys, oz, zmq
context = zmq.Context()
plain = context.socket(zmq.XPUB)
endpoint = sys.argv[1]
plain.bind(endpoint)
endpoint = plain.last_endpoint.decode()
with oz.Subscriber(context=context) as subscriber:
    subscriber.subscribe("a.>")
    subscriber.connect(endpoint)
    plain.recv()
    plain.send_multipart([b"a.b", b"x"])
    poller = zmq.Poller()
    poller.register(subscriber, zmq.POLLIN)
    assert poller.poll(30_000)
    subscriber.disconnect(endpoint)
    assert subscriber.receive(timeout=30).payload == b"x"
plain.close(0)
context.term()
"""

_ASYNC = """
import asyncio, sys, oz.asyncio, zmq
async def main():
    context = zmq.Context()
    plain = context.socket(zmq.XPUB)
    plain.bind(sys.argv[1])
    endpoint = plain.last_endpoint.decode()
    async with oz.asyncio.Subscriber(context=zmq.asyncio.Context.shadow(context)) as subscriber:
        subscriber.subscribe("a.>")
        subscriber.connect(endpoint)
        plain.recv()
        plain.send_multipart([b"a.b", b"x"])
        assert await subscriber.poll(30_000)
        subscriber.disconnect(endpoint)
        assert (await subscriber.receive(timeout=30)).payload == b"x"
    plain.close(0)
    context.term()
asyncio.run(main())
"""

_LARGE = """
import contextlib, sys, oz, zmq
context = zmq.Context()
with (
    oz.Publisher(sys.argv[1], context=context) as publisher,
    oz.Subscriber(context=context, filtering="publisher") as subscriber,
):
    endpoint = publisher.endpoint
    subscriber.subscribe("a.>")
    subscriber.connect(endpoint)
    subscriber.wait_ready(timeout=30)
    publisher.publish("a.b", bytes(100_000))
    poller = zmq.Poller()
    poller.register(subscriber, zmq.POLLIN)
    assert poller.poll(30_000)
    subscriber.disconnect(endpoint)
    # What was announced may have been a heartbeat, and the message still on its way.
    with contextlib.suppress(oz.Timeout):
        assert len(subscriber.receive(timeout=0.5).payload) == 100_000
context.term()
"""


@pytest.mark.heavy
@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "inproc://here"])
@pytest.mark.parametrize("program", [_SYNC, _ASYNC, _LARGE], ids=["sync", "asyncio", "large"])
def test_what_was_announced_is_received_after_its_connection_has_ended(program, endpoint):
    scripts.run("-c", program, endpoint)


def test_a_handler_is_given_what_was_announced():
    got = []
    with oz.Publisher("tcp://127.0.0.1:*") as publisher, oz.Subscriber() as subscriber:
        subscriber.subscribe("a.>", handler=got.append)
        subscriber.connect(publisher.endpoint)
        publisher.wait_for_subscribers(1, timeout=DEADLINE)
        publisher.publish("a.b", b"x")
        poller = zmq.Poller()
        poller.register(subscriber, zmq.POLLIN)
        assert poller.poll(1000 * DEADLINE)
        subscriber.disconnect(publisher.endpoint)
        assert [message.payload for message in got] == [b"x"]
