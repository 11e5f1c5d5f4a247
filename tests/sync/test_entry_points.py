"""A publisher's own handle, which code in C takes: no thread of oz's uses it, and it serves as a PUB does."""

from __future__ import annotations

import asyncio
import copy
import pathlib
import pickle
import sys
import threading

import pytest
import zmq

import oz
from support import scripts
from support.sizes import SOAK, in_suite
from support.waiting import DEADLINE, Thread, until

LOOPBACK = "tcp://127.0.0.1:*"
SECONDS = SOAK or 0.5
WAYS = ["shadow proxy queue send publish monitor", "poll poller select events asyncio_poller publish"]
ENTRY_POINTS = pathlib.Path(__file__).with_name("entry_points.py")


@pytest.fixture
def context():
    with zmq.Context() as one:
        yield one


@pytest.fixture(params=["prefix", "publisher"])
def pair(request, context):
    """A publisher, and a subscriber to all that begins with `a.`."""
    with (
        # More than any test sends: a publisher drops what a subscriber that is not scheduled has no room for.
        oz.Publisher(LOOPBACK, context=context, high_water_mark=10_000) as pub,
        oz.Subscriber(pub.endpoint, filtering=request.param) as sub,
    ):
        sub.subscribe("a.>")
        pub.wait_for_subscribers(timeout=DEADLINE)
        yield pub, sub


@pytest.mark.sized
@pytest.mark.parametrize("ways", in_suite([" ".join(WAYS)], WAYS))
def test_publishers_survive_every_way_into_c_beside_subscribers_that_come_and_go(monkeypatch, ways):
    if sys.platform == "linux":
        # glibc's checks of its heap; where it lacks them, it says so and goes on.
        monkeypatch.setitem(scripts.ENVIRONMENT, "LD_PRELOAD", "libc_malloc_debug.so.0")
        monkeypatch.setitem(scripts.ENVIRONMENT, "MALLOC_CHECK_", "3")
        # Under these checks all memory is in one piece, whose end goes back to the system at once: libzmq's
        # read of four freed bytes ends the process there, and hardly anywhere else. docs/libzmq.md
        monkeypatch.setitem(scripts.ENVIRONMENT, "MALLOC_TRIM_THRESHOLD_", str(10**9))
    with scripts.started(ENTRY_POINTS, str(SECONDS), *ways.split()) as program:
        printed = program.communicate(timeout=SECONDS + 2 * DEADLINE)
    assert program.returncode == 0, printed
    assert "survived" in printed[0], printed


def test_what_a_shadow_sends_reaches_subscribers(pair):
    pub, sub = pair
    shadow = zmq.Socket.shadow(pub.underlying)
    # More than waits in the handle's pipe: the sender waits, nothing is dropped.
    sending = Thread(lambda: [shadow.send_multipart([b"a.%d" % n, b"x", b"y"]) for n in range(2_500)])
    got = [sub.receive(timeout=DEADLINE).frames for _ in range(2_500)]
    sending.outcome()
    assert got == [[b"a.%d" % n, b"x", b"y"] for n in range(2_500)]


def test_a_proxy_sends_through_a_publisher(pair, context):
    pub, sub = pair
    inner = zmq.Context()
    with context.socket(zmq.PULL) as pull, inner.socket(zmq.PUSH) as push:
        pull.linger = push.linger = 0
        push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")

        def run():
            try:
                zmq.proxy(pull, pub)
            except zmq.ContextTerminated:
                pull.close()

        proxying = Thread(run)
        for number in range(100):
            push.send_multipart([b"a.b", b"%d" % number])
        assert [int(sub.receive(timeout=DEADLINE).payload) for _ in range(100)] == list(range(100))
        # What the application publishes meanwhile goes its own way.
        pub.publish("a.own", b"")
        assert sub.receive(timeout=DEADLINE).subject == "a.own"
        push.close()
        # It ends the proxy, and waits for the publisher.
        ending = Thread(context.term)
        proxying.outcome()
        pub.close()
        ending.outcome()
    inner.term()


