"""Publishers and subscribers over `epgm://` on the loopback interface, where no privilege is needed."""

import asyncio
import subprocess
import sys
import time

import pytest
import zmq

import oz
import oz.asyncio
from multicast import needs
from multicast.loopback import FAST, joined, payloads, raw_publisher
from support.inside import engine_of
from support.scripts import ENVIRONMENT
from support.waiting import DEADLINE, until

pytestmark = [needs.pgm, pytest.mark.timeout(180)]


def test_messages_of_all_kinds_arrive_in_order(pair):
    publisher, subscriber = pair
    large = bytes(range(256)) * 4096
    publisher.publish("md.one", b"1")
    publisher.publish("other", b"not wanted")
    publisher.publish("md.two", b"2", headers={"trace": "7f3a"})
    publisher.publish("md.three", [b"3", b"more"])
    publisher.publish("md.four", large)
    publisher.publish_many((f"md.{number}", b"%d" % number) for number in range(1000))
    got = [subscriber.receive(timeout=DEADLINE) for _ in range(4)]
    assert [message.subject for message in got] == ["md.one", "md.two", "md.three", "md.four"]
    assert got[1].headers == {"trace": "7f3a"}
    assert got[2].frames == [b"md.three", b"3", b"more"]
    assert got[3].payload == large
    assert [message.sequence for message in got] == [0, 2, 3, 4]
    assert len({message.origin for message in got}) == 1
    assert payloads(subscriber, 1000) == [b"%d" % number for number in range(1000)]
    stats = subscriber.stats
    assert (stats.received, stats.delivered, stats.filtered, stats.lost) == (1005, 1004, 1, 0)
    assert publisher.stats.sent == 1005


def test_a_message_of_a_megabyte_is_cut_into_packets(pair):
    publisher, subscriber = pair
    for number in range(10):
        publisher.publish("md.large", bytes([number]) * 1_000_000)
    assert [(payload[0], len(payload)) for payload in payloads(subscriber, 10)] == [
        (n, 1_000_000) for n in range(10)
    ]
    assert subscriber.stats.malformed == 0


def test_a_message_that_is_on_its_way_for_longer_than_stale_after_is_delivered(endpoint):
    # 2.4 seconds of it, in which nothing else can be heard. A machine may be busy for longer than it bears.
    slow = oz.Multicast(rate_kbps=1_000, recovery=10.0, stale_after=1.0)
    assert any(delivers(endpoint, slow, bytes(250_000)) for _ in range(3))


