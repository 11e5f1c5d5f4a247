"""Where the messages of a subscription without a handler wait for whoever receives them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from oz.errors import ClosedError, Timeout
from oz.message import Message
from oz.protocol.lanes import Lanes
from oz.transport.guard import Guard


class Mailbox:
    """A queue of messages for one or several threads that receive."""

    __slots__ = ("_arrived", "_dropped", "_is_closed", "_lane", "_lanes")

    def __init__(self, lanes: Lanes, dropped: Callable[[int, Message], None]) -> None:
        """Start empty.

        Args:
            lanes: its own, with one lane.
            dropped: is called with how many messages were let go, and the message that came.
        """
        self._arrived = threading.Condition(Guard())  # type: ignore[arg-type]
        lanes.lock = self._arrived
        self._lanes = lanes
        self._lane = lanes.lanes[0]
        self._dropped = dropped
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return len(self._lanes)

    @property
    def dropped(self) -> int:
        """Messages that were let go because too many waited."""
        return self._lanes.dropped

    @property
    def handled(self) -> int:
        """Messages that were received."""
        return self._lane.handled

    failed = 0

    def put(self, message: Message) -> None:
        """Take a message in."""
        with self._arrived:
            _, dropped = self._lanes.put(message)
            self._arrived.notify()
        if dropped:
            self._dropped(dropped, message)

    def receive(self, timeout: float | None) -> Message:
        """Wait for a message.

        Raises:
            Timeout: none came in so many seconds.
            ClosedError: the subscription has ended, and nothing is left.
            OwnershipError: it was made before a fork, in the parent process.
        """
        ends = None if timeout is None else monotonic() + timeout
        with self._arrived:
            while not len(self._lanes):
                if self._is_closed:
                    raise ClosedError("this subscription has ended, and nothing is left")
                left = None if ends is None else ends - monotonic()
                if left is not None and left <= 0:
                    raise Timeout(f"no message in {timeout:g} s")
                self._arrived.wait(left)
            self._lane.handled += 1
            return self._lane.pop()

    def drain(self, timeout: float | None = None) -> bool:
        """Nobody handles by itself what waits here: it is still to be received."""
        return True

    def clear(self) -> int:
        """Forget what waits; give how many messages that were."""
        return self._lanes.clear()

    def close(self) -> int:
        """Forget what waits, and have those who receive know that nothing more comes."""
        count = self._lanes.close()
        self.end()
        return count

    def end(self) -> None:
        """Have those who receive know that nothing more comes once it is empty."""
        with self._arrived:
            self._is_closed = True
            self._arrived.notify_all()
