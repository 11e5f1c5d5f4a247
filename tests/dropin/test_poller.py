"""`oz.Poller` with drop-in sockets beside sockets of other kinds."""

import os

import pytest
import zmq

import oz
from support.waiting import DEADLINE, until


def test_other_sockets_descriptors_and_events_mix(make_sub, publisher, context, made):
    sub, poller = make_sub("a.*"), oz.Poller()
    left, right = made(context.socket(zmq.PAIR)), made(context.socket(zmq.PAIR))
    left.bind("inproc://pair")
    right.connect("inproc://pair")
    reading, writing = os.pipe()
    try:
        poller.register(sub)
        poller.register(left, zmq.POLLIN | zmq.POLLOUT)
        poller.register(reading, zmq.POLLIN)
        assert poller.poll(0) == [(left, zmq.POLLOUT)]
        os.write(writing, b"x")
        right.send(b"x")
        publisher.send("a.b.c")
        publisher.send("a.b")
        expected = {sub: zmq.POLLIN, left: zmq.POLLIN | zmq.POLLOUT, reading: zmq.POLLIN}
        until(lambda: dict(poller.poll(100)) == expected)
        assert sub.recv(zmq.NOBLOCK) == b"a.b"
        poller.unregister(left)
        poller.modify(reading, 0)
        assert poller.poll(0) == []
    finally:
        os.close(reading)
        os.close(writing)


def test_a_plain_poller_reports_a_hint(make_sub, publisher):
    sub, plain = make_sub("a.*"), zmq.Poller()
    plain.register(sub, zmq.POLLIN)
    publisher.send("a.b.c")
    assert plain.poll(DEADLINE * 1000) == [(sub, zmq.POLLIN)]
    with pytest.raises(zmq.Again):
        sub.recv(zmq.NOBLOCK)


def test_a_pattern_that_exceeds_its_time_is_reported_by_the_receive(context, publisher, made):
    sub = made(oz.SubSocket(context, dialect="regex"))
    sub.connect(publisher.endpoint)
    sub.subscribe("a((b|bb)+c|x)")
    publisher.expect(3)  # one for each prefix
    publisher.send("a" + "b" * 100, "payload")
    publisher.send("ax")
    assert sub.poll(DEADLINE * 1000)
    with pytest.raises(oz.PatternTimeout):
        sub.recv()
    assert sub.recv_multipart() == [b"ax"]
    publisher.send("a" + "b" * 101, "payload")
    publisher.send("ax")
    with pytest.raises(oz.PatternTimeout):
        sub.recv()
    assert sub.recv_multipart() == [b"ax"]
