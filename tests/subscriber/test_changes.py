"""`filtering="auto"`: no message of a publisher arrives twice, and each loss is reported.

The publishers publish all the time, so that messages are under way while the subscriber changes between a
link and a plain connection. A plain publisher promises nothing about a change of publishers.
"""

import socket
import struct
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise

import pytest
import zmq

import oz
from support.fault_proxy import FaultProxy
from support.ports import lasting_endpoint
from support.waiting import Thread, until

HEAD = struct.Struct(">IQ")
"""Payload: the run of the publisher, and the number of the message."""

MANY = [f"pattern.{at}.*" for at in range(1_000)]
"""Patterns that a publisher takes some time to apply."""


class Collector:
    """Subscriber that a thread reads.

    Attributes:
        events: ("m", run, number) of messages, ("g", count, reason) of gaps.
    """

    def __init__(self, endpoint, **arguments):
        self.events = []
        self._subscriber = oz.Subscriber(endpoint, on_gap=self._on_gap, **arguments)
        self._subscriber.subscribe("t.*")
        self._subscriber.subscribe(MANY)
        self._thread = Thread(self._collect)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._subscriber.close()
        self._thread.outcome()

    def _on_gap(self, gap):
        self.events.append(("g", gap.count, gap.reason))

    def _collect(self):
        with suppress(oz.ClosedError):
            while True:
                with suppress(oz.Timeout):
                    self.events.append(("m", *HEAD.unpack(self._subscriber.receive(timeout=0.05).payload)))

    @property
    def modes(self):
        return [publisher.mode for publisher in self._subscriber.publishers]

    def check(self, *runs):
        """Check that messages of all runs are in order, and missing only where a gap of their number is reported."""
        messages = [event[1:] for event in self.events if event[0] == "m"]
        assert {run for run, _ in messages} == set(runs)
        assert all(before < after for before, after in pairwise(messages))
        before, reported = None, []
        for kind, *here in self.events:
            if kind == "g":
                reported.append(here[0])
                continue
            if before is not None and before[0] == here[0] and None not in reported:
                assert here[1] - before[1] - 1 == sum(reported), (before, reported, here)
            before, reported = here, []

    @property
    def gaps(self):
        return [tuple(event[1:]) for event in self.events if event[0] == "g"]


class Feed:
    """Publishes a message whenever a condition is checked."""

    def __init__(self, run, publish):
        self._run, self._number, self._publish = run, 0, publish

    def _next(self):
        self._publish(f"t.{self._number % 5}", HEAD.pack(self._run, self._number))
        self._publish("unwanted.message", b"")
        self._number += 1

    def until(self, condition):
        """Publish until a condition holds."""
        until(lambda: self._next() or condition())

    def until_received(self, collector, more=20):
        """Publish until a message has arrived, then publish more and wait for the last one."""
        first = self._number
        self.until(
            lambda: any(event[0] == "m" and event[1:] >= (self._run, first) for event in collector.events)
        )
        for _ in range(more):
            self._next()
        until(lambda: ("m", self._run, self._number - 1) in collector.events)


def bound(socket, endpoint):
    """Bind a publisher or a socket as soon as an earlier one has freed the port."""

    def is_bound():
        with suppress(zmq.ZMQError):
            socket.bind(endpoint)
            return True

    until(is_bound)
    return socket


@contextmanager
def oz_feed(endpoint, run):
    with oz.Publisher() as publisher:
        yield Feed(run, bound(publisher, endpoint).publish)


@contextmanager
def plain_feed(endpoint, run):
    with zmq.Context.instance().socket(zmq.PUB) as socket:
        bound(socket, endpoint).linger = 0
        yield Feed(run, lambda subject, payload: socket.send_multipart([subject.encode(), payload]))


def test_a_plain_publisher_is_replaced_by_oz_and_back():
    endpoint = lasting_endpoint()
    with Collector(endpoint) as collector:
        for run, feeds, mode in ((1, plain_feed, "prefix"), (2, oz_feed, "link"), (3, plain_feed, "prefix")):
            with feeds(endpoint, run) as feed:
                feed.until(lambda mode=mode: collector.modes == [mode])
                feed.until_received(collector)
    collector.check(1, 2, 3)
    assert (None, "moved") in collector.gaps


def test_the_link_port_opens_while_the_plain_connection_delivers():
    with oz.Publisher("tcp://127.0.0.1:*") as publisher, FaultProxy(lasting_endpoint()) as proxy:
        feed = Feed(1, publisher.publish)
        with Collector(publisher.endpoint, links={publisher.endpoint: proxy.endpoint}) as collector:
            feed.until_received(collector)
            assert collector.modes == ["prefix"]
            proxy.pass_on_to(publisher.link_endpoints[0])
            feed.until(lambda: collector.modes == ["link"])
            feed.until_received(collector)
    collector.check(1)
    assert collector.gaps == [(None, "moved")]


@pytest.fixture
def dropped_link():
    """Endpoint that drops the packets of new connections, as a firewall does: its queue is full."""
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


def test_packets_to_the_link_port_are_dropped(dropped_link):
    with oz.Publisher("tcp://127.0.0.1:*") as publisher:
        feed = Feed(1, publisher.publish)
        with Collector(publisher.endpoint, links={publisher.endpoint: dropped_link}) as collector:
            feed.until_received(collector)
            assert collector.modes == ["prefix"]
    collector.check(1)
    assert collector.gaps == []
