"""Sockets with keys: who is let in, and what whoever is not is told."""

import logging
from socket import create_server

import pytest
import zmq

import oz
from support.receiving import receive_until
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


def test_a_publisher_whose_connections_hold_one_message_hears_who_subscribes(ring):
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


def test_who_is_not_trusted_is_told_both_keys_when_it_connects(ring, pub, caplog):
    stranger = ring.make("stranger").public
    security = ring.security("stranger")
    with caplog.at_level(logging.WARNING, "oz.security"), pytest.raises(oz.PermissionDenied) as raised:
        oz.Subscriber(pub.endpoint, security=security)
    assert stranger in str(raised.value)
    assert ring.public("feed") in str(raised.value)
    assert any(
        stranger in one.getMessage() and ring.public("feed") in one.getMessage() for one in caplog.records
    )


def test_who_listens_with_a_key_that_is_not_trusted_is_not_connected_to(ring, pub):
    security = ring.security("desk")
    ring.distrust("feed")
    security = ring.security("desk")
    with pytest.raises(oz.PermissionDenied, match="has no key that this side trusts") as raised:
        oz.Subscriber(pub.endpoint, security=security)
    assert ring.public("desk") in str(raised.value)


def test_who_listens_without_keys_or_says_nothing_is_not_called_a_stranger(ring):
    desk = ring.security("desk")
    with oz.Publisher("tcp://127.0.0.1:*") as plain, pytest.raises(oz.PermissionDenied) as raised:
        oz.Subscriber(plain.endpoint, security=desk)
    assert "has no key at all" in str(raised.value)
    with create_server(("127.0.0.1", 0)) as mute, pytest.raises(oz.PermissionDenied) as raised:
        oz.Subscriber(f"tcp://127.0.0.1:{mute.getsockname()[1]}", security=desk)
    assert "accepts connections and proves no key" in str(raised.value)


KEYLESS = {
    "no CURVE": lambda ring: {},
    "PLAIN": lambda ring: {"plain_username": b"desk", "plain_password": b"desk"},
    "no key of its own": lambda ring: {"curve_serverkey": ring.public("feed").encode()},
    "a key that it does not have": lambda ring: {
        "curve_serverkey": ring.public("feed").encode(),
        "curve_publickey": ring.public("desk").encode(),
        "curve_secretkey": ring.pair("other").secret.encode(),
    },
    "another server's key": lambda ring: {
        "curve_serverkey": ring.public("other").encode(),
        "curve_publickey": ring.public("desk").encode(),
        "curve_secretkey": ring.pair("desk").secret.encode(),
    },
}


def called_without_key(ring, way, kind, endpoint):
    """Return a plain socket that calls without proving to have a key."""
    socket = zmq.Context.instance().socket(kind)
    socket.linger = 0
    for option, value in KEYLESS[way](ring).items():
        setattr(socket, option, value)
    socket.connect(endpoint)
    return socket


@pytest.mark.parametrize("way", KEYLESS)
def test_who_calls_without_a_key_is_logged_and_counted_where_it_calls(ring, way, caplog):
    feed = ring.security("feed")
    with (
        oz.Publisher("tcp://127.0.0.1:*", security=feed) as pub,
        called_without_key(ring, way, zmq.SUB, pub.endpoint),
    ):
        until(lambda: feed.refused)
    told = [one.getMessage() for one in caplog.records if "is refused" in one.getMessage()]
    assert ring.public("feed") in told[0]


def test_who_calls_a_subscriber_without_a_key_is_counted_as_well(ring):
    desk = ring.security("desk")
    with (
        oz.Subscriber(bind="tcp://127.0.0.1:*", security=desk) as sub,
        called_without_key(ring, "no CURVE", zmq.PUB, sub.endpoint),
    ):
        receive_until(sub, lambda: desk.refused)
