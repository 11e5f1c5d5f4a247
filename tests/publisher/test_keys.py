"""Publishers with keys and permissions: admission, rights of keys, and hostile subscribers."""

import contextlib
import logging
import os

import pytest
import zmq

import oz
from oz.security.identity import make_uuid_of
from oz.subscriber.sync import Subscriber
from oz.wire import links
from support.ports import lasting_endpoint
from support.sizes import in_suite
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture(params=in_suite(["sync"], ["asyncio"]))
def kind(request):
    """Shell: one in the suite, because the engine checks keys, and both shells use the same engine."""
    return request.param


DESK = 'subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }'


@pytest.fixture
def rules():
    return {"desk": DESK, "other": 'subscribe = { allow = ["x.>", "md.>"] }'}


@pytest.fixture
def subscriber(ring):
    made = []

    def create(endpoint, name="desk", filtering="publisher", **options):
        made.append(Subscriber(endpoint, filtering=filtering, security=ring.security(name), **options))
        return made[-1]

    yield create
    for item in made:
        item.close()


@pytest.fixture
def peer(join, ring):
    """Connect scripted subscribers with the keys of a user."""

    def connect(publisher, *texts, name="desk", ready=True, new_id=None, **options):
        return join(
            publisher,
            *texts,
            ready=ready,
            equip=lambda router: ring.equip(router, name, "feed"),
            new_id=new_id or (lambda: make_uuid_of(ring.public(name), os.urandom)),
            **options,
        )

    return connect


# admission -----------------------------------------------------------------------------------------------------


def test_security_may_be_the_path_of_a_file(make, ring, subscriber):
    ring.configure("feed")
    pub = make(security=ring.file("feed"))
    sub = subscriber(pub.endpoint)
    sub.subscribe("md.secret.x")
    with pytest.raises(oz.PermissionDenied):
        sub.wait_ready(timeout=DEADLINE)


def test_other_objects_are_no_security(make):
    with pytest.raises(TypeError, match=r"an oz\.Security"):
        make(security=5)


def test_a_key_that_is_not_trusted_is_refused_and_logged_with_both_keys(make, ring, subscriber, caplog):
    stranger = ring.make("stranger").public
    feed = ring.security("feed")
    pub = make(security=feed)
    with caplog.at_level(logging.WARNING, "oz.security"), pytest.raises(oz.PermissionDenied) as raised:
        subscriber(pub.endpoint, "stranger")
    assert stranger in str(raised.value)
    assert ring.public("feed") in str(raised.value)
    assert any(stranger in record.getMessage() for record in caplog.records)
    assert feed.refused


def test_a_publisher_without_keys_learns_that_keys_are_missing(make, ring):
    with Subscriber(bind="tcp://127.0.0.1:*", security=ring.security("desk")) as sub:
        pub = make(None, connect=sub.endpoint)
        with pytest.raises(oz.Timeout, match="give security="):
            pub.wait_for_subscribers(timeout=0.2)
    with pytest.raises(oz.Timeout) as raised:
        make().wait_for_subscribers(timeout=0)
    assert "security=" not in str(raised.value)


# permissions ----------------------------------------------------------------------------------------------------


def test_a_denial_reads_the_own_file_again(make, ring):
    ring.permit(feed='publish = { deny = [">"] }')
    # Without an endpoint, no thread or task reads the file.
    pub = make(None, security=ring.security("feed", permissions=True))
    with pytest.raises(oz.PermissionDenied):
        pub.publish("md.eu")
    ring.permit(feed='publish = { allow = ["md.>"] }')

    def is_allowed():
        # A file that was written a moment ago may be incomplete.
        with contextlib.suppress(oz.PermissionDenied):
            pub.publish("md.eu")
            return True

    until(is_allowed)


def test_a_file_without_the_own_key_denies_no_publication(pub):
    pub.publish("any.subject")


def test_a_denied_member_does_not_decide_the_policy_of_a_group(make, ring, peer):
    ring.permit(desk=DESK, other='group = { allow = ["orders.>"] }')
    pub = make(security=ring.security("feed", permissions=True))
    denied = peer(pub, "orders.>", group="workers", policy="failover")
    assert len(denied.refused) == 1
    members = [peer(pub, "orders.>", name="other", group="workers") for _ in range(2)]
    for number in range(10):
        pub.publish("orders.1", b"%d" % number)
        pub.flush()
    assert [len(member.receive(5)) for member in members] == [5, 5]


@pytest.mark.parametrize("filtering", ["publisher", "prefix"])
def test_wait_for_subscribers_names_a_subscription_that_permissions_deny(pub, ring, subscriber, filtering):
    def text(subject):
        with pytest.raises(oz.Timeout) as raised:
            pub.wait_for_subscribers(subject, timeout=0)
        return str(raised.value)

    assert "may not subscribe" not in text("md.eu.x")
    subscriber(pub.endpoint, filtering=filtering).subscribe("md.>")
    # The pattern matches a denied subject, so that no subject of the pattern arrives.
    until(
        lambda: (
            f"; key {ring.public('desk')} may not subscribe: users.desk.subscribe.deny[0]" in text("md.eu.x")
        )
    )
    assert "may not subscribe" in text(None)
    assert "may not subscribe" not in text("other")


