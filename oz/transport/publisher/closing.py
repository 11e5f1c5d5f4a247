"""The end of a publisher: it sends what is left, for a while, and says goodbye."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from math import inf

import zmq

from oz.protocol.publisher.router import Router
from oz.transport.ending import CLOSE_TIMEOUT
from oz.transport.multicast.sender import MulticastDispatch
from oz.transport.publisher.dispatch import Dispatch
from oz.transport.publisher.sender import Sender
from oz.transport.publisher.untaken import Untaken
from oz.transport.socket import BaseSocket

_FAREWELL = 0.02
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005

_REMEMBERED = 10.0
"""Seconds for which it is remembered that a connection was left out, and may be still."""

_LONGEST_INSISTENCE = 0.5
"""Seconds between two goodbyes at most."""


def pauses() -> Iterator[float]:
    """Return seconds to wait: libzmq gives no sign when a subscriber has room again, so one looks again."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


class PublisherClosing(BaseSocket):
    """The end of a publisher. A thread or a task waits for the time that `_leave` returns."""

    _sender: Sender
    _router: Router
    _dispatch: Dispatch
    _said_goodbye: bool = False
    _untaken: Untaken | None = None

    def _listen(self) -> bool:
        """Take in the subscriptions that have arrived."""
        raise NotImplementedError

    @staticmethod
    def _seconds_to_close(linger: int | None, timeout: float | None) -> float:
        """Say how long closing may take: linger is in milliseconds, and has no end below 0."""
        if linger is not None:
            return inf if linger < 0 else linger / 1000
        return CLOSE_TIMEOUT if timeout is None else timeout

    def _close_socket(self, linger: int | None, timeout: float | None) -> bool:
        if self.closed or self._guard.is_foreign:
            return super()._close_socket(linger, timeout)
        seconds = self._seconds_to_close(linger, timeout)
        started = time.monotonic()
        # In one go: what others publish behind the goodbye would never come, and look like a loss.
        with self._guard:
            self._sender.accumulator.cut_short()
            self._send_rest(seconds)
            self._sender.accumulator.end()
            if (linger is not None or timeout is not None) and seconds < inf:
                # One time for both: what oz holds, and what ZeroMQ does.
                linger, timeout = None, max(0.0, seconds - (time.monotonic() - started))
            # Connections that others may share a context with cannot be told from theirs.
            joined = self._endpoints[: self._connections] if self._own_context else ()
            untaken = Untaken(self._endpoints[self._connections :], joined) if seconds > 0 else None
            is_own = super()._close_socket(linger, timeout)
            # A message that nobody wants would not touch the socket, and so not find it closed.
            self._sender.routes.forget()
        if is_own:
            self._untaken = untaken
        elif untaken is not None:
            untaken.wait_aside(min(seconds, CLOSE_TIMEOUT))
        return is_own

    def _end_context(
        self, timeout: float, closed_at: float | None = None, given_up: threading.Event | None = None
    ) -> None:
        started = time.monotonic() if closed_at is None else closed_at
        untaken, self._untaken = self._untaken, None
        try:
            super()._end_context(timeout, closed_at, given_up)
        except BaseException:
            # Whoever ends the wait, by a signal for one, wants to go.
            if untaken is not None:
                untaken.close()
            raise
        if untaken is not None and timeout == inf:
            untaken.wait(inf, given_up)
        elif untaken is not None:
            untaken.wait_aside(max(0.0, timeout - (time.monotonic() - started)))

    def _send_rest(self, seconds: float) -> None:
        """Send what has not gone out yet, for so long at most, and say goodbye; with the guard held."""
        for pause in self._leave(seconds):
            time.sleep(pause)

    def _leave(self, seconds: float) -> Iterator[float]:
        """Send what has not gone out yet, for so long at most, and say goodbye; give the seconds to wait."""
        deadline, waits = time.monotonic() + seconds, pauses()
        self._sender.accumulator.begin_end()
        while not self._send_what_fits() and time.monotonic() < deadline:
            yield next(waits)
        if not self._begin_goodbye():
            if self._said_goodbye:
                # It was cut short.
                self._say_goodbye()
            return
        if isinstance(self._dispatch, MulticastDispatch):
            self._say_goodbye()
            yield from self._dispatch.farewell(self, deadline)
            return
        yield from self._part(deadline)
        if time.monotonic() - self._dispatch.left_out_at <= _REMEMBERED:
            yield from self._insist(min(deadline, time.monotonic() + CLOSE_TIMEOUT))
        with self._guard, suppress(zmq.ZMQError):
            if not self.closed:
                self._dispatch.part_with_the_rest(self)
        # A moment for ZeroMQ to see peers leave that are sent this. Without it 1 close in 16 took all its
        # time, before listeners lingered for nobody; see BaseSocket.bind.
        yield _FAREWELL
        self._hear()

    def _begin_goodbye(self) -> bool:
        """Tell whether there is anybody to take leave of, and it was not done already."""
        with self._guard:
            if self.closed or self._said_goodbye or not self._router.streams:
                return False
            self._said_goodbye = True
            return True

    def _say_goodbye(self) -> bool:
        """Tell streams that nothing more comes, as far as there is room; tell whether that was all."""
        with self._guard:
            self._hear()
            try:
                # Behind what others have added since; a raw send is behind no check.
                self._sender.accumulator.flush(self)
                return self.closed or self._dispatch.say_goodbye(self)
            except zmq.ZMQError:
                # The context was ended under the socket.
                return True

    def _part(self, deadline: float) -> Iterator[float]:
        """Say goodbye on every stream, as soon as there is room."""
        waits = pauses()
        while not self._say_goodbye() and time.monotonic() < deadline:
            yield next(waits)

    def _insist(self, deadline: float) -> Iterator[float]:
        """Say goodbye again and again, for those who may have been left out when it was said.

        libzmq gives no sign of whom it leaves out, nor for how long. Whoever was told already passes over it.
        """
        pause = _FAREWELL
        while time.monotonic() < deadline and not self.closed and self._router.streams:
            yield min(pause, max(0.0, deadline - time.monotonic()))
            pause = min(2 * pause, _LONGEST_INSISTENCE)
            self._dispatch.part_again()
            yield from self._part(deadline)

    def _hear(self) -> None:
        # An error: the context was ended under the socket.
        with suppress(zmq.ZMQError):
            self._listen()

    def _send_what_fits(self) -> bool:
        """Send what has not gone out yet, as far as there is room; tell whether that was all."""
        with self._guard:
            if self.closed:
                return True
            try:
                self._sender.accumulator.flush(self)
                self._dispatch.retry(self)
            except zmq.ZMQError:
                # The context was ended under the socket: nothing can be sent any more.
                return True
            return not self._dispatch.full
