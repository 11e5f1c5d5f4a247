"""The connections of a publisher, each by a second descriptor of our own beside the one that libzmq has."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
import struct
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from typing import Any

from oz import system
from oz.logs import peer_logger

_log = peer_logger("oz.socket")

_IPC, _TCP = "ipc://", "tcp://"
_UNIX = getattr(socket, "AF_UNIX", None)
_ANY = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}
"""The address of a listener at all addresses, by what connections to it are of."""

_NOTHING = struct.pack("i", 0)

_PIECE, _MOST_PIECES = 1 << 16, 16
"""Bytes of what the other side still says that are read at once, and how often in one look."""

Place = bytes | tuple[str, int]
"""The path of a Unix socket; or an address and a port. An address that is not known is empty."""

_kept: set[weakref.ref[ConnectionEnd]] = set()
"""All that are open: nobody takes them for connections of libzmq's. A signal handler may lose one."""

_looking = threading.RLock()
"""Whoever looks for connections has it: what another is about to keep would look like one."""


class ConnectionEnd:
    """One connection: a descriptor of our own, and the one that libzmq has."""

    __slots__ = ("__weakref__", "_identity", "_me", "_socket", "is_late", "is_silent", "number")

    def __init__(self, number: int, own: socket.socket) -> None:
        self.number = number
        self.is_silent = self.is_late = False
        self._socket = own
        self._identity = _identity(own.fileno())
        self._me = weakref.ref(self, _kept.discard)
        _kept.add(self._me)

    @property
    def own(self) -> tuple[int, tuple[int, int]]:
        """The number of our descriptor, and what it is of: once closed, another may have the number."""
        return self._socket.fileno(), self._identity

    @property
    def is_written(self) -> bool:
        """Whether libzmq has closed it, which it does when nothing is left to be written."""
        try:
            return _identity(self.number) != self._identity
        except OSError:
            return True

    def is_open(self, longest: float) -> bool:
        """Return whether libzmq has still to write, or the other side to read; also False where it left.

        Args:
            longest: seconds for the other side to close, where only that tells.
        """
        if not self.is_written:
            return True
        try:
            return self._is_unread(longest)
        except OSError:
            # The other side left, or the system does not tell.
            return False

    def _is_unread(self, _longest: float) -> bool:
        # Whoever closes and has not read all leaves an error behind, and nothing unread.
        is_taken = self._has_none_unread()
        return not (is_taken or self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _has_none_unread(self) -> bool:
        return system.ioctl(self._socket, system.UNREAD, _NOTHING) == _NOTHING

    def close(self) -> None:
        """Drop it."""
        self._socket.close()
        _kept.discard(self._me)


class TcpEnd(ConnectionEnd):
    """A connection whose other side tells that it has read all by closing."""

    __slots__ = ("_shut_at",)

    def __init__(self, number: int, own: socket.socket) -> None:
        super().__init__(number, own)
        # Whoever has said nothing has asked for nothing either.
        self.is_silent = not system.bytes_received(own)
        self._shut_at: float | None = None

    def _is_unread(self, longest: float) -> bool:
        if self._shut_at is None:
            self._socket.setblocking(False)
            # An error, where the connection was reset before.
            self._socket.shutdown(socket.SHUT_WR)
            self._shut_at = time.monotonic()
        # What came to the other side after it had closed is answered by a reset.
        if self._has_closed() and (system.UNREAD is None or self._has_none_unread()):
            return False
        self.is_late = time.monotonic() - self._shut_at >= longest
        return not self.is_late

    def _has_closed(self) -> bool:
        with suppress(BlockingIOError):
            return any(not self._socket.recv(_PIECE) for _ in range(_MOST_PIECES))
        return False


def places(endpoints: Iterable[str]) -> Iterator[Place]:
    """Return the places of endpoints, as the system writes them."""
    for one in endpoints:
        if one.startswith(_IPC) and system.UNREAD is not None and hasattr(socket, "AF_UNIX"):
            path = os.fsencode(one.removeprefix(_IPC))
            yield b"\0" + path[1:] if path.startswith(b"@") else path
        elif one.startswith(_TCP):
            # Behind a semicolon stands the other side, before it the address to connect from.
            host, _, port = one.removeprefix(_TCP).rpartition(";")[2].rpartition(":")
            if port.isdecimal():
                yield _numeric(host.strip("[]")), int(port)


def _numeric(host: str) -> str:
    """Return an address as the system writes it; empty for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(address, "ipv4_mapped", None) or address)


def find(bound: Set[Place]) -> list[ConnectionEnd]:
    """Find the connections of this process to its listeners at some places; libzmq does not tell which it has."""
    found: list[ConnectionEnd] = []
    lacking = 0
    with _looking:
        ours = {end.own for one in tuple(_kept) if (end := one()) is not None}
        for number in system.open_descriptors():
            # An error: closed meanwhile, or no socket, or not connected.
            with suppress(OSError):
                if not _is_one(number, ours, bound):
                    continue
                try:
                    copy = system.second_socket(number)
                except OSError as error:
                    lacking += error.errno in (errno.EMFILE, errno.ENFILE)
                    continue
                end = ConnectionEnd(number, copy) if copy.family == _UNIX else TcpEnd(number, copy)
                found.append(end)
                # It may have the number of a descriptor that was listed and is closed by now.
                ours.add(end.own)
    if lacking:
        text = (
            "closing, and no file descriptor is left to keep %d connections open: what subscribers have not "
        )
        _log.warning(text + "read yet may be lost; raise the limit (ulimit -n)", lacking)
    return found


def _is_one(number: int, ours: Set[Any], bound: Set[Place]) -> bool:
    """Tell whether a descriptor is of a connection at one of some places, and none that is kept.

    Nothing is copied for it: that would close locks of a file that has taken the number meanwhile.

    Raises:
        OSError: it is none of a connection.
    """
    found = os.fstat(number)
    if not stat.S_ISSOCK(found.st_mode) or (number, (found.st_dev, found.st_ino)) in ours:
        return False
    with system.borrowed_socket(number) as one:
        if one.family not in (_UNIX, *_ANY) or one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        return _is_at(one, one.getsockname(), bound)


def _is_at(one: socket.socket, name: Any, places: Set[Place]) -> bool:
    """Tell whether what the system calls an end of a connection is one of some places."""
    if isinstance(name, str | bytes):
        return os.fsencode(name) in places
    host, port = name[:2]
    return any((each, port) in places for each in (_numeric(host), _ANY[one.family], ""))


def _identity(descriptor: int) -> tuple[int, int]:
    """Return what tells an open file from all others.

    Raises:
        OSError: it is closed.
    """
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _leave_to_parent() -> None:
    """Close, in the child of a fork, what the parent keeps; no thread looks after it here."""
    global _looking
    _looking = threading.RLock()
    for one in tuple(_kept):
        if (end := one()) is not None:
            end.close()


system.after_fork(_leave_to_parent)
