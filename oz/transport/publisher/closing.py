"""The end of a publisher: it sends what is left, for a while, and says goodbye."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from math import inf
from typing import Any

import zmq

from oz.numbers import check_wait
from oz.protocol.publisher.records import Records
from oz.transport.attachments import Attachments
from oz.transport.backend import backend_of
from oz.transport.backoff import growing
from oz.transport.calls import Calls
from oz.transport.guard import Guard
from oz.transport.publisher.sender import Sender
from oz.transport.publisher.sink import SendingParts
from oz.transport.publisher.untaken import Untaken, take_up
from oz.transport.socket import CLOSE_TIMEOUT

_FAREWELL = 0.02
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005

_REMEMBERED = 10.0
"""Seconds for which it is remembered that a connection was left out, and may be still."""

_LONGEST_INSISTENCE = 0.5
"""Seconds between two goodbyes at most."""


def pauses() -> Iterator[float]:
    """Return seconds to wait for room, where the sign of it cannot be waited for.

    libzmq tells of room by the socket's file descriptor, once, and to the next who uses the socket. Who
    closes holds the guard, and uses it. docs/decisions/032-no-wait-is-cut-into-slices.md
    """
    return growing(_FIRST_PAUSE, _LONGEST_PAUSE)


def seconds_to_close(timeout: float | None) -> float:
    """Return how long closing may take; infinite where it has no end."""
    check_wait("timeout", timeout)
    return CLOSE_TIMEOUT if timeout is None else timeout


class PublisherClosing:
    """The end of a publisher. A thread or a task waits for the time that `leave` returns.

    Attributes:
        calls: what looks after the connections of a socket with keys; None without.
        said_goodbye: subscribers were told that nothing more comes, or are being told.
    """

    __slots__ = (
        "_attachments",
        "_dispatch",
        "_guard",
        "_monotonic",
        "_records",
        "_router",
        "_sender",
        "_sleep",
        "_socket",
        "calls",
        "said_goodbye",
    )

    def __init__(
        self,
        socket: zmq.Socket[Any],
        guard: Guard,
        attachments: Attachments,
        parts: SendingParts,
        sender: Sender,
    ) -> None:
        """Put together what a publisher has.

        Args:
            socket: of the publisher.
            guard: of the publisher.
            attachments: where it is bound.
            parts: what sends to those who ask.
            sender: what is published passes through.
        """
        self._socket = socket
        backend = backend_of(socket)
        self._monotonic, self._sleep = backend.monotonic, backend.sleep
        self._guard = guard
        self._attachments = attachments
        self.calls: Calls | None = None
        self._router = parts.router
        self._dispatch = parts.dispatch
        self._records = parts.records
        self._sender = sender
        self.said_goodbye = False

    def close_socket(self, timeout: float | None, *, waits: bool = True) -> None:
        """Close the socket but not its context.

        Args:
            timeout: seconds; infinite has no end. None leaves LINGER as it is.
            waits: whether what finds no room is waited for. What there is room for goes in any case.
        """
        if self._socket.closed or self._guard.is_foreign:
            # The child of a fork leaves alone what belongs to its parent, also at the end of a `with`.
            return
        seconds, started = seconds_to_close(timeout), self._monotonic()
        # In one go: what others publish behind the goodbye would never come, and look like a loss.
        with self._guard:
            self._guard.end_interrupted()
            self._send_rest(seconds if waits else 0.0)
            self._sender.accumulator.end()
            waits_for_readers = seconds > 0 and backend_of(self._socket).has_handle
            untaken = Untaken(self._attachments.bound) if waits_for_readers else None
            if untaken is not None and untaken.may_lack_room:
                take_up(self._socket.context)
            # One time for both: what oz holds, and what ZeroMQ does.
            self._close(None if timeout is None else max(0.0, seconds - (self._monotonic() - started)))
            # A message that nobody wants would not touch the socket, and so not find it closed.
            self._sender.routes.close()
        if untaken is not None:
            untaken.wait_aside(seconds if seconds < inf else CLOSE_TIMEOUT)

    def _close(self, timeout: float | None) -> None:
        """Close the socket, which a signal handler may have closed meanwhile."""
        if self._socket.closed:
            return
        if self.calls is not None:
            self.calls.close(self._socket)
        self._attachments.remove_files()
        self._socket.close(None if timeout is None else -1 if timeout == inf else round(timeout * 1000))

    def _send_rest(self, seconds: float) -> None:
        """Send what has not gone out yet, for so long at most, and say goodbye; with the guard held."""
        for pause in self.leave(seconds):
            self._sleep(pause)

    def leave(self, seconds: float) -> Iterator[float]:
        """Send what has not gone out yet, for so long at most, and say goodbye; give the seconds to wait."""
        deadline, waits = self._monotonic() + seconds, pauses()
        self._sender.accumulator.begin_end()
        while not self.send_what_fits() and self._monotonic() < deadline:
            yield next(waits)
        if not self._begin_goodbye():
            if self.said_goodbye:
                # It was cut short.
                self._say_goodbye()
            return
        records = self._records
        yield from self._part(deadline)
        if self._monotonic() - records.left_out_at <= _REMEMBERED:
            yield from self._insist(records, min(deadline, self._monotonic() + CLOSE_TIMEOUT))
        with self._guard, suppress(zmq.ZMQError):
            if not self._socket.closed:
                records.part_with_the_rest()
        # A moment for ZeroMQ to see peers leave that are sent this. Without it 1 close in 16 took all its
        # time, before listeners lingered for nobody; see Attachments.bind.
        yield _FAREWELL
        self._hear()

    def _begin_goodbye(self) -> bool:
        """Tell whether there is anybody to take leave of, and it was not done already."""
        with self._guard:
            if self._socket.closed or self.said_goodbye or not self._router.streams:
                return False
            self.said_goodbye = True
            return True

    def _say_goodbye(self) -> bool:
        """Tell streams that nothing more comes, as far as there is room; tell whether that was all."""
        with self._guard:
            self._hear()
            try:
                # Behind what others have added since; a raw send is behind no check.
                self._sender.accumulator.flush(self._socket)
                return self._socket.closed or self._records.say_goodbye()
            except zmq.ZMQError:
                # The context was ended under the socket.
                return True

    def _part(self, deadline: float) -> Iterator[float]:
        """Say goodbye on every stream, as soon as there is room."""
        waits = pauses()
        while not self._say_goodbye() and self._monotonic() < deadline:
            yield next(waits)

    def _insist(self, records: Records, deadline: float) -> Iterator[float]:
        """Say goodbye again and again, for those who may have been left out when it was said.

        libzmq gives no sign of whom it leaves out, nor for how long. Whoever was told already passes over it.
        """
        pause = _FAREWELL
        while self._monotonic() < deadline and not self._socket.closed and self._router.streams:
            yield min(pause, max(0.0, deadline - self._monotonic()))
            pause = min(2 * pause, _LONGEST_INSISTENCE)
            records.part_again()
            yield from self._part(deadline)

    def _hear(self) -> None:
        # An error: the context was ended under the socket.
        with suppress(zmq.ZMQError):
            self._sender.listen()

    def send_what_fits(self) -> bool:
        """Send what has not gone out yet, as far as there is room; tell whether that was all."""
        with self._guard:
            if self._socket.closed:
                return True
            try:
                self._sender.accumulator.flush(self._socket)
                self._guard.undivided(self._dispatch.retry)
            except zmq.ZMQError:
                # The context was ended under the socket: nothing can be sent any more.
                return True
            return not self._dispatch.full
