"""State of one libzmq SUB that is read through a filter. Its shadows share the state.

libzmq has no way to look at a message without reading it, so `held` keeps frames that were read and are not
delivered yet: the first frame of a message that a poll found, or a message whose `await` was cancelled. They
come before the frames that libzmq has.

An exception inside a receive, such as KeyboardInterrupt, may come in the middle of a message. `interrupted` is
set then, and the next receive skips the rest of that message.
"""

from __future__ import annotations

from collections import deque

import zmq

from oz.dropin.filter import Filter


class Reading:
    """Frames read and not delivered, and the place in the current message.

    Attributes:
        dialect: dialect of text given to `subscribe`.
        filter: patterns of the socket.
        sndhwm: SNDHWM as the program set it.
        is_plain: whether a receive may ask libzmq at once: the filter is not active, nothing is held and no
            receive was interrupted.
        held: frames that come before those of libzmq. They are matched again when they are delivered, so that
            `unsubscribe` counts at once.
        more: whether frames follow the last delivered one in its message. Not kept while `is_plain`.
        is_first: whether the last delivered frame was the first of its message. Not kept while `is_plain`.
        interrupted: whether the rest of a message is to be skipped.
        error: error that the next receive raises.
    """

    __slots__ = (
        "dialect", "error", "filter", "held", "interrupted", "is_first", "is_plain", "more", "sndhwm",
    )  # fmt: skip

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.filter = Filter()
        self.sndhwm = 0
        self.is_plain = True
        self.held: deque[zmq.Frame] = deque()
        self.more = False
        self.is_first = True
        self.interrupted = False
        self.error: Exception | None = None

    def give_back(self, frames: list[zmq.Frame]) -> None:
        """Put delivered frames before all others."""
        self.more = not self.is_first
        self.held.extendleft(reversed(frames))
        self.is_plain = False
