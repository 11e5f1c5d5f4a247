"""Exceptions of signal handlers inside calls of a publisher: batches, waits and `close`."""

import threading

import pytest
import zmq

from oz.publisher.sync import Publisher
from oz.subscriber.sync import Subscriber
from support.interrupting import each_interruption
from support.waiting import DEADLINE, Thread


@pytest.fixture
def publisher():
    with Publisher("tcp://127.0.0.1:*") as made:
        yield made


def test_an_interrupted_batch_keeps_no_later_message_back(publisher, join):
    peer = join(publisher, "a")

    def prepare():
        # The link begins again after some interruptions.
        thread = peer.in_background(lambda: publisher.has_subscribers("a"))
        publisher.wait_for_subscribers("a", timeout=DEADLINE)
        thread.outcome()
        return publish

    def publish():
        with publisher.batch():
            publisher.publish("a", b"")

    places = 0
    for place in each_interruption(prepare):
        places += 1
        last = b"%d" % place
        thread = peer.in_background(lambda last=last: last in peer.payloads)
        publisher.wait_for_subscribers("a", timeout=DEADLINE)
        publisher.publish("a", last)
        thread.outcome()
    assert places > 10


def test_an_interrupted_close_is_completed_by_the_next():
    contexts = []

    def prepare():
        contexts.append(zmq.Context())
        publishers.append(Publisher("tcp://127.0.0.1:*", context=contexts[-1]))
        return publishers[-1].close

    publishers = []
    places = 0
    for _ in each_interruption(prepare):
        places += 1
        publishers.pop().close()
        # The context waits until all sockets of the publisher are closed.
        Thread(contexts.pop().term).outcome()
    contexts.pop().term()
    assert places > 10


def test_a_bind_starts_the_thread_that_an_interrupted_bind_did_not_start(monkeypatch):
    def interrupt(thread):
        raise KeyboardInterrupt

    with Publisher() as publisher:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupt)
            with pytest.raises(KeyboardInterrupt):
                publisher.bind("tcp://127.0.0.1:*")
        publisher.bind("tcp://127.0.0.1:*")
        with Subscriber(publisher.endpoints[-1], filtering="publisher") as subscriber:
            subscriber.subscribe("a")
            subscriber.wait_ready(timeout=DEADLINE)
