"""Handshakes and ends of connections, as a monitor of a socket reports them."""

import pytest
import zmq

from oz.transport.handshakes import Handshakes, Outcome
from support.keyring import Keyring
from support.waiting import until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


def test_a_connection_that_ends_after_its_handshake_is_told_of(tmp_path):
    ring, told = Keyring(tmp_path, "feed", "desk"), []
    handshakes = Handshakes()

    def look():
        told.extend(one.outcome for one in handshakes.read())
        return told

    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        with ring.equip(context.socket(zmq.XPUB), "feed") as listener:
            listener.bind("tcp://127.0.0.1:*")
            handshakes.begin(sub)
            ring.equip(sub, "desk", "feed").connect(listener.get_string(zmq.LAST_ENDPOINT))
            until(look)
        until(lambda: len(look()) > 1)
        handshakes.close(sub)
    assert told[:2] == [Outcome.ADMITTED, Outcome.ENDED]


def test_where_there_is_no_room_to_read_a_monitor_none_is_begun(monkeypatch):
    begun = []
    monkeypatch.setattr(zmq.Socket, "monitor", lambda *given: begun.append(given[1]))
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 1)
        handshakes = Handshakes()
        with zmq.Socket(context, zmq.SUB) as socket, pytest.raises(zmq.ZMQError):
            handshakes.begin(socket)
        assert not handshakes.is_watching
        assert not begun
