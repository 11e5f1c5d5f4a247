"""Messages that subscribers on the same host have not taken yet when a publisher closes.

The system keeps what was sent on a TCP connection for the other side, also when this one has closed. With
`ipc://` it does so too, but tells the other side at once that the connection is over (EPOLLHUP). If its
queue is full just then, libzmq 4.3.5 gives up all that it has not read: `in_event_internal` of
stream_engine_base_t, with `_input_stopped`. So a second descriptor keeps the connection open until then.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from oz import system
from oz.protocol.backoff import growing
from oz.transport.socket import GivingUp

_DESCRIPTORS = ("/proc/self/fd", "/dev/fd")
_IPC = "ipc://"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.25
"""Seconds between two looks at what the other side has read: nothing tells of it."""
_NOTHING = struct.pack("i", 0)


class _End:
    """One connection: a descriptor of our own, and the one that libzmq has."""

    __slots__ = ("_inode", "_number", "_socket")

    def __init__(self, number: int, own: socket.socket) -> None:
        self._number = number
        self._socket = own
        self._inode = os.fstat(own.fileno()).st_ino

    def is_taken(self) -> bool:
        """Tell whether libzmq has written everything, and the other side has read it."""
        with suppress(OSError):
            if os.fstat(self._number).st_ino == self._inode:
                # libzmq closes it when nothing is left to be written.
                return False
        try:
            return system.ioctl(self._socket, system.UNREAD, _NOTHING) == _NOTHING
        except OSError:
            # The system does not tell.
            return True

    def close(self) -> None:
        self._socket.close()


class Untaken:
    """The connections of one publisher, kept open until subscribers have read all that was sent on them."""

    __slots__ = ("_ends",)

    def __init__(self, bound: Iterable[str], connected: Iterable[str] = ()) -> None:
        """Take hold of connections, before their socket is closed.

        Args:
            bound: the endpoints that the publisher listens at; all but those of `ipc://` are passed over.
            connected: those that it has connected to.
        """
        bound_paths, connected_paths = _paths(bound), _paths(connected)
        self._ends = list(_find(bound_paths, connected_paths)) if bound_paths or connected_paths else []

    def is_over(self) -> bool:
        """Drop those that need it no more; tell whether that is all of them."""
        left = []
        for end in self._ends:
            if end.is_taken():
                end.close()
            else:
                left.append(end)
        self._ends = left
        return not left

    def close(self) -> None:
        """Drop all."""
        for end in self._ends:
            end.close()
        self._ends = []

    def wait(self, seconds: float, given_up: GivingUp | None = None) -> None:
        """Wait until all is taken, for so long at most, and dropped.

        Args:
            seconds: how long; may be infinite.
            given_up: ends it when it is set.
        """
        ends_at, given_up = time.monotonic() + seconds, given_up or GivingUp()
        try:
            for pause in growing(_FIRST_PAUSE, _LONGEST_PAUSE):
                if self.is_over() or (left := ends_at - time.monotonic()) <= 0:
                    break
                if given_up.wait(min(pause, left)):
                    break
        finally:
            self.close()

    def wait_aside(self, seconds: float) -> None:
        """The same without holding up the caller: a thread waits, and the end of the process for that."""
        if self.is_over():
            return
        if threading.main_thread().is_alive():
            with suppress(RuntimeError):
                threading.Thread(target=self.wait, args=(seconds,), name="oz-untaken").start()
                return
        # The process ends, and waits for no thread any more.
        self.wait(seconds)


def _paths(endpoints: Iterable[str]) -> set[bytes]:
    """Return the addresses of the endpoints of `ipc://`, as the system writes them."""
    if system.UNREAD is None or not hasattr(socket, "AF_UNIX"):
        return set()
    paths = (os.fsencode(one.removeprefix(_IPC)) for one in endpoints if one.startswith(_IPC))
    return {b"\0" + path[1:] if path.startswith(b"@") else path for path in paths}


def _find(bound_paths: set[bytes], connected_paths: set[bytes]) -> Iterable[_End]:
    """Find the connections of this process at some addresses; libzmq does not tell which it has."""
    directory = next((one for one in _DESCRIPTORS if os.path.isdir(one)), None)
    for name in [] if directory is None else os.listdir(directory):
        # An error: closed meanwhile, no socket, not connected, or there is no descriptor left for us.
        with suppress(OSError):
            own = system.second_socket(int(name))
            if _is_one(own, bound_paths, connected_paths):
                yield _End(int(name), own)
            else:
                own.close()


def _is_one(own: socket.socket, bound_paths: set[bytes], connected_paths: set[bytes]) -> bool:
    try:
        return (
            own.family == socket.AF_UNIX
            and not own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            and (_address(own.getsockname()) in bound_paths or _address(own.getpeername()) in connected_paths)
        )
    except OSError:
        return False


def _address(name: str | bytes) -> bytes:
    return os.fsencode(name)
