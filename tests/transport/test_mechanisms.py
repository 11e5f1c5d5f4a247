"""The security mechanism of a listener, read from its greeting."""

import socket

import pytest
import zmq

from oz.transport.certificates import new_key_pair
from oz.transport.mechanisms import mechanism_at
from support.waiting import Thread


@pytest.fixture
def listener():
    with zmq.Context() as context, context.socket(zmq.XPUB) as made:
        yield made


def bound(listener, endpoint):
    listener.bind(endpoint)
    return listener.get_string(zmq.LAST_ENDPOINT)


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")
def test_mechanism_of_a_listener_is_read(listener, tmp_path, transport):
    endpoint = {"tcp": "tcp://127.0.0.1:*", "ipc": f"ipc://{tmp_path}/s"}[transport]
    assert mechanism_at(bound(listener, endpoint)) == "NULL"
    listener.unbind(listener.get_string(zmq.LAST_ENDPOINT))
    listener.curve_server = True
    listener.curve_secretkey = new_key_pair().secret.encode()
    assert mechanism_at(bound(listener, endpoint.replace("/s", "/t"))) == "CURVE"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nServer: x\r\n\r\n"])
def test_other_protocols_and_unused_ports_have_no_mechanism(said, monkeypatch):
    monkeypatch.setattr("oz.transport.mechanisms._GREETING_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"

        def answer():
            with server.accept()[0] as caller:
                caller.sendall(said)
                caller.recv(64)

        answering = Thread(answer)
        assert mechanism_at(endpoint) is None
        answering.outcome()
    assert mechanism_at(endpoint) is None
