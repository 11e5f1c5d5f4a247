"""Signal handlers that raise in the middle of what a publisher does, at each place where they may, in turn.

Whatever is cut short, each message comes once or is told lost, and the next call works.
"""

import pytest
import zmq

import oz
from support.inside import engine_of
from support.raising import AtPlace, Interrupted, pyzmq_in_python
from support.sizes import one_of_each, size
from support.waiting import DEADLINE, until

MOST_PLACES = 2_000
REFUSED = 4
LARGE = 70_000


class Messages:
    """What was published: each payload is another one."""

    def __init__(self, publisher):
        self._publisher = publisher
        self._count = 0
        self.begun, self.done = set(), set()

    def new(self):
        self._count += 1
        payload = b"%d" % self._count
        self.begun.add(payload)
        return payload

    def publish(self, shape=bytes, **fields):
        payload = self.new()
        self._publisher.publish("a.b", shape(payload), **fields)
        self.done.add(payload)

    def pairs(self, count):
        for number in range(count):
            payload = self.new()
            yield ("a.b" if number % 2 else "a.c"), payload
            self.done.add(payload)


def alone(publisher, messages):
    publisher.flush()
    messages.publish()


def many(publisher, messages):
    publisher.publish_many(messages.pairs(5))
    messages.publish()


def headers(publisher, messages):
    messages.publish(headers={"a": 1})
    publisher.flush()


def large(publisher, messages):
    messages.publish(lambda payload: payload.ljust(LARGE))
    messages.publish()


def parts(publisher, messages):
    messages.publish(lambda payload: [payload, b"more"])
    publisher.flush()


def pyzmq(publisher, messages):
    payload = messages.new()
    publisher.send_multipart([b"a.b", payload])
    messages.done.add(payload)


def text_of(message):
    """Give the payload as it was published."""
    return message.frames[1].rstrip() if len(message.frames) > 1 else bytes(message.payload).rstrip()


def places(rounds):
    """Interrupt rounds at one place after the other, and twice at some; each has a round of its own."""
    step = size(5, 1)
    for number in range(1, MOST_PLACES, step):
        at_place = AtPlace(number, again=number // step % 4)
        rounds(at_place)
        if not at_place.has_raised:
            return
    raise AssertionError(f"there are more than {MOST_PLACES} places")


def received_until(subscriber, last):
    """Receive what comes before a message: its payloads."""
    payloads = []
    while (payload := text_of(subscriber.receive(timeout=DEADLINE))) != last:
        payloads.append(payload)
    return payloads


def check_idle(publisher):
    """Check that nothing waits, and that nobody has left a lock taken."""
    engine = engine_of(publisher)
    assert not engine.guard.is_mine
    assert not engine.guard.busy._is_owned()
    assert not engine.dispatch.is_blocked
    assert not engine.dispatch.full


@pytest.mark.parametrize("on_full", ["drop", "block"])
@pytest.mark.parametrize(
    ("do", "refused", "options"),
    one_of_each(
        [alone, many, headers, large, parts, pyzmq],
        [0, REFUSED],
        [{}, {"overflow": "drop_oldest"}, {"group": "g"}, {"overflow": "drop_newest"}],
    ),
)
def test_each_message_comes_once_or_is_told_lost(monkeypatch, do, refused, options, on_full):
    room, gaps = pyzmq_in_python(monkeypatch), []
    with (
        oz.Publisher("tcp://127.0.0.1:*", on_full=on_full, max_delay=1.0) as publisher,
        oz.Subscriber(publisher.endpoint, filtering="publisher", on_gap=gaps.append) as subscriber,
    ):
        subscriber.subscribe("a.>", **options)
        subscriber.wait_ready(timeout=DEADLINE)

        def one_round(at_place):
            messages, last = Messages(publisher), b"last"
            gaps.clear()
            with publisher.batch():
                messages.publish()
                messages.publish()
                room.refused = refused
                try:
                    with at_place:
                        do(publisher, messages)
                except Interrupted:
                    assert at_place.has_raised
            room.refused = 0
            publisher.flush()
            publisher.publish("a.b", last)
            publisher.flush()

            got = received_until(subscriber, last)
            assert len(got) == len(set(got))
            assert messages.begun >= set(got)
            told = sum(gap.count or 0 for gap in gaps)
            if all(gap.count is not None for gap in gaps):
                assert len(messages.done - set(got)) <= told <= len(messages.begun - set(got))
            assert subscriber.stats.contradictions == 0
            check_idle(publisher)

        places(one_round)


@pytest.mark.parametrize("do", [alone, many, large, parts, pyzmq])
def test_plain_messages_stay_apart(monkeypatch, do):
    pyzmq_in_python(monkeypatch)
    with (
        oz.Publisher("tcp://127.0.0.1:*") as publisher,
        oz.Subscriber(publisher.endpoint, filtering="prefix") as subscriber,
    ):
        subscriber.subscribe("a.>")
        publisher.wait_for_subscribers(timeout=DEADLINE)

        def one_round(at_place):
            messages, last = Messages(publisher), b"last"
            try:
                with at_place:
                    do(publisher, messages)
            except Interrupted:
                assert at_place.has_raised
            publisher.publish("a.b", last)

            got = received_until(subscriber, last)
            assert len(got) == len(set(got))
            assert messages.done <= set(got) <= messages.begun
            check_idle(publisher)

        places(one_round)


def test_a_block_of_a_batch_that_is_cut_short_holds_nothing_back(monkeypatch):
    pyzmq_in_python(monkeypatch)
    with (
        oz.Publisher("tcp://127.0.0.1:*") as publisher,
        oz.Subscriber(publisher.endpoint, filtering="publisher") as subscriber,
    ):
        subscriber.subscribe("a.>")
        subscriber.wait_ready(timeout=DEADLINE)

        def one_round(at_place):
            try:
                with at_place, publisher.batch():
                    publisher.publish("a.b", b"first")
            except Interrupted:
                assert at_place.has_raised
            publisher.publish("a.b", b"last")
            received_until(subscriber, b"last")

        places(one_round)


def ask(publisher):
    publisher.interest("a.b")


def send_alone(publisher):
    publisher.publish("a.b", b"on the way")


def wait(publisher):
    publisher.wait_for_subscribers(1, timeout=DEADLINE)


@pytest.mark.parametrize(("do", "filtering"), one_of_each([ask, send_alone, wait], ["publisher", "prefix"]))
def test_who_subscribes_meanwhile_is_served(monkeypatch, do, filtering):
    pyzmq_in_python(monkeypatch)
    with oz.Publisher("tcp://127.0.0.1:*") as publisher:
        engine = engine_of(publisher)

        def one_round(at_place):
            with oz.Subscriber(filtering=filtering) as subscriber:
                subscriber.subscribe(["a.*", "other.>"])
                # Nobody else may take it in.
                with engine.guard:
                    subscriber.connect(publisher.endpoint)
                    until(lambda: int(engine.socket.get(zmq.EVENTS)) & zmq.POLLIN)
                    try:
                        with at_place:
                            do(publisher)
                    except Interrupted:
                        assert at_place.has_raised
                publisher.wait_for_subscribers(1, "a.b", timeout=DEADLINE)
                publisher.publish("a.b", b"last")
                publisher.flush()
                assert received_until(subscriber, b"last") in ([], [b"on the way"])
            until(lambda: not publisher.interest("a.b"))

        places(one_round)
