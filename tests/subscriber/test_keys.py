"""Subscribers with keys: reported refusals, keys that change, and the right to publish."""

import contextlib
import socket

import pytest
import zmq

import oz
from oz.options import Delivery, Limits, Options
from oz.publisher.sync import Publisher
from support.keyring import Keyring
from support.ports import lasting_endpoint
from support.sizes import in_suite
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture(params=in_suite(["sync"], ["asyncio"]))
def kind(request):
    """Shell: one in the suite, because the engine checks keys, and both shells use the same engine."""
    return request.param


DESK = 'subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }'


@pytest.fixture
def ring(tmp_path):
    made = Keyring(tmp_path, "feed", "desk", "other")
    made.permit(desk=DESK)
    return made


@pytest.fixture
def feed(ring):
    """Create publishers, closed at the end of the test."""
    made = []

    def create(name="feed", endpoint="tcp://127.0.0.1:*", permissions=True, **options):
        security = None if name is None else ring.security(name, permissions=permissions)

        def attempt():
            try:
                return Publisher(endpoint, security=security, **options)
            except zmq.ZMQError:
                # libzmq closes the listener of an earlier publisher a moment later.
                return None

        made.append(until(attempt))
        return made[-1]

    yield create
    for item in made:
        item.close(timeout=0)


@pytest.fixture
def pub(feed):
    return feed()


@pytest.fixture
def sub(make, ring, pub):
    return make(pub.endpoint, filtering="publisher", security=ring.security("desk"))


def receive_until(sub, condition):
    """Receive until a condition holds; return the payloads and the refusals."""
    payloads, refusals = [], []

    def holds():
        try:
            payloads.append(sub.receive(timeout=0.01).payload)
        except oz.PermissionDenied as denied:
            refusals.append(denied)
        except oz.Timeout:
            pass
        return condition(payloads, refusals)

    until(holds)
    return payloads, refusals


# denied subscriptions -------------------------------------------------------------------------------------------


def test_receive_raises_each_denial_once_and_then_returns_messages(pub, sub):
    sub.subscribe("md.eu")
    sub.subscribe("orders.>")
    with pytest.raises(oz.PermissionDenied, match="orders") as raised:
        sub.receive(timeout=DEADLINE)
    assert "allow subscribe 'md.>'" in raised.value.rule
    assert raised.value.subject.startswith("orders")
    pub.publish("orders.1", b"denied")
    pub.publish("md.eu", b"1")
    assert sub.receive(timeout=DEADLINE).payload == b"1"
    assert ["orders" in publisher.refusal for publisher in sub.publishers] == [True]


def test_each_publisher_that_denies_a_subscription_is_logged_once(make, ring, feed, caplog):
    ends = [feed(endpoint=lasting_endpoint()).endpoint for _ in range(2)]
    sub = make(ends, filtering="publisher", security=ring.security("desk"))
    sub.subscribe("orders.>")
    receive_until(sub, lambda _, refusals: len(refusals) == 2)
    sub.subscribe("md.eu")
    # `wait_ready` raises the denials once too, and then waits for the answers to the second subscription.
    with pytest.raises(oz.PermissionDenied):
        sub.wait_ready(timeout=DEADLINE)
    sub.wait_ready(timeout=DEADLINE)
    lines = [record.getMessage() for record in caplog.records if record.name == "oz.subscriber"]
    for endpoint in ends:
        assert sum(line.startswith(f"{endpoint} refuses 'orders.>': ") for line in lines) == 1


# connections ----------------------------------------------------------------------------------------------------


def test_a_publisher_whose_key_is_not_trusted_is_refused_at_once(make, ring, pub):
    ring.distrust("feed")
    with pytest.raises(oz.PermissionDenied, match="has no key that this side trusts"):
        make(pub.endpoint, security=ring.security("desk"))


