"""State of one libzmq SUB that is read through a filter. Its shadows share the state.

`held` has messages that are delivered before the messages of libzmq. libzmq cannot show a message without a read, so a
poll reads and holds it. The message of a cancelled task is held too. When a program receives a held message frame by
frame, `rest` has its other frames. The frames of other messages stay in libzmq, so that a `zmq.Poller` reports them.

An exception inside a receive, such as KeyboardInterrupt, may be raised between two frames of a message. `interrupted`
is set then, and the next receive skips the other frames of that message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from oz.dropin.filter import Filter
from oz.transport.frames import FrameReader, frame_reader
from oz.transport.libzmq import IS_KNOWN, option_reader

_NOBLOCK, _RCVMORE = int(zmq.NOBLOCK), int(zmq.RCVMORE)

_recv: Any = zmq.Socket.recv
_get: Any = zmq.Socket.get


class ReceiveState:
    """Frames that were read and not delivered. A frame is bytes or a `zmq.Frame`.

    Attributes:
        address: address of the libzmq socket; 0 if C code cannot call libzmq.
        dialect: dialect of text given to `subscribe`.
        filter: patterns of the socket.
        answers: answers that the filter remembers.
        rules: rules of the filter.
        sndhwm: SNDHWM as the program set it.
        read_message: reads all frames of a message of libzmq, as bytes. It may be compiled.
        has_more: returns RCVMORE of libzmq.
        rest: next frames of the current message.
        more: whether libzmq has frames of the current message. Not kept while `is_plain`.
        held: messages. They are matched again when they are delivered, so that `unsubscribe` counts at once.
        is_first: whether the last delivered frame began a message. Not kept while `is_plain`.
        interrupted: whether a receive was interrupted.
        error: error that the next receive raises.
        is_ready: whether the next frame is still in libzmq, and is the first of a message.
        is_plain: whether `is_ready`, libzmq's filter suffices, and nothing can be given back.
        is_awaited: whether asyncio receives, so that cancelled receives are given back.
    """

    __slots__ = (
        "address", "answers", "dialect", "error", "filter", "has_more", "held", "interrupted", "is_awaited",
        "is_first", "is_plain", "is_ready", "more", "read_message", "rest", "rules", "sndhwm",
    )  # fmt: skip

    read_message: FrameReader
    has_more: Callable[[zmq.Socket[Any]], int]

    def __init__(self, dialect: str) -> None:
        self.address = 0
        self.dialect = dialect
        self.filter = Filter()
        self.answers = self.filter.answers
        self.rules = self.filter.rules
        self.sndhwm = 0
        self.rest: deque[Any] = deque()
        self.held: deque[list[Any]] = deque()
        self.more = False
        self.is_first = True
        self.interrupted = False
        self.error: Exception | None = None
        self.is_ready = self.is_plain = True
        self.is_awaited = False

    def attach(self, socket: zmq.Socket[Any]) -> None:
        """Create the functions that read from a socket. They keep no reference to the socket."""
        self.address = int(socket.underlying) if IS_KNOWN else 0
        self.read_message = frame_reader(socket)
        self.has_more = option_reader(socket, _RCVMORE)

    def update_state(self) -> None:
        """Update `is_ready` and `is_plain`."""
        self.is_ready = not (self.rest or self.more or self.held or self.interrupted or self.error)
        self.is_plain = self.is_ready and not (self.filter.is_active or self.is_awaited)

    def end_plain(self, socket: zmq.Socket[Any]) -> None:
        """Begin to keep `more`."""
        self.more = bool(_get(socket, _RCVMORE))

    def skip_message(self, socket: zmq.Socket[Any]) -> None:
        """Drop the other frames of the current message."""
        self.rest.clear()
        while self.has_more(socket):
            _recv(socket, _NOBLOCK, False)
        self.more = self.interrupted = False

    def give_back(self, socket: zmq.Socket[Any], frames: list[Any], is_first: bool) -> None:
        """Put back frames, so that the next receive returns them.

        Args:
            socket: socket that they were received from.
            frames: frames of one receive.
            is_first: value of `is_first` after that receive.
        """
        self.rest.extendleft(reversed(frames))
        if is_first:
            if self.more:
                self.rest.extend(read_frames(socket, _NOBLOCK, False))
            self.held.appendleft(list(self.rest))
            self.rest.clear()
            self.more = False
        self.update_state()


def read_frames(socket: zmq.Socket[Any], flags: int, track: bool) -> list[Any]:
    """Read all frames of a message of libzmq as `zmq.Frame`."""
    frames = [_recv(socket, flags, False, track)]
    while frames[-1].more:
        frames.append(_recv(socket, _NOBLOCK, False, track))
    return frames


def convert_frame(frame: Any, copy: bool, track: bool, more: bool) -> Any:
    """Return a frame in the form that a receive asks for.

    Args:
        frame: bytes or a `zmq.Frame`.
        copy: whether to return bytes.
        track: whether the `zmq.Frame` must have a tracker.
        more: RCVMORE of the frame.
    """
    if copy:
        return frame if isinstance(frame, bytes) else frame.bytes
    if isinstance(frame, bytes) or (track and frame.tracker is None):
        frame = zmq.Frame(frame if isinstance(frame, bytes) else frame.bytes, track=track)
        frame.more = more
    return frame
