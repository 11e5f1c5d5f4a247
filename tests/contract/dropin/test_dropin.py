"""Drop-in sockets: programs with pyzmq get patterns."""

import asyncio
import sys
import time

import pytest
import zmq
import zmq.asyncio

from contract.adapter import asyncio_sub_socket, errors, poller, pub_socket, sub_socket
from contract.promises import promise
from support.alarms import alarms
from support.waiting import DEADLINE, until


@pytest.fixture
def context():
    made = zmq.Context()
    yield made
    made.destroy(0)


@pytest.fixture
def publisher(context):
    """Plain XPUB of pyzmq."""
    made = context.socket(zmq.XPUB)
    made.bind("tcp://127.0.0.1:*")
    return made


@pytest.fixture
def sub(context, publisher):
    """Drop-in SUB that is connected to the publisher."""
    with sub_socket(context) as made:
        made.connect(publisher.last_endpoint.decode())
        yield made


def _subscribe(publisher, sub, *prefixes, **options):
    """Subscribe to patterns; return when the publisher has the subscriptions."""
    for prefix in prefixes:
        sub.subscribe(prefix, **options)
    _wait_for_subscriptions(publisher, len(prefixes))


def _wait_for_subscriptions(publisher, count):
    for _ in range(count):
        assert publisher.poll(DEADLINE * 1000)
        publisher.recv()


@promise("A drop-in SUB receives only multipart messages that match, each with all frames.")
def test_multipart_messages_that_match_arrive_whole(sub, publisher):
    _subscribe(publisher, sub, "weather.*.wind", dialect="nats")
    for place in ("oslo", "bergen"):
        for what in ("temp", "wind"):
            publisher.send_multipart([f"weather.{place}.{what}".encode(), b"1", b"", b"2"])
    found = [sub.recv_multipart() for _ in range(2)]
    assert found == [[f"weather.{place}.wind".encode(), b"1", b"", b"2"] for place in ("oslo", "bergen")]


@promise('In dialect "zmq" text and bytes are plain prefixes, also when they contain a colon.')
def test_text_is_a_prefix(sub, publisher):
    sub.subscribe("redis:keys")
    sub.setsockopt(zmq.SUBSCRIBE, b"news.*")
    sub.setsockopt_string(zmq.SUBSCRIBE, "end")
    _wait_for_subscriptions(publisher, 3)
    for subject in (b"redis:keys.1", b"redis", b"news.a", b"news.*a", b"end"):
        publisher.send_multipart([subject, b""])
    assert [sub.recv_multipart()[0] for _ in range(3)] == [b"redis:keys.1", b"news.*a", b"end"]


@promise("NOBLOCK and RCVTIMEO of a drop-in SUB also hold while only messages arrive that do not match.")
def test_timeouts_hold_without_a_match(sub, publisher):
    _subscribe(publisher, sub, "a.*.z", dialect="nats")
    with pytest.raises(zmq.Again):
        sub.recv_multipart(zmq.NOBLOCK)
    for _ in range(100):
        publisher.send_multipart([b"a.b.c", b""])
    sub.rcvtimeo = 100
    began = time.monotonic()
    with pytest.raises(zmq.Again):
        sub.recv_multipart()
    assert 0.09 <= time.monotonic() - began < DEADLINE


@promise("zmq.Poller works with a drop-in SUB.")
def test_poller_reports_a_message(sub, publisher):
    _subscribe(publisher, sub, "a.*", dialect="nats")
    poller = zmq.Poller()
    poller.register(sub, zmq.POLLIN)
    assert poller.poll(0) == []
    publisher.send_multipart([b"a.b", b"1"])
    until(lambda: dict(poller.poll(100)).get(sub) == zmq.POLLIN)
    assert sub.recv_multipart(zmq.NOBLOCK) == [b"a.b", b"1"]


@promise("A drop-in PUB serves plain SUBs of pyzmq.")
def test_plain_subscribers_are_served(context):
    with pub_socket(context) as publisher, context.socket(zmq.SUB) as plain:
        publisher.bind("tcp://127.0.0.1:*")
        plain.connect(publisher.getsockopt_string(zmq.LAST_ENDPOINT))
        plain.subscribe("news.")

        def arrives():
            publisher.send_multipart([b"news.oslo", b"snow", b"more"])
            return plain.poll(20)

        until(arrives)
        assert plain.recv_multipart() == [b"news.oslo", b"snow", b"more"]


@promise("Options, string receives and context managers of pyzmq work on a drop-in SUB.")
def test_surface_of_pyzmq(sub, publisher):
    with sub:
        sub.rcvhwm = 17
        assert sub.getsockopt(zmq.RCVHWM) == 17
        _subscribe(publisher, sub, "a")
        publisher.send_string("abc")
        assert sub.recv_string() == "abc"
        assert isinstance(sub, zmq.Socket)
    assert sub.closed


@promise("oz.Poller and poll report a drop-in SUB only for messages that match.")
def test_own_poller_knows_patterns(sub, publisher):
    sub.subscribe("a.*.c", dialect="nats")
    _wait_for_subscriptions(publisher, 1)
    own = poller()
    own.register(sub, zmq.POLLIN)
    publisher.send_multipart([b"a.b.d", b""])
    assert own.poll(50) == []
    assert sub.poll(0) == 0
    publisher.send_multipart([b"a.b.c", b"1"])
    assert own.poll(DEADLINE * 1000) == [(sub, zmq.POLLIN)]
    assert sub.poll(0) == zmq.POLLIN
    assert sub.recv_multipart(zmq.NOBLOCK) == [b"a.b.c", b"1"]