def test_a_publisher_without_keys_is_refused_at_once(make, ring, feed):
    with pytest.raises(oz.PermissionDenied, match="has no key at all"):
        make(feed(None).endpoint, security=ring.security("desk"))


def test_a_silent_listener_is_refused_after_a_while(make, ring):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        endpoint = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(oz.PermissionDenied, match="accepts connections and proves no key"):
            make(endpoint, filtering="prefix", security=ring.security("desk"))


@pytest.mark.parametrize("filtering", ["publisher", "prefix"])
def test_a_publisher_may_start_later_with_any_trusted_key(make, ring, feed, filtering):
    endpoint = lasting_endpoint()
    sub = make(endpoint, filtering=filtering, security=ring.security("desk"))
    sub.subscribe("md.eu")
    with pytest.raises(oz.Timeout):
        sub.wait_ready(timeout=0)
    for name in ("other", "feed"):
        pub = feed(name, endpoint, permissions=False)
        receive_until(sub, lambda payloads, _, pub=pub: pub.publish("md.eu", b"1") or payloads)
        pub.close()


def test_servers_names_the_certificate_of_an_endpoint(make, ring, pub):
    security = ring.security("desk", servers={pub.endpoint: "other"})
    with pytest.raises(oz.PermissionDenied, match="servers= demands the certificate 'other'"):
        make(pub.endpoint, filtering="publisher", security=security)
    sub = make(
        pub.endpoint, filtering="publisher", security=ring.security("desk", servers={pub.endpoint: "feed"})
    )
    sub.subscribe("md.eu")
    sub.wait_ready(timeout=DEADLINE)


def test_a_key_that_is_refused_while_connected_is_reported_and_dialled_again(ring, pub, sub):
    sub.subscribe("md.eu")
    sub.wait_ready(timeout=DEADLINE)
    ring.distrust("desk")
    until(lambda: not pub.subscribers)
    _, refusals = receive_until(sub, lambda _, refusals: refusals)
    assert "does not trust the key of this side" in str(refusals[0])
    with pytest.raises(oz.Timeout, match="does not trust the key of this side"):
        sub.wait_ready(timeout=0)
    assert ["does not trust" in publisher.refusal for publisher in sub.publishers] == [True]
    ring.trust("desk")
    sub.wait_ready(timeout=DEADLINE)
    pub.publish("md.eu", b"1")
    payloads, refusals = receive_until(sub, lambda payloads, _: payloads)
    assert (payloads, refusals) == ([b"1"], [])


def test_a_publisher_whose_key_is_not_trusted_any_more_is_disconnected(ring, pub, sub):
    sub.subscribe("md.eu")
    sub.wait_ready(timeout=DEADLINE)
    ring.trusted.joinpath("feed.key").unlink()
    _, refusals = receive_until(sub, lambda _, refusals: refusals)
    assert "has no key that this side trusts" in str(refusals[0])
    ring.trust("feed")
    sub.wait_ready(timeout=DEADLINE)


def connect_when_trusted(sub, pub):
    def connects():
        with contextlib.suppress(oz.PermissionDenied):
            sub.connect(pub.endpoint)
            return True

    until(connects)
    sub.wait_ready(timeout=DEADLINE)


def test_an_endpoint_that_refuses_the_key_at_connect_is_not_connected(make, ring, feed):
    ring.distrust("desk")
    pub = feed()
    sub = make(filtering="publisher", security=ring.security("desk"))
    sub.subscribe("md.eu")
    with pytest.raises(oz.PermissionDenied, match=r"not connected, and is not tried again") as raised:
        sub.connect(pub.endpoint)
    assert (raised.value.rule, raised.value.subject) == (None, None)
    assert sub.publishers == []
    with pytest.raises(oz.Timeout, match="no endpoint: call connect"):
        sub.wait_ready(timeout=0)
    ring.trust("desk")

    connect_when_trusted(sub, pub)


# the right to publish -------------------------------------------------------------------------------------------


