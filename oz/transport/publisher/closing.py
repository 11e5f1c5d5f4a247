"""The end of a publisher: it sends what is left, for a while, and says goodbye."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from typing import Any

import zmq

from oz.logs import peer_logger
from oz.numbers import check_wait
from oz.protocol.backoff import growing
from oz.protocol.publisher.accounts import Peer
from oz.protocol.publisher.records import Records
from oz.transport.attachments import Attachments
from oz.transport.backend import backend_of
from oz.transport.calls import Calls
from oz.transport.endpoints import as_text
from oz.transport.guard import Guard
from oz.transport.monitors import Monitor
from oz.transport.publisher.sender import Sender
from oz.transport.publisher.sink import SendingParts
from oz.transport.publisher.untaken import Untaken, is_unwritten, kept, take_up
from oz.transport.socket import CLOSE_TIMEOUT, GivingUp, end_context

_log = peer_logger("oz.socket")

_FAREWELL = 0.02
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005

_LONGEST_LOOK = 0.05
"""Seconds between two looks at what is written to an endpoint that is left."""

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


def seconds_to_close(linger: int | None, timeout: float | None) -> float:
    """Say how long closing may take: linger is in milliseconds, and has no end below 0."""
    if linger is not None:
        return inf if linger < 0 else linger / 1000
    check_wait("timeout", timeout)
    return CLOSE_TIMEOUT if timeout is None else timeout


class PublisherClosing:
    """The end of a publisher. A thread or a task waits for the time that `leave` returns.

    Attributes:
        calls: what looks after the connections of a socket with keys; None without.
        peers: gives the connections that have asked for something, where ZeroMQ tells them apart.
        said_goodbye: subscribers were told that nothing more comes, or are being told.
    """

    __slots__ = (
        "_attachments",
        "_dispatch",
        "_guard",
        "_monitor",
        "_monotonic",
        "_records",
        "_router",
        "_sender",
        "_sleep",
        "_socket",
        "_untaken",
        "calls",
        "peers",
        "said_goodbye",
    )

    def __init__(
        self,
        socket: zmq.Socket[Any],
        guard: Guard,
        attachments: Attachments,
        monitor: Monitor,
        parts: SendingParts,
        sender: Sender,
    ) -> None:
        """Put together what a publisher has.

        Args:
            socket: of the publisher.
            guard: of the publisher.
            attachments: where it is bound and connected to.
            monitor: of the socket.
            parts: what sends to those who ask.
            sender: what is published passes through.
        """
        self._socket = socket
        backend = backend_of(socket)
        self._monotonic, self._sleep = backend.monotonic, backend.sleep
        self._guard = guard
        self._attachments = attachments
        self._monitor = monitor
        self.calls: Calls | None = None
        self.peers: Callable[[], Iterable[Peer]] = tuple
        self._router = parts.router
        self._dispatch = parts.dispatch
        self._records = parts.records
        self._sender = sender
        self._untaken: Untaken | None = None
        self.said_goodbye = False

    def close_socket(self, linger: int | None, timeout: float | None, *, waits: bool = True) -> bool:
        """Close the socket but not its context; tell whether the context is still to be ended.

        Args:
            linger: milliseconds; below 0 is for ever.
            timeout: the same in seconds.
            waits: whether what finds no room is waited for. What there is room for goes in any case.
        """
        if self._socket.closed or self._guard.is_foreign:
            # The child of a fork leaves alone what belongs to its parent, also at the end of a `with`.
            return False
        seconds = seconds_to_close(linger, timeout)
        started = self._monotonic()
        attachments, is_own = self._attachments, self._attachments.own_context
        # In one go: what others publish behind the goodbye would never come, and look like a loss.
        with self._guard:
            self._guard.end_interrupted()
            self._send_rest(seconds if waits else 0.0)
            self._sender.accumulator.end()
            if (linger is not None or timeout is not None) and seconds < inf:
                # One time for both: what oz holds, and what ZeroMQ does.
                linger, timeout = None, max(0.0, seconds - (self._monotonic() - started))
            joined = attachments.endpoints[: attachments.connections]
            has_handle = backend_of(self._socket).has_handle
            waits_for_readers = seconds > 0 and has_handle
            untaken = Untaken(attachments.bound, joined, own=self._own()) if waits_for_readers else None
            if untaken is not None and untaken.may_lack_room:
                take_up(self._socket.context)
            has_closed = self._close(linger, timeout)
            # A message that nobody wants would not touch the socket, and so not find it closed.
            self._sender.routes.close()
        if has_closed and is_own:
            self._untaken = untaken
        elif untaken is not None:
            untaken.wait_aside(seconds if seconds < inf else CLOSE_TIMEOUT)
        return has_closed and is_own

    def _close(self, linger: int | None, timeout: float | None) -> bool:
        """Close the socket; tell whether it was still open. A signal handler may have closed it meanwhile."""
        if linger is None and timeout is not None:
            linger = -1 if timeout == inf else round(timeout * 1000)
        elif linger is None and self._attachments.own_context:
            linger = round(CLOSE_TIMEOUT * 1000)
        if self._socket.closed:
            return False
        # Not any monitor: libzmq tells it, and waits for ever if nobody is there any more.
        self._monitor.end()
        if self.calls is not None:
            self.calls.close(self._socket)
        self._attachments.remove_files()
        self._socket.close(linger)
        return True

    @contextmanager
    def ending_endpoint(self, addr: Any, seconds: float) -> Iterator[None]:
        """Have an endpoint left once what was published is written, and keep its connections after that.

        Args:
            addr: which; it is left inside of this.
            seconds: for so long at most, and for 5 s after that, until it was read.
        """
        endpoint, attachments = as_text(addr), self._attachments
        if self._socket.closed or endpoint not in attachments.endpoints:
            yield
            return
        bound = [one for one in attachments.bound if one == endpoint]
        joined = [one for one in attachments.endpoints[: attachments.connections] if one == endpoint]
        deadline, waits = self._monotonic() + seconds, growing(_FIRST_PAUSE, _LONGEST_LOOK)
        while True:
            # In one go: what others publish in between would be lost.
            with self._guard:
                is_over = self._monotonic() >= deadline
                if self._is_written(bound, joined) or is_over:
                    with kept(CLOSE_TIMEOUT, bound=bound, connected=joined, own=self._own()):
                        yield
                    break
            self._sleep(next(waits))
        if is_over:
            text = "left %s, and not all was written after %g s: what subscribers have not got is lost"
            _log.warning(text, endpoint, seconds)

    def _is_written(self, bound: Sequence[str], joined: Sequence[str]) -> bool:
        """Tell whether all that was published is written to an endpoint, as far as anybody knows."""
        has_all = self.send_what_fits()
        if not backend_of(self._socket).has_handle:
            return True
        ends = Untaken(bound, joined, own=self._own())
        try:
            return has_all and not is_unwritten(ends, self._socket.context)
        finally:
            ends.close()

    def _own(self) -> set[tuple[int, int | None]] | None:
        """Return what tells its connections from others to the same places; None where there are none."""
        if self._attachments.own_context:
            return None
        return {(one.descriptor, one.inode) for one in self.peers()}

    def end_context(
        self, timeout: float, closed_at: float | None = None, given_up: GivingUp | None = None
    ) -> None:
        """End the context, and wait until all is sent or the time is over; see `ending.end_context`."""
        started = self._monotonic() if closed_at is None else closed_at
        untaken = self._ended_context(timeout, closed_at, given_up)
        if untaken is not None and timeout == inf:
            untaken.wait(inf, given_up)
        elif untaken is not None:
            untaken.wait_aside(max(0.0, timeout - (self._monotonic() - started)))

    def _ended_context(
        self, timeout: float, closed_at: float | None, given_up: GivingUp | None
    ) -> Untaken | None:
        """End the context; give the connections that others may still read from."""
        untaken, self._untaken = self._untaken, None
        try:
            end_context(self._socket.context, timeout, closed_at, given_up)
        except BaseException:
            # Whoever ends the wait, by a signal for one, wants to go.
            if untaken is not None:
                untaken.close()
            raise
        if untaken is not None and self._socket.context.closed:
            untaken.leave_to_others()
        return untaken

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
