"""The reading of one socket in a loop, by what libzmq's descriptor tells.

pyzmq's own sockets for asyncio take five turns of the loop from a message that has come to the task that
wants it, and a request waits for two messages. Here the loop itself reads, in the turn that sees the
descriptor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import zmq
import zmq.asyncio

_POLLIN, _EVENTS = int(zmq.POLLIN), int(zmq.EVENTS)


class LoopReader:
    """Reads a socket whenever something may have come, for a turn at a time.

    libzmq signs a descriptor once for all that comes until it is asked. Whoever does anything else with the
    socket may take that sign, and calls `look` after it.
    """

    __slots__ = ("_descriptor", "_has_more", "_loop", "_read", "_socket")

    def __init__(self, socket: Any, read: Callable[[], bool]) -> None:
        """Read nothing until `start`.

        Args:
            socket: the socket; nobody awaits anything of it.
            read: takes in what is there, for a turn; tells whether there is more. If not, it has asked
                libzmq, so that the next that comes signs the descriptor.
        """
        self._socket = socket
        self._read = read
        self._has_more = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor = -1

    def start(self) -> bool:
        """Begin to read in the loop that runs; tell whether it watches descriptors: if not, await `run`."""
        if not isinstance(self._socket, zmq.asyncio.Socket):
            # A model of a socket, which has no descriptor.
            return False
        loop, descriptor = asyncio.get_running_loop(), self._socket.fileno()
        try:
            loop.add_reader(descriptor, self._on_sign)
        except NotImplementedError:
            # The loop of Windows, for which pyzmq has a thread.
            return False
        self._loop, self._descriptor = loop, descriptor
        self.look()
        return True

    async def run(self) -> None:
        """Read until the socket is closed, by what the socket has to await."""
        while not self._socket.closed:
            await self._socket.poll(0 if self._has_more else None)
            self._has_more = self._read()

    def look(self) -> None:
        """Read soon what is there, though nothing may tell of it."""
        if self._loop is None:
            # What awaits the socket is told by this.
            self._socket.get(_EVENTS)
        elif self._has_come():
            self._loop.call_soon(self._on_sign)

    def stop(self) -> None:
        """Read no more; before the socket is closed."""
        if self._descriptor >= 0 and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        self._descriptor = -1

    def _has_come(self) -> bool:
        # As pyzmq's sockets for asyncio do it, it would also wake whoever awaits them: nobody does.
        return bool(int(zmq.Socket.get(self._socket, _EVENTS)) & _POLLIN)

    def _on_sign(self) -> None:
        if self._descriptor < 0:
            return
        try:
            has_more = self._read()
        except zmq.ZMQError:
            # Closed, or its context has ended: the descriptor would tell of it for ever.
            self.stop()
            raise
        if has_more:
            assert self._loop is not None
            self._loop.call_soon(self._on_sign)
