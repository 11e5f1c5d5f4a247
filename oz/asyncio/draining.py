"""Draining for asyncio: a subscriber stops asking, for one subscription or for all, and loses nothing."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from math import ceil
from typing import Any

import zmq

from oz.asyncio.closing import is_cancelled
from oz.errors import ClosedError, Timeout
from oz.message import Message
from oz.protocol.subscriber import subscriptions
from oz.transport.subscriber.engine import SubscriberBase
from oz.transport.subscriber.receiver import PATIENCE_MS, RoutedReceivePath

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


TURN_SECONDS = 0.01
"""Seconds in one turn of the loop for messages that nobody receives: handlers have them, or no pattern wants
them."""

_SLICE = 0.05
"""Seconds of waiting at a time."""

_LONGEST = 1e6
"""Seconds of one wait at most: more than timers take is for ever all the same."""


Handler = Callable[[Message], Any]


class Subscription(subscriptions.Subscription):
    """One call of `subscribe`: its patterns and its handler, until it is undone; as `oz.Subscription`."""

    __slots__ = ()

    async def drain(self, timeout: float = 1.0) -> bool:
        """End it, and lose nothing; see `oz.Subscription.drain`.

        Raises:
            ClosedError, OwnershipError: as there.
        """
        return bool(await super().drain(timeout))


class Draining(SubscriberBase[Handler, Subscription]):
    """The part of a subscriber that waits for the answers of publishers."""

    _subscription_class = Subscription
    _waiters: Waiters
    _clock: Clock

    async def receive(self, timeout: float | None = None) -> Message:
        """Wait for the next message that a subscription without a handler wants."""
        raise NotImplementedError

    async def _dispatch(self, message: Message) -> None:
        """Call the handlers."""
        raise NotImplementedError

    async def drain(self, timeout: float = 1.0) -> None:
        """Stop asking, and deliver what is there; see `oz.Subscriber.drain`.

        Raises:
            ClosedError, OwnershipError: as there.
        """
        self._check_open()
        deadline = time.monotonic() + timeout
        self._begin_drain()
        await self._unpack_until(self._has_left, deadline)
        await self._take_what_is_here(deadline)
        self._end_drain()

    async def _drain_one(self, subscription: subscriptions.Subscription, timeout: float) -> bool:
        self._check_open()
        if not subscription.active:
            return True
        deadline = time.monotonic() + timeout
        self._begin_part(subscription)
        has_drained = await self._unpack_until(lambda: self._has_drained(subscription), deadline)
        if self._streams is None:
            await self._take_what_is_here(deadline)
        await self._end_with_rest(subscription)
        return has_drained

    async def _unpack_until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        while not is_done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await self._unpack_some(min(left, _SLICE))
        return True

    async def _take_what_is_here(self, deadline: float) -> None:
        # A plain publisher may be faster than this, so that there is always one more.
        ends = max(deadline, time.monotonic() + TURN_SECONDS)
        kept: list[Message] = []
        try:
            while time.monotonic() < ends:
                kept.append(await self.receive(0))
        except Timeout:
            pass
        finally:
            self._ready.extendleft(reversed(kept))
            self._wake_others()

    async def _end_with_rest(self, subscription: subscriptions.Subscription) -> None:
        for message in self._rest_of(subscription):
            if message.route.is_listed and self._still_wanted(message):
                # Kept before anything is awaited, as in `receive`.
                self._ready.append(message)
            await self._dispatch(message)
        self._end_part(subscription)
        self._wake_others()

    async def _unpack_some(self, seconds: float) -> None:
        assert isinstance(self._receive_path, RoutedReceivePath)
        self._check_open()
        await self._wait_for_news(seconds)
        self._receive_path.unpack(self)
        self._wake_others()

    # waiting ---------------------------------------------------------------------------------------------

    def _begin_to_wait(self) -> None:
        self._waiters = Waiters()
        # What waits holds the socket; the clock alone must not.
        due = weakref.WeakMethod(self._do_what_is_due)
        self._clock = Clock(PATIENCE_MS / 1000, lambda: (work := due()) is not None and work())

    async def _wait_for_news(self, seconds: float | None) -> None:
        milliseconds = None if seconds is None else ceil(min(seconds, _LONGEST) * 1000)
        try:
            await self._poll_socket(milliseconds, zmq.POLLIN)
        except asyncio.CancelledError:
            # Closing cancels what waits on the socket; that is not a cancelled task.
            if self.closed and not is_cancelled():
                raise ClosedError("the subscriber was closed while it waited") from None
            raise

    def _poll_socket(self, timeout: int | None, flags: int) -> asyncio.Future[int]:
        return self._waiters.add(super().poll(timeout, flags))  # type: ignore[arg-type]

    def _wake_others(self) -> None:
        """Wake other tasks that wait here: taking a message takes the sign that more came."""
        if not self.closed and self._recv_futures:
            if self._has_some:
                self._waiters.wake()
            # In pyzmq, reading this option wakes whoever waits for such an event.
            self.get(zmq.EVENTS)

    def _end_drain(self) -> None:
        super()._end_drain()
        # Whoever waits for the next message would wait for ever.
        self._waiters.wake()

    def _add_recv_event(self, *args: Any, **options: Any) -> asyncio.Future[Any]:
        """Begin to wait for something to read, as all of pyzmq's ways to wait do."""
        future: asyncio.Future[Any] = super()._add_recv_event(*args, **options)  # type: ignore[misc]
        if self._recv_futures and self._has_duties:
            self._clock.start()
        return future

    def _do_what_is_due(self) -> bool:
        """Declare again what nobody answered, and look after multicast; tell whether anybody still waits."""
        if self.closed or not self._recv_futures:
            return False
        try:
            self._declare_overdue(is_idle=not self.get(zmq.EVENTS) & zmq.POLLIN)
        except zmq.ZMQError:
            # Its context has ended: those who wait find out for themselves.
            self._waiters.wake()
            return False
        return True
