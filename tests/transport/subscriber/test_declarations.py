"""What is due at a subscriber, and when: nothing looks more often than that."""

import time
from math import inf

import pytest
import zmq

import oz
from oz.protocol.subscriber.streams import Streams
from oz.transport.subscriber.declarations import LOOK_EVERY, Declarer
from support.inside import engine_of
from support.waiting import DEADLINE, Thread


@pytest.fixture
def looks(monkeypatch):
    """The declarer of each look."""
    found, look = [], Declarer.look

    def counted(self, now, *, is_idle=False):
        found.append(self)
        look(self, now, is_idle=is_idle)

    monkeypatch.setattr(Declarer, "look", counted)
    return found


def receive(sub):
    with pytest.raises(oz.Timeout):
        sub.receive(timeout=1.2)


def receive_as_pyzmq_does(sub):
    sub.rcvtimeo = 1_200
    with pytest.raises(zmq.Again):
        sub.recv()


def poll(sub):
    assert sub.poll(1_200) == 0


def ozs_poller(sub):
    poller = oz.Poller()
    poller.register(sub, zmq.POLLIN)
    assert poller.poll(1_200) == []


def wait_ready(sub):
    with pytest.raises(oz.Timeout):
        sub.wait_ready(1.2)


def test_an_idle_subscriber_looks_only_when_something_is_due(looks):
    def idle(wait):
        with oz.Subscriber("tcp://127.0.0.1:1", filtering="publisher") as sub:
            sub.subscribe("a.*")
            began = time.monotonic()
            wait(sub)
            assert time.monotonic() - began >= 1.19
            return looks.count(engine_of(sub).declarer)

    # One finds out what is due, one comes soon after what was subscribed to, and one with the end.
    waits = receive, receive_as_pyzmq_does, poll, ozs_poller, wait_ready
    threads = [Thread(lambda wait=wait: idle(wait)) for wait in waits]
    assert all(1 <= thread.outcome() <= 12 for thread in threads)


class Greeted(Exception):
    pass


def test_a_wait_within_libzmq_ends_when_something_is_due(monkeypatch):
    monkeypatch.setitem(Streams.__init__.__kwdefaults__, "greet_every", 0.2)

    def asked(changes):
        if changes.wanted:
            raise Greeted

    with oz.Subscriber("tcp://127.0.0.1:1", filtering="publisher") as sub:
        sub.subscribe("a.*")
        monkeypatch.setattr(engine_of(sub).declarer, "ask", asked)
        began = time.monotonic()
        # It greets in the middle of the wait: nothing comes, and no time was given.
        with pytest.raises(Greeted):
            sub.receive()
        assert time.monotonic() - began < DEADLINE
        monkeypatch.undo()


def test_a_subscriber_by_prefix_that_calls_nobody_has_nothing_due():
    with oz.Subscriber(bind="tcp://127.0.0.1:*") as sub:
        sub.subscribe("a.*")
        assert engine_of(sub).declarer.next_deadline() is None
        assert engine_of(sub).declarer.seconds_left() == inf


def test_what_is_read_or_subscribed_to_has_a_look_come_soon():
    with oz.Subscriber(bind="tcp://127.0.0.1:*", filtering="publisher") as sub:
        declarer, now = engine_of(sub).declarer, time.monotonic()
        sub.subscribe("a.*")
        declarer.look(now)
        declarer.look(now + LOOK_EVERY)
        assert declarer.next_deadline() > now + 1
        hastened = []
        declarer.when_hastened = lambda: hastened.append(declarer.next_deadline())
        sub.subscribe("b.*")
        assert hastened == [pytest.approx(now + 2 * LOOK_EVERY)]


def test_the_users_rcvtimeo_is_his_whatever_the_socket_waits_for():
    with oz.Subscriber("tcp://127.0.0.1:1", filtering="publisher") as sub:
        sub.subscribe("a.*")
        assert sub.get(zmq.RCVTIMEO) == -1
        sub.rcvtimeo = 50
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(zmq.Again):
                sub.recv_multipart()
            assert time.monotonic() - began >= 0.049
            assert sub.rcvtimeo == 50


def test_a_subscriber_that_is_ready_has_nothing_left_to_look_at():
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher") as sub,
    ):
        sub.subscribe("a.*")
        sub.wait_ready(timeout=DEADLINE)
        declarer = engine_of(sub).declarer
        assert declarer.is_settled
        assert declarer.links is None or not declarer.links.is_curious
        assert declarer.streams.due_at > -inf
