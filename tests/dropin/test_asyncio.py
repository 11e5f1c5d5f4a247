"""`oz.asyncio.SubSocket`, `PubSocket` and `Poller`."""

import asyncio
import copy

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio
from support.waiting import DEADLINE


def run(main, *patterns, dialect="nats"):
    """Run a coroutine function with a connected SubSocket, and a function that sends."""

    async def with_sockets():
        context = zmq.asyncio.Context()
        publisher = zmq.Context(context).socket(zmq.XPUB)
        publisher.sndhwm = 0
        publisher.bind("tcp://127.0.0.1:*")
        sub = context.socket(zmq.SUB, socket_class=oz.asyncio.SubSocket, dialect=dialect)
        sub.connect(publisher.last_endpoint.decode())

        def send(*frames):
            publisher.send_multipart(
                [frame.encode() if isinstance(frame, str) else frame for frame in frames]
            )

        try:
            for pattern in patterns:
                sub.subscribe(pattern)
                assert publisher.poll(DEADLINE * 1000)
                publisher.recv()
            return await asyncio.wait_for(main(sub, send), DEADLINE)
        finally:
            publisher.close(0)
            sub.close(0)
            context.term()

    return asyncio.run(with_sockets())


def test_each_receive_skips_messages_that_do_not_match():
    async def main(sub, send):
        buffer = bytearray(3)
        for _ in range(8):
            send("a.b.c", "x")
            send("a.b", "{}")
        assert sub.dialect == "nats"
        assert await sub.recv() == b"a.b"
        assert sub.rcvmore == 1
        assert await sub.recv_json() == {}
        assert sub.rcvmore == 0
        assert await sub.recv_multipart() == [b"a.b", b"{}"]
        assert [item.bytes for item in await sub.recv_multipart(copy=False)] == [b"a.b", b"{}"]
        assert await sub.recv_string() == "a.b"
        assert (await sub.recv(copy=False)).bytes == b"{}"
        assert await sub.recv_serialized(tuple) == (b"a.b", b"{}")
        assert await sub.recv_into(buffer) == 3
        assert buffer == b"a.b"
        assert await sub.recv_into(bytearray()) == 2
        assert await sub.poll(DEADLINE * 1000) == zmq.POLLIN
        assert await sub.recv(zmq.NOBLOCK) == b"a.b"
        assert await sub.recv_multipart(zmq.NOBLOCK) == [b"{}"]
        assert await sub.recv_multipart() == [b"a.b", b"{}"]
        with pytest.raises(zmq.Again):
            await sub.recv(zmq.NOBLOCK)

    run(main, "a.*")


async def resolve_unseen(sub, send, receive):
    """Return a task that is cancelled after its Future has a message, and before the task runs."""
    future = receive(sub)

    async def wait():
        return await future

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    send("a.b", "1", "2")
    while not future.done():
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("pattern", ["a.*", b"a."])
@pytest.mark.parametrize(
    "receive",
    [
        lambda sub: sub.recv(),
        lambda sub: sub.recv(copy=False),
        lambda sub: sub.recv_multipart(),
        lambda sub: sub.recv_multipart(copy=False),
        lambda sub: sub.recv_string(),
        lambda sub: sub.recv_serialized(len),
        lambda sub: sub.recv_into(bytearray(100)),
    ],
)
def test_a_cancelled_receive_leaves_the_message_to_the_next(receive, pattern):
    async def main(sub, send):
        for _ in range(3):
            await resolve_unseen(sub, send, receive)
            assert await sub.poll(0) == zmq.POLLIN
            assert sub.rcvmore == 0
            assert await sub.recv() == b"a.b"
            assert await sub.recv_multipart() == [b"1", b"2"]
            assert await sub.poll(0) == 0

    run(main, pattern)


def test_a_cancelled_receive_inside_a_message_leaves_the_frame_to_the_next():
    async def main(sub, send):
        send("a.b", "1", "2")
        assert await sub.recv() == b"a.b"
        future = sub.recv()
        assert future.done()
        waiting = future.__await__()
        future.give_back()
        waiting.close()
        assert sub.rcvmore == 1
        assert await sub.recv_multipart() == [b"1", b"2"]

    run(main, "a.*")


def test_a_cancelled_receive_wakes_a_task_that_waits():
    async def main(sub, send):
        first, second = sub.recv_multipart(), asyncio.ensure_future(sub.recv_multipart())

        async def wait():
            return await first

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        send("a.b", "1")
        while not first.done():
            await asyncio.sleep(0)
        task.cancel()
        assert await second == [b"a.b", b"1"]

    run(main, "a.*")


