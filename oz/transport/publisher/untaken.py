"""Messages that subscribers have not taken yet when a publisher closes.

The system keeps what was sent on a connection for the other side, also when this one has closed. But libzmq
4.3.5 gives up all that it has not read, if its queue is full and it learns just then that the connection is
over (`in_event_internal` of stream_engine_base_t, with `_input_stopped`). It learns that too soon:

- with `ipc://` at once (EPOLLHUP);
- with `tcp://` when it says anything itself, such as a further subscription: what comes for a descriptor that
  is closed is answered by a reset. That also throws away what this system has not sent yet.

So a second descriptor keeps the connection open until the other side has read all. With `ipc://` the system
tells when that is so. With `tcp://` the other side is told that nothing more comes, and closes when it has
read up to there: without a reset, which is sent by whoever closes and leaves something unread.
"""

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
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, NamedTuple

from oz import system
from oz.logs import peer_logger
from oz.protocol.backoff import growing
from oz.transport.guard import apart
from oz.transport.socket import GivingUp

_log = peer_logger("oz.socket")

_IPC, _TCP = "ipc://", "tcp://"
_UNIX = getattr(socket, "AF_UNIX", None)
_ANY = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}
"""The address of a listener at all addresses, by what connections to it are of."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.25
"""Seconds between two looks at what the other side has read: nothing tells of it."""
_NOTHING = struct.pack("i", 0)

_PIECE, _MOST_PIECES = 1 << 16, 16
"""Bytes of what the other side still says that are read at once, and how often in one look."""

_LONGEST_READ = 60.0
"""Seconds for the other side of a TCP connection to close: whoever was stopped may never do so."""

_Place = bytes | tuple[str, int]
"""The path of a Unix socket; or an address and a port. An address that is not known is empty."""

_Own = Set[tuple[int, int | None]] | None
"""The descriptors and inodes of connections; None for any."""


class _Wanted(NamedTuple):
    """The connections that are looked for; see `Untaken`."""

    bound: Set[_Place]
    connected: Set[_Place]
    own: _Own


_kept: set[weakref.ref[_End]] = set()
"""All that are open: nobody takes them for connections of libzmq's. A signal handler may lose one."""

_looking = threading.RLock()
"""Whoever looks for connections has it: what another is about to keep would look like one."""


class Fate(Enum):
    """The fate of what was sent on a connection."""

    OPEN = "not all of it is written and read yet"
    READ = "the other side has read all of it"
    GONE = "the other side left, and had not read all of it"
    UNTOLD = "the system does not tell"


class _End:
    """One connection: a descriptor of our own, and the one that libzmq has."""

    __slots__ = ("__weakref__", "_identity", "_me", "_socket", "_was_there", "is_late", "is_silent", "number")

    def __init__(self, number: int, own: socket.socket) -> None:
        self.number = number
        self.is_silent = self.is_late = self._was_there = False
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

    def fate(self, longest: float) -> Fate:
        """Tell whether libzmq has written everything, and the other side has read it.

        Args:
            longest: seconds for the other side to close, where only that tells.
        """
        if not self.is_written:
            return Fate.OPEN
        try:
            return self._taken(longest)
        except ConnectionError:
            return Fate.GONE
        except OSError as error:
            return Fate.GONE if error.errno == errno.ENOTCONN else Fate.UNTOLD

    def _taken(self, _longest: float) -> Fate:
        # Whoever closes and has not read all leaves an error behind, and nothing unread.
        is_taken = self._has_none_unread()
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return Fate.GONE
        if not self._was_there and system.has_hung_up(self._socket):
            # Perhaps libzmq has closed it for that, and has taken the error.
            return Fate.GONE
        self._was_there = True
        return Fate.READ if is_taken else Fate.OPEN

    def _has_none_unread(self) -> bool:
        return system.ioctl(self._socket, system.UNREAD, _NOTHING) == _NOTHING

    def close(self) -> None:
        self._socket.close()
        _kept.discard(self._me)


