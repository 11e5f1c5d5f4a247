"""`oz.Poller`, a poller that reports a socket only for messages that match a pattern."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from math import ceil
from typing import Any

import zmq

from oz.numbers import check_number
from oz.transport.pollable import Pollable, PollTurn

_POLLIN = int(zmq.POLLIN)


class FilteredSocket:
    """Base class of sockets that drop a message if no pattern matches."""

    def _has_message(self) -> bool:
        """Drop waiting messages that no pattern matches, and return whether a receive would return at once."""
        raise NotImplementedError


class Poller(zmq.Poller):
    """A `zmq.Poller` that reports an `oz.SubSocket` or `oz.Subscriber` as readable only for a message that matches.

    A subscriber is registered in the same way as a socket. It is readable if `receive(timeout=0)` would return a
    message. `poll` also runs the subscriber's handlers. Other sockets and file descriptors work as in `zmq.Poller`.
    """

    def poll(self, timeout: float | None = None) -> list[tuple[Any, int]]:
        """Wait for events, as `zmq.Poller.poll`.

        The poller reads a message to match it, and keeps the message for the next receive of the socket. A poller of
        another class does not report this message. Receive the message before you use the socket with such a poller.
        Poll a subscriber at least once a second, because its publishers wait for acknowledgements.

        Args:
            timeout: longest wait in milliseconds. None or a negative number waits for ever.

        Returns:
            A list of pairs: a registered object, and the mask of its events.

        Raises:
            TypeError: `timeout` is neither a number nor None.
            zmq.ZMQError: a socket is closed, or its context has ended.
            ClosedError: a subscriber is closed.
            OwnershipError: a subscriber was created in another process, before a fork.
        """
        if timeout is not None:
            check_number("timeout", timeout, "a number of milliseconds, or None for ever")
        known = (FilteredSocket, Pollable)
        if not any(isinstance(socket, known) for socket, _ in self.sockets):
            return super().poll(timeout if timeout is None else int(timeout))
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout / 1000
        with ExitStack() as stack:
            turns = {
                socket: stack.enter_context(closing(socket._begin_turn()))
                for socket, _ in self.sockets
                if isinstance(socket, Pollable)
            }
            left: float | None = 0.0
            while True:
                events = self._wait(left, turns)
                if events or (deadline is not None and time.monotonic() >= deadline):
                    return events
                left = None if deadline is None else max(0.0, deadline - time.monotonic())

    def _wait(self, seconds: float | None, turns: dict[Any, PollTurn]) -> list[tuple[Any, int]]:
        """Wait once, for at most `seconds`; drop messages that no pattern matches, and return the events."""
        waits = [] if seconds is None else [seconds]
        polled: list[tuple[Any, int]] = []
        try:
            for socket, flags in self.sockets:
                if (turn := turns.get(socket)) is None:
                    polled.append((socket, flags))
                    continue
                descriptor, at_most = turn.begin_wait()
                if descriptor is not None:
                    polled.append((descriptor, _POLLIN))
                if at_most is not None:
                    waits.append(at_most)
            found = dict(zmq.zmq_poll(polled, ceil(1000 * min(waits)) if waits else -1))
        finally:
            for turn in turns.values():
                turn.end_wait()
        events = []
        for socket, flags in self.sockets:
            if (turn := turns.get(socket)) is not None:
                mask = flags & _POLLIN if turn.has_message() else 0
            else:
                mask = found.get(socket, 0)
                if isinstance(socket, FilteredSocket) and flags & _POLLIN:
                    mask = mask & ~_POLLIN | (_POLLIN if socket._has_message() else 0)
            if mask:
                events.append((socket, mask))
        return events
