import os
import signal
import time
import uuid

import pytest

import oz
from oz.protocol.publisher import lifetimes
from support.inside import engine_of
from support.ports import lasting_endpoint
from support.waiting import DEADLINE, Thread, until

NUMBER = b"%012d"


def publish(pub, start, count, filler=b""):
    for number in range(start, start + count):
        pub.publish(f"n.{number % 7}", NUMBER % number + filler)
    return start + count


@pytest.fixture
def through(relay, ledger):
    """Make a publisher, a relay and a subscriber that is ready."""
    opened = []

    def make(pub=None, sub=None):
        publisher = oz.Publisher(lasting_endpoint(), **(pub or {}))
        opened.append(publisher)
        between = relay(publisher.endpoint)
        subscriber = oz.Subscriber(between.endpoint, filtering="publisher", on_gap=ledger.note, **(sub or {}))
        opened.append(subscriber)
        subscriber.subscribe("*.*")
        subscriber.wait_ready(timeout=DEADLINE)
        return publisher, between, subscriber

    yield make
    for one in opened:
        one.close(linger=0)


def until_cut(pub):
    """Wait until the publisher knows that its subscriber is gone."""
    until(lambda: not pub.interest("n.0"))


def test_overflow_of_a_stalled_subscriber_is_reported_to_the_message(ledger):
    with (
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=2, max_batch=10) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher", high_water_mark=2, on_gap=ledger.note) as sub,
    ):
        sub.subscribe("n.*")
        sub.wait_ready(timeout=DEADLINE)
        count = 0
        while pub.stats.missed < 1_000:
            count = publish(pub, count, 500, bytes(1_000))
        ledger.take(sub)
        count = publish(pub, count, 500, bytes(1_000))
        pub.flush()
        ledger.settle(sub, count)
        assert sub.stats.lost == pub.stats.missed


def test_a_lost_tail_shows_without_another_message(ledger):
    with (
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=1) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher", high_water_mark=1, on_gap=ledger.note) as sub,
    ):
        sub.subscribe("n.*")
        sub.wait_ready(timeout=DEADLINE)
        count = 0
        while not pub.stats.missed:
            count = publish(pub, count, 1, bytes(10_000))
            pub.flush()
        ledger.settle(sub, count)
        assert [gap.count for gap in ledger.gaps] == [1]
        assert [message.gap for message in ledger.messages] == [0] * (count - 1)


def test_a_subscriber_that_was_stopped_accounts_for_all(program):
    with oz.Publisher("tcp://127.0.0.1:*", high_water_mark=5, max_batch=20) as pub:
        sub = program("subscriber", pub.endpoint, "n.*")
        sub.hear()
        os.kill(sub.process.pid, signal.SIGSTOP)
        count = 0
        while pub.stats.missed < 500:
            count = publish(pub, count, 500, bytes(2_000))
        os.kill(sub.process.pid, signal.SIGCONT)
        until(lambda: (found := sub.report()).delivered + found.lost >= count)
        published = count

        def is_level():
            nonlocal published
            published = publish(pub, published, 10)
            pub.flush()
            found = sub.report()
            return found.shown == found.lost and found.delivered + found.lost == published

        until(is_level)
        found = sub.report()
        assert found.lost == sum(found.gaps) == pub.stats.missed
        assert not found.doubles


class Traffic:
    """Publishes without end, until asked how much it was."""

    def __init__(self, pub):
        self._pub = pub
        self._is_over = False
        self._thread = Thread(self._run)

    def _run(self):
        count = 0
        while not self._is_over:
            count = publish(self._pub, count, 20)
            self._pub.flush()
            # Not faster than a subscriber can follow.
            time.sleep(0.001)
        return count

    def end(self):
        self._is_over = True
        return self._thread.outcome()


def test_a_connection_cut_under_traffic_loses_nothing_silently(through, ledger):
    pub, between, sub = through()
    traffic = Traffic(pub)

    def flows():
        ends = sub.stats.delivered + 200
        until(lambda: ledger.take(sub, 0.001) or sub.stats.delivered > ends)

    for _ in range(3):
        flows()
        between.cut()
        until_cut(pub)
        ends = pub.stats.published + 500
        until(lambda: pub.stats.published > ends)  # noqa: B023
        between.restore()
        flows()
    ledger.settle(sub, traffic.end())
    assert sub.stats.lost >= 3 * 500
    assert len(engine_of(pub).router.streams) == 1


