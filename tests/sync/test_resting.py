"""A publisher's thread sleeps until something comes or is due, and misses nothing by it."""

import threading

import pytest
import zmq

import oz
import oz.asyncio
from oz.protocol.publisher.records import HEARTBEAT
from oz.protocol.publisher.router import Router
from oz.sync.ticker import Ticker
from oz.sync.waiting import ThreadNews
from oz.transport.publisher.attending import Attendant
from support.inside import engine_of
from support.waiting import DEADLINE, Thread, until

LOOPBACK = "tcp://127.0.0.1:*"


@pytest.fixture
def pub():
    with zmq.Context() as context, oz.Publisher(LOOPBACK, context=context) as made:
        yield made
        made.close(0)


def ticker_of(pub) -> Ticker:
    return engine_of(pub)._ticker


def test_an_idle_publisher_sleeps_for_as_long_as_nobody_subscribes(pub):
    until(lambda: ticker_of(pub).is_dormant)
    assert engine_of(pub).rest_for(None) is None


def test_a_subscriber_is_answered_by_a_publisher_that_sleeps(pub):
    until(lambda: ticker_of(pub).is_dormant)
    with oz.Subscriber(pub.endpoint, context=pub.context, filtering="publisher") as sub:
        sub.subscribe("a")
        sub.wait_ready(timeout=DEADLINE)
        assert isinstance(engine_of(pub).router, Router)
        # From now on until the next record of where its stream stands.
        until(lambda: ticker_of(pub).is_dormant)
        rest = engine_of(pub).rest_for(None)
        assert rest is not None
        assert 0 <= rest <= HEARTBEAT


@pytest.mark.parametrize(
    "use",
    [
        lambda pub: engine_of(pub).get(zmq.EVENTS),
        lambda pub: pub.unbind(pub.endpoint),
        lambda pub: pub.bind(LOOPBACK),
        lambda pub: pub.report_loss(1),
    ],
    ids=["events", "unbind", "bind", "report_loss"],
)
def test_who_uses_the_socket_has_its_thread_look_once(pub, use):
    """Any of these may take the only sign of a subscription that comes meanwhile."""
    ticker = ticker_of(pub)
    until(lambda: ticker.is_dormant)
    before = ticker.used_at
    use(pub)
    assert ticker.used_at > before
    until(lambda: ticker.is_dormant)


SENDS = {
    "publish": lambda pub: pub.publish("a", b""),
    "publish with headers": lambda pub: pub.publish("a", b"", headers={"x": 1}),
    "send": lambda pub: pub.send(b"a"),
    "send_multipart": lambda pub: pub.send_multipart([b"a", b""]),
    "send by flags": lambda pub: pub.send(b"a", zmq.NOBLOCK),
}


@pytest.fixture
def listens(monkeypatch):
    """Counts how often publishers that are made from now on take in subscriptions."""
    seen = []
    listen = Attendant.listen
    monkeypatch.setattr(Attendant, "listen", lambda one: (seen.append(threading.get_ident()), listen(one))[1])
    return seen


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_sender_looks_before_and_after_a_message_that_comes_alone(listens, send):
    with oz.Publisher(LOOPBACK) as pub, oz.Subscriber(pub.endpoint) as sub:
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        ticker, sender = ticker_of(pub), engine_of(pub).sender
        until(lambda: ticker.is_dormant)
        sender.listened_at, before = 0.0, ticker.used_at
        listens.clear()
        send(pub)
        # So nobody else has to.
        assert listens.count(threading.get_ident()) == 2
        assert ticker.used_at == before


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_sender_in_a_burst_has_the_thread_look_once(listens, send):
    with oz.Publisher(LOOPBACK) as pub, oz.Subscriber(pub.endpoint) as sub:
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        ticker, sender = ticker_of(pub), engine_of(pub).sender
        until(lambda: ticker.is_dormant)
        # As if it had looked a moment ago.
        sender.listened_at, sender.is_unheard, before = float("inf"), False, ticker.used_at
        listens.clear()
        send(pub)
        told = ticker.used_at
        assert told > before
        send(pub)
        assert ticker.used_at == told
        assert threading.get_ident() not in listens
        until(lambda: ticker.is_dormant)
        assert listens


def test_waiting_for_subscribers_looks_only_when_there_is_news(pub):
    # Its thread has news of what it does at its start.
    until(lambda: ticker_of(pub).is_dormant)
    looks = counted(pub, "enough")
    with pytest.raises(oz.Timeout):
        pub.wait_for_subscribers(timeout=0.5)
    # At the beginning and at the end: whoever looked every 0.1 s would do it more often.
    assert len(looks) < 6


@pytest.mark.parametrize(("batches", "rounds"), [(1, 1 + 2), (3, 3 + 8), (9, 9 + 20)])
def test_a_publisher_looks_in_vain_for_longer_the_more_batches_came_after_each_other(pub, batches, rounds):
    ticker, looks = ticker_of(pub), []
    until(lambda: ticker.is_dormant)

    def look_after():
        looks.append(1)
        return len(looks) <= batches

    engine_of(pub).look_after = look_after
    ticker.wake()
    until(lambda: looks and ticker.is_dormant)
    assert len(looks) == rounds


def test_waiting_for_subscribers_ends_when_another_thread_takes_in_the_subscription(pub):
    waiting = Thread(pub.wait_for_subscribers)
    waiting.wait_until_stuck()
    with oz.Subscriber(pub.endpoint, context=pub.context) as sub:
        sub.subscribe("a")
        engine_of(pub).listen()
        waiting.outcome()


def test_waiting_for_subscribers_ends_when_another_thread_closes_the_publisher(pub):
    waiting = Thread(pub.wait_for_subscribers)
    waiting.wait_until_stuck()
    pub.close(0)
    with pytest.raises(oz.ClosedError):
        waiting.outcome()


def test_waiting_for_subscribers_ends_when_the_context_is_ended():
    context = zmq.Context()
    pub = oz.Publisher(LOOPBACK, context=context)
    waiting = Thread(pub.wait_for_subscribers)
    waiting.wait_until_stuck()
    ending = Thread(context.term)
    with pytest.raises(zmq.ContextTerminated):
        waiting.outcome()
    pub.close(0)
    ending.outcome()


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_a_publisher_without_room_tries_again_only_when_there_may_be_some(filtering):
    """libzmq tells of room by the socket's file descriptor, for which the publisher's thread waits."""
    with (
        zmq.Context() as context,
        oz.Publisher(LOOPBACK, context=context, on_full="block", high_water_mark=1) as pub,
        oz.Subscriber(pub.endpoint, context=context, filtering=filtering, high_water_mark=1) as sub,
    ):
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        engine_of(pub).news = news = CountingNews(engine_of(pub).guard)
        attempts = counted(pub, "publish_again")
        sending = Thread(lambda: [pub.publish("a", bytes(1_000_000)) for _ in range(20)])
        # The time in which one that tries at its own pace would do so.
        sending.join(0.5)
        for _ in range(20):
            sub.receive(timeout=DEADLINE)
        sending.outcome()
        # Each message that waits is tried as it begins to wait, and then once for each sign.
        assert 0 < len(attempts) <= 20 + news.told
        pub.close(0)


class CountingNews(ThreadNews):
    """Counts how often it is told.

    Attributes:
        told: the number of times.
    """

    told = 0

    def tell(self):
        self.told += 1
        super().tell()


def counted(pub, name):
    """Return what grows by one whenever a method of the engine is called."""
    method, calls = getattr(engine_of(pub), name), []
    setattr(engine_of(pub), name, lambda *given: (calls.append(1), method(*given))[1])
    return calls
