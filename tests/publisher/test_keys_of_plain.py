"""Plain subscribers of publishers with keys: each connection gets only the prefixes that its key may have."""

import pytest
import zmq

import oz
from support.sizes import in_suite
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture(params=in_suite(["sync"], ["asyncio"]))
def kind(request):
    """Shell: one in the suite, because the engine checks keys, and both shells use the same engine."""
    return request.param


DESK = 'subscribe = { allow = ["md.>"], deny = ["md.secret.>", "md.secret"] }'


@pytest.fixture
def rules():
    return {"desk": DESK, "other": 'subscribe = { allow = [">"] }'}


@pytest.fixture
def raw(ring):
    """Connect a plain socket with the keys of a user."""
    context, made = zmq.Context(), []

    def connect(endpoint, name, *prefixes, kind=zmq.SUB):
        socket = ring.equip(context.socket(kind), name, "feed")
        made.append(socket)
        socket.linger = 0
        for prefix in prefixes:
            socket.setsockopt(zmq.SUBSCRIBE, prefix)
        socket.connect(endpoint)
        return socket

    yield connect
    for socket in made:
        socket.close(0)
    context.term()


def subjects_of(pub, socket, *subjects):
    """Publish subjects until the last one has arrived; return the subjects that arrived."""
    found = set()

    def has_come():
        for subject in subjects:
            pub.publish(subject, b"")
        while socket.poll(10):
            found.add(socket.recv_multipart()[0].decode())
        return subjects[-1] in found

    until(has_come)
    return found


@pytest.mark.parametrize("prefix", [b"", b"m", b"md.", b"md.s", b"md.secret.x", b"\xff"])
def test_a_prefix_is_granted_only_as_a_whole(pub, raw, prefix):
    socket = raw(pub.endpoint, "desk", prefix, b"md.eu.")
    until(lambda: pub.stats.denied)
    assert subjects_of(pub, socket, "md.secret.x", "md.us.1", "md.eu.1") == {"md.eu.1"}
    assert not pub.has_subscribers("md.us.1")


@pytest.mark.parametrize(("delimiter", "prefix"), [(b"|", b"md.secret|"), (b"||", b"md.secret||x")])
def test_a_prefix_behind_the_delimiter_is_a_prefix_of_the_payload(make, ring, raw, delimiter, prefix):
    pub = make(security=ring.security("feed", permissions=True), delimiter=delimiter, links=False)
    socket = raw(pub.endpoint, "desk", prefix, b"md.eu" + delimiter)
    pub.wait_for_subscribers("md.eu", timeout=DEADLINE)
    until(lambda: pub.stats.denied)
    found = set()

    def has_come():
        pub.publish("md.secret", b"x")
        pub.publish("md.eu", b"x")
        while socket.poll(10):
            found.add(socket.recv())
        return found

    until(has_come)
    assert found == {b"md.eu" + delimiter + b"x"}


def test_prefixes_of_several_connections_end_each_by_itself(pub, raw):
    first, second = raw(pub.endpoint, "desk", b"md.eu"), raw(pub.endpoint, "other", b"md.eu", b"md.secret")
    pub.wait_for_subscribers(count=3, timeout=DEADLINE)
    first.setsockopt(zmq.UNSUBSCRIBE, b"md.eu")
    until(lambda: not _raises(pub, 2) and _raises(pub, 3))
    assert subjects_of(pub, second, "md.secret", "md.eu") == {"md.secret", "md.eu"}
    second.close(0)
    until(lambda: not pub.has_subscribers("md.eu") and not pub.has_subscribers("md.secret"))
    assert not first.poll(0)


def _denied(pub, socket):
    """Return the number of denied subscriptions. A SUB sends its subscriptions only while a call services it."""
    socket.poll(0)
    return pub.stats.denied


def _raises(pub, count):
    try:
        pub.wait_for_subscribers(count=count, timeout=0)
    except oz.Timeout:
        return True
    return False


def test_the_end_of_a_refused_connection_takes_nothing_from_a_granted_one(pub, raw):
    granted = raw(pub.endpoint, "other", b"md.secret.x")
    pub.wait_for_subscribers(timeout=DEADLINE)
    for _ in range(5):
        before = pub.stats.denied
        refused = raw(pub.endpoint, "desk", b"md.secret.x")
        until(lambda before=before: pub.stats.denied > before)
        refused.close(0)
        assert subjects_of(pub, granted, "md.secret.x") == {"md.secret.x"}
    assert not _raises(pub, 1)


