"""Threads that wait for messages of a subscriber.

One thread at a time polls and reads the sockets. This thread holds the lock `Engine.reading`. Other waiting threads,
the *followers*, sleep until the engine's `version` changes. When the polling thread has received its message, it wakes
the followers, and one of them polls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import zmq

from oz.compiled import HOT
from oz.subscriber.connections import CLOSED
from oz.subscriber.engine import Engine
from oz.subscriber.message import Message
from oz.transport import steps
from oz.transport.runtime import REAL
from oz.transport.steps import Steps
from oz.transport.waiting import ThreadWait, Waiters, notify_all, try_acquire

T = TypeVar("T")
_clock = time.monotonic


class ThreadWaits:
    """Runs the steps of an engine in the calling thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._followers: Waiters = {}
        engine.notify = self._notify
        self.alone: Callable[[float | None], Message | None] = self._receive_alone
        if HOT is not None and engine.runtime is REAL:
            self.alone = HOT.LoneReceiver(
                twin=self._receive_alone,
                waits=self,
                engine=engine,
                followers=self._followers,
                items=engine.dispatcher.shared.items,
                work=engine.dispatcher.work,
                in_hand=engine.held_messages,
                reading=engine.reading,
                lock=engine.lock,
                poll=engine.poll,
                clock=engine.listening,
                stats=engine.dispatcher.stats,
                wake_up=engine.poll.wake_up,
            )

    def run(self, wanted: Steps[T]) -> T:
        """Run steps to their end and return their result."""
        wait = _Wait(self)
        try:
            return steps.run(wanted, wait)
        finally:
            wait.close()

    def _receive_alone(self, timeout: float | None) -> Message | None:
        """Wait for a short time for a single message on the only link; return None if the caller must use `run`.

        This method is faster than `run`, because it reads only one frame. The wait ends when the next call of
        `Engine.attend` is due.
        """
        engine = self._engine
        now = _clock()
        seconds = engine.attend_at - now
        if timeout is not None:
            seconds = min(seconds, timeout)
        if seconds <= 0 or self._followers or engine.dispatcher.shared.items:
            return None
        acquired: list[bool] = []
        try:
            if not try_acquire(engine.reading, acquired):
                return None
            with engine.lock:
                if engine.dispatcher.work or not engine.may_wait_alone():
                    return None
                seen = engine.version
                message = self._read_alone()
            if message is None and engine.version == seen:
                message = self._poll_alone(seen, seconds)
            engine.after_alone()
            return message
        except zmq.ZMQError as error:
            if not engine.has_ended(error):
                raise
            # The context has ended. The next call of `attend` closes the subscriber.
            return None
        finally:
            if True in acquired:
                engine.reading.release()
                if self._followers:
                    self.wake_followers()

    def _poll_alone(self, seen: int, seconds: float) -> Message | None:
        engine, poll = self._engine, self._engine.poll
        poll.is_polling = True
        try:
            # `is_polling` is set before the check, so that a later change of `version` wakes the poll.
            if engine.version == seen:
                poll.wait_alone(engine.link_descriptor, seconds)
        finally:
            poll.is_polling = False
        with engine.lock:
            return self._read_alone()

    def _read_alone(self) -> Message | None:
        """Read a single message, and let C code read the next messages."""
        engine = self._engine
        message = engine.read_alone()
        if message is not None and HOT is not None:
            engine.follow_alone()
        return message

    def _notify(self) -> None:
        poll = self._engine.poll
        if poll.is_polling:
            poll.ring()
        notify_all(self._followers)

    def follow(self, seen: int, until: float | None) -> None:
        """Sleep until the engine's version differs from `seen`, until the time `until`, or until no thread polls."""
        if self._engine.poll.is_full and not self._engine.dispatcher.is_full:
            self._engine.poll.ring()
        with ThreadWait(self._followers) as wait:
            if self._engine.version == seen:
                wait.sleep(until)

    def wake_followers(self) -> None:
        """Wake the followers, because this thread stops polling."""
        notify_all(self._followers)


class _Wait:
    """Wait function of one call of `run`. `_seen` is the engine version that the steps have checked last."""

    __slots__ = ("__weakref__", "_engine", "_has_entered", "_seen", "_waits")

    def __init__(self, waits: ThreadWaits) -> None:
        self._waits, self._engine = waits, waits._engine
        self._seen = self._engine.version
        self._has_entered = False

    def __call__(self, until: float | None) -> None:
        engine = self._engine
        if not self._has_entered:
            self._has_entered = True
            engine.enter(self)
        if engine.version == self._seen:
            acquired: list[bool] = []
            try:
                if try_acquire(engine.reading, acquired):
                    self._read(until)
                else:
                    self._waits.follow(self._seen, until)
            finally:
                if True in acquired:
                    engine.reading.release()
                    self._waits.wake_followers()
        self._seen = engine.version

    def _read(self, until: float | None) -> None:
        engine, poll = self._engine, self._engine.poll
        if engine.attend() or engine.version != self._seen:
            return
        seconds = engine.wait_seconds(until)
        if engine.state == CLOSED:
            return
        poll.is_polling = True
        try:
            # `is_polling` is set before the check, so that a later change of `version` wakes the poll.
            if engine.version == self._seen:
                poll.wait(seconds, is_full=engine.dispatcher.is_full)
        finally:
            poll.is_polling = False
        engine.attend()

    def close(self) -> None:
        """Report to the engine that the wait has ended, if the wait has begun."""
        if self._has_entered:
            self._engine.leave(self)
