"""Events of a monitor: outcomes of handshakes, and ends of connections."""

import pytest
import zmq

from oz.transport.monitors import HANDSHAKES, Monitor, Outcome
from support.keyring import Keyring
from support.waiting import until


@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")
def test_a_handshake_and_the_end_of_its_connection_are_reported(tmp_path):
    ring, events = Keyring(tmp_path, "feed", "desk"), []

    def count():
        events.extend(monitor.read())
        return len(events)

    with zmq.Context() as context, zmq.Socket(context, zmq.SUB) as sub:
        with ring.equip(zmq.Socket(context, zmq.XPUB), "feed") as listener:
            listener.bind("tcp://127.0.0.1:*")
            endpoint = listener.get_string(zmq.LAST_ENDPOINT)
            monitor = Monitor(sub, HANDSHAKES | zmq.EVENT_DISCONNECTED)
            ring.equip(sub, "desk", "feed").connect(endpoint)
            until(count)
        until(lambda: count() > 1)
        monitor.close()
    assert [event.outcome for event in events[:2]] == [Outcome.ADMITTED, None]
    assert (events[0].endpoint, events[1].number) == (endpoint, zmq.EVENT_DISCONNECTED)


def test_a_monitor_without_a_free_socket_is_not_begun(monkeypatch):
    begun = []
    monkeypatch.setattr(zmq.Socket, "monitor", lambda *given: begun.append(given[1]))
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 1)
        with zmq.Socket(context, zmq.SUB) as socket, pytest.raises(zmq.ZMQError):
            Monitor(socket)
        assert not begun
