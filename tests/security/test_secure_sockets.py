"""Sockets with keys and permissions: who may subscribe to what, and who may publish it."""

import logging

import pytest
import zmq

import oz
import oz.asyncio
from oz.transport.security import credentials_of
from oz.wire import keys
from oz.wire.batch import CONTROL, head_end, head_start
from support.inside import engine_of
from support.receiving import publish_until, receive_until, received
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture
def raw(ring, pub):
    """A plain SUB of somebody, which sees all that is sent to it."""
    made = []

    def connect(name, *prefixes):
        socket = ring.equip(zmq.Context.instance().socket(zmq.SUB), name, "feed")
        made.append(socket)
        socket.linger, socket.rcvtimeo = 0, round(1000 * DEADLINE)
        for prefix in prefixes:
            socket.subscribe(prefix)
        socket.connect(pub.endpoint)
        return socket

    yield connect
    for socket in made:
        socket.close(0)


def test_what_may_not_be_had_is_refused_with_rule_and_witness(pub, sub):
    sub.subscribe("md.*.x")
    with pytest.raises(oz.PermissionDenied) as raised:
        sub.wait_ready(DEADLINE)
    assert raised.value.subject == "md.secret.x"
    assert "deny subscribe 'md.secret.>'" in raised.value.rule
    assert "line 4" in raised.value.rule
    assert pub.stats.denied == 1


def test_whoever_only_receives_is_told_too_once_and_gets_the_rest(pub, sub):
    sub.subscribe("md.eu")
    sub.subscribe("orders.>")
    with pytest.raises(oz.PermissionDenied, match="orders"):
        sub.receive(timeout=DEADLINE)
    pub.publish("orders.1", b"")
    pub.publish("md.eu", b"")
    assert received(sub, 1) == ["md.eu"]


def test_one_denied_among_many_that_are_declared_together_takes_nothing_from_the_others(pub, sub):
    for number in range(60):
        sub.subscribe(f"md.{number}")
    sub.subscribe("orders.>")
    with pytest.raises(oz.PermissionDenied, match="orders"):
        sub.receive(timeout=DEADLINE)

    def is_granted():
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0.01)
        return pub.interest("md.59")

    until(is_granted)
    assert not pub.interest("orders.1")


def test_iteration_is_told_too(pub, sub):
    sub.subscribe("orders.>")
    reading = Thread(lambda: next(iter(sub)))
    with pytest.raises(oz.PermissionDenied):
        reading.outcome()


def test_shared_patterns_and_groups_are_refused_as_well(ring, pub, sub):
    sub.subscribe("md.eu", group="workers")
    with pytest.raises(oz.PermissionDenied, match="join a group"):
        sub.wait_ready(DEADLINE)
    security = ring.security("desk")
    with oz.Subscriber(pub.endpoint, filtering="publisher", shared=True, security=security) as sharing:
        sharing.subscribe("md.secret.>")
        pub.wait_for_subscribers(0, timeout=0)
        until(lambda: pub.interest("md.secret.x") or pub.stats.denied > 1)
        assert not pub.interest("md.secret.x")


@pytest.mark.parametrize("prefix", [b"", b"m", b"md.", b"md.s", b"md.secret.x", b"\xff"])
def test_a_plain_prefix_is_granted_only_as_a_whole(pub, raw, sub, prefix):
    socket = raw("desk", prefix, b"md.eu.")
    until(lambda: pub.stats.denied)
    for subject in ("md.secret.x", "md.us.1", "md.eu.1"):
        publish_until(pub, subject, lambda: True)
    publish_until(pub, "md.eu.1", lambda: socket.poll(0))
    assert socket.recv_multipart()[0] == b"md.eu.1"


def test_nobody_hears_another_s_stream(pub, sub, raw):
    sub.subscribe("md.eu")
    sub.wait_ready(DEADLINE)
    (name,) = [one.name for one in engine_of(pub).router.streams.values()]
    before = pub.stats.denied
    thief = raw("other", keys.stream_key(name), b"x.")
    until(lambda: pub.stats.denied > before)
    for _ in range(10):
        pub.publish("md.eu", b"")
    assert received(sub, 10) == ["md.eu"] * 10
    publish_until(pub, "x.1", lambda: thief.poll(0))
    while thief.poll(0):
        assert thief.recv_multipart()[0] == b"x.1"


def test_permissions_that_change_hold_at_once_for_those_who_are_there(ring, pub, sub, caplog):
    sub.subscribe("md.eu")
    sub.wait_ready(DEADLINE)
    ring.permit(desk='subscribe = { allow = ["md.us"] }')
    with pytest.raises(oz.PermissionDenied):
        sub.receive(timeout=DEADLINE)
    assert not pub.interest("md.eu")
    sub.subscribe("md.us")
    until(lambda: pub.interest("md.us"))
    told = " ".join(one.getMessage() for one in caplog.records)
    assert f"a connection of key {ring.public('desk')} is ended" in told
    assert "what is trusted or allowed has changed" in told
    assert "Limits.unsent" not in told


def test_permissions_that_make_no_sense_change_nothing(ring, pub, sub, caplog):
    sub.subscribe("md.eu")
    sub.wait_ready(DEADLINE)
    with caplog.at_level(logging.ERROR, "oz.security"):
        ring.permissions.write_text('default = "perhaps"\n')
        until(lambda: "what it said before holds" in caplog.text)
    pub.publish("md.eu", b"")
    assert received(sub, 1) == ["md.eu"]


