"""Support of `oz.Poller` for subscribers."""

from __future__ import annotations

from collections.abc import Callable

from oz.subscriber.connections import CLOSED
from oz.subscriber.engine import Engine
from oz.subscriber.message import Message
from oz.transport.waiting import try_acquire

BUSY_INTERVAL = 0.01
"""While another thread reads the sockets, a poller checks the queue again after this number of seconds."""


class SubscriberTurn:
    """Steps of one call of `oz.Poller.poll` for one subscriber; see `oz.transport.pollable.PollTurn`.

    During the call, the thread reads the sockets in the same way as a thread inside `receive`.
    """

    def __init__(self, engine: Engine, wake_followers: Callable[[], None]) -> None:
        """Register this object at the engine as a waiting call.

        Args:
            engine: engine of the subscriber.
            wake_followers: function that wakes other waiting threads, called when this thread stops reading.
        """
        engine.check_open()
        self._engine, self._wake_followers = engine, wake_followers
        self._seen = engine.version
        self._acquired: list[bool] = []
        engine.enter(self)

    def has_message(self) -> bool:
        """Read the sockets and run handlers; return whether `receive` would return at once."""
        engine = self._engine
        engine.check_open()
        self._seen = engine.version
        has_more = False
        try:
            if try_acquire(engine.reading, self._acquired):
                has_more = engine.attend()
        finally:
            self._release()
        while engine.dispatcher.work and engine.run_handlers():
            pass
        if has_more:
            # More messages wait in the socket, but the descriptor of the socket does not signal them again.
            engine.poll.ring()
        return self._has_message() or engine.is_exhausted(None)

    def _has_message(self) -> bool:
        items = self._engine.dispatcher.shared.items
        while True:
            try:
                item = items.popleft()
            except IndexError:
                return False
            if isinstance(item, Message):
                items.appendleft(item)
                return True
            self._engine.report(item)

    def begin_wait(self) -> tuple[int | None, float | None]:
        """Return the descriptor to poll and the maximum number of seconds for the poll; see `PollTurn`."""
        engine, poll = self._engine, self._engine.poll
        if not try_acquire(engine.reading, self._acquired):
            return None, BUSY_INTERVAL
        poll.is_polling = True
        # `is_polling` is set before the check, so that a later change of `version` wakes the poll.
        if engine.version != self._seen or engine.state == CLOSED:
            return None, 0.0
        return poll.descriptor(is_full=engine.dispatcher.is_full), engine.wait_seconds(None)

    def end_wait(self) -> None:
        """Stop polling, so that other threads can read the sockets."""
        if True in self._acquired:
            self._engine.poll.is_polling = self._engine.poll.is_full = False
        self._release()

    def _release(self) -> None:
        # Clear the list first, because a signal handler may raise after the release.
        acquired, self._acquired = self._acquired, []
        if True in acquired:
            self._engine.reading.release()
            self._wake_followers()

    def close(self) -> None:
        """End the call of `poll`."""
        self.end_wait()
        self._engine.leave(self)
