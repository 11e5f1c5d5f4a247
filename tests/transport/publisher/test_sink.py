"""How frames go into an XPUB: what is short is sent without giving up the interpreter's lock."""

from dataclasses import replace

import pytest
import zmq

from oz.protocol.publisher.backlog import Backlog
from oz.transport.backend import PYZMQ
from oz.transport.publisher.sink import XpubSink


class Socket:
    """A socket that takes everything, and says by which function each message came."""

    def __init__(self):
        self.calls = []
        self.backend = replace(PYZMQ, send=self.send, send_whole=self.send_whole, watched=None)

    def send(self, _, frame, flags=0, copy=True):
        self.calls.append(("send", len(bytes(frame))))

    def send_whole(self, _, frames, flags):
        assert flags == zmq.NOBLOCK
        self.calls.append(("send_whole", sum(map(len, frames))))


@pytest.fixture
def socket():
    return Socket()


@pytest.mark.parametrize("size", [10, 511, 512, 8_192])
@pytest.mark.parametrize("parts", [1, 2])
def test_what_is_short_goes_in_one_call_that_no_other_thread_comes_into(socket, size, parts):
    frames = (bytes(size),) if parts == 1 else (b"12", bytes(size - 2))
    assert XpubSink(socket, drops=True).try_send(frames, Backlog(1e9))
    assert socket.calls == [("send_whole", size)]


def test_so_does_one_frame_the_short_way(socket):
    assert XpubSink(socket, drops=True).try_send_one(b"1234")
    assert socket.calls == [("send_whole", 4)]


def test_others_get_their_turn_while_a_full_batch_is_sent(socket):
    assert XpubSink(socket, drops=True).try_send((bytes(8_193),), Backlog(1e9))
    assert socket.calls == [("send", 8_193)]


def test_there_is_another_way_where_only_frame_after_frame_can_be_sent(socket):
    socket.backend = replace(socket.backend, send_whole=None)
    sink = XpubSink(socket, drops=True)
    assert sink.try_send((b"1", b"23"), Backlog(1e9))
    assert sink.try_send_one(b"4567")
    assert socket.calls == [("send", 1), ("send", 2), ("send", 4)]