@pytest.fixture
def listener(ring):
    """A subscriber that publishers connect to; desk may publish md.> only."""
    ring.permit(
        desk='publish = { allow = ["md.>"], deny = ["md.secret.>"] }', other='publish = { allow = [">"] }'
    )
    with oz.Subscriber(
        bind="tcp://127.0.0.1:*", filtering="publisher", security=ring.security("feed", permissions=True)
    ) as made:
        yield made


def test_what_a_key_may_not_publish_is_dropped_and_counted(ring, listener):
    listener.subscribe(">")
    with oz.Publisher(connect=listener.endpoint, security=ring.security("desk")) as pub:
        listening = Thread(lambda: listener.receive(timeout=DEADLINE).subject)
        pub.wait_for_subscribers(timeout=DEADLINE)
        with pub.batch():
            for subject in ("orders.1", "md.secret.1", "md.1"):
                pub.publish(subject, b"")
        assert listening.outcome() == "md.1"
        assert listener.stats.denied == 2
        assert listener.stats.lost == 0


def test_plain_messages_are_looked_at_as_well(ring, listener):
    with (
        oz.Subscriber(bind="tcp://127.0.0.1:*", security=ring.security("feed", permissions=True)) as sub,
        ring.equip(zmq.Context.instance().socket(zmq.PUB), "desk", "feed") as socket,
    ):
        sub.subscribe(b"")
        socket.linger = 0
        socket.connect(sub.endpoint)
        receive_until(sub, lambda: socket.send_multipart([b"orders.1", b""]) or sub.stats.denied)
        socket.send_multipart([b"md.1", b""])
        assert received(sub, 1) == ["md.1"]


def test_nobody_speaks_in_the_name_of_another_publisher(ring, listener):
    listener.subscribe("md.>")
    with oz.Publisher(connect=listener.endpoint, security=ring.security("desk")) as pub:
        listening = Thread(lambda: listener.receive(timeout=DEADLINE))
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("md.1", b"")
        first = listening.outcome()
        (source,) = next(iter(engine_of(listener).receiver.streams.by_key.values())).sources.values()
        name = next(iter(engine_of(listener).receiver.streams.by_key))
        forged = head_start(name, CONTROL, first.origin, source.epoch + 1) + head_end(10**9, 0)
        with ring.equip(zmq.Context.instance().socket(zmq.PUB), "other", "feed") as socket:
            socket.linger = 0
            socket.connect(listener.endpoint)
            receive_until(listener, lambda: socket.send(forged) or listener.stats.denied)
        pub.publish("md.2", b"")
        assert listener.receive(timeout=DEADLINE).subject == "md.2"
        assert listener.stats.contradictions == listener.stats.lost == 0


def test_a_publisher_that_was_connected_to_is_known_by_its_endpoint(ring, listener):
    with (
        oz.Publisher("tcp://127.0.0.1:*", security=ring.security("desk")) as desk,
        oz.Publisher("tcp://127.0.0.1:*", security=ring.security("other")) as other,
        oz.Subscriber(filtering="publisher", security=ring.security("feed", permissions=True)) as sub,
    ):
        sub.subscribe("*")
        for publisher in (desk, other):
            sub.connect(publisher.endpoint)
        sub.wait_ready(DEADLINE)
        desk.publish("a", b"")
        other.publish("b", b"")
        assert received(sub, 1) == ["b"]
        receive_until(sub, lambda: sub.stats.denied == 1)


def test_it_is_read_from_a_file_whose_paths_are_relative(ring, tmp_path):
    (tmp_path / "oz.toml").write_text(
        '[security]\nkey = "keys/feed.key_secret"\ntrusted = "trusted"\npermissions = "permissions.toml"\n'
        '[security.servers]\n"tcp://hub:1" = "desk"\n'
    )
    made = oz.Security.from_file(tmp_path / "oz.toml")
    assert made.public_key == ring.public("feed")
    assert set(made.trusted.values()) == {"feed", "desk", "other"}
    assert credentials_of(made).permissions is not None
    assert ring.pair("feed").secret not in repr(made)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"below a line \[security\]"),
        ("[security]\nkey = 'keys/feed.key_secret'\n", "trusted"),
        ("[security]\nkey = 1\ntrusted = 'trusted'\n", "give a path"),
        ("[security]\nkye = 'x'\n", "there are key, trusted"),
        ("[security]\nkey = 'gone'\ntrusted = 'trusted'\n", "No such file"),
        ("[security]\nkey = 'keys/feed.key_secret'\ntrusted = 'trusted'\nservers = 1\n", "for each endpoint"),
        (
            "[security]\nkey = 'keys/feed.key_secret'\ntrusted = 'trusted'\nservers = {'tcp://a:1' = 'b'}\n",
            "no certificate",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(ring, tmp_path, text, told):
    (tmp_path / "oz.toml").write_text(text)
    with pytest.raises(oz.ConfigurationError, match=told):
        oz.Security.from_file(tmp_path / "oz.toml")


@pytest.mark.parametrize("kind", [oz.Publisher, oz.Subscriber])
def test_what_is_no_security_is_refused(kind):
    with pytest.raises(TypeError, match=r"an oz\.Security"):
        kind(security="keys")