@promise("A drop-in SUB keeps a prefix until no subscription needs the prefix.")
def test_prefixes_are_counted(sub, publisher):
    for pattern in ("a.*.c", "a.*.d", "a.>"):
        sub.subscribe(pattern, dialect="nats")
    sub.subscribe(b"a.")
    _wait_for_subscriptions(publisher, 1)
    for pattern in ("a.*.c", "a.*.d", b"a.", "never.*"):
        sub.unsubscribe(pattern, dialect="nats")
    publisher.send_multipart([b"a..c"])
    publisher.send_multipart([b"a.b.c"])
    assert sub.recv_multipart() == [b"a.b.c"]
    sub.unsubscribe("a.>", dialect="nats")
    assert publisher.poll(DEADLINE * 1000)
    assert publisher.recv() == b"\0a."


@promise("Bytes given to a drop-in SUB are a prefix in every dialect.")
def test_bytes_are_a_prefix(context, publisher):
    endpoint = publisher.last_endpoint.decode()
    for dialect in ("nats", "redis", "regex"):
        with sub_socket(context, dialect=dialect) as sub:
            sub.connect(endpoint)
            sub.subscribe(b"a.*")
            _wait_for_subscriptions(publisher, 1)
            for subject in (b"a.b", b"a.*", b"a.*x"):
                publisher.send(subject)
            assert [sub.recv() for _ in range(2)] == [b"a.*", b"a.*x"]
        _wait_for_subscriptions(publisher, 1)


@promise("A drop-in SUB refuses CONFLATE together with a pattern; the error names CONFLATE.")
def test_conflate_is_refused(context):
    with sub_socket(context, dialect="nats") as sub:
        sub.subscribe("a.*")
        with pytest.raises(errors.ConfigurationError, match="CONFLATE"):
            sub.conflate = 1
    with sub_socket(context, dialect="nats") as sub:
        sub.conflate = 1
        with pytest.raises(errors.ConfigurationError, match="CONFLATE"):
            sub.subscribe("a.*")


@promise("An exception inside a receive of a drop-in SUB loses at most the message that is being received.")
def test_exceptions_cost_one_message(context, monkeypatch):
    # pyzmq and the destructors of Python let an exception pass that a signal handler raises in them.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    publisher = context.socket(zmq.XPUB)
    publisher.sndhwm = 0
    publisher.bind("tcp://127.0.0.1:*")
    count, interruptions = 3_000, 0

    class Interruption(Exception):
        pass

    def interrupt(number, frame):
        while frame is not None:
            if frame.f_code.co_name == "recv_multipart":
                raise Interruption
            frame = frame.f_back

    with sub_socket(context) as sub:
        sub.rcvhwm = 0
        sub.connect(publisher.last_endpoint.decode())
        sub.subscribe("a.*", dialect="nats")
        _wait_for_subscriptions(publisher, 1)
        for number in range(count):
            publisher.send_multipart([b"a.b.c", b"x", b"y"])
            publisher.send_multipart([b"a.b", *[b"%d" % number] * 3])
        found = []
        with alarms(interrupt, 0.0002):
            while not found or found[-1][-1] != b"%d" % (count - 1):
                if not interruptions and len(found) > count // 2:
                    pytest.skip("the machine is too slow for a signal inside a receive")
                try:
                    found.append(sub.recv_multipart())
                except Interruption:
                    interruptions += 1
                    # The last message may be the one in hand. Others may still be on their way on a busy machine.
                    if not sub.poll(3_000):
                        break
    publisher.close(0)
    numbers = [int(frames[1]) for frames in found]
    assert all(
        frames == [b"a.b", *[b"%d" % number] * 3] for frames, number in zip(found, numbers, strict=True)
    )
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= count - interruptions


@promise("Cancelling the await of a receive of an asyncio drop-in SUB loses no message.")
def test_cancelled_receives_lose_nothing():
    async def main():
        context = zmq.asyncio.Context()
        publisher = zmq.Context(context).socket(zmq.XPUB)
        publisher.bind("tcp://127.0.0.1:*")
        with asyncio_sub_socket(context) as sub:
            sub.connect(publisher.last_endpoint.decode())
            sub.subscribe("a.*", dialect="nats")
            _wait_for_subscriptions(publisher, 1)
            found = []
            for number in range(500):
                receiving = asyncio.ensure_future(_received(sub))
                await asyncio.sleep(0)
                publisher.send_multipart([b"a.b.c", b""])
                publisher.send_multipart([b"a.b", b"%d" % number])
                for _ in range(number % 20):
                    await asyncio.sleep(0)
                receiving.cancel()
                try:
                    found.append(await receiving)
                except asyncio.CancelledError:
                    found.append(await sub.recv_multipart())
            assert found == [[b"a.b", b"%d" % number] for number in range(500)]
        publisher.close(0)
        context.term()

    asyncio.run(asyncio.wait_for(main(), DEADLINE))


async def _received(sub):
    return await sub.recv_multipart()


@promise("A drop-in PUB with a dialect raises SubjectError if the first frame is not a valid subject.")
def test_subjects_are_checked(context):
    with pub_socket(context, dialect="nats") as publisher:
        for send in (publisher.send, lambda frame: publisher.send_multipart([frame, b"payload"])):
            with pytest.raises(errors.SubjectError):
                send(b"a..b")
        publisher.send_multipart([b"a.b", b"a..b"])
