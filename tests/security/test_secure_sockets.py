"""Sockets with keys and permissions: who may subscribe to what, and who may publish it."""

import logging

import pytest
import zmq

import oz
import oz.asyncio
from oz.transport.security import credentials_of
from support.receiving import publish_until, received
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
        sub.wait_ready(timeout=DEADLINE)
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
        return pub.has_subscribers("md.59")

    until(is_granted)
    assert not pub.has_subscribers("orders.1")


def test_iteration_is_told_too(pub, sub):
    sub.subscribe("orders.>")
    reading = Thread(lambda: next(iter(sub)))
    with pytest.raises(oz.PermissionDenied):
        reading.outcome()


@pytest.mark.parametrize("prefix", [b"", b"m", b"md.", b"md.s", b"md.secret.x", b"\xff"])
def test_a_plain_prefix_is_granted_only_as_a_whole(pub, raw, sub, prefix):
    socket = raw("desk", prefix, b"md.eu.")
    until(lambda: pub.stats.denied)
    for subject in ("md.secret.x", "md.us.1", "md.eu.1"):
        publish_until(pub, subject, lambda: True)
    publish_until(pub, "md.eu.1", lambda: socket.poll(0))
    assert socket.recv_multipart()[0] == b"md.eu.1"


def test_permissions_that_make_no_sense_change_nothing(ring, pub, sub, caplog):
    sub.subscribe("md.eu")
    sub.wait_ready(timeout=DEADLINE)
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
