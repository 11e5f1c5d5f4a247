"""What waits for a message ends when its time is over, and takes what is wanted only."""

import threading
import time
from itertools import count, islice

import pytest
import zmq

import oz
from oz.transport.subscriber.engine import SubscriberEngine
from support.waiting import DEADLINE, Thread

# waiting


def test_a_timeout_is_kept_and_zero_does_not_wait(pair):
    two = pair("a.*.c")
    for timeout in (0, 0.05):
        started = time.monotonic()
        with pytest.raises(oz.Timeout):
            two.sub.receive(timeout=timeout)
        assert time.monotonic() - started < DEADLINE


@pytest.mark.parametrize("is_handled", [False, True])
def test_a_timeout_is_kept_under_a_flood_of_messages_for_others(pair, is_handled):
    two = pair("a.*.c", pub={"on_full": "block", "high_water_mark": 1_000})
    if is_handled:
        two.sub.subscribe("a.b.d", handler=lambda message: None)
    poller = oz.Poller()
    poller.register(two.sub, zmq.POLLIN)
    stop = threading.Event()

    def flood():
        while not stop.is_set():
            two.pub.publish("a.b.d", b"x")

    flooding = Thread(flood)
    try:
        for wait in (
            lambda: two.sub.receive(timeout=0.1),
            lambda: two.sub.receive(timeout=0),
            lambda: poller.poll(100) or raise_timeout(),
        ):
            started = time.monotonic()
            with pytest.raises(oz.Timeout):
                wait()
            assert time.monotonic() - started < DEADLINE
    finally:
        stop.set()
        two.sub.close()
        flooding.outcome()


def raise_timeout():
    raise oz.Timeout


def test_receiving_without_waiting_looks_past_unwanted_messages(pair):
    two = pair("a.*.c", "end")
    for _ in range(200):
        two.pub.publish("a.b.d", b"x")
    two.pub.publish("end", b"x")
    ends = time.monotonic() + DEADLINE
    while True:
        try:
            assert two.sub.receive(timeout=0).subject == "end"
            break
        except oz.Timeout:
            assert time.monotonic() < ends


def test_rcvtimeo_is_for_pyzmqs_calls_only(pair):
    two = pair("a")
    two.sub.set(zmq.RCVTIMEO, 10)
    with pytest.raises(zmq.Again):
        two.sub.recv_multipart()
    with pytest.raises(zmq.Again):
        two.sub.recv()
    receiving = Thread(two.sub.receive)
    receiving.join(0.1)
    two.pub.publish("a", b"x")
    assert receiving.outcome().subject == "a"


def test_iteration_goes_on_when_rcvtimeo_is_over_and_gives_no_message_twice(pair, monkeypatch):
    two = pair("a")
    two.sub.set(zmq.RCVTIMEO, 1)
    # What is done when the time is over; each time the next message comes.
    numbers = count()
    monkeypatch.setattr(SubscriberEngine, "tend", lambda engine: two.pub.publish("a", b"%d" % next(numbers)))
    payloads = [message.payload for message in islice(two.sub, 3)]
    assert payloads == [b"0", b"1", b"2"]


def test_a_frame_at_a_time_and_whole_messages_mix(pair):
    two = pair("a.*", "a.>")
    for number in range(4):
        two.pub.publish(f"a.{number}", [b"one", b"two"])
    sub = two.sub
    assert (sub.recv(), sub.get(zmq.RCVMORE), sub.rcvmore) == (b"a.0", 1, 1)
    assert sub.recv_string() == "one"
    assert sub.recv_multipart() == [b"two"]
    assert sub.get(zmq.RCVMORE) == 0
    assert sub.recv_multipart() == [b"a.1", b"one", b"two"]
    assert [frame.bytes for frame in sub.recv_multipart(copy=False)] == [b"a.2", b"one", b"two"]
    assert sub.receive(timeout=DEADLINE).frames == [b"a.3", b"one", b"two"]
