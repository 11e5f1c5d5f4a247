"""Every public call of `oz.asyncio` once, with every argument. They are checked, not run."""

from pathlib import Path
from typing import Any, assert_type

import zmq
import zmq.asyncio
from every_call import print_advisory, print_gap, print_peer

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
    await node.close(drain=True, timeout=1.0)
    await node.flush()
    await node.publish("a.b", payload=b"x", headers={"trace": "7f"}, key="key", message_id=(b"series", 7))
    assert_type(
        await node.request("a.b", payload=b"x", timeout=1.0, headers={"trace": "7f"}, key="key"), oz.Message
    )
    async for one in node.request_many(
        "a.b", payload=b"x", timeout=1.0, limit=1, headers={"trace": "7f"}, key="key"
    ):
        assert_type(one, oz.Message)
    assert_type(await node.start(), oz.asyncio.Node)
    assert_type(
        node.subscribe(
            ["a.*", oz.compile("b.>")],
            handler=None,
            dialect="nats",
            group="workers",
            policy="sticky",
            overflow="conflate",
            max_pending=1,
            last_value=True,
            max_messages=1,
            concurrency=1,
            order_by="subject",
        ),
        oz.asyncio.ReceivedSubscription,
    )
    assert_type(
        node.subscribe(
            ["a.*", oz.compile("b.>")],
            handler=handle,
            dialect="nats",
            group="workers",
            policy="sticky",
            overflow="conflate",
            max_pending=1,
            last_value=True,
            max_messages=1,
            concurrency=1,
            inline=False,
            order_by="subject",
        ),
        oz.asyncio.NodeSubscription,
    )
    await node.wait_for_peers(wanted=["one", "two"], timeout=1.0)
    await node.wait_ready(timeout=1.0)
    await node.wait_for_subscribers(n=1, subject="a.b", timeout=1.0)
    await node.wait_for_subscribers(1, b"a.b", None)
    assert_type(node.interest("a.b"), bool)
    assert_type(node.interest(subject=b"a.b"), bool)
    async with oz.asyncio.Node(
        name="desk",
        bus="lan",
        nameserver=["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"],
        bind=["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"],
        peers=["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"],
        advertise="192.0.2.7",
        dialect="nats",
        codec="msgpack",
        echo=True,
        directory=Path("there"),
        join_timeout=1.0,
        lost_after=1.0,
        threads=1,
        on_full="block",
        full_timeout=1.0,
        high_water_mark=1,
        last_value=True,
        error_replies=True,
        on_peer=print_peer,
    ) as made:
        assert_type(made, oz.asyncio.Node)


async def node_subscriptions(node_subscription: oz.asyncio.NodeSubscription) -> None:
    assert_type(await node_subscription.drain(timeout=1.0), bool)
    node_subscription.unsubscribe()


async def publishers(publisher: oz.asyncio.Publisher) -> None:
    with publisher.batch() as nothing:
        assert_type(nothing, None)
    assert_type(publisher.bind("tcp://127.0.0.1:*"), Any)
    print(publisher.close(linger=1, timeout=1.0))
    assert_type(publisher.connect("tcp://127.0.0.1:1"), Any)
    publisher.disconnect(b"x")
    await publisher.flush()
    assert_type(publisher.get(1), Any)
    publisher.disable_monitor()
    assert_type(publisher.get_monitor_socket(events=1, addr="a.b"), Any)
    assert_type(publisher.interest("a.b"), bool)
    publisher.monitor(b"x", events=1)
    assert_type(publisher.poll(timeout=1, flags=1), Any)
    await publisher.publish(
        "a.b", payload=b"x", headers={"trace": "7f"}, key="key", message_id=(b"series", 7)
    )
    assert_type(await publisher.publish_many([("a.b", b"x")]), int)
    print(publisher.recv(flags=1, copy=True, track=True))
    publisher.report_loss(1)
    assert_type(publisher.send(b"x", flags=1, copy=True, track=True), Any)
    assert_type(publisher.send_multipart([b"a.b", b"x"], flags=1, copy=True, track=True), Any)
    publisher.set(1, b"x")
    publisher.unbind(b"x")
    await publisher.wait_for_subscribers(n=1, subject="key", timeout=1.0)
    async with oz.asyncio.Publisher(
        bind=["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"],
        connect="tcp://127.0.0.1:*",
        dialect="nats",
        context=None,
        codec="msgpack",
        delimiter=b" ",
        on_full="block",
        full_timeout=1.0,
        high_water_mark=1,
        last_value=True,
        max_batch=1,
        max_delay=1.0,
        multicast=oz.Multicast(hops=1),
        plain=True,
    ) as made:
        assert_type(made, oz.asyncio.Publisher)


async def received_subscriptions(received_subscription: oz.asyncio.ReceivedSubscription) -> None:
    assert_type(await received_subscription.drain(timeout=1.0), bool)
    assert_type(await received_subscription.receive(timeout=1.0), oz.Message)
    received_subscription.unsubscribe()
    async for one in received_subscription:
        assert_type(one, oz.Message)


async def subscribers(subscriber: oz.asyncio.Subscriber) -> None:
    assert_type(subscriber.bind("tcp://127.0.0.1:*"), Any)
    print(subscriber.close(linger=1, timeout=1.0))
    assert_type(subscriber.connect("tcp://127.0.0.1:1"), Any)
    subscriber.disconnect(b"x")
    await subscriber.drain(timeout=1.0)
    assert_type(subscriber.get(1), Any)
    assert_type(subscriber.get_monitor_socket(events=1, addr="a.b"), Any)
    subscriber.monitor(b"x", events=1)
    subscriber.mark_seen([b"id", (b"series", 7)])
    print(subscriber.poll(timeout=1, flags=1))
    assert_type(await subscriber.receive(timeout=1.0), oz.Message)
    print(await subscriber.receive_batches(limit=1, timeout=1.0))
    assert_type(await subscriber.receive_many(limit=1, timeout=1.0), list[oz.Message])
    assert_type(await subscriber.recv(flags=1, copy=True, track=True), Any)
    assert_type(await subscriber.recv_into(b"x", nbytes=1, flags=1), int)
    assert_type(await subscriber.recv_multipart(flags=1, copy=True, track=True), Any)
    assert_type(await subscriber.run(timeout=1.0), int)
    subscriber.set(1, b"x")
    subscriber.set_string(1, "a.b", encoding="a.b")
    print(
        subscriber.subscribe(
            ["a.*", oz.compile("b.>")],
            dialect="nats",
            handler=handle,
            group="workers",
            policy="sticky",
            overflow="conflate",
            max_pending=1,
            last_value=True,
            max_messages=1,
        )
    )
    subscriber.unbind(b"x")
    subscriber.unsubscribe("a.*")
    await subscriber.wait_ready(timeout=1.0)
    assert_type(subscriber.next_deadline(), float | None)
    async for one in subscriber:
        assert_type(one, oz.Message)
    async with oz.asyncio.Subscriber(
        connect=["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"],
        bind="tcp://127.0.0.1:*",
        dialect="nats",
        context=None,
        codec="msgpack",
        delimiter=b" ",
        high_water_mark=1,
        filtering="publisher",
        shared=True,
        dedupe=True,
        on_gap=print_gap,
        multicast=oz.Multicast(hops=1),
        plain=True,
        on_advisory=print_advisory,
    ) as made:
        assert_type(made, oz.asyncio.Subscriber)


async def subscriptions(subscription: oz.asyncio.Subscription) -> None:
    assert_type(await subscription.drain(timeout=1.0), bool)
    subscription.unsubscribe()
