"""Programs as people write them. They are checked, not run: `tox -e lint`."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, assert_type

import zmq
import zmq.asyncio

import oz
import oz.asyncio
import oz.journal
import oz.services
from oz.testing import Bus, RecordedMessage, message


def handle(message: oz.Message) -> None:
    market, _, name = message.subject.partition(".")
    print(market.upper(), name, message.subject_bytes.hex(), message.payload, message.headers.get("trace"))


async def handle_later(message: oz.Message) -> None:
    await asyncio.sleep(0)
    handle(message)


def sockets() -> None:
    with oz.Publisher("tcp://127.0.0.1:*") as publisher:
        with oz.Subscriber(["tcp://127.0.0.1:1", b"tcp://127.0.0.1:2"], filtering="publisher") as subscriber:
            one = subscriber.subscribe("time.*.east", handler=handle)
            assert_type(one, oz.Subscription)
            assert_type(one.drain(timeout=2.0), bool)
            assert_type(one.unsubscribe(), None)
            many: list[oz.Message] = []
            subscriber.subscribe(["a.>", b"b", oz.compile("c.*"), re.compile("d.*")], handler=many.append)
            subscriber.subscribe("md.>", handler=lambda message: print(message.subject))
            assert_type(subscriber.receive(timeout=1.0), oz.Message)
            for message in subscriber:
                assert_type(message.subject, str)
                assert_type(message.subject_bytes, bytes)
                publisher.publish(message.subject, message.payload, key=message.subject)
            assert_type(subscriber.receive_many(10), list[oz.Message])
        assert_type(publisher.has_subscribers("a"), bool)


def drop_in(context: zmq.Context[Any]) -> None:
    # pyzmq's annotations ignore `socket_class`: `context.socket` returns the class of the context.
    context.socket(zmq.SUB, socket_class=oz.SubSocket, dialect="nats").close()
    subscriber = oz.SubSocket(context, dialect="nats")
    subscriber.setsockopt(zmq.SUBSCRIBE, b"news.")
    assert_type(subscriber.recv(copy=False), zmq.Frame)
    assert_type(subscriber.recv_multipart(zmq.NOBLOCK, copy=False), list[zmq.Frame])
    assert_type(subscriber.recv_string(), str)
    poller = oz.Poller()
    poller.register(subscriber, zmq.POLLIN)
    poller.register(oz.Subscriber("tcp://127.0.0.1:1"), zmq.POLLIN)
    with subscriber.connect("tcp://127.0.0.1:1"):
        for socket, events in poller.poll(100):
            print(socket, events)
    old: zmq.Socket[bytes] = subscriber
    old.close()


async def drop_in_later(context: zmq.asyncio.Context) -> None:
    poller = oz.asyncio.Poller()
    poller.register(oz.asyncio.SubSocket(context), zmq.POLLIN)
    print(await poller.poll(100))


def subjects() -> None:
    named: oz.PatternIndex[str] = oz.PatternIndex()
    named.add(oz.compile("a.*"), "first")
    assert_type([item.upper() for item in named.match("a.b")], list[str])
    numbers = oz.PatternIndex[int](cache_size=10)
    numbers.add(oz.compile("b.*"), 1)
    assert_type(sum(numbers.match(b"b.c")), int)
    patterns = oz.PatternIndex[oz.Pattern]()
    patterns.add(oz.compile("c"))
    assert_type([item.text for item in patterns.match("c")], list[str | bytes])
    anything = oz.PatternIndex()
    anything.add(oz.compile("d"), ("whatever", 1))
    assert_type(oz.compile(re.compile("a|b")).matches("a"), bool)
    # Also where the types of the `regex` package are not installed.
    if oz.compile("time.*.east").regex.fullmatch("time.us.east"):
        assert_type(oz.compile("time.*.east").regex.flags, int)
    assert_type(oz.__version__, str)
    assert_type(oz.__compiled__, bool)


def nodes() -> None:
    with oz.Node("desk", connect=["tcp://127.0.0.1:1"]) as node:
        handled = node.subscribe("job.*", handler=handle, group="workers")
        received = node.subscribe("price.>")
        assert_type(received.receive(timeout=1.0), oz.Message)
        for message in received:
            print(message.subject.split("."))
        print(handled.drain(), received.drain(), handled.pending, handled.dropped, handled.group)
        assert_type(node.request("service.time").payload, Any)
        for reply in node.request_many("service.*", limit=3):
            assert_type(reply, oz.Message)
        print([peer.name for peer in node.peers])

        def answer(message: oz.Message) -> None:
            message.reply({"answer": 42})

        node.subscribe("question", handler=answer)


async def async_sockets() -> None:
    async with (
        oz.asyncio.Publisher("tcp://127.0.0.1:*") as publisher,
        oz.asyncio.Subscriber("tcp://127.0.0.1:1", codec="msgpack") as subscriber,
    ):
        subscription = subscriber.subscribe("a.*", handler=handle_later)
        assert_type(subscription, oz.asyncio.Subscription)
        assert_type(await subscription.drain(), bool)
        subscriber.subscribe("b.*", handler=handle)
        assert_type(await subscriber.receive(timeout=1.0), oz.Message)
        await publisher.publish("a.b", b"x")
        async for message in subscriber:
            assert_type(message.subject, str)


async def async_nodes() -> None:
    async with oz.asyncio.Node("desk") as node:
        handled = node.subscribe("job.*", handler=handle_later)
        received = node.subscribe("price.>")
        assert_type(await received.receive(timeout=1.0), oz.Message)
        async for message in received:
            assert_type(message, oz.Message)
        async for reply in node.request_many("service.*", limit=3):
            assert_type(reply, oz.Message)
        replies = node.request_many("service.*")
        first = await anext(replies)
        assert_type(first, oz.Message)
        assert_type(await node.request("service.time"), oz.Message)
        assert_type(await handled.drain(), bool)


def journals() -> None:
    with oz.journal.Writer(Path("there"), sync=1.0) as writer:
        # pyarrow has no types, so that pyright does not know one of the types of `records`.
        count = writer.append([("a.b", b"x"), {"subject": "a", "payload": b"x"}])  # pyright: ignore[reportUnknownMemberType]
        assert_type(count, int)
    journal = oz.journal.Journal("there", codec="json")
    assert_type(
        journal.read(["a.>", oz.compile("b")], start=1, end="-1h", follow=True),
        Iterator[oz.journal.Record | oz.journal.JournalGap],
    )
    assert_type(journal.verify(), oz.journal.Report)
    replay = oz.services.replay(journal, oz.Publisher(), pattern="a.>", start=datetime.now(), speed=None)
    assert_type(replay, oz.services.Replay)
    with oz.services.Recorder("there", ["a.>"], source="tcp://127.0.0.1:1") as recorder:
        recorder.run(on_poll=lambda: None)


def services() -> None:
    with oz.services.Forwarder([{"bus": "lan"}, {"bus": "wan"}]) as forwarder:
        forwarder.run(on_poll=lambda: None)
    with oz.services.NameServer("tcp://127.0.0.1:*", bus="lan") as server:
        server.run(on_poll=lambda: None)
    with oz.services.Proxy(frontend="tcp://127.0.0.1:*", backend=["tcp://127.0.0.1:*"]) as proxy:
        proxy.stop()
    with oz.services.Gateway(receive="epgm://lo;239.192.1.1:5555", subscribers="ipc://x") as gateway:
        assert_type(gateway.stats, oz.services.GatewayStats)


def on_a_test_bus(asked: RecordedMessage) -> None:
    assert_type(message("svc.price", b"tea", headers={"unit": "kg"}), RecordedMessage)
    assert_type(asked.replies, list[RecordedMessage])
    with Bus(seed=1) as bus:
        assert_type(bus.run(asyncio.sleep(3600, 1)), int)
        bus.cut("here", bus.publisher())
        bus.blocking(bus.subscriber()).receive(timeout=1.0)


def either(handler: Callable[[oz.Message], Awaitable[None]] | Callable[[oz.Message], None]) -> None:
    subscriber = oz.asyncio.Subscriber("tcp://127.0.0.1:1")
    subscriber.subscribe("a", handler=handler)
