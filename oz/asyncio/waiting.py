"""The waiting of sockets for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable
from math import ceil, inf
from typing import Any

import zmq
import zmq.asyncio

from oz.asyncio.closing import is_cancelled
from oz.errors import ClosedError
from oz.protocol.messages import Message
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.subscriber.draining import Steps, T
from oz.transport.subscriber.engine import SubscriberEngine, count, is_wanted
from oz.transport.subscriber.receiver import LONGEST

_POLLIN = int(zmq.POLLIN)

TURN_SECONDS = 0.01
"""Seconds in one turn of the loop for messages that nobody receives: handlers have them, or no pattern wants
them."""

SHORTEST = 0.001
"""Seconds of a timer at least: some loops count in milliseconds, and would call before the time has come."""

Handler = Callable[[Message], Any]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class TaskNews:
    """Wakes the tasks that wait for something to become different."""

    __slots__ = ("__weakref__", "_waiters")

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._waiters: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        """Wake all who wait, to look again."""
        for waiter in tuple(self._waiters):
            loop = waiter.get_loop()
            if loop is asyncio._get_running_loop():
                _wake(waiter)
            elif not loop.is_closed():
                # A thread, or what was closed in another loop than that which waits.
                loop.call_soon_threadsafe(_wake, waiter)

    async def wait(self) -> None:
        """Wait until the next `tell`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def wait_for(self, is_so: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so, for so many seconds; give whether it is."""
        if is_so():
            return True
        try:
            async with asyncio.timeout(timeout):
                while not is_so():
                    await self.wait()
        except TimeoutError:
            return is_so()
        return True


class Clock:
    """Does what is due at a time, by a timer of the loop that runs."""

    __slots__ = ("_at", "_handle", "_loop", "_monotonic", "_work")

    def __init__(self, work: Callable[[], None], monotonic: Callable[[], float]) -> None:
        """Do nothing until `set`.

        Args:
            work: what is to be done.
            monotonic: the clock that times are of.
        """
        self._monotonic = monotonic
        self._work = work
        self._at = inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Do it at a time, and at no other.

        Args:
            at: monotonic seconds.
        """
        loop = asyncio._get_running_loop()
        if self._handle is not None and self._loop is loop and self._at == at:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if loop is None:
            # Nothing waits by now: whatever does later begins anew.
            return
        self._loop, self._at = loop, at
        self._handle = loop.call_later(max(SHORTEST, at - self._monotonic()), self._tick)

    def _tick(self) -> None:
        self._handle = None
        self._work()


class Turn:
    """Tells how long a subscriber has held the loop. No part of the socket: to set its attributes is slow.

    Attributes:
        received: messages in this turn.
        ends: when it ends, in monotonic seconds.
    """

    __slots__ = ("_monotonic", "ends", "received")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Have no turn begun.

        Args:
            monotonic: the clock.
        """
        self._monotonic = monotonic
        self.received = 0
        self.ends = 0.0

    def begin(self) -> None:
        """Begin the next turn."""
        self.received = 0
        self.ends = self._monotonic() + TURN_SECONDS


def _end(polls: set[asyncio.Future[int]], events: int) -> None:
    for poll in list(polls):
        if not poll.done() and not poll.get_loop().is_closed():
            poll.set_result(events)


def _polled_by(socket: Any) -> Callable[[Any, int | None, int], asyncio.Future[int]]:
    """Return how events of a socket are waited for in a loop, whatever `poll` a subscriber has."""
    if isinstance(socket, zmq.asyncio.Socket):
        return zmq.asyncio.Socket.poll  # type: ignore[return-value]
    found: Callable[[Any, int | None, int], asyncio.Future[int]] = type(socket).await_events
    return found


class LoopWaiter:
    """Waits for the socket of one subscriber in the loop, and awaits its handlers.

    libzmq tells of what comes to the socket. It knows nothing of messages that were taken from it and wait in
    line, nor that the subscriber was drained: so all polls can be ended here, to have the tasks look again.
    Those of tasks that run steps are ended apart: no message is news to them, but what others have read may
    be.
    """

    __slots__ = ("__weakref__", "_clock", "_engine", "_poll_socket", "_polls", "_stepping", "turn")

    def __init__(self, engine: SubscriberEngine) -> None:
        """Wait for a subscriber's socket.

        Args:
            engine: the subscriber's.
        """
        self._engine = engine
        self._poll_socket = _polled_by(engine.socket)
        self._polls: set[asyncio.Future[int]] = set()
        self._stepping: set[asyncio.Future[int]] = set()
        self.turn = Turn(engine.monotonic)
        # What waits holds the socket; the clock alone must not.
        due = weakref.WeakMethod(self._do_what_is_due)
        self._clock = Clock(lambda: (work := due()) and work(), engine.monotonic)
        begin = weakref.WeakMethod(self.begin)
        engine.declarer.when_hastened = lambda: (work := begin()) and work()

    @property
    def _socket(self) -> Any:
        return self._engine.socket

    async def run(self, steps: Steps[T]) -> T:
        """Run steps to their end, and give what they return.

        Raises:
            ClosedError: the subscriber is closed.
            OwnershipError: it was made before a fork.
        """
        engine = self._engine
        engine.check_open()
        ends, has_read = engine.monotonic() + TURN_SECONDS, False
        try:
            while True:
                step = next(steps)
                if isinstance(step, float):
                    self.wake_others()
                    if has_read:
                        _end(self._stepping, 0)
                    has_read = bool(await self._wait(step, self._stepping))
                    continue
                if step.route.is_listed and is_wanted(step):
                    # Kept before anything is awaited: a handler's await may be cancelled.
                    engine.ready.append(step)
                await self.dispatch(step)
                if engine.monotonic() >= ends:
                    await asyncio.sleep(0)
                    ends = engine.monotonic() + TURN_SECONDS
        except StopIteration as ended:
            value: T = ended.value
            return value
        except zmq.ZMQError:
            engine.check_open()
            raise
        finally:
            self.wake_others()
            _end(self._stepping, 0)

    async def wait(self, seconds: float | None) -> None:
        """Wait so long at most until something can be read.

        Raises:
            ClosedError: the subscriber was closed meanwhile.
        """
        # What has been read may be what others wait for.
        _end(self._stepping, 0)
        await self._wait(seconds, self._polls)

    async def _wait(self, seconds: float | None, among: set[asyncio.Future[int]]) -> int:
        milliseconds = None if seconds is None else ceil(min(seconds, LONGEST) * 1000)
        try:
            return await self._poll(milliseconds, zmq.POLLIN, among)
        except asyncio.CancelledError:
            # Closing cancels what waits on the socket; that is not a cancelled task.
            if self._socket.closed and not is_cancelled():
                raise ClosedError("the subscriber was closed while it waited") from None
            raise

    def poll(self, timeout: int | None, flags: int) -> asyncio.Future[int]:
        """Wait for events, as `zmq.asyncio.Socket.poll` does, until `wake`."""
        _end(self._stepping, 0)
        return self._poll(timeout, flags, self._polls)

    def _poll(self, timeout: int | None, flags: int, among: set[asyncio.Future[int]]) -> asyncio.Future[int]:
        poll = self._poll_socket(self._socket, timeout, flags)
        if not poll.done():
            among.add(poll)
            poll.add_done_callback(among.discard)
        return poll

    def wake(self) -> None:
        """End all polls, as if the socket had become readable."""
        _end(self._polls, _POLLIN)
        _end(self._stepping, 0)

    def wake_others(self) -> None:
        """Wake other tasks that wait here: taking a message takes the sign that more came."""
        socket = self._socket
        if not socket.closed and socket._recv_futures:
            if self._engine.has_some or self._engine.is_drained:
                _end(self._polls, _POLLIN)
            # In pyzmq, reading this option wakes whoever waits for such an event.
            socket.get(zmq.EVENTS)

    # what is due -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Do what is due, as long as anything waits for something to read."""
        due_at = self._engine.declarer.due_at
        if due_at < inf and self._socket._recv_futures:
            self._clock.set(due_at)

    def _do_what_is_due(self) -> None:
        """Declare again what nobody answered, and look after multicast, if anybody still waits."""
        socket = self._socket
        if socket.closed or not socket._recv_futures:
            return
        try:
            is_idle = not socket.get(zmq.EVENTS) & zmq.POLLIN
            self._engine.declarer.look(self._engine.monotonic(), is_idle=is_idle)
        except zmq.ZMQError:
            # Its context has ended: those who wait find out for themselves.
            self.wake()
        else:
            if self._engine.is_refused or self._engine.is_drained:
                self.wake()
            self.begin()

    # handlers --------------------------------------------------------------------------------------------

    async def dispatch(self, message: Message) -> None:
        """Call the handlers; a cancelled receiver leaves them running to their end."""
        if message.route.is_counted:
            count(message)
        running = [
            asyncio.ensure_future(pending)
            for subscription in message.subscriptions
            if (pending := self._call(subscription, message)) is not None
        ]
        if running:
            try:
                await asyncio.wait(running)
            except asyncio.CancelledError:
                # What is kept is for another task now.
                self.wake_others()
                raise

    def _call(self, subscription: Subscribed, message: Message) -> Awaitable[None] | None:
        if subscription.handler is None or not subscription.wants(message):
            return None
        try:
            result = subscription.handler(message)
        except Exception:
            self._engine.log_failure(subscription)
            return None
        return self._finish(subscription, result) if inspect.isawaitable(result) else None

    async def _finish(self, subscription: Subscribed, result: Awaitable[Any]) -> None:
        try:
            await result
        except Exception:
            self._engine.log_failure(subscription)
