"""A signal handler that raises while there is no room: nothing takes the place of what it raised."""

import pytest
import zmq

import oz
from oz.transport import frames
from oz.transport.backend import PYZMQ
from support.backends import call_instead
from support.waiting import DEADLINE


class Interruption:
    """Once it is armed, the first send finds no room and is interrupted, and all others find no room."""

    def __init__(self):
        self.is_armed = False
        self.calls = []

    def send(self, socket, frame, *how):
        if not self.is_armed:
            return PYZMQ.send(socket, frame, *how)
        self.calls.append(frame)
        raise KeyboardInterrupt if len(self.calls) == 1 else zmq.Again


@pytest.fixture
def interruption(monkeypatch):
    made = Interruption()
    call_instead(monkeypatch, send=made.send)
    return made


@pytest.mark.parametrize("sent", [[b"a"], [b"a", b"b"], [b"a", b"b", b"c"]])
def test_an_interrupt_is_not_taken_for_a_full_queue(interruption, sent):
    interruption.is_armed = True
    with zmq.Context() as context, context.socket(zmq.PUB) as socket, pytest.raises(KeyboardInterrupt):
        frames.send_frames(interruption.send, socket, sent, zmq.NOBLOCK)
    assert interruption.calls


@pytest.mark.parametrize("payload", [b"x", [b"x", b"y"]])
def test_a_publisher_that_waits_for_room_can_be_interrupted(interruption, payload):
    with (
        zmq.Context() as context,
        context.socket(zmq.SUB) as sub,
        oz.Publisher("inproc://interrupted", on_full="block", full_timeout=5, context=context) as pub,
    ):
        sub.subscribe(b"")
        sub.connect("inproc://interrupted")
        pub.wait_for_subscribers(timeout=DEADLINE)
        interruption.is_armed = True
        with pytest.raises(KeyboardInterrupt):
            pub.publish("a", payload)
        interruption.is_armed = False
