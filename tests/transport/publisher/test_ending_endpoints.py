"""What was published before an endpoint is left, or a publisher closed, and libzmq has not written yet."""

import asyncio
import os
import sys
from contextlib import nullcontext

import pytest
import zmq

import oz
from oz.transport.publisher import closing, engine, untaken
from support.inside import engine_of
from support.waiting import DEADLINE, Thread, until

SENT = 200
PAYLOAD = b"." * 30_000

# The system takes 4 MB by tcp, and 0.2 MB by ipc.
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what waits for room"),
    pytest.mark.parametrize("transport", ["tcp", "ipc"]),
]


@pytest.fixture
def endpoint(transport, tmp_path):
    return "tcp://127.0.0.1:*" if transport == "tcp" else f"ipc://{tmp_path}/socket"


@pytest.fixture
def sub():
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        sub.set(zmq.RCVHWM, 1)
        sub.set(zmq.RCVTIMEO, round(DEADLINE * 1000))
        sub.subscribe("a")
        yield sub


def take_all(sub):
    return [sub.recv_multipart()[0] for _ in range(SENT)]


def join(pub, sub, endpoint, action):
    if action == "disconnect":
        sub.bind(endpoint)
        pub.connect(sub.last_endpoint)
    else:
        pub.bind(endpoint)
        sub.connect(pub.endpoint)
    # A SUB that listens tells what it wants when it is used.
    until(lambda: sub.get(zmq.EVENTS) or engine_of(pub).listen() or pub.interest("a.0"))
    return pub.endpoint


@pytest.mark.parametrize("own_context", [True, False])
@pytest.mark.parametrize("action", ["disconnect", "unbind"])
def test_what_was_published_arrives_though_the_endpoint_is_left(sub, endpoint, action, own_context):
    with (
        nullcontext() if own_context else zmq.Context() as context,
        oz.Publisher(context=context, high_water_mark=2 * SENT) as pub,
    ):
        joined = join(pub, sub, endpoint, action)
        for number in range(SENT):
            pub.publish(f"a.{number}", PAYLOAD)
        taking = Thread(lambda: take_all(sub))
        getattr(pub, action)(joined)
        assert taking.outcome() == [b"a.%d" % number for number in range(SENT)]


@pytest.mark.parametrize("action", ["disconnect", "unbind"])
def test_what_is_not_written_in_time_is_told(sub, endpoint, action, monkeypatch, caplog):
    monkeypatch.setattr(engine, "CLOSE_TIMEOUT", 0.1)
    with oz.Publisher(high_water_mark=2 * SENT) as pub:
        joined = join(pub, sub, endpoint, action)
        for number in range(SENT):
            pub.publish(f"a.{number}", PAYLOAD)
        getattr(pub, action)(joined)
        assert f"left {joined}, and not all was written after 0.1 s" in caplog.text
        pub.close(0)


def test_a_loop_is_not_held_up_by_what_is_not_read(sub, endpoint, monkeypatch, caplog):
    monkeypatch.setattr(engine, "_MOMENT", 0.001)

    async def leave():
        async with oz.asyncio.Publisher(high_water_mark=2 * SENT) as pub:
            joined = join(pub, sub, endpoint, "disconnect")
            for number in range(SENT):
                await pub.publish(f"a.{number}", PAYLOAD)
            pub.disconnect(joined)
            pub.close(0)

    asyncio.run(leave())
    assert "not all was written after 0.001 s" in caplog.text


@pytest.mark.parametrize("is_read", [True, False])
def test_libzmq_has_taken_up_what_there_is_no_room_for_before_a_publisher_closes(
    sub, endpoint, is_read, monkeypatch
):
    asked = []
    monkeypatch.setattr(closing, "take_up", asked.append)
    with oz.Publisher(high_water_mark=2 * SENT) as pub:
        join(pub, sub, endpoint, "unbind")
        for number in range(SENT):
            pub.publish(f"a.{number}", PAYLOAD)
        if is_read:
            take_all(sub)
        else:
            until(lambda: not untaken.system.awaiting_room().isdisjoint(range(1_000)))
        context = pub.context
        pub.close(0.1)
    assert asked == [] if is_read else [context]


def test_each_thread_of_libzmq_answers_and_nothing_is_left_open(transport):
    with zmq.Context(io_threads=3) as context, context.socket(zmq.PUB) as pub:
        pub.bind("tcp://127.0.0.1:*")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            untaken.take_up(context)
        until(lambda: len(os.listdir("/proc/self/fd")) <= before)
