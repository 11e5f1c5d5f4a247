"""State of one libzmq SUB that is read through a filter. Its shadows share the state.

A message is read whole, also when the program receives it frame by frame. `rest` has the frames of the
current message that the program has not received. `held` has messages that come before those of libzmq,
because libzmq cannot be asked for a message without reading it: a poll found the message, or the task that
waited for it was cancelled.

An exception inside a receive, such as KeyboardInterrupt, may come in the middle of a message. `interrupted`
is set then, and the next receive skips the other frames of that message.

While only prefixes are subscribed to, libzmq's filter suffices, and `recv` leaves frames in libzmq.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import zmq

from oz.dropin.filter import Filter
from oz.transport.frames import FrameReader, frame_reader

_NOBLOCK, _RCVMORE = int(zmq.NOBLOCK), int(zmq.RCVMORE)

_recv: Any = zmq.Socket.recv
_get: Any = zmq.Socket.get


class Reading:
    """Frames that were read and not delivered. A frame is bytes or a `zmq.Frame`.

    Attributes:
        dialect: dialect of text given to `subscribe`.
        filter: patterns of the socket.
        answers: answers that the filter remembers.
        sndhwm: SNDHWM as the program set it.
        read_message: reads all frames of a message of libzmq, as bytes. It may be compiled.
        rest: frames of the current message.
        held: messages. They are matched again when they are delivered, so that `unsubscribe` counts at once.
        is_first: whether the last delivered frame began a message. Not kept while `is_plain`.
        interrupted: whether a receive was interrupted.
        error: error that the next receive raises.
        is_ready: whether the next frame is in libzmq, and begins a message.
        is_plain: whether `is_ready`, libzmq's filter suffices, and nothing can be given back.
        is_awaited: whether asyncio receives, so that cancelled receives are given back.
    """

    __slots__ = (
        "answers", "dialect", "error", "filter", "held", "interrupted", "is_awaited", "is_first", "is_plain",
        "is_ready", "read_message", "rest", "sndhwm",
    )  # fmt: skip

    read_message: FrameReader

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.filter = Filter()
        self.answers = self.filter.answers
        self.sndhwm = 0
        self.rest: deque[Any] = deque()
        self.held: deque[list[Any]] = deque()
        self.is_first = True
        self.interrupted = False
        self.error: Exception | None = None
        self.is_ready = self.is_plain = True
        self.is_awaited = False

    def attach(self, socket: zmq.Socket[Any]) -> None:
        """Make what reads from a socket. It keeps no reference to the socket."""
        self.read_message = frame_reader(socket)

    def settle(self) -> None:
        """Update `is_ready` and `is_plain`."""
        self.is_ready = not (self.rest or self.held or self.interrupted or self.error)
        self.is_plain = self.is_ready and not (self.filter.is_active or self.is_awaited)

    def take_rest(self, socket: zmq.Socket[Any]) -> None:
        """Read the frames that `recv` left in libzmq."""
        while _get(socket, _RCVMORE):
            self.rest.append(_recv(socket, _NOBLOCK, False))

    def skip_interrupted(self, socket: zmq.Socket[Any]) -> None:
        """Drop the frames of the message in which a receive was interrupted."""
        while _get(socket, _RCVMORE):
            _recv(socket, _NOBLOCK, False)
        self.rest.clear()
        self.interrupted = False

    def give_back(self, frames: list[Any], is_first: bool) -> None:
        """Put back frames, so that the next receive returns them.

        Args:
            frames: what a receive returned.
            is_first: value of `is_first` after that receive.
        """
        if is_first:
            self.held.appendleft([*frames, *self.rest])
            self.rest.clear()
        else:
            self.rest.extendleft(reversed(frames))
        self.settle()


def read_frames(socket: zmq.Socket[Any], flags: int, track: bool) -> list[Any]:
    """Read all frames of a message of libzmq as `zmq.Frame`."""
    frames = [_recv(socket, flags, False, track)]
    while frames[-1].more:
        frames.append(_recv(socket, _NOBLOCK, False, track))
    return frames


def as_wanted(frame: Any, copy: bool, track: bool, more: bool) -> Any:
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
