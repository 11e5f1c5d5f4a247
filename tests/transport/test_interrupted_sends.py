"""A signal handler that raises while there is no room: nothing takes the place of what it raised."""

import pytest
import zmq

import oz
from oz.transport import frames
from oz.transport.publisher import sink
from support.waiting import DEADLINE


@pytest.fixture
def interrupted(monkeypatch):
    """Have the first send find no room and be interrupted, and all others find no room."""
    calls = []

    def send(_socket, frame, _flags=0, *_):
        calls.append(frame)
        raise KeyboardInterrupt if len(calls) == 1 else zmq.Again

    monkeypatch.setattr(frames, "_send", send)
    monkeypatch.setattr(sink, "_send", send)
    return calls


@pytest.mark.parametrize("sent", [[b"a"], [b"a", b"b"], [b"a", b"b", b"c"]])
def test_an_interrupt_is_not_taken_for_a_full_queue(interrupted, sent):
    with pytest.raises(KeyboardInterrupt):
        frames.send_frames(None, sent, zmq.NOBLOCK)


@pytest.mark.parametrize("payload", [b"x", [b"x", b"y"]])
def test_a_publisher_that_waits_for_room_can_be_interrupted(request, payload):
    with (
        zmq.Context() as context,
        context.socket(zmq.SUB) as sub,
        oz.Publisher("inproc://interrupted", on_full="block", full_timeout=5, context=context) as pub,
    ):
        sub.subscribe(b"")
        sub.connect("inproc://interrupted")
        pub.wait_for_subscribers(timeout=DEADLINE)
        request.getfixturevalue("interrupted")
        with pytest.raises(KeyboardInterrupt):
            pub.publish("a", payload)
