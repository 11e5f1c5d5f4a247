"""`filtering="auto"`: no message of a publisher arrives twice, and each loss is reported.

The publishers publish all the time, so that messages are under way while the subscriber changes between a
link and a plain connection. A plain publisher promises nothing about a change of publishers.
"""

import socket
from contextlib import ExitStack, contextmanager

import pytest
import zmq

from faults import oracle
from faults.collecting import HEAD, Collector
from oz.publisher.sync import Publisher
from support.fault_proxy import FaultProxy
from support.ports import lasting_endpoint
from support.sizes import in_suite
from support.waiting import until


class Feed:
    """Publishes a message whenever a condition is checked.

    Attributes:
        number: of the next message.
    """

    def __init__(self, run, publish):
        self.run, self.number, self._publish = run, 0, publish

    def next(self):
        self._publish(f"t.{self.number % 5}", HEAD.pack(self.run, self.number))
        self._publish("unwanted.message", b"")
        self.number += 1

    def until(self, condition):
        """Publish until a condition holds."""

        def check():
            self.next()
            return condition()

        until(check)

    def until_received(self, collector, more=20):
        """Publish until a message has arrived, then publish more and wait for the last one."""
        first = self.number
        self.until(
            lambda: any(event[0] == "m" and event[1:] >= (self.run, first) for event in collector.events)
        )
        for _ in range(more):
            self.next()
        until(lambda: collector.has(self.run, self.number - 1))


@contextmanager
def oz_feed(endpoint, run, **arguments):
    with Publisher(**arguments) as publisher:
        # The port of an earlier publisher is free a moment after its close.
        until(lambda: is_bound(publisher, endpoint))
        feed = Feed(run, publisher.publish)
        feed.publisher = publisher
        yield feed


@contextmanager
def plain_feed(endpoint, run):
    with zmq.Context.instance().socket(zmq.PUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        until(lambda: is_bound(socket, endpoint))
        yield Feed(run, lambda subject, payload: socket.send_multipart([subject.encode(), payload]))


def is_bound(socket, endpoint):
    try:
        socket.bind(endpoint)
    except zmq.ZMQError:
        return False
    return True


KINDS = in_suite(["sync"], ["asyncio"])
"""One in the suite, because the engine changes the connections, and both shells use the same engine."""
MANY = 1_000
"""Patterns that a publisher takes some time to apply."""


def check(collector, *runs):
    oracle.check_holes(collector.events, reports_changes=False)
    assert {run for run, _ in oracle.messages(collector.events)} == set(runs)


@pytest.mark.parametrize("kind", KINDS)
def test_an_oz_publisher_that_starts_later(kind):
    endpoint = lasting_endpoint()
    with Collector(kind, endpoint, patterns=MANY) as collector:
        # The plain connection waits for a publisher.
        until(lambda: collector.has_plain)
        with oz_feed(endpoint, 1) as feed:
            feed.until(lambda: collector.modes == ["link"])
            feed.until_received(collector)
    check(collector, 1)
    assert oracle.gaps(collector.events) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_publisher_is_replaced_by_oz_and_back(kind):
    endpoint = lasting_endpoint()
    with Collector(kind, endpoint, patterns=MANY) as collector:
        with plain_feed(endpoint, 1) as feed:
            feed.until_received(collector)
        with oz_feed(endpoint, 2) as feed:
            feed.until(lambda: collector.modes == ["link"])
            feed.until_received(collector)
        with plain_feed(endpoint, 3) as feed:
            feed.until(lambda: collector.modes == ["prefix"])
            feed.until_received(collector)
    check(collector, 1, 2, 3)
    assert (None, "moved") in oracle.gaps(collector.events)


@contextmanager
def dropped_link():
    """Yield an endpoint that drops the packets of new connections, as a firewall does: its queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as stack:
        address = server.getsockname()
        while True:
            client = stack.enter_context(socket.socket())
            client.settimeout(0.1)
            try:
                client.connect(address)
            except TimeoutError:
                break
        yield "tcp://{}:{}".format(*address)


@pytest.mark.parametrize("kind", KINDS)
def test_the_link_port_is_closed(kind):
    endpoint = lasting_endpoint()
    with (
        dropped_link() as closed,
        oz_feed(endpoint, 1) as feed,
        Collector(kind, endpoint, group="workers", links={endpoint: closed}) as collector,
    ):
        feed.until_received(collector)
        assert collector.modes == ["prefix"]
        # A group never falls back.
        assert collector.jobs == []
    check(collector, 1)
    assert oracle.gaps(collector.events) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_link_port_opens_while_the_plain_connection_delivers(kind):
    endpoint = lasting_endpoint()
    with (
        oz_feed(endpoint, 1) as feed,
        FaultProxy(lasting_endpoint()) as proxy,
        Collector(kind, endpoint, patterns=MANY, links={endpoint: proxy.endpoint}) as collector,
    ):
        feed.until_received(collector)
        assert collector.modes == ["prefix"]
        proxy.pass_on_to(feed.publisher.link_endpoints[0])
        feed.until(lambda: collector.modes == ["link"])
        feed.until_received(collector)
    check(collector, 1)
    assert oracle.gaps(collector.events) == [(None, "moved")]


@pytest.mark.parametrize("kind", KINDS)
def test_two_publishers_of_which_one_is_plain(kind):
    one, other = lasting_endpoint(), lasting_endpoint()
    with oz_feed(one, 1) as feed, plain_feed(other, 2) as foreign, Collector(kind, [one, other]) as collector:
        feed.until(lambda: collector.modes[0] == "link")
        feed.until_received(collector)
        foreign.until_received(collector)
        feed.until_received(collector)
        assert collector.modes == ["link", "prefix"]
    for run in (1, 2):
        events = [event for event in collector.events if event[0] == "g" or event[1] == run]
        oracle.check_holes(events)
        assert oracle.messages(events)
    assert oracle.gaps(collector.events) == []
