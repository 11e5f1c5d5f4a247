"""Model sockets for the event loops of nodes: the part of `zmq.asyncio` that oz calls."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import zmq

from oz.asyncio.publisher_engine import LoopPublisher
from oz.testing.context import Context
from oz.testing.endpoints import Process
from oz.testing.sockets import Socket

_EVENTS, _NOBLOCK = int(zmq.EVENTS), int(zmq.NOBLOCK)
_POLLIN = int(zmq.POLLIN)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
"""Virtual seconds between two checks whether all messages are sent."""


class AwaitedSocket(Socket):
    """Model socket with awaitable methods.

    Like a socket of `zmq.asyncio`, it is watched by the first loop that waits for it, and then processes commands
    also without a wait. Each news wakes one waiting task. A read of EVENTS wakes waiting tasks too.
    """

    def __init__(self, context: Process, socket_type: int) -> None:
        """Create a socket; `AwaitedContext.socket` calls this."""
        super().__init__(context, socket_type)
        self._recv_futures: deque[tuple[asyncio.Future[int], int]] = deque()
        self._looking: asyncio.Handle | None = None
        self._watched_by: asyncio.AbstractEventLoop | None = None
        self.notify = self._look_soon

    def await_events(self, timeout: int | None = None, flags: int = _POLLIN) -> asyncio.Future[int]:
        """Wait for events.

        Args:
            timeout: milliseconds of virtual time; None or a negative number waits for ever.
            flags: POLLIN, POLLOUT or both.

        Raises:
            zmq.ZMQError: the socket is closed.
        """
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        events = int(Socket.get(self, _EVENTS)) & flags
        if events or timeout == 0:
            future.set_result(events)
            return future
        if timeout is not None and timeout > 0:
            timer = loop.call_later(timeout / 1000, _give, future, 0)
            future.add_done_callback(lambda _: timer.cancel())
        self._add_recv_event(future, flags)
        return future

    poll = await_events  # type: ignore[assignment]

    def _add_recv_event(self, future: asyncio.Future[int], flags: int) -> asyncio.Future[int]:
        """Add a waiting task."""
        waiting = future, flags
        self._watched_by = future.get_loop()
        self._recv_futures.append(waiting)
        future.add_done_callback(lambda _: self._wait_no_more(waiting))
        return future

    def _wait_no_more(self, waiting: tuple[asyncio.Future[int], int]) -> None:
        if waiting in self._recv_futures:
            self._recv_futures.remove(waiting)

    async def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """Wait for a frame.

        Raises:
            zmq.Again: there is no message, with NOBLOCK.
        """
        while True:
            try:
                return Socket.recv(self, _NOBLOCK, copy)
            except zmq.Again:
                if flags & _NOBLOCK:
                    raise
            await self.await_events()

    def get(self, option: int) -> int | bytes:
        """Return an option. EVENTS wakes a waiting task if there is an event."""
        found = super().get(option)
        if option == _EVENTS and self._recv_futures and int(found):
            self._look_soon()
        return found

    def close(self, linger: int | None = None) -> None:
        """Close, and cancel the waits."""
        super().close(linger)
        self._end_waiting()

    def die(self) -> None:
        """End as a killed process does, and cancel the waits."""
        super().die()
        self._end_waiting()

    def _end_waiting(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for future, _ in list(self._recv_futures):
            if not future.get_loop().is_closed():
                future.cancel()

    def _look_soon(self) -> None:
        if self._looking is None and self._watched_by is not None and not self._watched_by.is_closed():
            self._looking = self._watched_by.call_soon(self._look)

    def _look(self) -> None:
        """Wake the first task that waits for an event."""
        self._looking = None
        if self.closed:
            return
        events = int(Socket.get(self, _EVENTS))
        for future, flags in list(self._recv_futures):
            if events & flags and not future.done():
                future.set_result(events & flags)
                self._recv_futures.remove((future, flags))
                self._look_soon()
                return


class WatchedPublisher:
    """Socket of a node's publisher, as a virtual loop sees it."""

    def __init__(self, engine: LoopPublisher) -> None:
        """Create it for an engine.

        Args:
            engine: of the publisher.
        """
        self._engine = engine
        self._socket: AwaitedSocket = engine.socket  # type: ignore[assignment]
        self._hearing: asyncio.Handle | None = None
        engine.shown_by(self)

    def _watch(self) -> None:
        """Notify the engine in the running loop."""
        loop = asyncio.get_running_loop()

        def notify() -> None:
            if self._hearing is None and not loop.is_closed():
                self._hearing = loop.call_soon(self._hear)

        self._socket.notify = notify

    def _hide(self) -> None:
        """Notify the engine no more."""
        self._socket.notify = None
        if self._hearing is not None:
            self._hearing.cancel()

    def _hear(self) -> None:
        self._hearing = None
        if not self._engine.closed:
            self._engine.hear()


class AwaitedContext(Context):
    """Process whose sockets have awaitable methods."""

    socket_class = AwaitedSocket

    async def end(self, seconds: float) -> None:
        """Terminate: wait until all sockets have sent their messages.

        Args:
            seconds: of virtual time at most.
        """
        for one in list(self.sockets):
            one.close()
        self.closed = True
        ends, pause = self.network.now + seconds, _FIRST_PAUSE
        while any(one.is_busy() for one in self.sockets) and self.network.now < ends:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _give(future: asyncio.Future[int], events: int) -> None:
    if not future.done():
        future.set_result(events)