def delivers(endpoint, options, payload):
    with (
        oz.Subscriber(endpoint, multicast=options) as subscriber,
        oz.Publisher(endpoint, multicast=options) as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        publisher.publish("md.large", payload)
        publisher.publish("md.behind", b"")
        first = subscriber.receive(timeout=DEADLINE)
        publisher.close(0)
        return (first.payload, first.gap) == (payload, 0)


def test_everybody_who_listens_gets_each_message(endpoint):
    with (
        oz.Subscriber(endpoint, multicast=FAST) as one,
        oz.Subscriber(endpoint, multicast=FAST) as other,
        oz.Publisher(endpoint, multicast=FAST) as publisher,
    ):
        one.subscribe("md.>")
        other.subscribe("*.x")
        joined(one, 1)
        joined(other, 1)
        publisher.publish("md.x", b"both")
        assert payloads(one, 1) == payloads(other, 1) == [b"both"]
        publisher.close(0)


def test_codec_handlers_batches_and_poller_work_as_ever(endpoint):
    with (
        oz.Subscriber(endpoint, multicast=FAST, codec="msgpack") as subscriber,
        oz.Publisher(endpoint, multicast=FAST, codec="msgpack") as publisher,
    ):
        handled = []
        subscription = subscriber.subscribe("md.h", handler=handled.append)
        subscriber.subscribe("md.>", max_messages=2)
        joined(subscriber, 1)
        for number in range(3):
            publisher.publish("md.h", {"n": number})
        assert payloads(subscriber, 2) == [{"n": 0}, {"n": 1}]
        until(lambda: subscriber.run(timeout=0.05) >= 0 and len(handled) == 3)
        subscription.unsubscribe()
        subscriber.subscribe("md.p")
        poller = oz.Poller()
        poller.register(subscriber, zmq.POLLIN)
        publisher.publish("md.p", 7)
        assert dict(poller.poll(1000 * DEADLINE)) == {subscriber: zmq.POLLIN}
        assert subscriber.receive(timeout=0).payload == 7
        publisher.close(0)


def test_batches_are_received_as_columns(pair):
    publisher, subscriber = pair
    with publisher.batch():
        for number in range(20):
            publisher.publish(f"md.{number}", b"%d" % number)
    rows = []
    while len(rows) < 20:
        for one in subscriber.receive_batches(timeout=DEADLINE):
            rows += one.payloads if hasattr(one, "payloads") else [one.payload]
    assert rows == [b"%d" % number for number in range(20)]


def test_asyncio_sockets_do_the_same(endpoint):
    async def main():
        async with (
            oz.asyncio.Subscriber(endpoint, multicast=FAST) as subscriber,
            oz.asyncio.Publisher(endpoint, multicast=FAST) as publisher,
        ):
            subscriber.subscribe("md.>")
            while not engine_of(subscriber).receiver.senders:
                with pytest.raises(oz.Timeout):
                    await subscriber.receive(timeout=0.01)
            for number in range(500):
                await publisher.publish("md.x", b"%d" % number, headers={"n": number})
            got = [await subscriber.receive(timeout=DEADLINE) for _ in range(500)]
            assert [message.headers["n"] for message in got] == list(range(500))
            await publisher.close(0)

    asyncio.run(main())


def test_the_calls_of_pyzmq_send_frames_of_multicast_too(pair):
    publisher, subscriber = pair
    publisher.send_multipart([b"md.raw", b"a", b"b"])
    publisher.send(b"md.raw", zmq.SNDMORE)
    publisher.send(b"c")
    assert [subscriber.receive(timeout=DEADLINE).frames[1:] for _ in range(2)] == [[b"a", b"b"], [b"c"]]
    assert subscriber.stats.malformed == 0


# plain ZeroMQ -------------------------------------------------------------------------------------------


def test_plain_subscribers_are_served_on_request(endpoint):
    with (
        zmq.Context() as context,
        context.socket(zmq.SUB) as raw,
        oz.Subscriber(endpoint, multicast=FAST, plain=True) as subscriber,
        oz.Publisher(endpoint, multicast=FAST, plain=True) as publisher,
    ):
        raw.rate, raw.recovery_ivl, raw.linger = FAST.rate_kbps, 1000, 0
        raw.connect(publisher.endpoint)
        raw.subscribe(b"md.")
        subscriber.subscribe("md.*")

        def arrives():
            publisher.publish("md.x", b"plain")
            return raw.poll(20) and subscriber.poll(20)

        until(arrives)
        assert raw.recv_multipart() == [b"md.x", b"plain"]
        message = subscriber.receive(timeout=DEADLINE)
        assert (message.subject, message.payload, message.origin) == ("md.x", b"plain", None)
        publisher.close(0)


def test_plain_publishers_are_heard_on_request(endpoint):
    with (
        zmq.Context() as context,
        oz.Subscriber(endpoint, multicast=FAST, plain=True, delimiter=b" ") as subscriber,
        raw_publisher(context, endpoint) as raw,
    ):
        subscriber.subscribe("md.*")

        def arrives():
            raw.send(b"md.x 12:00")
            return subscriber.poll(20)

        until(arrives)
        assert subscriber.receive(timeout=DEADLINE).payload == b"12:00"


# the end ------------------------------------------------------------------------------------------------


def test_closing_takes_the_time_that_repairs_need_or_the_time_given(endpoint, monkeypatch):
    started = time.monotonic()
    oz.Publisher(endpoint).close(timeout=1.0)
    assert 1.0 <= time.monotonic() - started < DEADLINE
    monkeypatch.setattr("oz.protocol.multicast.sender.FAREWELL", 2 * DEADLINE)
    started = time.monotonic()
    oz.Publisher(endpoint).close(timeout=0)
    assert time.monotonic() - started < DEADLINE


def test_nothing_is_written_to_the_output_of_the_application(endpoint):
    program = (
        "import oz, sys\n"
        "sub = oz.Subscriber(sys.argv[1]); sub.subscribe('md.>')\n"
        "pub = oz.Publisher(sys.argv[1])\n"
        "while True:\n"
        "    pub.publish('md.x')\n"
        "    try:\n"
        "        print(sub.receive(timeout=0.2).subject); break\n"
        "    except oz.Timeout:\n"
        "        continue\n"
        "pub.close(0)\n"
    )
    # The subscriber is left open: the interpreter ends all the same.
    done = subprocess.run(
        [sys.executable, "-c", program, endpoint],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "md.x\n", "")


def test_every_way_to_wait_in_asyncio_outlasts_a_silence(endpoint):
    async def iterate(subscriber):
        async for message in subscriber:
            return message.payload

    async def poll(subscriber):
        assert await subscriber.poll() == zmq.POLLIN
        return (await subscriber.recv_multipart())[1]

    async def payload_of(waiting):
        return (await waiting).payload

    ways = [
        lambda subscriber: payload_of(subscriber.receive()),
        lambda subscriber: payload_of(subscriber.receive(timeout=DEADLINE)),
        iterate,
        poll,
    ]

    async def main():
        subscribers = [oz.asyncio.Subscriber(endpoint, multicast=FAST) for _ in ways]
        waiting = []
        for subscriber, way in zip(subscribers, ways, strict=True):
            subscriber.subscribe("md.>")
            subscriber.rcvtimeo = 100 if way is not poll else -1
            waiting.append(asyncio.create_task(way(subscriber)))
        # Longer than anything inside waits at a time; not even a heartbeat comes.
        await asyncio.sleep(1.2)
        assert not any(one.done() for one in waiting), waiting
        async with oz.asyncio.Publisher(endpoint, multicast=FAST) as publisher:
            everything = asyncio.gather(*waiting)
            ends = time.monotonic() + DEADLINE
            while not everything.done() and time.monotonic() < ends:
                await publisher.publish("md.a", b"1")
                await asyncio.sleep(0.05)
            assert await asyncio.wait_for(everything, DEADLINE) == [b"1"] * len(ways)
            for subscriber in subscribers:
                subscriber.close(0)
            publisher.close(0)

    asyncio.run(main())
