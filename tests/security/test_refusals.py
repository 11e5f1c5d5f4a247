"""Log lines about connections that a listener refuses: one a minute for each reason, with a count."""

import logging
import socket
from contextlib import ExitStack

import pytest
import zmq

import oz
from oz.logs import forget_rates
from oz.transport import arrivals, refusals
from oz.transport.refusals import LOG_INTERVAL, RefusalLog
from support.waiting import until


def test_first_connection_is_logged_at_once_and_later_ones_with_their_number():
    log = RefusalLog()
    assert log.add("no key", "from 1", 0.0) == ["from 1"]
    assert log.add("no key", "from 2", 1.0) == []
    assert log.add("unknown key", "from 3", 2.0) == ["from 3"]
    assert log.add("no key", "from 4", 3.0) == []
    assert log.lines(LOG_INTERVAL - 1.0) == []
    assert log.lines(LOG_INTERVAL) == ["2 connections were refused in 60 s. The last: from 4"]
    assert log.lines(LOG_INTERVAL + 1.0) == []
    assert log.add("no key", "from 5", LOG_INTERVAL + 2.0) == []
    assert log.lines(2 * LOG_INTERVAL) == ["1 connections were refused in 60 s. The last: from 5"]


def test_a_reason_without_connections_for_a_minute_begins_anew():
    log = RefusalLog()
    log.add("no key", "from 1", 0.0)
    assert log.lines(LOG_INTERVAL) == []
    assert log.add("no key", "from 2", LOG_INTERVAL + 1.0) == ["from 2"]


STRANGERS = {
    "an unknown key": lambda ring: {
        "curve_serverkey": ring.public("feed").encode(),
        "curve_publickey": ring.make("stranger").public.encode(),
        "curve_secretkey": ring.pair("stranger").secret.encode(),
    },
    "no key": lambda ring: {},
    "a wrong server key": lambda ring: {
        "curve_serverkey": ring.public("other").encode(),
        "curve_publickey": ring.public("desk").encode(),
        "curve_secretkey": ring.pair("desk").secret.encode(),
    },
}
EXPECTED = {
    "an unknown key": "is not in",
    "no key": "the caller proved no key before the connection ended, and this side demands CURVE",
    "a wrong server key": "the caller does not trust the key of this side",
}


@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")
@pytest.mark.parametrize("reason", STRANGERS)
@pytest.mark.parametrize("listener", ["publisher", "node"])
def test_a_listener_logs_each_reason_once_and_then_its_number(
    ring, reason, listener, caplog, monkeypatch, directory
):
    forget_rates()
    monkeypatch.setattr(refusals, "LOG_INTERVAL", 3600.0)
    feed = ring.security("feed")
    if listener == "publisher":
        made = oz.Publisher("tcp://127.0.0.1:*", security=feed)
    else:
        options = oz.NodeOptions(directory=directory)
        made = oz.Node("feed", bus="test", bind="tcp://127.0.0.1:*", security=feed, options=options)

    def lines():
        found = [record.getMessage() for record in caplog.records if record.name == "oz.security"]
        return [item for item in found if "refused" in item]

    options = STRANGERS[reason](ring)
    with made, caplog.at_level(logging.WARNING), zmq.Context() as context, ExitStack() as sockets:
        for _ in range(3):
            socket = sockets.enter_context(context.socket(zmq.DEALER))
            socket.linger = 0
            for option, value in options.items():
                setattr(socket, option, value)
            socket.connect(made.endpoint)
        until(lambda: feed.refused >= 3)
        until(lines)
        (text,) = [line.partition(" is refused: ")[2] for line in lines()]
        assert EXPECTED[reason] in text
        assert ring.public("feed") in text
        monkeypatch.setattr(refusals, "LOG_INTERVAL", 0.0)
        until(lambda: any("connections were refused in" in line for line in lines()))


@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")
def test_connection_that_ends_is_not_reported_if_a_subscriber_closes_then(pub, ring, monkeypatch):
    monkeypatch.setattr(arrivals, "SEARCH_SECONDS", 3600.0)
    subscriber = oz.Subscriber(pub.endpoint, filtering="publisher", security=ring.security("desk"))
    subscriber.subscribe("md.eur")
    subscriber.wait_ready()

    def failures():
        return [event for _, known in pub._engine._keys._monitors.values() for event in known._failures]

    host, port = pub.link_endpoints[0].removeprefix("tcp://").rsplit(":", 1)
    socket.create_connection((host, int(port))).close()
    until(failures)
    subscriber.close()
    until(lambda: not failures())
