"""Compiled functions of links: for any bytes they return the same results as their Python twins."""

from __future__ import annotations

import inspect
import random
import sys
from collections import deque

import msgpack
import pytest

from oz.compiled import HOT
from oz.errors import ProtocolError
from oz.publisher import batching
from oz.publisher.batching import Batcher
from oz.publisher.sync import Publisher
from oz.subjects.pattern import compile as compile_pattern
from oz.subscriber import queue as queues
from oz.subscriber.link import Messages
from oz.subscriber.message import Message
from oz.subscriber.queue import Dispatcher, Inbox
from oz.subscriber.subscriptions import Subscriptions
from oz.wire import links

pytestmark = pytest.mark.skipif(HOT is None, reason="the compiled part does not run")


def test_a_shared_frame_joins_two_parts_and_accepts_bytes_only():
    assert len(HOT.SharedFrame(b"head", b"body" * 2_000)) == 8_004
    assert len(HOT.SharedFrame(b"", b"")) == 0
    for wrong in ((b"one",), (b"one", "two"), (bytearray(b"one"), b"two"), ()):
        with pytest.raises(TypeError):
            HOT.SharedFrame(*wrong)


def body_of(chance, count, *, has_extras=False):
    flat = []
    for _ in range(count):
        size = chance.choice((0, 1, 5, 31, 255, 256, 300))
        extras = {"id": b"x"} if has_extras and chance.random() < 0.3 else None
        flat += [chance.randbytes(chance.randrange(12)), chance.randbytes(size), extras]
    return flat


def decoded(body, count):
    try:
        return links.decode_body(body, count)
    except ProtocolError:
        return None


def test_a_body_is_read_as_in_python():
    chance = random.Random(1)
    for _ in range(300):
        count = chance.choice((1, 2, 5, 6, 20, 400))
        flat = body_of(chance, count, has_extras=chance.random() < 0.2)
        at = chance.choice((0, 32))
        columns = HOT.scan(bytes(at) + msgpack.packb(flat), at, count)
        assert (columns is None) == any(item is not None for item in flat[2::3])
        if columns is not None:
            assert len(columns) == count
            assert columns.flat() == flat


def test_a_body_that_was_changed_is_read_as_in_python_or_left_to_it():
    chance = random.Random(2)
    read = 0
    for _ in range(20_000):
        count = chance.choice((1, 2, 5, 6, 20))
        body = bytearray(msgpack.packb(body_of(chance, count)))
        for _ in range(chance.randrange(3)):
            body[chance.randrange(len(body))] = chance.choice((0xC4, 0xC5, 0xC6, 0xDC, 0xDD, 0xC0, 0xFF, 0))
        body = bytes(body[: chance.choice((len(body), chance.randrange(len(body) + 1)))])
        columns = HOT.scan(body, 0, chance.choice((count, count, count + 1)))
        if columns is not None:
            read += 1
            assert columns.flat() == decoded(body, len(columns))
    assert read > 1_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x93",
        b"\xdd\xff\xff\xff\xff",
        b"\xdc\xff",
        b"\x93\xc6\xff\xff\xff\xff",
        b"\x93\xc4\x00\xc6\x7f\xff\xff\xff\xc0",
        b"\x93\xc4\x01a\xc4\x01b\xc0\xc0",
        b"\x93\xc4\x01a\xa1b\xc0",
    ],
)
def test_a_malformed_body_is_left_to_python(body):
    assert HOT.scan(body, 0, 1) is None
    assert HOT.scan(body, len(body) + 1, 1) is None
    assert HOT.scan(body, 0, 2_000_000) is None


def test_a_body_is_packed_as_by_msgpack():
    chance = random.Random(3)
    for count in (1, 2, 5, 6, 300, 1_024):
        flat = body_of(chance, count)
        assert HOT.pack_body(flat) == msgpack.packb(flat)
    large = [b"s", b"x" * 70_000, None]
    assert HOT.pack_body(large) == msgpack.packb(large)
    assert HOT.pack_body([b"s", b"p", {}]) is None
    assert HOT.pack_body([b"s", "p", None]) is None
    assert HOT.pack_body([b"s", b"p"]) is None
    assert HOT.pack_body([b"", b"", None] * 1_025) is None


