"""`send` and `send_multipart` as pyzmq has them, on both publishers."""

from __future__ import annotations

import asyncio

import pytest
import zmq
import zmq.asyncio

import oz
from support.inside import engine_of
from support.waiting import DEADLINE, Thread, until

LOOPBACK = "tcp://127.0.0.1:*"


@pytest.fixture
def context():
    with zmq.Context() as one:
        yield one


@pytest.fixture
def heard(context):
    """A publisher, and subscribers to all of it: plain, and with publisher-side filtering."""
    with (
        oz.Publisher(LOOPBACK, context=context) as pub,
        oz.Subscriber(pub.endpoint) as plain,
        oz.Subscriber(pub.endpoint, filtering="publisher") as filtering,
    ):
        for sub in (plain, filtering):
            sub.subscribe(">")
        filtering.wait_ready(timeout=DEADLINE)
        pub.wait_for_subscribers(2, timeout=DEADLINE)
        yield pub, (plain, filtering)


def test_a_heartbeat_does_not_come_between_the_frames_of_a_message(heard):
    pub, subs = heard
    pub.send(b"a", zmq.SNDMORE)
    engine_of(pub).records.beats_at = 0.0
    engine_of(pub).attend()
    pub.publish("b", b"2")
    pub.send(b"1")
    for sub in subs:
        got = [sub.receive(timeout=DEADLINE) for _ in range(2)]
        assert [(one.subject, one.frames) for one in got] == [("b", [b"b", b"2"]), ("a", [b"a", b"1"])]


def test_frames_of_every_kind_are_sent(heard):
    pub, subs = heard
    changing = bytearray(b"x")
    pub.send(b"a", zmq.SNDMORE)
    pub.send(changing, zmq.SNDMORE)
    changing[:] = b"y"
    pub.send(memoryview(b"z"))
    pub.send_multipart([b"b"], zmq.SNDMORE)
    pub.send_multipart((one for one in [zmq.Frame(b"1"), b"2"]), copy=False)
    large = b"l" * zmq.COPY_THRESHOLD
    trackers = [
        pub.send_multipart([b"c", large], copy=False, track=True),
        pub.send_multipart([b"d", b"small"], copy=False, track=True),
        pub.send_multipart([b"e", zmq.Frame(large, track=True)]),
    ]
    expected = [
        [b"a", b"x", b"z"], [b"b", b"1", b"2"], [b"c", large], [b"d", b"small"], [b"e", large],
    ]  # fmt: skip
    for sub in subs:
        assert [sub.receive(timeout=DEADLINE).frames for _ in expected] == expected
    for tracker in trackers:
        tracker.wait(DEADLINE)


@pytest.mark.parametrize("refused", ["text", 5, None])
def test_what_is_no_bytes_is_refused_before_anything_of_it_is_sent(heard, refused):
    pub, subs = heard
    advice = "send_string.*publish" if refused == "text" else "bytes"
    for send in (lambda: pub.send(refused), lambda: pub.send_multipart([b"half", refused])):
        with pytest.raises(TypeError, match=advice):
            send()
    pub.send(b"a")
    for sub in subs:
        assert sub.receive(timeout=DEADLINE).frames[0] == b"a"


def test_a_send_of_an_untracked_frame_cannot_be_tracked(heard):
    with pytest.raises(ValueError, match="tracked"):
        heard[0].send(zmq.Frame(b"a"), track=True)


def test_nothing_is_sent_by_a_closed_publisher():
    pub = oz.Publisher(LOOPBACK)
    pub.close()
    for flags in (0, zmq.SNDMORE, zmq.NOBLOCK):
        for send in (
            lambda flags=flags: pub.send(b"a", flags),
            lambda flags=flags: pub.send_multipart([b"a"], flags),
        ):
            with pytest.raises(zmq.ZMQError) as caught:
                send()
            assert caught.value.errno == zmq.ENOTSOCK


@pytest.fixture
def full(context):
    """A publisher that waits for room, and a subscriber that has none."""
    with (
        oz.Publisher("inproc://full", context=context, on_full="block", high_water_mark=5) as pub,
        context.socket(zmq.SUB) as sub,
    ):
        sub.rcvhwm, sub.linger = 5, 0
        sub.subscribe(b"a")
        sub.connect("inproc://full")
        pub.wait_for_subscribers(timeout=DEADLINE)
        count = 0
        while fits(pub, [b"a", b"%d" % count]):
            count += 1
        yield pub, sub, count


def fits(pub, frames):
    """Send a message; tell whether there was room."""
    try:
        pub.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True


def test_subscribers_are_answered_while_a_send_waits_for_room(full, context):
    pub, sub, count = full
    waiting = Thread(lambda: pub.send(b"a last"))
    waiting.wait_until_stuck()
    with oz.Subscriber("inproc://full", context=context, filtering="publisher") as other:
        other.subscribe("none")
        other.wait_ready(timeout=DEADLINE)
    for _ in range(count):
        assert sub.poll(1000 * DEADLINE)
        sub.recv_multipart()
    waiting.outcome()
    assert sub.poll(1000 * DEADLINE)
    assert sub.recv() == b"a last"


def test_a_send_waits_as_long_as_the_socket_says_and_can_be_made_again(full):
    pub, sub, count = full
    pub.sndtimeo = 20
    pub.send(b"a", zmq.SNDMORE)
    with pytest.raises(zmq.Again):
        pub.send(b"whole")
    for _ in range(count):
        assert sub.poll(1000 * DEADLINE)
        sub.recv_multipart()
    pub.sndtimeo = -1
    pub.send(b"whole")
    assert sub.poll(1000 * DEADLINE)
    assert sub.recv_multipart() == [b"a", b"whole"]


def test_asyncio_sends_frames_of_every_kind_and_whole_messages():
    async def scenario():
        with zmq.asyncio.Context() as context:
            async with (
                oz.asyncio.Publisher(LOOPBACK, context=context) as pub,
                oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub,
            ):
                sub.subscribe(">")
                await sub.wait_ready(timeout=DEADLINE)
                assert await pub.send(b"a", zmq.SNDMORE) is None
                engine_of(pub).records.beats_at = 0.0
                engine_of(pub).attend()
                await pub.publish("b", b"2")
                assert await pub.send(b"1") is None
                large = b"l" * zmq.COPY_THRESHOLD
                tracker = await pub.send_multipart([b"c", large], copy=False, track=True)
                assert (await pub.send_multipart([b"d", b"s"], copy=False)).done
                with pytest.raises(TypeError, match="send_string"):
                    await pub.send("text")
                got = [await sub.receive(timeout=DEADLINE) for _ in range(4)]
                expected = [[b"b", b"2"], [b"a", b"1"], [b"c", large], [b"d", b"s"]]
                assert [one.frames for one in got] == expected
                del got
                until(lambda: tracker.done)
                assert (pub.type, pub.getsockopt(zmq.TYPE)) == (zmq.PUB, zmq.PUB)

    asyncio.run(scenario())