class _TcpEnd(_End):
    """A connection whose other side tells that it has read all by closing."""

    __slots__ = ("_shut_at",)

    def __init__(self, number: int, own: socket.socket) -> None:
        super().__init__(number, own)
        # Whoever has said nothing has asked for nothing either.
        self.is_silent = not system.bytes_received(own)
        self._shut_at: float | None = None

    def _taken(self, longest: float) -> Fate:
        if self._shut_at is None:
            self._socket.setblocking(False)
            # An error, where the connection was reset before.
            self._socket.shutdown(socket.SHUT_WR)
            self._shut_at = time.monotonic()
        # What came to the other side after it had closed is answered by a reset.
        if self._has_closed() and (system.UNREAD is None or self._has_none_unread()):
            return Fate.READ
        self.is_late = time.monotonic() - self._shut_at >= longest
        return Fate.UNTOLD if self.is_late else Fate.OPEN

    def _has_closed(self) -> bool:
        with suppress(BlockingIOError):
            return any(not self._socket.recv(_PIECE) for _ in range(_MOST_PIECES))
        return False


class Untaken:
    """The connections of one publisher, kept open until subscribers have read all that was sent on them.

    Attributes:
        fates: what has become of each, by the descriptor that libzmq had.
        missing: what has become of one that is not among them.
    """

    __slots__ = ("_ends", "_given_up", "fates", "missing")

    def __init__(self, bound: Iterable[str], connected: Iterable[str] = (), *, own: _Own = None) -> None:
        """Take hold of connections, before libzmq is told to close them.

        Args:
            bound: the endpoints that the publisher listens at; all but `ipc://` and `tcp://` are passed over.
            connected: those that it has connected to.
            own: the descriptors of its connections and their inodes, where others of its context may have
                connected to the same endpoints.
        """
        bound, connected = list(bound), list(connected)
        here, there = list(_places(bound)), list(_places(connected))
        # A signal handler that raises would leave some descriptors open.
        found, has_all = apart(_find, _Wanted(set(here), set(there), own)) if here or there else ([], True)
        self._ends = [end for end in found if not end.is_silent]
        self._given_up = 0
        self.fates = {end.number: Fate.UNTOLD if end.is_silent else Fate.OPEN for end in found}
        for end in found:
            if end.is_silent:
                end.close()
        has_all = has_all and len(here) + len(there) == len(bound) + len(connected)
        self.missing = Fate.GONE if has_all else Fate.UNTOLD

    @property
    def open_numbers(self) -> set[int]:
        """The descriptors that libzmq still has."""
        return {one.number for one in self._ends if not one.is_written}

    @property
    def may_lack_room(self) -> bool:
        """Whether the system may not take at once what is sent next on one of them."""
        return system.count_with_room([end.own[0] for end in self._ends]) < len(self._ends)

    def leave_to_others(self) -> None:
        """Drop those that are in use though the context of the publisher has ended: others have them."""
        for end in [one for one in self._ends if not one.is_written]:
            end.close()
            self._ends.remove(end)
            del self.fates[end.number]

    def is_over(self, longest: float | None = None) -> bool:
        """Drop those that need it no more; tell whether that is all of them.

        Args:
            longest: seconds for the other side of a TCP connection to close, when it was told that nothing
                more comes; a minute if not given.
        """
        left, longest = [], _LONGEST_READ if longest is None else longest
        for end in self._ends:
            self.fates[end.number] = fate = end.fate(longest)
            if fate is Fate.OPEN:
                left.append(end)
            else:
                self._given_up += end.is_late
                end.close()
        self._ends = left
        return not left

    def close(self) -> None:
        """Drop all."""
        for end in self._ends:
            end.close()
        self._ends = []

    def wait(
        self,
        seconds: float,
        given_up: GivingUp | None = None,
        *,
        longest: float | None = None,
        is_aside: bool = False,
    ) -> None:
        """Wait until all is taken, for so long at most, and dropped. What is not taken by then is told of.

        Args:
            seconds: how long; may be infinite.
            given_up: ends it when it is set.
            longest: seconds for the other side of one TCP connection, as `is_over` has them.
            is_aside: while the program goes on, the time begins when libzmq has written everything, which it
                does for as long as LINGER says.
        """
        started, given_up = time.monotonic(), given_up or GivingUp()
        ends_at = started + seconds
        try:
            for pause in growing(_FIRST_PAUSE, _LONGEST_PAUSE):
                if self.is_over(longest):
                    break
                now = time.monotonic()
                if is_aside and self.open_numbers and threading.main_thread().is_alive():
                    ends_at = now + seconds
                if now >= ends_at:
                    self._given_up += len(self._ends)
                    break
                if given_up.wait(min(pause, ends_at - now)):
                    break
        finally:
            self.close()
        if self._given_up:
            text = (
                "closed, and %d subscribers may not have read in %g s all that was sent: the rest may be lost"
            )
            _log.warning(text, self._given_up, round(time.monotonic() - started, 3))

    def wait_aside(self, seconds: float) -> None:
        """The same without holding up the caller: a thread waits, and the end of the process for that."""
        if self.is_over() or seconds <= 0:
            # That the time is over was told already.
            self.close()
            return
        if threading.main_thread().is_alive():
            with suppress(RuntimeError):
                waiting = {"seconds": seconds, "is_aside": True}
                threading.Thread(target=self.wait, kwargs=waiting, name="oz-untaken").start()
                return
        # The process ends, and waits for no thread any more.
        self.wait(seconds)


