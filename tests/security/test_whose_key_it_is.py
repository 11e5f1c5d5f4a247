"""The key of a message is that of its connection. A peer cannot claim another key or inherit one."""

import contextlib
import socket

import pytest
import zmq

import oz
from support.curve_server import SODIUM, CurveServer
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture
def rules():
    return {"desk": 'publish = { allow = ["md.>"] }', "other": 'publish = { allow = [">"] }'}


def receive_until(sub, is_so):
    """Receive until something is so; return the subjects that came."""
    found = []

    def looks():
        with contextlib.suppress(oz.Timeout, oz.PermissionDenied):
            found.append(sub.receive(timeout=0.01).subject)
        return is_so()

    until(looks)
    return found


@pytest.mark.skipif(SODIUM is None, reason="this wheel of pyzmq has no libsodium to speak CURVE with")
@pytest.mark.parametrize("binds", [False, True])
def test_a_listener_that_says_that_it_is_another_user_is_not_believed(ring, binds):
    properties = [(b"Socket-Type", b"PUB"), (b"User-Id", ring.public("other").encode())]
    server = CurveServer(ring.pair("desk"), properties, b"orders.1")
    security = ring.security("feed", permissions=True, servers={server.endpoint: "desk"})
    options = {"bind": "tcp://127.0.0.1:*"} if binds else {}
    with (
        oz.Publisher("tcp://127.0.0.1:*", security=ring.security("other")) as pub,
        oz.Subscriber(security=security, **options) as sub,
    ):
        sub.connect(pub.endpoint)
        sub.subscribe("orders.>")
        sub.connect(server.endpoint)
        sub.subscribe("md.>")
        assert receive_until(sub, lambda: sub.stats.denied) == []
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("orders.2", b"")
        assert sub.receive(timeout=DEADLINE).subject == "orders.2"
    server.close()


# connections without a key ----------------------------------------------------------------------------------


def test_who_does_not_finish_a_handshake_holds_up_nobody(ring):
    """Some say nothing, some something else, and some begin as CURVE does and stop."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
    hello = b"\x04\xc8\x05HELLO\x01\x00" + bytes(192)
    others = (greeting.replace(b"CURVE", b"PLAIN"), greeting.replace(b"CURVE", b"NULL\0"), bytes(1000))
    begun = (greeting, greeting + hello, greeting + hello[:50])
    spoken = [b"", b"\xff", b"GET / HTTP/1.0\r\n\r\n", *others, *begun]
    security = ring.security("other")
    with oz.Publisher("tcp://127.0.0.1:*", security=security) as pub, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", int(pub.endpoint.rpartition(":")[2]))
        for number in range(200):
            one = stack.enter_context(socket.create_connection(address))
            one.sendall(spoken[number % len(spoken)])
        sub = stack.enter_context(
            oz.Subscriber(pub.endpoint, filtering="publisher", security=ring.security("desk"))
        )
        sub.subscribe("md.>")
        sub.wait_ready(timeout=DEADLINE)
        for number in range(100):
            pub.publish("md.1", b"%d" % number)
        assert [int(sub.receive(timeout=DEADLINE).payload) for _ in range(100)] == list(range(100))
        assert len(pub.subscribers) == 1


def test_publisher_with_a_high_water_mark_of_one_message_receives_subscriptions(ring):
    with (
        oz.Publisher(
            "tcp://127.0.0.1:*",
            on_full="block",
            security=ring.security("feed"),
            options=oz.Options(high_water_mark=1),
        ) as pub,
        oz.Subscriber(pub.endpoint, filtering="prefix", security=ring.security("desk")) as sub,
    ):
        sub.subscribe("md.a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("md.a", b"heard")
        assert sub.receive(timeout=DEADLINE).payload == b"heard"
