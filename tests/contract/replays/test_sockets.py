"""Public bug reports about sockets. Each test is named after the issue."""

import asyncio
import concurrent.futures
import random
import socket
import time

import pytest
import zmq

from contract.adapter import Options, errors, limits
from contract.promises import cases, promise
from support.waiting import DEADLINE, Thread

SYNC = {"sync": "Only a coroutine can be cancelled."}
PREFIX = {"prefix": "A plain publisher does not offer this."}


def _numbers(count):
    return [b"%d" % number for number in range(count)]


@promise(
    "A publisher that connects to a subscriber can wait until the subscriptions have arrived.",
    not_for={"publisher": "Publishers that filter must bind."},
)
def test_libzmq_2267_publisher_may_connect(sockets, endpoint):
    subscriber = sockets.api.subscriber(bind=endpoint(), filtering=sockets.filtering)
    got = subscriber.subscribe("tick.>")
    publisher = sockets.api.publisher(connect=subscriber.endpoint)
    receiving = sockets.api.start(lambda: got.receive_all(50))
    publisher.wait_for_subscribers("tick.a")
    publisher.publish_many(("tick.a", number) for number in _numbers(50))
    assert receiving.outcome() == _numbers(50)


@promise("A receive that times out or is cancelled when a message arrives does not lose the message.")
def test_pyzmq_1925_cancelled_receive_loses_nothing(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, "tick.>")
    rng = random.Random(1925)
    count = 100

    def publish():
        for number in _numbers(count):
            publisher.publish("tick.a", number)
            time.sleep(rng.random() * 0.002)  # the pace of the messages, so that they meet the end of a wait

    thread = Thread(publish)
    got, ended = [], 0
    while len(got) < count:
        try:
            got.append(subscriber.receive_within(0.001).payload)
        except errors.Timeout:
            ended += 1
            assert ended < 20_000
    thread.outcome()
    assert got == _numbers(count)


@promise(
    "A check of readiness in another task does not make a waiting receive miss messages.",
    not_for={
        "sync": "A subscriber of threads belongs to the thread that receives.",
    },
)
def test_pyzmq_2173_check_of_readiness_does_not_stall_a_receiver(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "tick.>")
    receiving = sockets.api.start(lambda: got.receive_all(100))
    for number in _numbers(100):
        publisher.publish("tick.a", number)
        subscriber.check_readable()
    assert receiving.outcome() == _numbers(100)


@promise("The last message of a burst arrives without a later message.")
def test_pyzmq_1085_last_message_of_a_flood_comes(pair):
    got = pair.subscribe("tick.>")
    for _ in range(2):
        pair.publisher.publish_many(("tick.a", number) for number in _numbers(600))
        assert got.receive_all(600) == _numbers(600)


@promise(
    "A loop of `await publish` lets other tasks run.",
    not_for={
        "sync": "Threads are scheduled by the system.",
    },
)
def test_pyzmq_1259_loop_of_publish_lets_other_tasks_run(sockets):
    publisher = sockets.publisher()
    turns, seconds = publisher.publish_in_one_task([("tick.a", b"x")] * 20_000)
    # A turn each millisecond is promised. Processor time does not pass while another process runs.
    assert turns > seconds / 0.005


@promise("A task that waits in a receive ends at once when it is cancelled.", not_for=SYNC)
def test_aredis_181_cancelled_receive_ends(pair, api):
    got = pair.subscribe("tick.>")
    waiting = api.start(lambda: got.receive(timeout=None))
    waiting.wait_until_blocked()
    waiting.cancel()
    with pytest.raises((asyncio.CancelledError, concurrent.futures.CancelledError)):
        waiting.outcome(timeout=5)
    pair.publisher.publish("tick.a", b"next")
    assert got.receive().payload == b"next"


@promise("A subscription with `max_messages=n` gets exactly n messages, even if more wait.", not_for=PREFIX)
def test_nats_py_251_max_messages_is_exact(pair):
    got = pair.subscribe("tick.>", max_messages=10)
    pair.publisher.publish_many(("tick.a", number) for number in _numbers(30))
    assert got.receive_all(10) == _numbers(10)
    with pytest.raises((errors.Timeout, errors.ClosedError)):
        got.receive(timeout=0.05)
    assert not got.active


@promise("`high_water_mark=0` means no limit for each value of `on_full`.")
@cases("on_full", ["drop", "block", "raise"])
def test_libzmq_4394_high_water_mark_0_is_no_limit(sockets, on_full):
    publisher = sockets.publisher(on_full=on_full, options=Options(high_water_mark=0, batch=1))
    subscriber = sockets.subscriber(publisher, options=Options(high_water_mark=0))
    sockets.subscribe(publisher, subscriber, "tick.>")
    count = 2500  # messages; libzmq's own limit is 1,000 at each end
    publisher.publish_many(("tick.a", number) for number in _numbers(count))
    received = []
    while len(received) < count:
        received += [message.payload for message in subscriber.receive_many()]
    assert received == _numbers(count)


def _send_raw(endpoint, data):
    """Send bytes to a TCP endpoint; wait until the peer ends the connection, or takes all."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as stranger:
        try:
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass
        except OSError:
            pass


@promise(
    "Newlines of a port scanner, runs of zeros and subscriptions of 20 KB do not disturb a publisher.",
    not_for=dict.fromkeys(("ipc", "inproc", "tcp6"), "Strangers come over TCP."),
)
def test_libzmq_4671_publisher_survives_garbage(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "tick.>")
    for garbage in (b"\r\n\r\n" * 10, b"\n" * 100, b"\0" * 1000, b"\xff" + b"\0" * 200):
        _send_raw(publisher.endpoint, garbage)
    with zmq.Context() as context, context.socket(zmq.XSUB) as stranger:
        stranger.linger = 0
        stranger.connect(publisher.endpoint)
        stranger.send(b"\0never subscribed")
        stranger.send(b"\1" + b"x" * 20_000)
        stranger.send(b"\0" + b"x" * 20_000)
        for number in _numbers(100):
            publisher.publish("tick.a", number)
        assert got.receive_all(100) == _numbers(100)
    publisher.publish("tick.a", b"end")
    assert got.receive().payload == b"end"


@promise("`publish` raises an error for a message that is too large, and other messages arrive.")
def test_nats_py_888_too_large_message_is_refused_at_publish(sockets):
    options = Options(limits=limits(message_bytes=100_000))
    publisher = sockets.publisher(options=options)
    subscriber = sockets.subscriber(publisher, options=options)
    got = sockets.subscribe(publisher, subscriber, "tick.>")
    publisher.publish("tick.a", b"before")
    with pytest.raises(ValueError, match="200,000"):
        publisher.publish("tick.a", b"x" * 200_000)
    publisher.publish("tick.a", b"after")
    assert got.receive_all(2) == [b"before", b"after"]


@promise("`conflate` keeps the newest message of each subject.", not_for=PREFIX)
def test_libzmq_1688_conflate_keeps_each_subject(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, "tick.*", overflow="conflate")
    publisher.publish_many((f"tick.{number % 10}", b"%d" % number) for number in range(1000))
    newest = {f"tick.{number}": b"%d" % (990 + number) for number in range(10)}
    got = {}

    while got != newest:
        message = subscriber.receive()
        assert int(message.payload) > int(got.get(message.subject, b"-1"))
        got[message.subject] = message.payload
