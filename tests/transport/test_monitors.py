"""Events of a monitor: outcomes of handshakes, and ends of connections."""

import pytest
import zmq

from oz.transport.monitors import Monitor


def test_a_monitor_without_a_free_socket_is_not_begun(monkeypatch):
    begun = []
    monkeypatch.setattr(zmq.Socket, "monitor", lambda *given: begun.append(given[1]))
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 1)
        with zmq.Socket(context, zmq.SUB) as socket, pytest.raises(zmq.ZMQError):
            Monitor(socket)
        assert not begun
