"""Signal handlers that publish in the middle of `publish`: Python runs them between any two lines of oz."""

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import oz
from oz.transport.publisher.sender import Sender
from support.inside import engine_of
from support.sizes import one_of_each

OF_OZ = str(Path(oz.__file__).parent)
MOST_LINES = 1_000


class AtLine:
    """Does something once, as a signal handler does, before the n-th line of oz that runs."""

    def __init__(self, number, do):
        self.left = number
        self.do = do

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    def trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(OF_OZ):
            return None
        if event == "line" and self.left:
            self.left -= 1
            if not self.left:
                self.do()
        return self.trace


def received(subscriber, count):
    """Receive so many messages: payload and position of each."""
    messages = [subscriber.receive(timeout=10) for _ in range(count)]
    return [(one.payload, one.position) for one in messages]


def positions(subscriber, count):
    """Receive so many messages: the position of each subject."""
    messages = [subscriber.receive(timeout=10) for _ in range(count)]
    return {one.subject: one.position for one in messages}


def publish_interrupted(publisher, send):
    """Publish with a handler that publishes, before each line in turn; give what was published."""
    published = []
    for number in range(1, MOST_LINES):
        with AtLine(number, partial(publisher.publish, "a.b", b"inner %d" % number)) as at_line:
            send(b"outer %d" % number)
        published += [b"outer %d" % number, b"inner %d" % number]
        publisher.flush()
        if at_line.left:
            return published[:-1]
    raise AssertionError(f"publish runs more than {MOST_LINES} lines")


@pytest.mark.parametrize("kind", ["headers", "large", "frames"])
def test_what_a_handler_publishes_comes_in_the_order_in_which_it_did(kind):
    """What is no plain message does not stand behind the plain one that is published next."""

    def inner(number):
        payload = b"%d" % number
        if kind == "headers":
            publisher.publish("a.b", payload, headers={"a": 1})
        else:
            publisher.publish("a.b", payload + bytes(70_000) if kind == "large" else [payload, b""])
        publisher.publish("a.b", payload)

    with (
        oz.Publisher("tcp://127.0.0.1:*") as publisher,
        oz.Subscriber(publisher.endpoint, filtering="publisher") as subscriber,
    ):
        subscriber.subscribe("a.>")
        subscriber.wait_ready(timeout=10)
        for number in range(1, MOST_LINES):
            with AtLine(number, partial(inner, number)) as at_line, publisher.batch():
                publisher.publish("a.c", b"outer")
            publisher.flush()
            if at_line.left:
                return
            came = [subscriber.receive(timeout=10) for _ in range(3)]
            first, second = [one for one in came if one.subject == "a.b"]
            assert first.payload.rstrip(b"\0") == second.payload == b"%d" % number
            assert (kind == "headers") == (first.headers == {"a": 1})
            assert len(first.frames) == 2 + (kind == "frames")
            assert kind != "large" or len(first.payload) > 70_000
        raise AssertionError(f"publish runs more than {MOST_LINES} lines")


def test_what_a_handler_publishes_and_is_dropped_is_told_lost_to_those_only_who_wanted_it(monkeypatch):
    """It finds no room, and nobody is there to wait for some."""
    gaps = {"a.x": [], "b.x": [], "b.*": []}
    with ExitStack() as stack:
        publisher = stack.enter_context(oz.Publisher("tcp://127.0.0.1:*", on_full="error"))
        subscribers = []
        for pattern, told in gaps.items():
            one = oz.Subscriber(publisher.endpoint, filtering="publisher", on_gap=told.append)
            subscribers.append(stack.enter_context(one))
            one.subscribe(pattern, group="g" if pattern == "b.*" else None)
            one.wait_ready(timeout=10)
        engine = engine_of(publisher)
        with engine.guard, monkeypatch.context() as full:
            full.setattr(
                Sender, "_publish_now", lambda _, socket, route, payload, item: (route, payload, item)
            )
            # As behind what the handler has interrupted.
            engine.sender._publish_later(engine.socket, engine.sender.routes.find("a.x"), b"1", None)
        publisher.publish_many([("a.x", b"2"), ("b.x", b"2")])
        assert [one.receive(timeout=10).payload for one in subscribers] == [b"2"] * 3
        assert publisher.stats.dropped == 1
    assert [(pattern, gap.count) for pattern, told in gaps.items() for gap in told] == [("a.x", 1)]


