"""State of one libzmq SUB whose messages are matched with patterns. A SUB and its shadows share the state.

`held` contains messages that were read from libzmq and not delivered. A poll must read a message to match it, and holds
the message for the next receive. If a task is cancelled after a read, the message that it read is held too. Held
messages are delivered before the messages in libzmq. While a program receives a held message frame by frame, `rest`
contains the remaining frames. If a message is not held, its remaining frames stay in libzmq, so that a `zmq.Poller`
reports them.

If an exception such as KeyboardInterrupt is raised between two frames of a message, `interrupted` is set. The next
receive then skips the remaining frames of the message.
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
    """Patterns of a SUB, and frames that were read but not delivered yet. A frame is bytes or a `zmq.Frame`.

    Attributes:
        address: memory address of the libzmq socket; 0 if C code cannot call libzmq.
        dialect: dialect of a pattern that is text without a dialect name.
        filter: patterns of the socket.
        answers: cached answers of the filter; see `Filter.answers`.
        rules: rules of the filter; see `Filter.rules`.
        sndhwm: value of the option SNDHWM that the program has set.
        read_message: function that reads all frames of a message from libzmq, as bytes.
        has_more: function that returns libzmq's option RCVMORE.
        rest: frames of the current message that were read but not delivered.
        more: whether libzmq has more frames of the current message. The value is not updated while `is_plain` is
            true.
        held: whole messages that were read but not delivered. A held message is matched again at its delivery,
            because the program may have called `unsubscribe`.
        is_first: whether the last delivered frame was the first of its message. The value is not updated while
            `is_plain` is true.
        interrupted: whether an exception has interrupted a receive in the middle of a message.
        error: error that the next receive raises, or None.
        is_ready: whether the next frame is the first frame of a message, and is still in libzmq.
        is_plain: whether a receive can call pyzmq directly: `is_ready` is true, all patterns are prefixes, and no
            asyncio task receives.
        is_awaited: whether asyncio tasks receive. After the cancellation of a task, its message is given back.
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
        """Create the functions that read from a socket. The functions keep no reference to the socket."""
        self.address = int(socket.underlying) if IS_KNOWN else 0
        self.read_message = frame_reader(socket)
        self.has_more = option_reader(socket, _RCVMORE)

    def update_state(self) -> None:
        """Compute `is_ready` and `is_plain` from the other attributes."""
        self.is_ready = not (self.rest or self.more or self.held or self.interrupted or self.error)
        self.is_plain = self.is_ready and not (self.filter.is_active or self.is_awaited)

    def end_plain(self, socket: zmq.Socket[Any]) -> None:
        """Set `more`, which is not updated while `is_plain` is true."""
        self.more = bool(_get(socket, _RCVMORE))

    def skip_message(self, socket: zmq.Socket[Any]) -> None:
        """Drop the remaining frames of the current message."""
        self.rest.clear()
        while self.has_more(socket):
            _recv(socket, _NOBLOCK, False)
        self.more = self.interrupted = False

    def give_back(self, socket: zmq.Socket[Any], frames: list[Any], is_first: bool) -> None:
        """Put the frames of a receive back, so that the next receive returns them.

        Args:
            socket: socket from which the frames were received.
            frames: frames that one receive has returned.
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
    """Read all frames of the next message in libzmq as `zmq.Frame` objects."""
    frames = [_recv(socket, flags, False, track)]
    while frames[-1].more:
        frames.append(_recv(socket, _NOBLOCK, False, track))
    return frames


def convert_frame(frame: Any, copy: bool, track: bool, more: bool) -> Any:
    """Return a frame in the form that the arguments of a receive require.

    Args:
        frame: frame as bytes or as a `zmq.Frame`.
        copy: whether to return bytes.
        track: whether a returned `zmq.Frame` must have a message tracker.
        more: whether more frames of the message follow.
    """
    if copy:
        return frame if isinstance(frame, bytes) else frame.bytes
    if isinstance(frame, bytes) or (track and frame.tracker is None):
        frame = zmq.Frame(frame if isinstance(frame, bytes) else frame.bytes, track=track)
        frame.more = more
    return frame
