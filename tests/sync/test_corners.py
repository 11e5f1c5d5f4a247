"""What a stranger tried first, and what gave: each was seen to hang, lose or mislead once."""

from __future__ import annotations

import asyncio
import copy
import gc
import multiprocessing
import pickle
import re
import threading
import weakref

import pytest
import zmq

import oz
from oz.sync.publisher_engine import ThreadedPublisher
from oz.transport.backend import PYZMQ
from oz.transport.publisher.options import PublisherOptions
from support import scripts
from support.backends import call_instead
from support.inside import engine_of, ticker_of
from support.routed import Stage
from support.waiting import DEADLINE, Thread, until

LOOPBACK = "tcp://127.0.0.1:*"


@pytest.fixture
def two():
    with oz.Publisher(LOOPBACK) as pub, oz.Subscriber(pub.endpoint) as sub:
        sub.subscribe("x.*.y")
        pub.wait_for_subscribers(timeout=DEADLINE)
        yield pub, sub


def has_ended(socket):
    """Tell whether the context of a socket was ended."""
    try:
        socket.getsockopt(zmq.EVENTS)
    except zmq.ContextTerminated:
        return True
    return False


@pytest.mark.parametrize("linger", [None, 700])
def test_no_listener_lingers_for_peers_that_have_left(monkeypatch, linger):
    """It would hold up the end of the context when one leaves just as the socket closes, 3 times in 400."""
    seen = []

    def bind(socket, addr):
        seen.append(socket.getsockopt(zmq.LINGER))
        return PYZMQ.bind(socket, addr)

    call_instead(monkeypatch, bind=bind)
    with oz.Publisher() as pub, oz.Subscriber() as sub:
        for one in (pub, sub):
            if linger is not None:
                one.setsockopt(zmq.LINGER, linger)
            before = one.getsockopt(zmq.LINGER)
            one.bind(LOOPBACK)
            with pytest.raises(zmq.ZMQError):
                one.bind(one.endpoint.replace("127.0.0.1", "192.0.2.1"))
            assert one.getsockopt(zmq.LINGER) == before != 0
    assert seen == [0] * 4


def test_closing_in_the_middle_of_publishing_does_not_wait_for_the_publishers_thread():
    """As a signal handler does: the thread may wait for what is held in the middle."""
    pub = oz.Publisher(LOOPBACK)

    def close():
        with engine_of(pub).guard:
            ticker_of(pub).wake()
            until(lambda: ticker_of(pub).is_awake)
            pub.close(0)

    Thread(close).outcome()


class ClosesMeanwhile(ThreadedPublisher):
    """A publisher that a signal handler closes between a look for subscribers and the wait for more."""

    def enough(self, wanted, subject):
        enough = super().enough(wanted, subject)
        self.close()
        return enough


def test_who_waits_for_subscribers_while_a_handler_closes_is_told_so():
    with pytest.raises(oz.ClosedError):
        ClosesMeanwhile(PublisherOptions(bind=LOOPBACK)).wait_for_subscribers(timeout=DEADLINE)


@pytest.mark.parametrize("kind", [oz.Subscriber, oz.Publisher, oz.asyncio.Subscriber, oz.asyncio.Publisher])
def test_a_socket_closes_after_its_context_was_ended(kind):
    context = zmq.Context()
    socket = kind(context=context)
    ended = threading.Thread(target=context.term, daemon=True)
    ended.start()
    until(lambda: has_ended(socket))
    socket.close()
    ended.join(DEADLINE)
    assert not ended.is_alive()


def test_a_publisher_with_routed_subscribers_closes_after_its_context_was_ended():
    context = zmq.Context()
    pub = oz.Publisher(LOOPBACK, context=context)
    with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
        sub.subscribe("a")
        sub.wait_ready(timeout=DEADLINE)
        ended = threading.Thread(target=context.term, daemon=True)
        ended.start()
        until(lambda: has_ended(pub))
        pub.close()
        ended.join(DEADLINE)
        assert not ended.is_alive()


def test_the_usual_shutdown_of_a_worker_ends():
    context = zmq.Context()
    socket = context.socket(zmq.SUB, socket_class=oz.Subscriber)
    socket.connect("tcp://127.0.0.1:1")
    socket.setsockopt(zmq.SUBSCRIBE, b"")

    def work():
        try:
            socket.recv_multipart()
        except zmq.ContextTerminated:
            socket.close()

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    ender = threading.Thread(target=context.term, daemon=True)
    ender.start()
    ender.join(DEADLINE)
    assert not ender.is_alive()


