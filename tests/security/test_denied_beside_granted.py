"""What is denied takes nothing away that is granted, though a subscriber may declare both together."""

import contextlib

import pytest
import zmq

import oz
import oz.asyncio
from oz.protocol.declared import declare
from oz.protocol.subscriber.declarations import FIRST_PATIENCE, Declarations
from oz.wire import keys
from oz.wire.keys import DeliveryOptions
from support.looped import Looped
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture
def rules():
    return {"desk": 'subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }'}


@pytest.fixture
def pub(ring):
    with oz.Publisher("tcp://127.0.0.1:*", security=ring.security("feed", permissions=True)) as made:
        yield made


@pytest.fixture(params=["sync", "asyncio"])
def subscriber(ring, pub, request):
    made = []

    def make(**options):
        options |= {"filtering": "publisher", "security": ring.security("desk")}
        is_sync = request.param == "sync"
        kind = (
            oz.Subscriber if is_sync else lambda *given, **more: Looped(oz.asyncio.Subscriber, *given, **more)
        )
        made.append(kind(pub.endpoint, **options))
        return made[0]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("group", [None, "workers"])
def test_each_that_is_denied_after_others_is_told(subscriber, group):
    """Whoever only receives waited in silence from the 17th on, and for a reason that was told before."""
    sub = subscriber()
    for number in range(20):
        sub.subscribe(f"orders.{number}", group=group)
        with pytest.raises(oz.PermissionDenied):
            sub.receive(timeout=DEADLINE)


@pytest.mark.heavy
def test_very_many_that_are_denied_at_once_are_told_of_and_left_alone(subscriber):
    """Declared by themselves they were answered too late, declared together, and told again without end.

    A few may be told a second time: those whose answer comes while they are put together.
    """
    sub, told = subscriber(), []
    for number in range(4_000):
        sub.subscribe(f"orders.{number}")
    with contextlib.suppress(oz.Timeout):
        while len(told) < 400:
            try:
                sub.receive(timeout=2.0 if told else DEADLINE)
            except oz.PermissionDenied as denied:
                told.append(denied.subject)
    assert 16 < len(told) < min(400, 2 * len(set(told)))


def test_several_patterns_of_one_subscription_are_granted_one_by_one(pub, subscriber):
    sub = subscriber()
    sub.subscribe(["md.secret.x", "md.eu"])
    until(lambda: pub.has_subscribers("md.eu"))
    assert not pub.has_subscribers("md.secret.x")
    assert pub.stats.denied == 1


def next_one(sub):
    """Receive a message; what was denied before may have to be told first."""
    while True:
        with contextlib.suppress(oz.PermissionDenied):
            return sub.receive(timeout=DEADLINE).subject


def next_one_now(sub):
    while True:
        with contextlib.suppress(oz.PermissionDenied):
            return sub.receive(timeout=0)


def iter_streams(socket):
    while socket.poll(0):
        frame = socket.recv()
        if frame[1:].startswith(keys.STREAM):
            yield frame[1:]


def test_what_is_refused_is_declared_again_by_itself():
    declarations = Declarations(b"s" * 16, DeliveryOptions())
    for text in ("md.a", "md.b", "orders.>", "md.c"):
        declarations.add(object(), [declare(oz.compile(text))], last_value=False)
    owed = dict.fromkeys((1, 2, 3, 4), 0.0)
    declarations.renew(owed, 0.0)
    changes = declarations.renew(owed, FIRST_PATIENCE, refused={3})
    again = [[one.text for one in keys.parse_declaration(key).patterns] for key in changes.wanted]
    assert sorted(again) == [[b"md.a", b"md.b", b"md.c"], [b"orders.>"]]
    assert {chunk.root for chunk in declarations.chunks.values()} >= {3}