def test_closing_sends_what_was_sent_by_the_handle(pair):
    pub, sub = pair
    shadow = zmq.Socket.shadow(pub.underlying)
    for number in range(800):
        shadow.send_multipart([b"a.b", b"%d" % number])
    pub.close()
    assert [int(sub.receive(timeout=DEADLINE).payload) for _ in range(800)] == list(range(800))


def test_the_handle_of_a_publisher_without_an_endpoint_drops_as_a_pub_does():
    with oz.Publisher() as pub:
        shadow = zmq.Socket.shadow(pub.underlying)
        for _ in range(2_500):
            shadow.send(b"nobody")
        with oz.Subscriber() as sub:
            pub.bind(LOOPBACK)
            sub.connect(pub.endpoint)
            sub.subscribe("a")
            pub.wait_for_subscribers(timeout=DEADLINE)
            shadow.send(b"a")
            assert sub.receive(timeout=DEADLINE).frames == [b"a"]


def test_what_is_sent_by_the_handle_waits_for_room_where_nothing_may_be_dropped(context):
    with (
        oz.Publisher("inproc://full", context=context, on_full="block", high_water_mark=10) as pub,
        context.socket(zmq.SUB) as sub,
    ):
        sub.rcvhwm = 10
        sub.subscribe(b"")
        sub.connect("inproc://full")
        pub.wait_for_subscribers(timeout=DEADLINE)
        shadow = zmq.Socket.shadow(pub.underlying)
        sending = Thread(lambda: [shadow.send(b"%d" % number) for number in range(2_500)])
        # The publisher's thread goes on answering meanwhile.
        with oz.Subscriber("inproc://full", context=context, filtering="publisher") as other:
            other.subscribe("none")
            other.wait_ready(timeout=DEADLINE)
        for number in range(2_500):
            assert sub.poll(1000 * DEADLINE)
            assert sub.recv() == b"%d" % number
        sending.outcome()


def test_messages_that_may_not_be_sent_are_counted_when_they_come_by_the_handle(pair):
    pub, sub = pair
    shadow = zmq.Socket.shadow(pub.underlying)
    shadow.send_multipart([b"\x001mine", b"x"])
    shadow.send_multipart([b"a.b", b"x"])
    assert sub.receive(timeout=DEADLINE).subject == "a.b"
    assert pub.stats.dropped == 1


def test_subscribers_are_answered_while_whoever_polls_waits(context):
    with oz.Publisher(LOOPBACK, context=context) as pub:
        over = threading.Event()

        def wait():
            while not over.is_set():
                assert pub.poll(20, zmq.POLLIN) == 0

        polling = Thread(wait)
        for _ in range(3):
            with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
                sub.subscribe("a.*")
                sub.wait_ready(timeout=DEADLINE)
        over.set()
        polling.outcome()


def test_options_and_endpoints_are_those_of_the_socket_that_publishes(context):
    with context.socket(zmq.PUB, socket_class=oz.Publisher) as pub:
        assert (pub.type, pub.getsockopt(zmq.TYPE), pub.get(zmq.TYPE)) == (zmq.PUB,) * 3
        pub.linger, pub.hwm = 7, 50
        pub.setsockopt_string(zmq.IDENTITY, "me")
        assert (pub.getsockopt(zmq.LINGER), pub.sndhwm, pub.get_hwm()) == (7, 50, 50)
        assert pub.get_string(zmq.IDENTITY) == "me"
        with pub.bind(LOOPBACK) as same:
            assert same is pub
            assert pub.last_endpoint.decode() == pub.endpoint
            assert pub.get(zmq.LAST_ENDPOINT) == pub.last_endpoint
            bound = pub.endpoint
        with context.socket(zmq.PUB) as other:
            until(lambda: can_bind(other, bound))
        assert pub.bind_to_random_port("tcp://127.0.0.1") == int(pub.endpoint.rsplit(":")[-1])
        assert (pub.events, pub.copy_threshold) == (zmq.POLLOUT, zmq.COPY_THRESHOLD)
        pub.copy_threshold = 0
        until(lambda: pub.send(b"a", copy=False, track=True).done)


