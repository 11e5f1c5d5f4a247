"""Every public call of `oz` once, with every argument. They are checked, not run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import zmq

import oz


def print_gap(gap: oz.Gap) -> None:
    print(gap.origin, gap.count, gap.recovered, gap.reason)


def print_event(event: oz.Event) -> None:
    print(event.kind, event.about, event.text, event.peer, event.count)


def handle(message: oz.Message) -> None:
    print(message.subject)


def functions() -> None:
    assert_type(oz.compile("a.*", dialect="nats", lenient=True), oz.Pattern)
    assert_type(oz.compile("rv:a.b"), oz.Pattern)
    oz.validate_subject("a.b", dialect="nats")


def messages(message: oz.Message) -> None:
    assert_type(message.reply(payload=b"x", headers={"trace": "7f"}), Any)
    message.ack()
    assert_type(message.id, bytes | tuple[bytes, int] | None)
    assert_type(message.origin, bytes | None)
    assert_type(message.sequence, int | None)
    assert_type(message.position, int | None)
    assert_type(message.gap, int)
    assert_type(message.redelivered, bool)
    assert_type(message.time_ns, int)
    assert_type(message.frames, list[bytes])


def options() -> None:
    limits = oz.Limits(patterns=1, pattern_time=1.0, subscription_bytes=1, handshake=1.0)
    multicast = oz.Multicast(rate_kbps=1, recovery=1.0, hops=1, mtu=1, stale_after=1.0)
    oz.Options(high_water_mark=1, send_timeout=1.0, delimiter=None, multicast=multicast, limits=limits)
    oz.Delivery(policy="sticky", max_pending=1, prefetch=1, redeliver=False, inline=False)


def securities() -> None:
    security = oz.Security(
        Path("a.key_secret"), trusted="trusted", permissions="p.toml", servers={"tcp://hub:1": "hub"}
    )
    assert_type(oz.Security.from_file("oz.toml"), oz.Security)
    assert_type(security.public_key, str)
    assert_type(security.refused, int)
    print(security.trusted["key"], oz.Publisher(security=security), oz.Subscriber(security=security))
    denied = oz.PermissionDenied("no", rule="a rule", subject="a.b")
    assert_type(denied.rule, str | None)
    assert_type(denied.subject, str | None)


def nodes(node: oz.Node) -> None:
    assert_type(node.close(timeout=1.0), int)
    node.flush()
    node.publish("a.b", payload=b"x", headers={"trace": "7f"}, key="key", id=(b"series", 7))
    assert_type(node.publish_many([("a.b", b"x")]), int)
    with node.batch() as nothing:
        assert_type(nothing, None)
    assert_type(
        node.request("a.b", payload=b"x", timeout=1.0, headers={"trace": "7f"}, key="key", retries=1),
        oz.Message,
    )
    assert_type(
        node.request_many("a.b", payload=b"x", timeout=1.0, limit=1, headers={"trace": "7f"}, key="key"),
        Iterator[oz.Message],
    )
    made_by_node: oz.Subscription = node.subscribe(
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
    node.wait_ready("one", "two", count=2, subscriber="a.b", timeout=1.0)
    node.wait_for_subscribers(subject="a.b", count=1, timeout=1.0)
    node.wait_for_subscribers(b"a.b", timeout=None)
    assert_type(node.has_subscribers("a.b"), bool)
    assert_type(node.name, str)
    assert_type(node.bus, str)
    assert_type(node.endpoint, str | None)
    assert_type(node.endpoints, tuple[str, ...])
    assert_type(node.peers, list[oz.Peer])
    assert_type(node.stats, oz.NodeStats)
    assert_type(node.snapshot(), oz.Snapshot)
    assert_type(node.request_snapshots("one", timeout=1.0), list[oz.Snapshot])
    assert_type(node.snapshot().links, tuple[oz.LinkStatus, ...])
    assert_type(node.snapshot().subscriptions, tuple[oz.SubscriptionStatus, ...])
    assert_type(node.snapshot().subscriptions[0].handler, oz.HandlerTimes | None)
    assert_type(node.is_healthy(), bool)
    assert_type(node.closed, bool)
    with oz.Node(
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
        assert_type(made, oz.Node)


def patterns(pattern: oz.Pattern) -> None:
    assert_type(pattern.covers(oz.compile("a.>")), bool)
    assert_type(pattern.matches("a.b"), bool)
    assert_type(pattern.overlaps(oz.compile("a.>")), bool)
    assert_type(pattern.witness(oz.compile("a.>")), str | None)


def drop_in_sockets(sub_socket: oz.SubSocket, pub_socket: oz.PubSocket, context: zmq.Context[Any]) -> None:
    sub_socket.subscribe("a.*", dialect="nats")
    sub_socket.unsubscribe(oz.compile("a.*"), dialect=None)
    sub_socket.set(1, b"x")
    assert_type(sub_socket.get(1), Any)
    assert_type(sub_socket.recv(flags=1, copy=True, track=True), bytes)
    assert_type(sub_socket.recv_multipart(flags=1, copy=True, track=True), list[bytes])
    assert_type(sub_socket.recv_into(bytearray(1), nbytes=1, flags=1), int)
    assert_type(sub_socket.dialect, str)
    assert_type(oz.SubSocket.shadow(1), oz.SubSocket)
    assert_type(oz.SubSocket(context, zmq.SUB, dialect="nats", copy_threshold=1), oz.SubSocket)
    pub_socket.send(b"x", flags=1, copy=True, track=True)
    pub_socket.send_multipart([b"a.b", b"x"], flags=1, copy=True, track=True)
    assert_type(pub_socket.dialect, str)
    assert_type(oz.PubSocket.shadow(1), oz.PubSocket)
    assert_type(oz.PubSocket(context, zmq.PUB, dialect="nats", copy_threshold=1), oz.PubSocket)


def publishers(publisher: oz.Publisher) -> None:
    with publisher.batch() as nothing:
        assert_type(nothing, None)
    publisher.bind("tcp://127.0.0.1:*")
    publisher.connect("tcp://127.0.0.1:1")
    publisher.disconnect(b"x")
    publisher.unbind(b"x")
    publisher.flush()
    assert_type(publisher.has_subscribers("a.b"), bool)
    publisher.publish("a.b", payload=b"x", headers={"trace": "7f"}, key="key", id=(b"series", 7))
    assert_type(publisher.publish_many([("a.b", b"x"), (b"c", b"y")]), int)
    publisher.wait_for_subscribers(subject="key", count=1, timeout=1.0)
    publisher.wait_for_subscribers(b"key", timeout=None)
    assert_type(publisher.endpoint, str | None)
    print(publisher.endpoints, publisher.link_endpoints)
    assert_type(publisher.stats, oz.PublisherStats)
    assert_type(publisher.subscribers, list[oz.SubscriberInfo])
    assert_type(publisher.close(timeout=1.0), int)
    with oz.Publisher(
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
        assert_type(made, oz.Publisher)


def subscribers(subscriber: oz.Subscriber) -> None:
    assert_type(subscriber.bind("tcp://127.0.0.1:*"), str)
    subscriber.connect("tcp://127.0.0.1:1")
    subscriber.disconnect(b"x")
    subscriber.unbind(b"x")
    assert_type(subscriber.receive(timeout=1.0), oz.Message)
    assert_type(subscriber.receive_many(limit=1, timeout=1.0), list[oz.Message])
    assert_type(subscriber.run(timeout=1.0), int)
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
        oz.Subscription,
    )
    subscriber.wait_ready(timeout=1.0)
    assert_type(subscriber.drain(timeout=1.0), bool)
    assert_type(subscriber.fileno(), int)
    assert_type(subscriber.endpoint, str | None)
    assert_type(subscriber.stats, oz.SubscriberStats)
    assert_type(subscriber.publishers, list[oz.PublisherInfo])
    print(subscriber.subscriptions, subscriber.closed)
    for item in subscriber:
        assert_type(item, oz.Message)
    subscriber.close()
    with oz.Subscriber(
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
        assert_type(made, oz.Subscriber)


def subscriptions(subscription: oz.Subscription) -> None:
    assert_type(subscription.receive(timeout=1.0), oz.Message)
    for item in subscription:
        assert_type(item, oz.Message)
    assert_type(subscription.drain(timeout=1.0), bool)
    assert_type(subscription.pending, int)
    assert_type(subscription.dropped, int)
    assert_type(subscription.active, bool)
    print(subscription.patterns)
    subscription.unsubscribe()