def test_a_flush_is_that_of_python(monkeypatch):
    """Equal recipients, extras, sizes around the bounds, and no recipients."""
    dispatcher, other = ("one",), ("one", "other")
    cases = [
        [(dispatcher, b"a", b"x", None)] * 5,
        [(dispatcher, b"a", b"x", None), (other, b"a", b"x", None)],
        [(dispatcher, b"a", b"x", {"id": b"1"})],
        [((), b"a", b"x", None)] * 3,
        [(dispatcher, b"a", b"x" * size, None) for size in (100, 300, 200)],
        [(dispatcher, b"a", b"x" * 64, None)] * 9,
    ]
    found = []
    for is_compiled in (True, False):
        if not is_compiled:
            monkeypatch.setattr(batching, "_pack_waiting", None)
            monkeypatch.setattr(links, "_pack_body", None)
        batcher = Batcher(batch=8, body_bytes=500, alone_bytes=250)
        own = []
        for case in cases:
            for message in case:
                batcher.add(*message)
            own.append(
                [
                    (streams, body.frame, list(body.positions), body.flat())
                    for streams, body in batcher.flush()
                ]
            )
            assert not batcher.waiting
        found.append((own, batcher.position))
    assert found[0] == found[1]


class Link:
    origin, epoch = b"o" * 16, b"e" * 16


def dispatch(monkeypatch, flat, patterns, *, is_compiled, gap=0):
    """Return subject, payload, sequence, position, gap and subscriptions of each message, by queue."""
    subscriptions = Subscriptions()
    with monkeypatch.context() as patch:
        if not is_compiled:
            patch.setattr(queues, "HOT", None)
        dispatcher = Dispatcher(subscriptions)
        inboxes = []
        for text, has_handler in patterns:
            inbox = Inbox(print if has_handler else None)
            inbox.entries.append(subscriptions.add(compile_pattern(text), owner=inbox))
            dispatcher.add(inbox, 10, None)
            inboxes.append(inbox)
        count = len(flat) // 3
        content = HOT.scan(links.encode_body(flat), 0, count) if is_compiled else flat
        assert content is not None
        for turn in range(2):
            dispatcher.deliver(
                Link, Messages(1, turn * count, range(50, 50 + count), content, False), 1, gap, print
            )
    found = [
        [(m.subject, m.payload, m.sequence, m.position, m.gap, m.frames, type(m)) for m in queue.items]
        for queue in (dispatcher.shared, *(inbox.queue for inbox in inboxes if inbox.queue))
    ]
    return found, len(dispatcher.work), dispatcher.is_full, dispatcher.stats


@pytest.mark.parametrize(
    "patterns",
    [
        [("a.*", False)],
        [("a.*", True)],
        [("a.*", False), ("a.>", True), ("b.*", True)],
        [("b.*", False)],
    ],
)
def test_messages_are_delivered_as_in_python(monkeypatch, patterns):
    chance = random.Random(4)
    flat = []
    for number in range(300):
        flat += [b"%s.%d" % (chance.choice((b"a", b"b", b"\xff")), number % 90), b"%d" % number, None]
    results = [dispatch(monkeypatch, flat, patterns, is_compiled=item, gap=3) for item in (True, False)]
    assert results[0] == results[1]
    assert results[0][3].received == 600


def test_colliding_subjects_are_distinguished():
    """More subjects than slots of the cache: each message has the route of its own subject."""
    subscriptions = Subscriptions()
    dispatcher = Dispatcher(subscriptions)
    inbox = Inbox()
    inbox.entries.append(subscriptions.add(compile_pattern(">"), owner=inbox))
    dispatcher.add(inbox, 10, None)
    names = [b"n.%d" % number for number in range(30_000)]
    for turn in range(0, len(names), 1_000):
        part = names[turn : turn + 1_000]
        flat = [item for name in part for item in (name, name, None)]
        content = HOT.scan(links.encode_body(flat), 0, 1_000)
        dispatcher.deliver(Link, Messages(1, turn, range(1_000), content, False), 1, 0, print)
    assert [message.subject.encode() for message in dispatcher.shared.items] == names