def test_recv_into_gives_only_what_matches_and_tells_of_more_frames(two):
    pub, sub = two
    pub.publish("x.a.z", b"refused")
    pub.publish("x.a.y", b"PAYLOAD")
    buffer = bytearray(9)
    assert (sub.recv_into(buffer), bytes(buffer[:5]), sub.rcvmore) == (5, b"x.a.y", 1)
    assert (sub.recv_into(buffer, nbytes=3), bytes(buffer[:3]), sub.rcvmore) == (7, b"PAY", 0)


def test_frames_know_whether_more_follow(two):
    pub, sub = two
    for _ in range(2):
        pub.publish("x.a.y", [b"one", b"two"])
    assert [frame.more for frame in sub.recv_multipart(copy=False)] == [True, True, False]
    frames = [sub.recv(copy=False)]
    while frames[-1].more:
        frames.append(sub.recv(copy=False))
    assert [frame.bytes for frame in frames] == [b"x.a.y", b"one", b"two"]


def test_asyncio_recv_into_gives_only_what_matches():
    async def talk():
        async with oz.asyncio.Publisher(LOOPBACK) as pub, oz.asyncio.Subscriber(pub.endpoint) as sub:
            sub.subscribe("x.*.y")
            await pub.wait_for_subscribers(timeout=DEADLINE)
            await pub.publish("x.a.z", b"refused")
            await pub.publish("x.a.y", b"wanted")
            buffer = bytearray(9)
            return await sub.recv_into(buffer), bytes(buffer[:5])

    assert asyncio.run(talk()) == (5, b"x.a.y")


async def an_async_handler(message):
    """Nobody would await it."""


@pytest.mark.parametrize("handler", ["oops", 1, an_async_handler])
def test_a_handler_that_could_never_run_is_refused(two, handler):
    with pytest.raises(TypeError, match="handler"):
        two[1].subscribe("a.>", handler=handler)


def test_a_subscription_to_nothing_is_refused(two):
    with pytest.raises(ValueError, match="no pattern"):
        two[1].subscribe([])


def test_patterns_may_come_from_any_iterable(two):
    subscription = two[1].subscribe({"a": 1, "b.*": 2}.keys())
    assert [pattern.text for pattern in subscription.patterns] == ["a", "b.*"]


def test_a_message_goes_through_a_queue_between_processes(two):
    pub, sub = two
    pub.publish("x.a.y", b"carried")
    message = sub.receive(timeout=DEADLINE)
    copy = pickle.loads(pickle.dumps(message))
    assert (copy.subject, copy.payload, copy.frames, copy.time_ns) == (
        message.subject,
        message.payload,
        message.frames,
        message.time_ns,
    )
    assert copy.subscriptions == ()
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    queue.put(message)
    assert queue.get().payload == b"carried"


@pytest.mark.parametrize("options", [{}, {"headers": {"h": 1}, "message_id": (b"s", 7)}])
@pytest.mark.parametrize("count", [1, 2])
def test_a_routed_message_is_pickled_and_copied(options, count):
    """Alone, with others, and with all that it may have."""
    with Stage() as stage:
        pub = stage.pub()
        sub = stage.sub(pub)
        sub.subscribe("a")
        sub.wait_ready(timeout=DEADLINE)
        with pub.batch():
            for _ in range(count):
                pub.publish("a", b"x", **options)
        for _ in range(count):
            message = sub.receive(timeout=DEADLINE)
            for one in (pickle.loads(pickle.dumps(message)), copy.copy(message)):
                for name in (
                    "subject",
                    "payload",
                    "frames",
                    "origin",
                    "sequence",
                    "time_ns",
                    "gap",
                    "extras",
                ):
                    assert getattr(one, name) == getattr(message, name)
                assert one.headers == options.get("headers", {})