@pytest.fixture
def rights(ring):
    ring.permit(
        feed='publish = { allow = ["md.>"], deny = ["md.secret.>"] }', other='publish = { allow = [">"] }'
    )
    return ring.security("desk", permissions=True)


def test_the_delimiter_ends_the_subject_that_a_key_may_publish(make, feed, ring):
    ring.permit(feed='publish = { allow = ["md.eu"] }')
    options = Options(delimiter=b"|")
    pub = feed(permissions=False, links=False, options=options)
    security = ring.security("desk", permissions=True)
    sub = make(pub.endpoint, filtering="prefix", security=security, options=options)
    sub.subscribe("md.*")
    pub.wait_for_subscribers(timeout=DEADLINE)
    pub.publish("md.us", b"denied")
    pub.publish("md.eu", b"1")
    assert sub.receive(timeout=DEADLINE).payload == b"1"
    assert sub.stats.denied == 1


@pytest.mark.parametrize("filtering", ["publisher", "prefix"])
def test_a_timeout_names_the_user_and_the_rule_of_a_denied_message(make, feed, rights, filtering, caplog):
    pub = feed(permissions=False)
    sub = make(pub.endpoint, filtering=filtering, security=rights)
    sub.subscribe("md.>")
    sub.wait_ready(timeout=DEADLINE)
    pub.wait_for_subscribers("md.secret.x", timeout=DEADLINE)
    pub.publish("md.secret.x", b"")

    def is_named():
        with pytest.raises(oz.Timeout) as raised:
            sub.receive(timeout=0.1)
        return "a message was denied" in str(raised.value) and str(raised.value)

    rule = "users.feed.publish.deny[0], line 4: deny publish 'md.secret.>'"
    expected = f"may not publish 'md.secret.x': {rule}. To permit it"
    for text in (until(is_named), caplog.text):
        assert "user feed with the key" in text
        assert expected in text


def test_a_timeout_names_a_possible_denial_of_a_plain_subscription_until_a_message_arrives(make, ring, pub):
    ring.permit(desk=DESK, other="")
    sub = make(pub.endpoint, filtering="prefix", security=ring.security("other"))
    sub.subscribe("md.>")
    sub.wait_ready(timeout=DEADLINE)
    until(lambda: pub.stats.denied)
    with pytest.raises(oz.Timeout, match="does not report denied subscriptions"):
        sub.receive(timeout=0.01)
    allowed = make(pub.endpoint, filtering="prefix", security=ring.security("desk"))
    allowed.subscribe("md.eu")
    receive_until(allowed, lambda payloads, _: pub.publish("md.eu", b"1") or payloads)
    receive_until(allowed, lambda *_: allowed.stats.received == pub.stats.sent)
    with pytest.raises(oz.Timeout) as raised:
        allowed.receive(timeout=0.01)
    assert "does not report" not in str(raised.value)


def test_denied_messages_do_not_hold_up_acknowledgements(make, feed, rights):
    pub = feed(permissions=False)
    sub = make(pub.endpoint, filtering="publisher", security=rights)
    sub.subscribe(">", group="workers", ack="handled", delivery=Delivery(redeliver=True))
    sub.wait_ready(timeout=DEADLINE)
    for subject in ("orders.1", "md.1", "orders.2"):
        pub.publish(subject, b"")
    sub.receive(timeout=DEADLINE).ack()
    # Messages that are not handled are kept for other members.
    receive_until(sub, lambda *_: [subscriber.pending_bytes for subscriber in pub.subscribers] == [0])
    assert sub.stats.denied == 2


def test_a_bound_subscriber_drops_messages_that_a_key_may_not_publish(make, ring, rights):
    sub = make(bind="tcp://127.0.0.1:*", security=rights)
    sub.subscribe(">")
    with zmq.Context() as context, ring.equip(context.socket(zmq.PUB), "feed", "desk") as raw:
        raw.linger = 0
        raw.connect(sub.endpoint)
        receive_until(sub, lambda *_: raw.send_multipart([b"orders.1", b""]) or sub.stats.denied)
        raw.send_multipart([b"md.1", b"1"])
        assert sub.receive(timeout=DEADLINE).payload == b"1"