# sessions and keys ----------------------------------------------------------------------------------------------


def test_an_own_session_id_that_is_not_made_of_the_key_is_refused(pub, peer):
    first = peer(pub, "md.eu", new_id=lambda: os.urandom(16), ready=False)
    first.until(lambda: links.BYE in first.frames)
    assert pub.subscribers == []


# hostile subscribers --------------------------------------------------------------------------------------------


def receives(pub, sub):
    """Check that a subscriber receives all of 100 messages."""
    for number in range(100):
        pub.publish("md.eu", b"%d" % number)
    assert [int(sub.receive(timeout=DEADLINE).payload) for _ in range(100)] == list(range(100))


def test_garbage_of_other_keys_costs_nothing(ring, pub, subscriber):
    sub = subscriber(pub.endpoint)
    sub.subscribe("md.eu")
    sub.wait_ready(timeout=DEADLINE)
    with zmq.Context() as context, ring.equip(context.socket(zmq.DEALER), "other", "feed") as raw:
        raw.linger = 0
        raw.connect(pub.link_endpoints[0])
        for kind in range(256):
            raw.send(bytes((kind,)) + os.urandom(kind))
            raw.send_multipart([bytes((kind,)), b"second"])
            raw.send(bytes((links.HELLO, links.VERSION)) + os.urandom(kind))
        receives(pub, sub)
        until(lambda: pub.stats.rejected)


@pytest.mark.parametrize("kind", ["sync"])
def test_a_frame_of_another_key_on_a_route_takes_the_session_down(ring, pub, peer):
    """With ROUTER_HANDOVER a peer that knows the routing id of a connection takes the routing id over."""
    victim = peer(pub, "md.eu", ready=False)
    name = victim.router.getsockopt(zmq.ROUTING_ID)
    victim.ready()
    with zmq.Context() as context, context.socket(zmq.DEALER) as thief:
        thief.linger = 0
        ring.equip(thief, "other", "feed")
        thief.setsockopt(zmq.ROUTING_ID, name)
        thief.connect(pub.link_endpoints[0])
        thief.send(links.encode_ack(0, {}))
        until(lambda: [item.state for item in pub.subscribers] == ["down"])
        pub.publish("md.eu", b"1")
        pub.flush()
        # The session resumes on a connection of its own key.
        assert victim.receive(1) == [b"1"]
        while thief.poll(0):
            assert b"md.eu" not in thief.recv()


@pytest.fixture
def listener(ring):
    """Create subscribers that bind, closed at the end of the test."""
    made = []

    def create(name="desk", endpoint="tcp://127.0.0.1:*"):
        def attempt():
            try:
                return Subscriber(bind=endpoint, security=ring.security(name))
            except zmq.ZMQError:
                # libzmq closes the listener of an earlier subscriber a moment later.
                return None

        made.append(until(attempt))
        made[-1].subscribe("md.>")
        return made[-1]

    yield create
    for item in made:
        item.close()


def publish_until_received(pub, sub):
    def received():
        pub.publish("md.1", b"1")
        with contextlib.suppress(oz.Timeout):
            return sub.receive(timeout=0.01).payload

    assert until(received) == b"1"


def test_a_listener_is_disconnected_while_its_key_is_not_trusted(make, ring, listener):
    sub = listener()
    pub = make(None, connect=sub.endpoint, security=ring.security("feed"))
    publish_until_received(pub, sub)
    ring.distrust("desk")
    until(lambda: not pub.has_subscribers("md.1"))
    ring.trust("desk")
    publish_until_received(pub, sub)


def test_the_key_of_a_listener_that_changes_is_found(make, ring, listener):
    endpoint = lasting_endpoint()
    before = listener("desk", endpoint)
    pub = make(None, connect=endpoint, security=ring.security("feed"))
    publish_until_received(pub, before)
    before.close()
    publish_until_received(pub, listener("other", endpoint))


def test_a_second_authenticator_of_a_context_is_refused(make, ring):
    from zmq.auth.thread import ThreadAuthenticator

    context = zmq.Context()
    own = ThreadAuthenticator(context)
    own.start()
    try:
        with pytest.raises(oz.ConfigurationError, match="context of its own"):
            make(security=ring.security("feed"), context=context)
    finally:
        own.stop()
        context.term()


def test_a_publisher_disconnects_from_a_listener_that_refuses_it(make, ring, listener, caplog):
    sub = listener()
    pub = make(None, connect=sub.endpoint, security=ring.security("feed"))
    publish_until_received(pub, sub)
    endpoint = sub.endpoint
    ring.distrust("feed")
    sub.close()
    listener("desk", endpoint)
    until(lambda: "does not trust the key of this side" in caplog.text)
    pub.disconnect(endpoint)
    assert pub.endpoints == ()