def test_a_kept_message_does_not_keep_its_subscriber():
    with oz.Publisher(LOOPBACK) as pub:
        sub = oz.Subscriber(pub.endpoint)
        subscription = sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("a", b"x")
        message = sub.receive(timeout=DEADLINE)
        gone = weakref.ref(sub)
        sub.close()
        del sub
        gc.collect()
        assert gone() is None
        assert message.subscriptions == (subscription,)
        subscription.unsubscribe()


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [(5555, TypeError), (b"tcp://127.0.0.1:99999", ValueError), ("tcp://127.0.0.1:99999", ValueError)],
)
def test_what_is_no_endpoint_gets_a_sentence(endpoint, error):
    with pytest.raises(error, match=r"endpoint|port 99999"):
        oz.Publisher(endpoint)


def test_mixed_up_arguments_get_a_sentence(two):
    pub, _ = two
    with pytest.raises(TypeError, match="subject="):
        pub.wait_for_subscribers("x.a.y")
    with pytest.raises(TypeError, match="which subject"):
        pub.interest(None)
    with pytest.raises(TypeError, match="str or bytes"):
        oz.compile(None)


@pytest.mark.parametrize("kind", ["Subscriber", "Publisher"])
def test_a_socket_that_was_left_open_does_not_hold_up_the_interpreters_end(kind):
    program = f"import oz; left = oz.{kind}(); left.connect('tcp://127.0.0.1:9'); print('end')"
    assert scripts.run("-c", program) == "end\n"


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_who_publishes_while_another_thread_closes_is_told_so(filtering):
    publisher = oz.Publisher("tcp://127.0.0.1:*")
    with oz.Subscriber(publisher.endpoint, filtering=filtering) as subscriber:
        subscriber.subscribe("a.b")
        publisher.wait_for_subscribers(subject="a.b", timeout=DEADLINE)

        def publish():
            while True:
                publisher.publish("a.b", bytes(5000))

        thread = Thread(publish)
        until(lambda: publisher.stats.sent > 1000)
        publisher.close(timeout=0)
        with pytest.raises(oz.ClosedError):
            thread.outcome()


WAITS = {
    "receive": lambda sub: sub.receive(),
    "receive with a timeout": lambda sub: sub.receive(timeout=DEADLINE),
    "receive_many": lambda sub: sub.receive_many(timeout=DEADLINE),
    "receive_batches": lambda sub: sub.receive_batches(timeout=DEADLINE),
    "receive_batches for ever": lambda sub: sub.receive_batches(),
}


def test_reprs_show_where_and_what():
    with oz.Publisher(LOOPBACK) as pub, oz.Subscriber(pub.endpoint) as sub:
        sub.subscribe(["a.*", "b"])
        assert re.fullmatch(rf"<oz\.Publisher zmq\.PUB {pub.endpoint} at 0x[0-9a-f]+>", repr(pub))
        shown = rf"<oz\.Subscriber zmq\.SUB {pub.endpoint} filtering='prefix' 'a\.\*' 'b' at 0x[0-9a-f]+>"
        assert re.fullmatch(shown, repr(sub))
    assert "closed" in repr(pub)
    with oz.asyncio.Subscriber(filtering="publisher") as sub:
        sub.subscribe([f"a.{number}" for number in range(9)])
        sub.close(timeout=0)
        assert re.search(r"<oz\.asyncio\.Subscriber.*'publisher' 'a.0' .*and 4 more at .* closed>", repr(sub))

    class Mine(oz.Subscriber):
        pass

    with Mine() as sub:
        assert f"<{__name__}.{Mine.__qualname__} zmq.SUB" in repr(sub)


def test_the_high_water_mark_is_told_as_it_was_set():
    with zmq.Context() as context, oz.Subscriber(context=context) as sub:
        sub.hwm = 100
        assert (sub.hwm, sub.rcvhwm) == (100, 100)


def test_a_context_of_gevent_is_refused():
    class Green(zmq.Context):
        __module__ = "zmq.green.core"

    with Green() as context:
        for make in (oz.Publisher, oz.Subscriber, oz.asyncio.Publisher, oz.asyncio.Subscriber):
            with pytest.raises(TypeError, match="greenlet"):
                make(context=context)


def test_on_advisory_without_multicast_says_what_it_is_for():
    with pytest.raises(ValueError, match=r"needs multicast=oz\.Multicast\(…\); .* told to on_gap") as caught:
        oz.Subscriber("tcp://127.0.0.1:1", filtering="publisher", on_advisory=print)
    assert "plain" not in str(caught.value)
