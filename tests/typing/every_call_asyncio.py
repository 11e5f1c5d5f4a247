"""Every public call of `oz.asyncio` once, with every argument. They are checked, not run."""

from pathlib import Path
from typing import Any, assert_type

import zmq
import zmq.asyncio
from every_call import print_event, print_gap

import oz
import oz.asyncio


async def handle(message: oz.Message) -> None:
    print(message.subject)


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
    assert_type(sub_socket.dialect, str)
    assert_type(oz.asyncio.SubSocket.shadow(1), oz.asyncio.SubSocket)
    assert_type(oz.asyncio.SubSocket(context, zmq.SUB, dialect="nats"), oz.asyncio.SubSocket)
    await pub_socket.send(b"x", flags=1, copy=True, track=True)
    await pub_socket.send_multipart([b"a.b", b"x"], flags=1, copy=True, track=True)
    assert_type(pub_socket.dialect, str)
    assert_type(oz.asyncio.PubSocket.shadow(1), oz.asyncio.PubSocket)
    assert_type(oz.asyncio.PubSocket(context, zmq.PUB, dialect="nats"), oz.asyncio.PubSocket)
    print(await oz.asyncio.Poller().poll(timeout=1))


async def nodes(node: oz.asyncio.Node) -> None:
    assert_type(await node.close(timeout=1.0), int)
    await node.flush()
    await node.publish("a.b", payload=b"x", headers={"trace": "7f"}, key="key", id=(b"series", 7))
    assert_type(await node.publish_many([("a.b", b"x")]), int)
    with node.batch() as nothing:
        assert_type(nothing, None)
    assert_type(
        await node.request("a.b", payload=b"x", timeout=1.0, headers={"trace": "7f"}, key="key", retries=1),
        oz.Message,
    )
    async for item in node.request_many(
        "a.b", payload=b"x", timeout=1.0, limit=1, headers={"trace": "7f"}, key="key"
    ):
        assert_type(item, oz.Message)
    made_by_node: oz.asyncio.Subscription = node.subscribe(
        ["a.*", oz.compile("b.>")],
        handler=handle,
        dialect="nats",
        group="workers",
        overflow="conflate",
        last_value=True,
        ack="handled",
        concurrency=1,
        max_messages=1,
        delivery=oz.Delivery(policy="sticky", max_pending=1, inline=False),
    )
    print(made_by_node)
    await node.wait_ready("one", "two", count=2, subscriber="a.b", timeout=1.0)
    await node.wait_for_subscribers(subject="a.b", count=1, timeout=1.0)
    await node.wait_for_subscribers(b"a.b", timeout=None)
    assert_type(node.has_subscribers("a.b"), bool)
    assert_type(node.name, str)
    assert_type(node.bus, str)
    assert_type(node.endpoint, str | None)
    assert_type(node.endpoints, tuple[str, ...])
    assert_type(node.peers, list[oz.Peer])
    assert_type(node.stats, oz.NodeStats)
    assert_type(node.snapshot(), oz.Snapshot)
    assert_type(await node.request_snapshots("one", timeout=1.0), list[oz.Snapshot])
    assert_type(node.snapshot().links, tuple[oz.LinkStatus, ...])
    assert_type(node.snapshot().subscriptions, tuple[oz.SubscriptionStatus, ...])
    assert_type(node.snapshot().subscriptions[0].handler, oz.HandlerTimes | None)
    assert_type(node.is_healthy(), bool)
    assert_type(node.closed, bool)
    async with oz.asyncio.Node(
        name="desk",
        bus="lan",
        connect=["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"],
        bind=["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"],
        codec="msgpack",
        dialect="nats",
        on_full="block",
        last_value=True,
        on_event=print_event,
        security="oz.toml",
        options=oz.NodeOptions(
            advertise="192.0.2.7",
            directory=Path("there"),
            lost_after=1.0,
            threads=1,
            echo=True,
            error_replies=True,
            high_water_mark=1,
        ),
    ) as made:
        assert_type(made, oz.asyncio.Node)


async def publishers(publisher: oz.asyncio.Publisher) -> None:
    with publisher.batch() as nothing:
        assert_type(nothing, None)
    await publisher.bind("tcp://127.0.0.1:*")
    await publisher.connect("tcp://127.0.0.1:1")
    await publisher.disconnect(b"x")
    await publisher.unbind(b"x")
    await publisher.flush()
    assert_type(publisher.has_subscribers("a.b"), bool)
    await publisher.publish("a.b", payload=b"x", headers={"trace": "7f"}, key="key", id=(b"series", 7))
    publisher.publish("a.b", b"x")
    assert_type(await publisher.publish_many([("a.b", b"x")]), int)
    await publisher.wait_for_subscribers(subject="key", count=1, timeout=1.0)
    assert_type(publisher.stats, oz.PublisherStats)
    assert_type(publisher.subscribers, list[oz.SubscriberInfo])
    assert_type(await publisher.close(timeout=1.0), int)
    async with oz.asyncio.Publisher(
        bind=["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"],
        connect="tcp://127.0.0.1:*",
        codec="msgpack",
        dialect="nats",
        on_full="block",
        last_value=True,
        links=False,
        security="oz.toml",
        context=None,
        options=oz.Options(dedupe=True),
    ) as made:
        assert_type(made, oz.asyncio.Publisher)


async def subscribers(subscriber: oz.asyncio.Subscriber) -> None:
    print(await subscriber.bind("tcp://127.0.0.1:*"))
    await subscriber.connect("tcp://127.0.0.1:1")
    await subscriber.disconnect(b"x")
    assert_type(await subscriber.receive(timeout=1.0), oz.Message)
    assert_type(await subscriber.receive_many(limit=1, timeout=1.0), list[oz.Message])
    assert_type(await subscriber.run(timeout=1.0), int)
    assert_type(
        subscriber.subscribe(
            ["a.*", oz.compile("b.>")],
            handler=handle,
            dialect="nats",
            group="workers",
            overflow="conflate",
            last_value=True,
            ack="handled",
            max_messages=1,
            delivery=oz.Delivery(max_pending=1),
        ),
        oz.asyncio.Subscription,
    )
    assert_type(await subscriber.subscribe("a"), oz.asyncio.Subscription)
    await subscriber.wait_ready(timeout=1.0)
    assert_type(await subscriber.drain(timeout=1.0), bool)
    assert_type(subscriber.stats, oz.SubscriberStats)
    assert_type(subscriber.publishers, list[oz.PublisherInfo])
    async for item in subscriber:
        assert_type(item, oz.Message)
    await subscriber.close()
    async with oz.asyncio.Subscriber(
        connect=["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"],
        bind="tcp://127.0.0.1:*",
        codec="msgpack",
        dialect="nats",
        filtering="publisher",
        links={"tcp://127.0.0.1:1": "tcp://127.0.0.1:2"},
        on_gap=print_gap,
        security="oz.toml",
        context=None,
        options=oz.Options(dedupe=True),
    ) as made:
        assert_type(made, oz.asyncio.Subscriber)


async def subscriptions(subscription: oz.asyncio.Subscription) -> None:
    assert_type(await subscription.receive(timeout=1.0), oz.Message)
    async for item in subscription:
        assert_type(item, oz.Message)
    assert_type(await subscription.drain(timeout=1.0), bool)
    assert_type(subscription.pending, int)
    await subscription.unsubscribe()