def test_subscribers_inside_the_process_need_no_rights(make, ring):
    context = zmq.Context()
    pub = make("inproc://plain", context=context, security=ring.security("feed", permissions=True))
    with context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.SUBSCRIBE, b"md.secret.x")
        socket.connect("inproc://plain")
        assert subjects_of(pub, socket, "md.secret.x") == {"md.secret.x"}
        socket.setsockopt(zmq.UNSUBSCRIBE, b"md.secret.x")
        until(lambda: not pub.has_subscribers("md.secret.x"))
    pub.close()
    context.term()


def test_rights_that_end_cut_the_connection(ring, pub, raw):
    desk, other = raw(pub.endpoint, "desk", b"md.eu", b"md.us."), raw(pub.endpoint, "other", b"md.eu")
    pub.wait_for_subscribers(count=3, timeout=DEADLINE)
    ring.permit(desk='subscribe = { allow = ["md.us.>"] }', other='subscribe = { allow = [">"] }')
    until(lambda: _denied(pub, desk))
    # The SUB has connected again with the granted prefixes.
    while desk.poll(0):
        desk.recv_multipart()
    assert subjects_of(pub, desk, "md.eu", "md.us.x") == {"md.us.x"}
    assert subjects_of(pub, other, "md.eu") == {"md.eu"}


@pytest.mark.parametrize("permissions", [True, False])
def test_a_key_that_is_removed_loses_its_connection(make, ring, raw, permissions):
    pub = make(security=ring.security("feed", permissions=permissions))
    raw(pub.endpoint, "desk", b"md.us")
    other = raw(pub.endpoint, "other", b"md.eu")
    pub.wait_for_subscribers(count=2, timeout=DEADLINE)
    ring.distrust("desk")
    until(lambda: not pub.has_subscribers("md.us"))
    assert subjects_of(pub, other, "md.eu") == {"md.eu"}


def test_frames_that_are_no_subscriptions_grant_nothing_to_their_sender(ring, pub, raw):
    attacker, other = (raw(pub.endpoint, name, kind=zmq.XSUB) for name in ("desk", "other"))
    for item in (attacker, other):
        item.send(b"\x01md.us")
    pub.wait_for_subscribers(count=2, timeout=DEADLINE)
    # libzmq receives them while the program does something else.
    engine = pub._engine
    with engine.lock:
        for item, frame in ((attacker, b"\x02"), (other, b"\x01md.secret.x"), (attacker, b"\x01md.eu")):
            item.send(frame)
            engine._plain.socket.poll(200)

    def asks_again():
        attacker.send(b"\x01md.eu")
        return pub.has_subscribers("md.eu")

    until(asks_again)
    assert subjects_of(pub, attacker, "md.secret.x", "md.eu") == {"md.eu"}


def test_a_connection_that_asks_for_too_much_that_is_denied_is_cut(make, ring, raw):
    options = {"subscription_bytes": 1_000}
    pub = make(security=ring.security("feed", permissions=True), **options)
    attacker = raw(pub.endpoint, "desk", kind=zmq.XSUB)
    events = attacker.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    for number in range(100):
        attacker.send(b"\x01orders.%020d" % number)
    assert events.poll(1000 * DEADLINE)
    attacker.disable_monitor()
    events.close(0)


def test_a_publisher_that_connects_serves_the_key_of_the_listener_by_its_rights(make, ring):
    with zmq.Context() as context, ring.equip(context.socket(zmq.SUB), "desk") as listener:
        listener.linger = 0
        listener.setsockopt(zmq.SUBSCRIBE, b"md.secret")
        listener.setsockopt(zmq.SUBSCRIBE, b"md.eu")
        listener.bind("tcp://127.0.0.1:*")
        endpoint = listener.getsockopt(zmq.LAST_ENDPOINT).decode()
        pub = make(None, connect=endpoint, security=ring.security("feed", permissions=True))
        until(lambda: _denied(pub, listener))
        assert subjects_of(pub, listener, "md.secret", "md.eu") == {"md.eu"}


def test_a_publisher_does_not_connect_to_a_key_that_it_does_not_trust(make, ring):
    stranger = ring.make("stranger")
    with zmq.Context() as context, context.socket(zmq.SUB) as listener:
        listener.linger = 0
        listener.curve_publickey, listener.curve_secretkey = (
            stranger.public.encode(),
            stranger.secret.encode(),
        )
        listener.curve_server = True
        listener.bind("tcp://127.0.0.1:*")
        endpoint = listener.getsockopt(zmq.LAST_ENDPOINT).decode()
        with pytest.raises(oz.PermissionDenied, match="has no key that this side trusts"):
            make(None, connect=endpoint, security=ring.security("feed"))
