"""Peers of the link endpoint that send garbage, floods and frames that are too large."""

import os

import pytest
import zmq

from oz.wire import links
from support.waiting import Thread


@pytest.fixture
def attacker():
    with zmq.Context() as context, context.socket(zmq.DEALER) as made:
        made.linger = 0
        yield made


def test_a_flood_does_not_stop_publishing(make, join, attacker):
    publisher = make()
    peer = join(publisher, "a")
    attacker.connect(publisher.link_endpoints[0])
    garbage = [b"", b"x" * 100, bytes([links.ACK]), bytes([links.HELLO]) + b"x" * 90, b"\x90", b"\xff"]
    hello = links.Hello(os.urandom(16), b"m" * 16, bytes(16), 1, 0, 0, 64 << 20, 256)
    attacker.send(links.encode_hello(hello))
    is_over = []

    def flood():
        number = 0
        while not is_over:
            attacker.send(garbage[number % len(garbage)])
            attacker.send_multipart([b"a", b"b"])
            number += 1

    thread = Thread(flood)
    for number in range(300):
        publisher.publish("a", b"%d" % number)
        assert peer.receive(number + 1)[-1] == b"%d" % number
    is_over.append(True)
    # The publisher reads the flood to its end, so that the thread can send.
    thread.outcome()
    assert publisher.stats.rejected > 100
    assert peer.gaps == []


def test_a_frame_above_the_limit_of_control_frames_ends_its_connection(make, attacker):
    attacker.connect(make().link_endpoints[0])
    assert attacker.recv() == b""
    attacker.send(b"\xff" * (links.MAX_CONTROL + 1))
    # The probe of the next connection.
    assert attacker.poll(10_000)
    assert attacker.recv() == b""
