"""Attacks of somebody with a trusted key and few rights, over a plain XSUB that sends what it likes."""

import pytest
import zmq

import oz
import oz.asyncio
from oz.protocol.declared import declare
from oz.wire import keys
from oz.wire.keys import OWN, Declaration, DeliveryOptions
from support.looped import Looped
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

MARKER = b"for others only"


@pytest.fixture
def rules():
    return {
        "desk": 'subscribe = { allow = ["md.>"], deny = ["md.secret.>", "md.secret"] }',
        "other": 'subscribe = { allow = [">"] }',
    }


@pytest.fixture(params=["sync", "asyncio"])
def publisher(ring, request):
    made = []

    def make(**options):
        options |= {"bind": "tcp://127.0.0.1:*", "security": ring.security("feed", permissions=True)}
        is_sync = request.param == "sync"
        made.append(oz.Publisher(**options) if is_sync else Looped(oz.asyncio.Publisher, **options))
        return made[0]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def attacker(ring):
    with zmq.Context() as context, ring.equip(context.socket(zmq.XSUB), "desk", "feed") as socket:
        socket.linger = 0
        yield socket


def sniffed(pub, attacker, subject):
    """Publish until something that is allowed has come; return all that came."""
    frames = []
    attacker.send(b"\x01md.eu")

    def has_come():
        pub.publish(subject, MARKER)
        pub.publish("md.eu", b"")
        while attacker.poll(0):
            frames.extend(attacker.recv_multipart())
        return any(frame.startswith(b"md.eu") for frame in frames)

    until(has_come)
    return frames


@pytest.mark.parametrize(
    "key",
    [b"D", b"DABCDE", b"S", b"", b"P", b"P\x01\x00\x09abc", b"P\x01\x00\x00"],
)
def test_a_malformed_key_hears_no_stream_and_holds_up_nothing(ring, publisher, attacker, key):
    pub = publisher()
    with oz.Subscriber(pub.endpoint, filtering="publisher", security=ring.security("other")) as sub:
        sub.subscribe("md.secret.>")
        sub.wait_ready(timeout=DEADLINE)
        attacker.connect(pub.endpoint)
        attacker.send(b"\x01" + OWN + key)
        assert MARKER not in b"".join(sniffed(pub, attacker, "md.secret.x"))
        assert sub.receive(timeout=DEADLINE).payload == MARKER


def test_who_may_join_no_group_has_no_say_in_how_it_is_served(ring, publisher, attacker):
    """The senior member's policy is the group's: `failover` would have one member get all."""
    ring.permit(desk='subscribe = { allow = ["md.>"] }', other='group = { allow = ["orders.>"] }')
    pub = publisher()
    attacker.connect(pub.endpoint)
    options = DeliveryOptions(group="workers", policy="failover")
    name = b"a" * 16
    for declaration in (
        Declaration(name, 1, options),
        Declaration(name, 2, options, patterns=(declare(oz.compile("orders.>")),)),
    ):
        attacker.send(b"\x01" + declaration.encode())
    attacker.send(b"\x01" + keys.stream_key(name))
    until(lambda: pub.stats.denied)
    members = [
        oz.Subscriber(pub.endpoint, filtering="publisher", security=ring.security("other")) for _ in range(2)
    ]
    for one in members:
        one.subscribe("orders.>", group="workers")
        one.wait_ready(timeout=DEADLINE)
    for _ in range(10):
        pub.publish("orders.1", b"")
    for one in members:
        for _ in range(5):
            assert one.receive(timeout=DEADLINE).subject == "orders.1"
        one.close()
