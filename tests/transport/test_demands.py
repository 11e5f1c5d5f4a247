"""What a listener demands of whoever connects, as one without keys finds it out."""

import socket

import pytest
import zmq

from oz.transport.certificates import new_key_pair
from oz.transport.demands import Demands, mechanism_at
from support.waiting import Thread, until

needs_curve = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture
def listener():
    with zmq.Context() as context, context.socket(zmq.XPUB) as made:
        yield made


def demand_curve(listener):
    listener.curve_server = True
    listener.curve_secretkey = new_key_pair().secret.encode()


def bound(listener, place):
    listener.bind(place)
    return listener.get_string(zmq.LAST_ENDPOINT)


@pytest.mark.parametrize("way", ["tcp", "ipc"])
@needs_curve
def test_a_listener_tells_the_mechanism_that_it_demands(listener, tmp_path, way):
    place = {"tcp": "tcp://127.0.0.1:*", "ipc": f"ipc://{tmp_path}/s"}[way]
    assert mechanism_at(bound(listener, place)) == "NULL"
    listener.unbind(listener.get_string(zmq.LAST_ENDPOINT))
    demand_curve(listener)
    assert mechanism_at(bound(listener, place.replace("/s", "/t"))) == "CURVE"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nServer: x\r\n\r\n"])
def test_who_speaks_no_zmtp_or_is_not_there_demands_nothing(said, monkeypatch):
    monkeypatch.setattr("oz.transport.demands._PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as place:
        endpoint = f"tcp://127.0.0.1:{place.getsockname()[1]}"

        def answer():
            with place.accept()[0] as caller:
                caller.sendall(said)
                caller.recv(64)

        answering = Thread(answer)
        assert mechanism_at(endpoint) is None
        answering.outcome()
    assert mechanism_at(endpoint) is None


@needs_curve
def test_what_is_demanded_is_told_once_and_forgotten_when_it_is_not_any_more(listener):
    demand_curve(listener)
    endpoint, told = bound(listener, "tcp://127.0.0.1:*"), []
    demands = Demands([endpoint, "inproc://a"], 0.0, tell=lambda why, where: told.append((why, where)))

    def asked():
        """Let the time come that something is due, whatever the clock says."""
        demands.look(demands.next_deadline() or 0.0)
        return demands.refusals

    [why] = until(asked).values()
    assert "demands keys (CURVE)" in why
    listener.unbind(endpoint)
    with listener.context.socket(zmq.XPUB) as open_to_all:
        until(lambda: bound_again(open_to_all, endpoint))
        until(lambda: not asked())
    assert told == [(why, endpoint)]
    assert demands.next_deadline() is None


def bound_again(listener, endpoint):
    try:
        listener.bind(endpoint)
    except zmq.ZMQError:
        return False
    return True


def test_where_somebody_has_answered_nobody_is_asked(listener):
    endpoint = bound(listener, "tcp://127.0.0.1:*")
    demands = Demands([endpoint], 0.0, is_needed=lambda _: False)
    demands.look(demands.next_deadline())
    assert demands.next_deadline() is None
    assert demands.next_look_in(0.0) is None