def test_rcvtimeo_is_the_time_of_a_whole_receive():
    async def main(sub, send):
        sub.rcvtimeo = 200
        loop = asyncio.get_running_loop()
        began, receiving = loop.time(), asyncio.ensure_future(sub.recv())
        while not receiving.done():
            send("a.b.c")
            await asyncio.sleep(0.01)
        assert loop.time() - began >= 0.19
        with pytest.raises(zmq.Again):
            await receiving

    run(main, "a.*")


def test_pollers_report_matching_messages_only():
    async def main(sub, send):
        poller = oz.asyncio.Poller()
        poller.register(sub, zmq.POLLIN)
        send("a.b.c")
        assert await poller.poll(50) == []
        assert await poller.poll(0) == []
        waiting = asyncio.ensure_future(poller.poll())
        send("a.b.c")
        await asyncio.sleep(0.01)
        assert not waiting.done()
        send("a.b")
        assert await waiting == [(sub, zmq.POLLIN)]
        assert await poller.poll(0) == [(sub, zmq.POLLIN)]
        assert await sub.recv() == b"a.b"
        blocking = oz.Poller()
        blocking.register(sub, zmq.POLLIN)
        assert blocking.poll(0) == []
        send("a.c")
        assert await poller.poll(DEADLINE * 1000) == blocking.poll(0) == [(sub, zmq.POLLIN)]

    run(main, "a.*")


def test_refused_messages_without_end_do_not_hold_the_loop():
    async def main(sub, send):
        receiving, turns = asyncio.ensure_future(sub.recv()), 0
        while turns < 50:
            for _ in range(300):
                send("a.b.c")
            await asyncio.sleep(0)
            turns += 1
        send("a.b")
        assert await receiving == b"a.b"

    run(main, "a.*")


def test_closing_cancels_receives_and_refuses_calls():
    async def main(sub, send):
        receiving = [sub.recv_multipart(), sub.recv_json()]
        sub.close()
        for item in receiving:
            with pytest.raises(asyncio.CancelledError):
                await item
        for call in (
            lambda: sub.subscribe("a"),
            lambda: sub.unsubscribe("a"),
            lambda: sub.set(zmq.RCVHWM, 1),
            lambda: sub.get(zmq.EVENTS),
            lambda: sub.get(zmq.RCVHWM),
            lambda: sub.poll(0),
        ):
            with pytest.raises(zmq.ZMQError):
                call()
        with pytest.raises(zmq.ZMQError):
            await sub.recv()

    run(main, "a.*")


def test_a_publisher_checks_subjects():
    async def main(sub, send):
        with oz.asyncio.PubSocket(dialect="nats") as pub:
            port = pub.bind_to_random_port("tcp://127.0.0.1")
            sub.connect(f"tcp://127.0.0.1:{port}")
            receiving = asyncio.ensure_future(sub.recv_multipart())
            while not receiving.done():
                await pub.send_multipart([b"a.b", b".."])
                await pub.send(b"a.b", zmq.SNDMORE)
                await pub.send_string("..")
                await asyncio.sleep(0.01)
            assert await receiving == [b"a.b", b".."]
            for sending in (pub.send(b".."), pub.send_multipart([b"..", b""]), pub.send_string("..")):
                with pytest.raises(oz.SubjectError):
                    await sending
            shadow = copy.copy(pub)
            with pytest.raises(oz.SubjectError):
                await shadow.send(b"..")
            assert shadow.dialect == pub.dialect == "nats"
        with pytest.raises(oz.ConfigurationError, match=r"zmq\.PUB"):
            oz.asyncio.PubSocket(socket_type=zmq.SUB)

    run(main, "a.*")


def test_a_failed_load_is_the_error_of_the_receive_and_costs_that_message():
    async def main(sub, send):
        send("a.b", "{")
        send("a.c", "{}")
        assert await sub.recv() == b"a.b"
        with pytest.raises(ValueError, match="Expecting"):
            await sub.recv_json()
        assert await sub.recv() == b"a.c"
        future = sub.recv_json()
        assert await future == {}

    run(main, "a.*")


def test_a_plain_poller_does_not_spin_for_a_message_that_was_kept():
    async def main(sub, send):
        send("a.b")
        assert await sub.poll(DEADLINE * 1000)
        poller = zmq.asyncio.Poller()
        poller.register(sub, zmq.POLLIN)
        calls, handle = [], sub._handle_recv
        sub.__dict__["_handle_recv"] = lambda: calls.append(handle())
        waiting = asyncio.ensure_future(poller.poll())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert len(calls) < 10
        send("a.c")
        assert await waiting == [(sub, zmq.POLLIN)]
        assert [await sub.recv(), await sub.recv()] == [b"a.b", b"a.c"]

    run(main, "a.*")
