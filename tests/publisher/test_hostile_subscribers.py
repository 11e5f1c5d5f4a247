"""Peers of the link endpoint that send garbage, floods and frames that are too large."""

import os

import pytest
import zmq

from oz.wire import links
from support.waiting import Thread, until

CARD = links.encode_card(links.Card(bytes(range(16)), "md", "pricing"))


@pytest.fixture
def foreign():
    """Function that connects a DEALER to the link endpoint of a publisher."""
    with zmq.Context() as context:
        made = []

        def connect(publisher):
            made.append(context.socket(zmq.DEALER))
            made[-1].linger = 0
            made[-1].connect(publisher.link_endpoints[0])
            return made[-1]

        yield connect
        for item in made:
            item.close(0)


def greeting(card=b"", member=b"m" * 16):
    hello = links.Hello(os.urandom(16), member, bytes(16), 1, 0, 0, 64 << 20, 256)
    return links.encode_hello(hello) + card


def test_a_flood_does_not_stop_publishing(make, join, foreign):
    publisher = make()
    peer, attacker = join(publisher, "a"), foreign(publisher)
    garbage = [b"", b"x" * 100, bytes([links.ACK]), bytes([links.HELLO]) + b"x" * 90, b"\x90", b"\xff"]
    attacker.send(greeting())
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


def test_a_frame_above_the_limit_of_control_frames_ends_its_connection(make, foreign):
    attacker = foreign(make())
    assert attacker.recv() == b""
    attacker.send(b"\xff" * (links.MAX_CONTROL + 1))
    # The probe of the next connection.
    assert attacker.poll(10_000)
    assert attacker.recv() == b""


@pytest.mark.parametrize("size", [links.MAX_CARD + 1, (1 << 20) - 100])
def test_cards_that_are_too_large_are_rejected(make, join, foreign, size):
    publisher = make()
    attacker = foreign(publisher)
    for _ in range(10):
        attacker.send(greeting(bytes(size)))
    until(lambda: publisher.stats.rejected == 10)
    join(publisher, "a", card=CARD)
    assert len(publisher.subscribers) == 1


def test_a_flood_of_greetings_keeps_one_session_for_each_connection(make, join, foreign):
    publisher = make()
    attacker = foreign(publisher)
    for number in range(2_000):
        attacker.send(greeting(bytes([number % 256]) * links.MAX_CARD))
    peer = join(publisher, "a", card=CARD)
    until(lambda: len(publisher.subscribers) == 2)
    publisher.publish("a", b"1")
    assert peer.receive(1) == [b"1"]
