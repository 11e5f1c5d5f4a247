"""How subscribers for asyncio wait."""

from __future__ import annotations

import asyncio
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Any

import zmq
import zmq.asyncio

from oz.asyncio.closing import is_cancelled
from oz.errors import ClosedError
from oz.message import Message
from oz.protocol.subscriber import subscriptions
from oz.transport.subscriber.draining import Steps, T
from oz.transport.subscriber.engine import SubscriberEngine, count, is_wanted
from oz.transport.subscriber.receiver import PATIENCE_MS

_POLLIN = int(zmq.POLLIN)

TURN_SECONDS = 0.01
"""Seconds in one turn of the loop for messages that nobody receives: handlers have them, or no pattern wants
them."""

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


class Turn:
    """A clock of how long the loop is held: outside the socket, whose attributes are slow to set.

    Attributes:
        received: messages in this turn.
        ends: when it ends, in monotonic seconds.
    """

    __slots__ = ("ends", "received")

    def __init__(self) -> None:
        """Have no turn begun."""
        self.received = 0
        self.ends = 0.0

    def begin(self) -> None:
        """Begin the next turn."""
        self.received = 0
        self.ends = time.monotonic() + TURN_SECONDS


class LoopWaiter:
    """Waits for the socket of one subscriber in the loop, and awaits its handlers.

    libzmq tells of what comes to the socket. It knows nothing of messages that were taken from it and wait in
    line, nor that the subscriber was drained: so all polls can be ended here, to have the tasks look again.
    """

    __slots__ = ("__weakref__", "_clock", "_engine", "_polls", "turn")

    def __init__(self, engine: SubscriberEngine) -> None:
        """Wait for a subscriber's socket.

        Args:
            engine: the subscriber's.
        """
        self._engine = engine
        self._polls: set[asyncio.Future[int]] = set()
        self.turn = Turn()
        # What waits holds the socket; the clock alone must not.
        due = weakref.WeakMethod(self._do_what_is_due)
        self._clock = Clock(PATIENCE_MS / 1000, lambda: (work := due()) is not None and work())

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
        ends = time.monotonic() + TURN_SECONDS
        try:
            while True:
                step = next(steps)
                if isinstance(step, float):
                    await self.wait(step)
                    continue
                if step.route.is_listed and is_wanted(step):
                    # Kept before anything is awaited: a handler's await may be cancelled.
                    engine.ready.append(step)
                await self.dispatch(step)
                if time.monotonic() >= ends:
                    await asyncio.sleep(0)
                    ends = time.monotonic() + TURN_SECONDS
        except StopIteration as ended:
            value: T = ended.value
            return value
        except zmq.ZMQError:
            engine.check_open()
            raise
        finally:
            self.wake_others()

    async def wait(self, seconds: float | None) -> None:
        """Wait so long at most until something can be read.

        Raises:
            ClosedError: the subscriber was closed meanwhile.
        """
        milliseconds = None if seconds is None else ceil(min(seconds, _LONGEST) * 1000)
        try:
            await self.poll(milliseconds, zmq.POLLIN)
        except asyncio.CancelledError:
            # Closing cancels what waits on the socket; that is not a cancelled task.
            if self._socket.closed and not is_cancelled():
                raise ClosedError("the subscriber was closed while it waited") from None
            raise

    def poll(self, timeout: int | None, flags: int) -> asyncio.Future[int]:
        """Wait for events, as `zmq.asyncio.Socket.poll` does, until `wake`."""
        poll: asyncio.Future[int] = zmq.asyncio.Socket.poll(self._socket, timeout, flags)  # type: ignore[call-arg, assignment]
        if not poll.done():
            self._polls.add(poll)
            poll.add_done_callback(self._polls.discard)
        return poll

    def wake(self) -> None:
        """End all polls, as if the socket had become readable."""
        for poll in list(self._polls):
            if not poll.done() and not poll.get_loop().is_closed():
                poll.set_result(_POLLIN)

    def wake_others(self) -> None:
        """Wake other tasks that wait here: taking a message takes the sign that more came."""
        socket = self._socket
        if not socket.closed and socket._recv_futures:
            if self._engine.has_some or self._engine.is_drained:
                self.wake()
            # In pyzmq, reading this option wakes whoever waits for such an event.
            socket.get(zmq.EVENTS)

    # what is due -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Have done what is due, from now on as long as anything waits for something to read."""
        if self._socket._recv_futures and self._engine.declarer.has_duties:
            self._clock.start()

    def _do_what_is_due(self) -> bool:
        """Declare again what nobody answered, and look after multicast; tell whether anybody still waits."""
        socket = self._socket
        if socket.closed or not socket._recv_futures:
            return False
        try:
            self._engine.declarer.look(is_idle=not socket.get(zmq.EVENTS) & zmq.POLLIN)
        except zmq.ZMQError:
            # Its context has ended: those who wait find out for themselves.
            self.wake()
            return False
        return True

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

    def _call(self, subscription: subscriptions.Subscription, message: Message) -> Awaitable[None] | None:
        if subscription.handler is None or not subscription.wants(message):
            return None
        try:
            result = subscription.handler(message)
        except Exception:
            self._engine.log_failure(subscription)
            return None
        return self._finish(subscription, result) if inspect.isawaitable(result) else None

    async def _finish(self, subscription: subscriptions.Subscription, result: Awaitable[Any]) -> None:
        try:
            await result
        except Exception:
            self._engine.log_failure(subscription)
