"""How tasks wait for one subscriber's messages, and what is done meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

_POLLIN = int(zmq.POLLIN)


class Waiters:
    """The polls that tasks wait for; all of them can be ended, to have the tasks look again.

    libzmq tells of what comes to the socket. It knows nothing of messages that were taken from it and wait in
    line, nor that the subscriber was drained.
    """

    __slots__ = ("_polls",)

    def __init__(self) -> None:
        """Start with none."""
        self._polls: set[asyncio.Future[int]] = set()

    def add(self, poll: asyncio.Future[int]) -> asyncio.Future[int]:
        """Take in a poll, until it is done; give it back."""
        if not poll.done():
            self._polls.add(poll)
            poll.add_done_callback(self._polls.discard)
        return poll

    def wake(self) -> None:
        """End all polls, as if the socket had become readable."""
        for poll in list(self._polls):
            if not poll.done() and not poll.get_loop().is_closed():
                poll.set_result(_POLLIN)


class Clock:
    """Does what is due every so often, as long as there is a reason to; by a timer of the loop that runs."""

    __slots__ = ("_handle", "_loop", "_seconds", "_work")

    def __init__(self, seconds: float, work: Callable[[], bool]) -> None:
        """Do nothing until `start`.

        Args:
            seconds: between two times.
            work: does what is due, and tells whether to go on.
        """
        self._seconds = seconds
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, unless it goes already in this loop."""
        loop = asyncio.get_running_loop()
        if self._handle is None or self._loop is not loop:
            self.stop()
            self._loop = loop
            self._handle = loop.call_later(self._seconds, self._tick)

    def stop(self) -> None:
        """End; `start` begins anew."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _tick(self) -> None:
        self._handle = None
        if self._work():
            self.start()