def can_bind(socket, endpoint):
    try:
        socket.bind(endpoint)
    except zmq.ZMQError:
        return False
    return True


def test_a_monitor_sees_the_connections_of_the_socket_that_publishes(context):
    with oz.Publisher(LOOPBACK, context=context) as pub:
        seen = pub.get_monitor_socket(zmq.EVENT_ACCEPTED)
        assert pub.get_monitor_socket() is seen
        with oz.Subscriber(pub.endpoint):
            assert seen.poll(1000 * DEADLINE)
        pub.disable_monitor()
        seen.close()


@pytest.mark.parametrize("kind", [oz.Publisher, oz.asyncio.Publisher])
@pytest.mark.parametrize(
    ("option", "value"),
    [(zmq.SUBSCRIBE, b"a"), (zmq.UNSUBSCRIBE, b"a"), (zmq.XPUB_MANUAL, 0), (zmq.INVERT_MATCHING, 1)],
)
def test_a_publisher_takes_no_option_that_would_end_its_filtering(kind, option, value):
    with kind(context=(context := zmq.Context())) as pub:
        with pytest.raises(zmq.ZMQError) as caught:
            pub.setsockopt(option, value)
        assert caught.value.errno == zmq.EINVAL
        with pytest.raises(zmq.ZMQError):
            pub.subscribe("a")
    context.term()


def test_a_context_knows_of_one_socket_and_destroys_all_of_them():
    context = zmq.Context()
    pub = oz.Publisher(LOOPBACK, context=context)
    assert "(1 socket)" in repr(context)
    Thread(lambda: context.destroy(linger=0)).outcome()
    assert pub.closed
    with pytest.raises(oz.ClosedError):
        pub.publish("a")


def test_a_publisher_that_is_dropped_of_closes_all_that_it_has():
    context = zmq.Context()
    pub = oz.Publisher(LOOPBACK, context=context)
    with pytest.warns(ResourceWarning, match="Publisher"):
        del pub
    Thread(context.term).outcome()


def test_a_publisher_in_garbage_with_its_context_does_not_hold_up_the_end_of_that():
    """As a test that fails leaves both: a traceback has them, and is a part of a cycle."""
    script = """if True:
        import gc, warnings, zmq, oz
        gc.disable()
        warnings.simplefilter("ignore")

        class Test:
            def run(self):
                self.context = zmq.Context()
                publisher = self.context.socket(zmq.PUB, socket_class=oz.Publisher)
                publisher.bind("tcp://127.0.0.1:*")
                raise ValueError

        for _ in range(3):
            test = Test()
            try:
                test.run()
            except ValueError as error:
                test.error = error
        del test
        gc.collect()
        print("ended")
    """
    assert scripts.run("-c", script) == "ended\n"


@pytest.mark.parametrize("how", ["get_monitor_socket", "monitor", "nobody reads"])
@pytest.mark.parametrize("kind", [oz.Publisher, oz.Subscriber])
@pytest.mark.parametrize("own_context", [False, True])
def test_a_monitor_that_is_closed_first_does_not_hold_up_closing(context, kind, how, own_context):
    socket = kind() if own_context else kind(context=context)
    if how == "get_monitor_socket":
        socket.get_monitor_socket().close()
    else:
        socket.monitor(f"inproc://watch-{id(socket)}")
        if how == "monitor":
            with socket.context.socket(zmq.PAIR) as pair:
                pair.connect(f"inproc://watch-{id(socket)}")
    Thread(socket.close).outcome()


@pytest.mark.parametrize("kind", [oz.Publisher, oz.Subscriber, oz.asyncio.Publisher, oz.asyncio.Subscriber])
@pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, pickle.dumps, lambda socket: type(socket).shadow(socket)]
)
def test_a_socket_is_not_copied(kind, way):
    async def scenario():
        with (
            kind() as socket,
            pytest.raises(TypeError, match=f"{kind.__name__} cannot be copied: make another"),
        ):
            way(socket)

    asyncio.run(scenario())