def test_what_was_published_while_nobody_was_connected_is_a_gap_at_once_after_the_return(through, ledger):
    pub, between, sub = through()
    between.cut()
    until_cut(pub)
    publish(pub, 0, 1_000)
    between.restore()
    until(lambda: ledger.take(sub) or ledger.gaps)
    assert [gap.count for gap in ledger.gaps] == [1_000]
    assert ledger.gaps[0].subscription.patterns[0].text == "*.*"
    publish(pub, 1_000, 1)
    ledger.settle(sub, 1_001)
    assert ledger.messages[0].gap == 1_000


def test_a_subscriber_that_returns_after_the_time_of_grace_is_told_of_an_unknown_loss(
    through, ledger, monkeypatch
):
    monkeypatch.setattr(lifetimes, "GRACE", 0.1)
    pub, between, sub = through()
    publish(pub, 0, 10)
    ledger.settle(sub, 10)
    between.cut()
    until(lambda: not engine_of(pub).router.streams)
    until(lambda: publish(pub, 10, 1) and pub.stats.unwanted)
    between.restore()
    until(lambda: ledger.take(sub) or ledger.gaps)
    assert [gap.count for gap in ledger.gaps] == [None]
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 20, 10)
    until(lambda: ledger.take(sub) or len(ledger.messages) == 20)
    assert sub.stats.lost == 0
    assert [message.gap for message in ledger.messages] == [0] * 20


def test_a_publisher_that_restarts_is_no_gap(through, ledger):
    pub, _, sub = through()
    publish(pub, 0, 50)
    ledger.settle(sub, 50)
    port = pub.endpoint.rpartition(":")[2]
    pub.close()
    with oz.Publisher(f"tcp://127.0.0.1:{port}") as again:
        until(lambda: ledger.take(sub) or again.interest("n.0"))
        publish(again, 0, 50)
        until(lambda: ledger.take(sub) or len(ledger.messages) == 100)
    assert not ledger.gaps
    assert len({message.origin for message in ledger.messages}) == 2
    assert [message.sequence for message in ledger.messages] == 2 * list(range(50))


@pytest.mark.parametrize("shared", [False, True])
def test_a_subscriber_that_says_goodbye_is_forgotten_at_once(through, shared, monkeypatch):
    monkeypatch.setattr(lifetimes, "GRACE", 3_600.0)
    pub, _, sub = through(sub={"shared": shared})
    sub.close()
    until(lambda: not engine_of(pub).router.streams)
    publish(pub, 0, 5)
    assert pub.stats.unwanted == 5


def test_a_subscriber_that_was_cut_off_is_kept(through):
    pub, between, _ = through()
    between.cut()
    until_cut(pub)
    publish(pub, 0, 5)
    assert pub.stats.unwanted == 0


@pytest.mark.parametrize("shared", [False, True])
def test_two_connections_to_one_publisher_deliver_nothing_twice(relay, ledger, shared):
    with oz.Publisher(["tcp://127.0.0.1:*", f"ipc://@oz-test-{uuid.uuid4()}"]) as pub:
        tcp, ipc = engine_of(pub).attachments.endpoints
        between = relay(tcp)
        with oz.Subscriber(
            [between.endpoint, ipc], filtering="publisher", on_gap=ledger.note, shared=shared
        ) as sub:
            sub.subscribe("n.*")
            sub.wait_ready(timeout=DEADLINE)
            count = publish(pub, 0, 1_000)
            pub.flush()
            until(lambda: ledger.take(sub) or sub.stats.received >= 2 * count)
            assert [int(message.payload) for message in ledger.messages] == list(range(count))
            between.cut()
            count = publish(pub, count, 1_000)
            ledger.settle(sub, count)
            assert sub.stats.lost == 0


def test_publisher_counts_what_each_subscriber_missed(ledger):
    """A subscriber that reads gets all beside one that does not."""
    with (
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=20, max_batch=10) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher", high_water_mark=2) as stalled,
        oz.Subscriber(pub.endpoint, filtering="publisher", on_gap=ledger.note) as reader,
    ):
        for sub in (stalled, reader):
            sub.subscribe("n.*")
            sub.wait_ready(timeout=DEADLINE)
        count = 0
        while pub.stats.missed < 500:
            # ZeroMQ hears of room after each half of the mark: a quarter of it is never too much.
            count = publish(pub, count, 5, bytes(20_000))
            until(lambda: ledger.take(reader, 0) or reader.stats.delivered == count)  # noqa: B023
        ledger.settle(reader, count)
        assert reader.stats.lost == 0
        until(lambda: ledger.take(stalled) or stalled.stats.delivered + stalled.stats.lost == count)
        assert stalled.stats.lost == pub.stats.missed
