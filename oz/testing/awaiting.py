"""Model sockets for a loop: what `zmq.asyncio` adds to pyzmq's sockets, as far as oz calls it."""

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
"""Virtual seconds between two looks whether all is sent."""


class AwaitedSocket(Socket):
    """A model socket that is waited for by awaiting.

    As a `zmq.asyncio` socket it is watched by the loop that waits for it, and from then on takes notice of
    what happened also while nobody waits. It wakes one who waits for each sign of news, and looks again when
    it has found some: whoever takes the sign otherwise, by asking for EVENTS, has it do that too.
    """

    def __init__(self, context: Process, socket_type: int) -> None:
        """Make a socket; use `AwaitedContext.socket`."""
        super().__init__(context, socket_type)
        self._recv_futures: deque[tuple[asyncio.Future[int], int]] = deque()
        self._looking: asyncio.Handle | None = None
        self._watched_by: asyncio.AbstractEventLoop | None = None
        self.notify = self._look_soon

    def await_events(self, timeout: int | None = None, flags: int = _POLLIN) -> asyncio.Future[int]:
        """Wait for events.

        Args:
            timeout: milliseconds of virtual time; None or less than 0 waits without end.
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
        """Wait for something to read, as all ways to wait do."""
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
            zmq.Again: there is none, with NOBLOCK.
        """
        while True:
            try:
                return Socket.recv(self, _NOBLOCK, copy)
            except zmq.Again:
                if flags & _NOBLOCK:
                    raise
            await self.await_events()

    def get(self, option: int) -> int | bytes:
        """Return an option; asking for EVENTS wakes those who wait for what there is."""
        found = super().get(option)
        if option == _EVENTS and self._recv_futures and int(found):
            self._look_soon()
        return found

    def close(self, linger: int | None = None) -> None:
        """Close, and cancel what waits."""
        super().close(linger)
        self._end_waiting()

    def die(self) -> None:
        """End as a process that is killed, and cancel what waits."""
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
        """Wake the first who waits for what there is."""
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
    """The socket of a publisher's engine as a virtual loop sees it."""

    def __init__(self, engine: LoopPublisher) -> None:
        """Show the socket of an engine.

        Args:
            engine: the engine.
        """
        self._engine = engine
        self._socket: AwaitedSocket = engine.socket  # type: ignore[assignment]
        self._hearing: asyncio.Handle | None = None
        engine.shown_by(self)

    def _watch(self) -> None:
        """Have the loop that runs tell the engine of news."""
        loop = asyncio.get_running_loop()

        def notify() -> None:
            if self._hearing is None and not loop.is_closed():
                self._hearing = loop.call_soon(self._hear)

        self._socket.notify = notify

    def _hide(self) -> None:
        """Have the loop watch it no more."""
        self._socket.notify = None
        if self._hearing is not None:
            self._hearing.cancel()

    def _hear(self) -> None:
        self._hearing = None
        if not self._engine.closed:
            self._engine.hear()


class AwaitedContext(Context):
    """A process whose sockets are waited for by awaiting."""

    socket_class = AwaitedSocket

    async def end(self, seconds: float) -> None:
        """Terminate: wait until every socket has sent what it lingers for.

        Args:
            seconds: virtual time after which it waits no longer.
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
