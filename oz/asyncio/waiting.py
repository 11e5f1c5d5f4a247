"""The waiting of sockets for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import zmq
import zmq.asyncio

from oz.protocol.messages import Message

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