@pytest.mark.parametrize(
    ("kind", "shared", "last_value"),
    one_of_each(["alone", "batch", "large", "headers"], [False, True], [False, True]),
)
def test_what_a_signal_handler_publishes_comes_once_in_order_with_one_position(kind, shared, last_value):
    gaps = []
    options = {"filtering": "publisher", "shared": shared, "on_gap": gaps.append}
    with (
        oz.Publisher("tcp://127.0.0.1:*", last_value=last_value) as publisher,
        oz.Subscriber(publisher.endpoint, **options) as first,
        oz.Subscriber(publisher.endpoint, **options) as second,
    ):
        first.subscribe("a.>")
        second.subscribe(">")
        first.wait_ready(timeout=10)
        second.wait_ready(timeout=10)

        def send(payload):
            if kind == "alone":
                publisher.publish("a.b", payload)
            elif kind == "large":
                publisher.publish("a.b", payload + bytes(70_000))
            elif kind == "headers":
                publisher.publish("a.b", payload, headers={"a": 1})
            else:
                with publisher.batch():
                    publisher.publish("a.b", payload)
                    publisher.publish("a.c", payload)

        published = publish_interrupted(publisher, send)
        outer = sum(one.startswith(b"outer") for one in published)
        count = len(published) + (outer if kind == "batch" else 0)
        of_first, of_second = received(first, count), received(second, count)

        assert of_first == of_second
        assert {payload.rstrip(b"\0") for payload, _ in of_first} == set(published)
        rising = [position for _, position in of_first]
        assert rising == sorted(set(rising))
        assert not gaps
        with pytest.raises(oz.Timeout):
            first.receive(timeout=0.05)


@pytest.mark.parametrize("on_full", ["drop", "block"])
@pytest.mark.parametrize("delimiter", [None, b" "])
@pytest.mark.parametrize("kind", ["publish", "parts", "pyzmq"])
def test_what_a_signal_handler_publishes_joins_no_plain_message(kind, delimiter, on_full):
    with (
        oz.Publisher("tcp://127.0.0.1:*", on_full=on_full, delimiter=delimiter) as publisher,
        oz.Subscriber(publisher.endpoint, filtering="prefix", delimiter=delimiter) as plain,
        oz.Subscriber(publisher.endpoint, filtering="publisher") as routed,
    ):
        plain.subscribe("a.>")
        routed.subscribe("a.>")
        publisher.wait_for_subscribers(2, subject="a.b", timeout=10)
        routed.wait_ready(timeout=10)

        def send(payload):
            if kind == "publish":
                publisher.publish("a.b", payload)
            elif kind == "parts":
                publisher.publish("a.b", (payload, b"more"))
            elif delimiter is None:
                publisher.send_multipart([b"a.b", payload])
            else:
                publisher.send(b"a.b " + payload)

        published = publish_interrupted(publisher, send)
        for subscriber in (plain, routed):
            messages = [subscriber.receive(timeout=10) for _ in published]
            assert {(one.subject, one.payload) for one in messages} == {("a.b", one) for one in published}
        assert publisher.stats.dropped == 0


def test_a_last_value_has_the_position_that_it_was_published_with_whatever_a_handler_publishes():
    with (
        oz.Publisher("tcp://127.0.0.1:*", last_value=True) as publisher,
        oz.Subscriber(publisher.endpoint, filtering="publisher") as early,
    ):
        early.subscribe("a.>")
        early.wait_ready(timeout=10)
        for line in range(1, MOST_LINES):
            with AtLine(line, partial(publisher.publish, f"a.inner{line}")) as at_line:
                publisher.publish(f"a.outer{line}")
            publisher.flush()
            if at_line.left:
                break
        count = 2 * line - 1
        of_early = positions(early, count)
        with oz.Subscriber(publisher.endpoint, filtering="publisher") as late:
            late.subscribe("a.>", last_value=True)
            of_late = positions(late, count)

    assert len(set(of_early.values())) == count
    assert of_late == of_early
