"""The search for the key of a listener, against listeners of ZeroMQ's own."""

import pytest
import zmq

from oz.transport import probing
from oz.transport.certificates import new_key_pair
from oz.transport.probing import Probed, probe

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

_OWN, _LISTENER = (new_key_pair(), new_key_pair()) if zmq.has("curve") else (None, None)


@pytest.fixture
def undecided(monkeypatch):
    """Give a listener whose authenticator never says who may come in, and what tells of connections to it."""
    monkeypatch.setattr(probing, "PATIENCE_WITH_BUSY", 1.0)
    with (
        zmq.Context() as context,
        context.socket(zmq.REP) as authenticator,
        context.socket(zmq.PUB) as socket,
    ):
        authenticator.bind("inproc://zeromq.zap.01")
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_SECRETKEY, _LISTENER.secret.encode())
        socket.set(zmq.ZAP_DOMAIN, b"undecided")
        monitor = socket.get_monitor_socket(zmq.EVENT_ACCEPTED)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        yield f"tcp://127.0.0.1:{port}", monitor
        socket.disable_monitor()
        monitor.close(0)
        context.destroy(0)


def accepted(monitor):
    count = 0
    while monitor.poll(0):
        monitor.recv_multipart()
        count += 1
    return count


def test_listener_that_is_slow_to_admit_the_right_key_is_no_stranger(undecided):
    endpoint, _ = undecided
    wrong = [new_key_pair().public for _ in range(3)]
    assert probe(endpoint, zmq.SUB, _OWN, [*wrong, _LISTENER.public]) == (Probed.SILENT, None)


def test_wrong_keys_are_tried_once_however_long_the_right_one_takes(undecided):
    endpoint, monitor = undecided
    wrong = [new_key_pair().public for _ in range(3)]
    probe(endpoint, zmq.SUB, _OWN, [*wrong, _LISTENER.public])
    assert accepted(monitor) == 4


def test_listener_that_has_none_of_the_keys_is_a_stranger(undecided):
    endpoint, _ = undecided
    wrong = [new_key_pair().public for _ in range(probing._AT_ONCE + 1)]
    assert probe(endpoint, zmq.SUB, _OWN, wrong) == (Probed.STRANGER, None)
