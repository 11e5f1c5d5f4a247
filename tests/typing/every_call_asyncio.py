"""Calls of `oz.asyncio` whose types differ from the types in `oz`. mypy checks them; no test runs them.

`tests/api/test_twins.py` checks that the other calls have the same arguments and results.
"""

from typing import Any, assert_type

import zmq
import zmq.asyncio
from every_call import print_event, print_gap

import oz
import oz.asyncio


async def drop_in_sockets(
    sub_socket: oz.asyncio.SubSocket, pub_socket: oz.asyncio.PubSocket, context: zmq.asyncio.Context
) -> None:
    sub_socket.subscribe("a.*", dialect="nats")
    sub_socket.unsubscribe(oz.compile("a.*"), dialect=None)
    sub_socket.set(1, b"x")
    assert_type(sub_socket.get(1), Any)
    print(await sub_socket.recv(flags=1, copy=True, track=True))
    print(await sub_socket.recv_multipart(flags=1, copy=True, track=True))
    assert_type(await sub_socket.recv_into(bytearray(1), nbytes=1, flags=1), int)
    assert_type(oz.asyncio.SubSocket.shadow(1), oz.asyncio.SubSocket)
    assert_type(oz.asyncio.SubSocket(context, zmq.SUB, dialect="nats"), oz.asyncio.SubSocket)
    await pub_socket.send(b"x", flags=1, copy=True, track=True)
    await pub_socket.send_multipart([b"a.b", b"x"], flags=1, copy=True, track=True)
    assert_type(oz.asyncio.PubSocket.shadow(1), oz.asyncio.PubSocket)
    assert_type(oz.asyncio.PubSocket(context, zmq.PUB, dialect="nats"), oz.asyncio.PubSocket)
    print(await oz.asyncio.Poller().poll(timeout=1))


async def nodes(node: oz.asyncio.Node) -> None:
    await node.publish("a.b", payload=b"x", headers={"trace": "7f"}, key="key", id=(b"series", 7))
    assert_type(await node.publish_many([("a.b", b"x")]), int)
    assert_type(await node.close(timeout=1.0), int)
    async with oz.asyncio.Node("desk", bus="lan", on_event=print_event, options=oz.NodeOptions()) as made:
        assert_type(made, oz.asyncio.Node)


async def publishers(publisher: oz.asyncio.Publisher) -> None:
    await publisher.bind("tcp://127.0.0.1:*")
    await publisher.connect("tcp://127.0.0.1:1")
    await publisher.disconnect(b"x")
    await publisher.unbind(b"x")
    await publisher.flush()
    await publisher.publish("a.b", payload=b"x", headers={"trace": "7f"}, key="key", id=(b"series", 7))
    # The result of `publish` need not be awaited.
    publisher.publish("a.b", b"x")
    assert_type(await publisher.publish_many([("a.b", b"x")]), int)
    assert_type(await publisher.close(timeout=1.0), int)
    async with oz.asyncio.Publisher(bind="tcp://127.0.0.1:*", options=oz.Options()) as made:
        assert_type(made, oz.asyncio.Publisher)


async def subscribers(subscriber: oz.asyncio.Subscriber) -> None:
    assert_type(await subscriber.subscribe("a"), oz.asyncio.Subscription)
    async for message in subscriber:
        assert_type(message, oz.Message)
    await subscriber.close()
    async with oz.asyncio.Subscriber(connect="tcp://127.0.0.1:1", on_gap=print_gap) as made:
        assert_type(made, oz.asyncio.Subscriber)


async def subscriptions(subscription: oz.asyncio.Subscription) -> None:
    async for message in subscription:
        assert_type(message, oz.Message)
    await subscription.unsubscribe()