@pytest.mark.parametrize(
    ("kind", "way"), [("sync", "no keys"), ("asyncio", "plain"), ("sync", "another server key")]
)
def test_a_caller_of_a_bound_subscriber_without_key_is_counted(make, ring, way):
    security = ring.security("desk")
    sub = make(bind="tcp://127.0.0.1:*", security=security)
    sub.subscribe("md.>")
    with zmq.Context() as context, context.socket(zmq.PUB) as raw:
        raw.linger = 0
        if way == "plain":
            raw.plain_username = raw.plain_password = b"desk"
        elif way == "another server key":
            ring.equip(raw, "feed", "other")
        raw.connect(sub.endpoint)
        receive_until(sub, lambda *_: security.refused)


def test_another_key_cannot_pose_as_a_publisher(make, feed, rights):
    """A publisher with the origin of another publisher does not count as a second link to that publisher."""
    honest, forger = feed("feed", permissions=False), feed("other", permissions=False)
    forger._engine.origin = honest._engine.origin
    forger._engine._sessions.origin = honest._engine.origin
    sub = make(forger.endpoint, filtering="publisher", security=rights)
    sub.subscribe("md.>")
    sub.wait_ready(timeout=DEADLINE)
    sub.connect(honest.endpoint)
    sub.wait_ready(timeout=DEADLINE)
    assert [publisher.mode for publisher in sub.publishers] == ["link", "link"]
    assert len(honest.subscribers) == 1


# life -----------------------------------------------------------------------------------------------------------


def test_iteration_raises_a_denial(ring, pub):
    from oz.subscriber.sync import Subscriber

    with Subscriber(pub.endpoint, filtering="publisher", security=ring.security("desk")) as sub:
        sub.subscribe("orders.>")
        reading = Thread(lambda: next(iter(sub)))
        with pytest.raises(oz.PermissionDenied):
            reading.outcome()


# filtering="auto" -----------------------------------------------------------------------------------------------


def test_auto_falls_back_to_plain_connections_with_keys(make, ring, feed):
    pub = feed(permissions=False, links=False)
    sub = make(pub.endpoint, security=ring.security("desk"))
    sub.subscribe("md.*")
    sub.wait_ready(timeout=DEADLINE)
    assert [publisher.mode for publisher in sub.publishers] == ["prefix"]
    receive_until(sub, lambda payloads, _: pub.publish("md.eu", b"1") or payloads)


def test_a_limit_of_the_publisher_is_named(make, ring, feed):
    pub = feed(options=Options(limits=Limits(peers=1)))
    first = make(pub.endpoint, filtering="publisher", security=ring.security("desk"))
    first.subscribe("md.eu")
    first.wait_ready(timeout=DEADLINE)
    second = make(pub.endpoint, filtering="publisher", security=ring.security("other"))
    second.subscribe("md.eu")

    def is_told():
        with pytest.raises(oz.Timeout) as raised:
            second.wait_ready(timeout=0.05)
        return "as many links as it allows" in str(raised.value)

    until(is_told)


@pytest.mark.parametrize("group", [None, "workers"])
def test_each_later_denied_subscription_is_reported(sub, group):
    for number in range(20):
        sub.subscribe(f"orders.{number}", group=group)
        with pytest.raises(oz.PermissionDenied, match=rf"orders\.{number}'"):
            sub.receive(timeout=DEADLINE)


def test_keys_on_multicast_are_refused_with_the_remedy(ring):
    with pytest.raises(oz.ConfigurationError, match=r"security = .*no CURVE.*leave security= out"):
        oz.Subscriber(security=ring.security("desk"), options=Options(multicast=oz.Multicast()))
