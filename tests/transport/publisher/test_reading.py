"""Closing tells who has read to the end what a publisher sent, and who left before."""

import socket
import sys
import time

import pytest
import zmq

import oz
from oz.transport.publisher.ends import Fate
from support.waiting import Thread, until

SENT, PAYLOAD = 200, b"." * 500

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not all systems tell it")


@pytest.fixture(params=["tcp", "ipc"])
def endpoint(request, tmp_path_factory):
    # Short: the path of a socket has 107 bytes.
    return "tcp://127.0.0.1:*" if request.param == "tcp" else f"ipc://{tmp_path_factory.mktemp('s')}/s"


@pytest.fixture
def slow():
    """A plain subscriber that has room for little."""
    with zmq.Context() as context, context.socket(zmq.SUB) as slow:
        slow.set(zmq.RCVHWM, 1)
        slow.set(zmq.LINGER, 0)
        slow.set(zmq.RCVTIMEO, 30_000)
        slow.subscribe(b"")
        yield slow


@pytest.fixture
def closing(endpoint, slow):
    """A publisher that waits for the subscriber to read."""
    pub = oz.Publisher(endpoint)
    slow.connect(pub.endpoint)
    pub.wait_for_subscribers(timeout=30)
    for _ in range(SENT):
        pub.publish("a", PAYLOAD)
    pub.flush()
    closing = Thread(lambda: pub._close_read(60))
    until(lambda: pub.closed)
    closing.wait_until_stuck()
    return closing


def test_who_has_read_all(closing, slow):
    for _ in range(SENT):
        slow.recv_multipart()
    reading = closing.outcome()
    assert reading.is_sent
    assert list(reading.untaken.fates.values()) == [Fate.READ]


def test_who_leaves_before(closing, slow):
    slow.close()
    reading = closing.outcome()
    assert list(reading.untaken.fates.values()) == [Fate.GONE]


def test_who_is_not_there_when_it_closes(endpoint):
    reading = oz.Publisher(endpoint)._close_read(30)
    assert reading.fate(12345) is Fate.GONE


def test_who_says_nothing_is_not_waited_for():
    pub = oz.Publisher("tcp://127.0.0.1:*")
    host, port = pub.endpoint.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as stranger:
        # The greeting of ZeroMQ: the connection stands.
        assert stranger.recv(1)
        began = time.monotonic()
        reading = pub._close_read(60)
        assert time.monotonic() - began < 60
    assert list(reading.untaken.fates.values()) == [Fate.UNTOLD]
