"""Whose key a message has: nobody's word is taken for it, and no connection inherits another's."""

import contextlib

import pytest
import zmq

import oz
from support.curve_server import SODIUM, CurveServer
from support.inside import attachments_of, engine_of
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


def exchange(sub, endpoint, key):
    """Have an endpoint called by another key."""
    attachments = attachments_of(sub)
    engine_of(sub).end_connections(lambda: attachments.call_again(engine_of(sub).socket, endpoint, key))


# who comes without a key ------------------------------------------------------------------------------------
