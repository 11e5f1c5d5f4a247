"""Poll of a subscriber: a wait for its sockets and for a descriptor that other threads use to end the wait."""

from __future__ import annotations

import selectors
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from oz.system import POLLIN, make_poll
from oz.system import Poll as SystemPoll
from oz.transport.wakeups import WakeUp


class Poll:
    """Descriptors that a subscriber polls.

    Attributes:
        is_polling: whether a thread polls the descriptors now.
        is_full: whether a queue is full. Then the waiting thread waits only for `ring`, because no socket may be read.
    """

    def __init__(self) -> None:
        """Create the descriptor of `ring`."""
        self._wake_up = WakeUp()
        self._selector, self._alone = selectors.DefaultSelector(), selectors.DefaultSelector()
        for selector in (self._selector, self._alone):
            selector.register(self._wake_up.fileno(), selectors.EVENT_READ)
        self.is_polling = self.is_full = False
        self._pair: tuple[int, SystemPoll] | None = None

    def wait_alone(self, descriptor: int, seconds: float) -> None:
        """Wait for one descriptor or `ring`, with less overhead than `wait`.

        Args:
            descriptor: file descriptor of a socket.
            seconds: longest wait, in seconds.
        """
        if self._pair is None or self._pair[0] != descriptor:
            poll = make_poll()
            for polled in (descriptor, self._wake_up.fileno()):
                poll.register(polled, POLLIN)
            self._pair = descriptor, poll
        self._pair[1].poll(seconds * 1000)

    @property
    def wake_up(self) -> int:
        """Descriptor that `ring` makes readable."""
        return self._wake_up.fileno()

    def add(self, descriptors: Iterable[int]) -> None:
        """Add descriptors to the descriptors that `wait` polls."""
        for descriptor in descriptors:
            self._selector.register(descriptor, selectors.EVENT_READ)

    def remove(self, descriptors: Iterable[int]) -> None:
        """Remove descriptors. Call this before they are closed."""
        for descriptor in descriptors:
            with suppress(KeyError, ValueError):
                self._selector.unregister(descriptor)

    def fileno(self) -> int:
        """Return a descriptor that is readable while any polled descriptor is readable."""
        selector: Any = self._selector
        return int(selector.fileno())

    def descriptor(self, *, is_full: bool) -> int:
        """Return a descriptor with which another poller can wait in place of `wait`.

        Args:
            is_full: whether to wait for `ring` only, because a queue is full.
        """
        self.is_full = is_full
        selector: Any = self._alone if is_full else self._selector
        return int(selector.fileno())

    def wait(self, seconds: float | None, *, is_full: bool) -> None:
        """Wait for a descriptor or `ring`.

        Args:
            seconds: longest wait, in seconds; None waits for ever.
            is_full: whether to wait for `ring` only, because a queue is full.
        """
        self.is_full = is_full
        try:
            (self._alone if is_full else self._selector).select(seconds)
        finally:
            self.is_full = False

    def ring(self) -> None:
        """End the current wait. If no thread waits, the next wait ends at once."""
        self._wake_up.wake()

    def silence(self) -> None:
        """Forget earlier calls of `ring`."""
        self._wake_up.clear()

    def close(self) -> None:
        """Close the descriptors."""
        self._selector.close()
        self._alone.close()
        self._wake_up.close()