def test_an_exception_of_a_route_ends_the_delivery():
    def find(*_):
        raise KeyboardInterrupt

    content = HOT.scan(links.encode_body([b"a", b"b", None]), 0, 1)
    with pytest.raises(KeyboardInterrupt):
        HOT.make_messages(content, HOT.Subjects(), {}, find, 0, Message, None)
    with pytest.raises(TypeError, match="another class"):
        HOT.make_messages(content, HOT.Subjects(), {}, lambda *_: 1, 0, Message, None)
    with pytest.raises(TypeError, match="needs columns"):
        HOT.make_messages([], HOT.Subjects(), {}, find, 0, Message, None)


def test_handlers_are_called_in_order_and_counted_before_an_exception():
    subscriptions = Subscriptions()
    dispatcher = Dispatcher(subscriptions)
    seen, failed, counts = [], [], [0]

    def handler(message):
        seen.append(message.payload)
        if message.payload == b"bad":
            raise ValueError
        if message.payload == b"stop":
            raise KeyboardInterrupt

    inbox = Inbox(handler)
    inbox.entries.append(subscriptions.add(compile_pattern("a"), owner=inbox))
    dispatcher.add(inbox, 100, None)
    payloads = [b"1", b"bad", b"2", b"stop", b"3"]
    flat = [item for payload in payloads for item in (b"a", payload, None)]
    content = HOT.scan(links.encode_body(flat), 0, 5)
    dispatcher.deliver(Link, Messages(1, 0, range(5), content, False), 1, 0, print)
    fail = lambda inbox, message: failed.append((message.payload, sys.exc_info()[0]))  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        HOT.call_handlers(dispatcher.work, 16, fail, counts)
    assert (seen, failed, counts) == (payloads[:4], [(b"bad", ValueError)], [4])
    assert HOT.call_handlers(dispatcher.work, 16, fail, counts)
    assert (seen, counts) == (payloads, [1])


def test_references_are_released():
    """Routes, messages and payloads are referenced by their queue only."""
    subscriptions = Subscriptions()
    dispatcher = Dispatcher(subscriptions)
    inbox = Inbox()
    inbox.entries.append(subscriptions.add(compile_pattern("a.*"), owner=inbox))
    dispatcher.add(inbox, 10, None)
    flat = [item for number in range(500) for item in (b"a.%d" % (number % 100), b"p", None)]
    frame = links.encode_body(flat)

    def turn():
        content = HOT.scan(frame, 0, 500)
        dispatcher.deliver(Link, Messages(1, 0, range(500), content, False), 1, 0, print)
        dispatcher.shared.items.clear()
        batcher = Batcher()
        for number in range(100):
            batcher.add(("one",), flat[3 * number], b"p", None)
        batcher.flush()

    turn()
    route = dispatcher._routes[1][b"a.7"]
    before = [sys.getrefcount(item) for item in (frame, route, route.subject, inbox, Message)]
    for _ in range(200):
        turn()
    after = [sys.getrefcount(item) for item in (frame, route, route.subject, inbox, Message)]
    assert all(abs(item - other) < 20 for item, other in zip(before, after, strict=True)), (before, after)


def test_publish_is_a_method_with_the_documentation_of_the_twin():
    assert Publisher.publish.__name__ == "publish"
    assert "Publish one message." in Publisher.publish.__doc__
    assert list(inspect.signature(Publisher.publish).parameters)[:3] == ["self", "subject", "payload"]
    publish = Publisher(context=None).publish
    # The bound method keeps its publisher.
    publish("a.b", b"x")
    publish.__self__.close()
    with pytest.raises(AttributeError):
        Publisher.publish(deque(), "a", b"")
