"""Exceptions of signal handlers inside calls of a subscriber: `receive`, `receive_many` and `close`."""

from contextlib import suppress
from functools import partial

import pytest
import zmq

import oz
from oz.errors import Timeout
from oz.publisher.sync import Publisher
from oz.subscriber.queue import Dispatcher
from oz.subscriber.sync import Subscriber
from support.interrupting import Interruption, each_interruption
from support.ports import lasting_endpoint
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def publisher():
    with Publisher("tcp://127.0.0.1:*") as made:
        yield made


@pytest.mark.parametrize("filtering", ["publisher", "auto"])
def test_an_interrupted_close_is_completed_by_the_next(publisher, filtering):
    made = []

    def prepare():
        context = zmq.Context()
        # With "auto" a second endpoint, at which nothing answers, has a monitor and a plain connection.
        endpoints = [publisher.endpoint, lasting_endpoint()] if filtering == "auto" else publisher.endpoint
        subscriber = Subscriber(endpoints, filtering=filtering, context=context)
        subscriber.subscribe("a")
        made.append((subscriber, context))
        return subscriber.close

    places = 0
    # The end of a context waits 0.2 s for a BYE to an endpoint where nothing answers.
    for _ in each_interruption(prepare, step=9 if filtering == "auto" else 1):
        places += 1
        subscriber, context = made.pop()
        subscriber.close()
        # The context waits until all sockets of the subscriber are closed.
        Thread(context.term).outcome()
    made.pop()[1].term()
    assert places > 10


@pytest.mark.parametrize("size", [1, 10])
def test_an_interruption_loses_one_message_at_most(publisher, size):
    with Subscriber(publisher.endpoint, filtering="publisher") as subscriber:
        subscriber.subscribe("a")
        subscriber.wait_ready(timeout=DEADLINE)
        got = []

        def receive():
            for _ in range(10 // size):
                for message in (
                    subscriber.receive_many(size, timeout=DEADLINE) if size > 1 else [subscriber.receive()]
                ):
                    got.append(int(message.payload))

        def prepare():
            got.clear()
            publisher.publish_many(("a", b"%d" % number) for number in range(11))
            # The call reads the next messages too.
            assert subscriber.receive(timeout=DEADLINE).payload == b"0"
            return receive

        places = 0
        for _ in each_interruption(prepare):
            places += 1
            while not got or got[-1] != 10:
                try:
                    got.append(int(subscriber.receive(timeout=0.2).payload))
                except Timeout:
                    # The last message was in hand.
                    break
            assert got == sorted(set(got))
            assert len(got) >= 9, f"lost {set(range(1, 11)) - set(got)}"
        assert places > 10
        assert subscriber.stats.lost == 0
    until(lambda: not publisher.subscribers)


@pytest.mark.parametrize("call", ["receive", "poll"])
def test_another_thread_receives_after_an_interruption(publisher, call):
    with Subscriber(publisher.endpoint, filtering="publisher") as subscriber:
        subscriber.subscribe("a")
        subscriber.wait_ready(timeout=DEADLINE)
        poller = oz.Poller()
        poller.register(subscriber)

        def receive():
            with suppress(Timeout):
                subscriber.receive(timeout=0.001)

        places = 0
        for _ in each_interruption(lambda: receive if call == "receive" else partial(poller.poll, 1)):
            places += 1
            publisher.publish("a")
            assert Thread(partial(subscriber.receive, timeout=DEADLINE)).outcome().subject == "a"
        assert places > 10


def test_an_exception_in_the_search_for_the_receivers_of_a_subject_is_raised(publisher, monkeypatch):
    search, interruptions = Dispatcher._make_route, []

    def interrupted(*arguments):
        if interruptions:
            raise interruptions.pop()
        return search(*arguments)

    monkeypatch.setattr(Dispatcher, "_make_route", interrupted)
    with Subscriber(publisher.endpoint, filtering="publisher") as subscriber:
        subscriber.subscribe("a.*")
        subscriber.wait_ready(timeout=DEADLINE)
        publisher.publish("a.first")
        subscriber.receive(timeout=DEADLINE)
        for number in range(20):
            interruptions.append(Interruption())
            thread = Thread(partial(publisher.publish, f"a.{number}"))
            with pytest.raises(Interruption):
                subscriber.receive(timeout=DEADLINE)
            thread.outcome()
            # Another thread needs the locks that the interrupted call has released.
            assert Thread(partial(subscriber.receive, timeout=1.0)).outcome().subject == f"a.{number}"
