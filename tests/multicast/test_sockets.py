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
from support.inside import engine_of, ticker_of
from support.ports import lasting_udp_port
from support.scripts import ENVIRONMENT
from support.waiting import DEADLINE, until

pytestmark = [needs.pgm, pytest.mark.timeout(180)]

GROUP = "239.192.7.2"
# A machine that is busy for seconds is no silence: nothing of what these tests send is lost.
FAST = oz.Multicast(rate_kbps=100_000, recovery=10.0, stale_after=30)
SLOW = oz.Multicast(rate_kbps=1_000, recovery=10.0, stale_after=30)


@pytest.fixture
def endpoint():
    return f"epgm://lo;{GROUP}:{lasting_udp_port()}"


@pytest.fixture
def pair(endpoint):
    with (
        oz.Subscriber(endpoint, multicast=FAST) as subscriber,
        oz.Publisher(endpoint, multicast=FAST) as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        yield publisher, subscriber
        publisher.close(0)


def joined(subscriber, count):
    """Wait until so many publishers were heard: from now on everything of theirs is accounted for."""

    def is_heard():
        with pytest.raises(oz.Timeout):
            subscriber.receive(timeout=0)
        return len(engine_of(subscriber).receiver.senders) >= count

    until(is_heard)


def payloads(subscriber, count):
    return [subscriber.receive(timeout=DEADLINE).payload for _ in range(count)]


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


# what is damaged, lost or silent ------------------------------------------------------------------------


def raw_publisher(context, endpoint, **options):
    socket = context.socket(zmq.PUB)
    socket.linger = 0
    socket.rate, socket.recovery_ivl = FAST.rate_kbps, 1000
    socket.bind(endpoint.replace("//lo;", "//127.0.0.1;"))
    return socket


def test_what_is_no_frame_of_oz_is_counted_said_and_dropped(endpoint):
    advisories = []
    with (
        zmq.Context() as context,
        oz.Subscriber(endpoint, multicast=FAST, on_advisory=advisories.append) as subscriber,
        raw_publisher(context, endpoint) as raw,
    ):
        subscriber.subscribe("")

        def is_counted():
            for junk in (b"md.x", b"\0oz" + bytes(60), b"", bytes(5000)):
                raw.send(junk)
            with pytest.raises(oz.Timeout):
                subscriber.receive(timeout=0.02)
            return subscriber.stats.malformed >= 4

        until(is_counted)
        assert subscriber.stats.delivered == 0
        until(lambda: receive_nothing(subscriber) and advisories)
        assert advisories[0].kind == "corrupt"


def receive_nothing(subscriber):
    with pytest.raises(oz.Timeout):
        subscriber.receive(timeout=0.02)
    return True


def test_a_number_that_never_came_is_reported(endpoint):
    gaps = []
    with (
        oz.Subscriber(endpoint, multicast=FAST, on_gap=gaps.append) as subscriber,
        oz.Publisher(endpoint, multicast=FAST) as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        publisher.publish("md.x", b"before")
        engine_of(publisher).dispatch.skip(3)
        publisher.publish("md.x", b"behind")
        before, behind = (subscriber.receive(timeout=DEADLINE) for _ in range(2))
        assert (before.gap, behind.gap) == (0, 3)
        assert [(gap.origin, gap.sequence, gap.count) for gap in gaps] == [(before.origin, 1, 3)]
        engine_of(publisher).dispatch.skip(2)
        until(lambda: receive_nothing(subscriber) and len(gaps) == 2)
        assert subscriber.stats.lost == 5
        publisher.close(0)


def test_a_publisher_whose_packets_arrive_without_messages_is_connected_to_anew(endpoint):
    advisories = []
    options = oz.Multicast(rate_kbps=100_000, recovery=10.0, stale_after=0.5)

    def says(kind):
        # Packets arrive, of which nothing is heard.
        other.send(b"of a plain publisher")
        return receive_nothing(subscriber) and advisories and advisories[-1].kind == kind

    with (
        zmq.Context() as context,
        context.socket(zmq.PUB) as other,
        oz.Subscriber(endpoint, multicast=options, on_advisory=advisories.append) as subscriber,
        oz.Publisher(endpoint, multicast=options) as publisher,
    ):
        other.setsockopt(zmq.RATE, 100_000)
        other.setsockopt(zmq.LINGER, 0)
        other.connect(subscriber.endpoint)
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        advisories.clear()
        engine_of(publisher).dispatch.to, to = "", engine_of(publisher).dispatch.to
        until(lambda: says("stuck") and subscriber.stats.reconnects)
        assert [one.kind for one in advisories if one.kind != "corrupt"] == ["silent", "stuck"]
        assert advisories[-1].endpoint == subscriber.endpoint
        engine_of(publisher).dispatch.to = to
        # It has slept since it had nothing to say.
        ticker_of(publisher).wake()
        until(lambda: says("heard"))
        other.close()
        publisher.publish("md.x", b"after")
        assert payloads(subscriber, 1) == [b"after"]
        publisher.close(timeout=0.5)
        until(lambda: receive_nothing(subscriber) and advisories[-1].kind == "left")


def test_a_publisher_that_ends_without_a_goodbye_leaves_a_gap_that_nobody_counted(endpoint):
    gaps = []
    with oz.Subscriber(endpoint, multicast=FAST, on_gap=gaps.append) as subscriber:
        subscriber.subscribe("md.>")
        with oz.Publisher(endpoint, multicast=FAST) as publisher:
            joined(subscriber, 1)
            publisher.publish("md.x", b"last that is heard")
            message = subscriber.receive(timeout=DEADLINE)
            # It says no goodbye, as one that is killed.
            engine_of(publisher).dispatch.to = ""
            publisher.close(timeout=0)
        until(lambda: receive_nothing(subscriber) and gaps)
        assert [(gap.origin, gap.count, gap.sequence) for gap in gaps] == [(message.origin, None, None)]
        assert subscriber.stats.reconnects == 0


def test_without_a_callback_advisories_are_logged(endpoint, caplog):
    with (
        oz.Subscriber(endpoint, multicast=FAST) as subscriber,
        oz.Publisher(endpoint, multicast=oz.Multicast(rate_kbps=50_000)) as publisher,
    ):
        subscriber.subscribe("md.>")
        until(lambda: receive_nothing(subscriber) and "rate_kbps=50000" in caplog.text)
        publisher.close(0)


def test_what_finds_no_room_is_reported_by_those_who_listen(endpoint):
    with (
        oz.Subscriber(endpoint, multicast=SLOW) as subscriber,
        oz.Publisher(endpoint, multicast=SLOW, high_water_mark=5) as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        for number in range(300):
            publisher.publish("md.x", number.to_bytes(2, "big") + bytes(1000))
        until(lambda: drained(subscriber) and subscriber.stats.received + subscriber.stats.lost == 300)
        assert subscriber.stats.lost == publisher.stats.missed > 0
        publisher.close(0)


def drained(subscriber):
    subscriber.run(timeout=0.05)
    return True


def publish_one_by_one(publisher, count):
    for _ in range(count):
        publisher.publish("md.x", bytes(10_000))
        # Without it what follows quickly waits for others, and nobody asks yet whether there is room.
        publisher.flush()


def test_a_publisher_may_wait_for_room_or_raise(endpoint):
    with oz.Publisher(endpoint, multicast=SLOW, high_water_mark=1, on_full="error") as publisher:
        with pytest.raises(oz.WouldBlock):
            publish_one_by_one(publisher, 100)
        publisher.close(0)
    with (
        oz.Subscriber(endpoint, multicast=SLOW) as subscriber,
        oz.Publisher(endpoint, multicast=SLOW, high_water_mark=1, on_full="block") as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        publish_one_by_one(publisher, 30)
        assert [len(payload) for payload in payloads(subscriber, 30)] == [10_000] * 30
        assert publisher.stats.missed == 0
        publisher.close(0)


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


# what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"filtering": "publisher"}, "no way back"),
        ({"filtering": "publisher", "plain": True}, "no way back"),
        ({"shared": True}, "no way back"),
        ({"delimiter": b" "}, "plain=True"),
        ({"plain": True, "on_gap": print}, "on_gap"),
        ({"plain": True, "on_advisory": print}, "on_advisory"),
    ],
)
def test_a_subscriber_refuses_what_multicast_cannot_do(endpoint, options, says):
    with pytest.raises(ValueError, match=says):
        oz.Subscriber(endpoint, **options)


@pytest.mark.parametrize("options", [{"group": "g"}, {"overflow": "conflate"}, {"last_value": True}])
def test_a_subscription_refuses_what_multicast_cannot_do(endpoint, options):
    with (
        oz.Subscriber(endpoint) as subscriber,
        pytest.raises(ValueError, match="multicast goes to everybody"),
    ):
        subscriber.subscribe("md.>", **options)


def test_a_publisher_refuses_what_multicast_cannot_do(endpoint):
    for options, says in (({"last_value": True}, "last_value"), ({"delimiter": b" "}, "plain=True")):
        with pytest.raises(ValueError, match=says):
            oz.Publisher(endpoint, **options)
    with oz.Publisher(endpoint) as publisher:
        with pytest.raises(ValueError, match="hears nothing"):
            publisher.wait_for_subscribers(timeout=0)
        with pytest.raises(ValueError, match="hears nothing"):
            publisher.interest("md.x")
        with pytest.raises(ValueError, match="second endpoint"):
            publisher.bind(f"epgm://lo;{GROUP}:{lasting_udp_port()}")
        with pytest.raises(ValueError, match="none of multicast"):
            publisher.bind("tcp://127.0.0.1:*")
        publisher.close(0)


@pytest.mark.parametrize("option", ["CURVE_SERVER", "PLAIN_SERVER", "ZAP_DOMAIN"])
def test_security_that_would_be_ignored_is_refused(endpoint, option):
    with oz.Subscriber(endpoint) as subscriber, pytest.raises(ValueError, match="CURVE"):
        subscriber.setsockopt(getattr(zmq, option), 1)


def test_options_of_zeromq_are_those_of_multicast(endpoint):
    with oz.Subscriber(endpoint) as subscriber:
        with pytest.raises(ValueError, match="RATE"):
            subscriber.setsockopt(zmq.RATE, 5)
        with pytest.raises(ValueError, match="MULTICAST_MAXTPDU"):
            subscriber.multicast_maxtpdu = 5
        subscriber.rcvhwm = 10


def test_a_second_publisher_on_one_port_is_refused_until_the_first_has_closed(endpoint):
    with oz.Publisher(endpoint) as first:
        with pytest.raises(ValueError, match="another publisher holds UDP port"):
            oz.Publisher(endpoint)
        first.close(0)
    oz.Publisher(endpoint).close(0)


def test_multicast_needs_a_socket_that_was_made_for_it(endpoint):
    with oz.Subscriber() as subscriber, pytest.raises(ValueError, match=r"multicast=oz\.Multicast"):
        subscriber.connect(endpoint)
    with pytest.raises(TypeError, match=r"oz\.Multicast"):
        oz.Subscriber(endpoint, multicast={"rate_kbps": 5})
    with pytest.raises(ValueError, match="without it plain subscribers"):
        oz.Publisher("tcp://127.0.0.1:*", plain=True)


def test_an_endpoint_may_be_left_and_taken_again(endpoint):
    with oz.Subscriber(endpoint, multicast=FAST) as subscriber:
        subscriber.disconnect(endpoint)
        subscriber.connect(endpoint)
        subscriber.subscribe("md.>")
        with oz.Publisher(endpoint, multicast=FAST) as publisher:
            joined(subscriber, 1)
            publisher.publish("md.x", b"1")
            assert payloads(subscriber, 1) == [b"1"]
            publisher.close(0)


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