@contextmanager
def kept(
    seconds: float, *, bound: Iterable[str] = (), connected: Iterable[str] = (), own: _Own = None
) -> Iterator[None]:
    """Keep connections that libzmq is told to close meanwhile, until all is taken; see `Untaken.wait_aside`.

    Args:
        seconds: for so long at most, after that.
        bound: as for `Untaken`.
        connected: the same.
        own: the same.
    """
    untaken = Untaken(bound, connected, own=own)
    try:
        yield
    except BaseException:
        untaken.close()
        raise
    untaken.wait_aside(seconds)


def _places(endpoints: Iterable[str]) -> Iterator[_Place]:
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


def _find(wanted: _Wanted) -> tuple[list[_End], bool]:
    """Find the connections of this process at some places; libzmq does not tell which it has.

    Returns:
        Those that are kept, and whether they are all.
    """
    found: list[_End] = []
    lacking = 0
    with _looking:
        ours = {end.own for one in tuple(_kept) if (end := one()) is not None}
        listed = system.open_descriptors()
        for number in listed:
            # An error: closed meanwhile, or no socket, or not connected.
            with suppress(OSError):
                if not _is_one(number, ours, wanted):
                    continue
                try:
                    copy = system.second_socket(number)
                except OSError as error:
                    lacking += error.errno in (errno.EMFILE, errno.ENFILE)
                    continue
                end = _End(number, copy) if copy.family == _UNIX else _TcpEnd(number, copy)
                found.append(end)
                # It may have the number of a descriptor that was listed and is closed by now.
                ours.add(end.own)
    if lacking:
        text = (
            "closing, and no file descriptor is left to keep %d connections open: what subscribers have not "
        )
        _log.warning(text + "read yet may be lost; raise the limit (ulimit -n)", lacking)
    return found, not lacking and bool(listed)


def _is_one(number: int, ours: Set[Any], wanted: _Wanted) -> bool:
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
        if _is_at(one, one.getsockname(), wanted.bound):
            return True
        is_own = wanted.own is None or (number, found.st_ino) in wanted.own
        return is_own and _is_at(one, one.getpeername(), wanted.connected)


def _is_at(one: socket.socket, name: Any, places: Set[_Place]) -> bool:
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
