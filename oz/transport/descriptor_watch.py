"""Keeps some file descriptors free: without any, libzmq's `accept` fails without end, and asks again at once.

libzmq cannot be told to stop accepting for a time: to unbind an endpoint ends all its connections (4.3.5). So
one thread for all sockets of the process looks now and then how many descriptors are in use. When few are
left it ends the newest connections to what is bound, of the address that has most of them.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import threading
import weakref
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from oz.logs import peer_logger
from oz.system import after_fork, borrowed_socket, descriptor_folder, most_descriptors, open_descriptors

_log = peer_logger("oz.descriptors")

LOOK_SECONDS = 1.0
"""Seconds between two looks while a quarter of the descriptors is free,"""
NEAR_SECONDS = 0.1
"""while less is,"""
SHORT_SECONDS = 0.02
"""and while connections are being ended."""

ON_ITS_WAY = 2.0
"""Seconds after which a connection that was begun, or ended by the other side, has been made and accepted."""

_BOTH_ENDS = 2
"""Those that a connection takes to a peer that is in this process as well."""

_SHARE = 100
"""After a look comes a rest of so many times what the look took; a tenth of that while less is free."""

_FOLDER = descriptor_folder() or "/dev/fd"
_PEER = struct.Struct("3i")
"""What SO_PEERCRED gives: a process, a user and a group. Source: unix(7)."""


def headroom(limit: int) -> int:
    """Return how many of so many descriptors are kept free, for what the program itself opens."""
    return max(16, min(64, limit // 8))


@dataclass(slots=True)
class AcceptedConnection:
    """A connection that libzmq has accepted.

    Attributes:
        descriptor: its number.
        inode: tells it from what has the number later.
        order: a newer one has a higher one.
        source: the address that it comes from, or the process.
        place: the endpoint that it came to.
        is_cut: whether it was ended; libzmq closes it soon.
    """

    descriptor: int
    inode: int
    order: int
    source: object
    place: object
    is_cut: bool = False


def newest_of_largest(connections: list[AcceptedConnection], count: int) -> list[AcceptedConnection]:
    """Choose some to end: each time the newest of the source that has most.

    Args:
        connections: those that there are.
        count: how many to choose, at most.
    """
    sizes = Counter(one.source for one in connections)
    by_source: dict[object, list[AcceptedConnection]] = {}
    for one in sorted(connections, key=lambda one: (one.order, one.inode)):
        by_source.setdefault(one.source, []).append(one)
    chosen = []
    for _ in range(min(count, len(connections))):
        [(source, _)] = sizes.most_common(1)
        sizes[source] -= 1
        chosen.append(by_source[source].pop())
    return chosen


class Underway:
    """Counts connections that libzmq's threads may still have to make inside this process."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._begun: deque[tuple[float, int]] = deque()

    def __enter__(self) -> Underway:
        """Let nobody else begin one meanwhile."""
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        """Let others."""
        self._lock.release()

    def pending(self, used: int) -> int:
        """Return how many descriptors they are about to take, at most: two each, less what was taken since.

        Args:
            used: how many are in use.
        """
        now = monotonic()
        while self._begun and now - self._begun[0][0] >= ON_ITS_WAY:
            self._begun.popleft()
        if not self._begun:
            return 0
        return max(0, _BOTH_ENDS * len(self._begun) - max(0, used - self._begun[0][1]))

    def add(self, used: int, count: int = 1) -> None:
        """Record that some are begun, while so many descriptors are in use."""
        self._begun.extend([(monotonic(), used)] * count)


class DescriptorWatch:
    """Watches the descriptors of this process, while something is bound.

    Attributes:
        cut: how many connections it has ended.
        refused: how often something was not begun as descriptors were short; see `descriptors.need`.
        underway: the connections that are about to take more.
    """

    def __init__(self) -> None:
        """Watch nothing yet."""
        self.cut = self.refused = 0
        self.underway = Underway()
        self._lock = threading.Lock()
        self._bound: dict[object, weakref.ref[Any]] = {}
        self._known: dict[int, AcceptedConnection | int] = {}
        self._order = 0
        self._thread: threading.Thread | None = None

    def add(self, bound: Any, endpoint: str) -> None:
        """Watch over an endpoint until its socket is closed.

        Args:
            bound: the socket, which is not kept.
            endpoint: as libzmq tells it, with its port.
        """
        place = _place(endpoint)
        if place is None or most_descriptors() is None:
            return
        with self._lock:
            self._bound[place] = weakref.ref(bound)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="oz-descriptors", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                self._forget_closed()
                if not self._bound:
                    self._thread = None
                    return
            try:
                seconds = self._look()
            except Exception:
                _log.exception("looking after file descriptors failed; it goes on")
                seconds = LOOK_SECONDS
            pause.wait(seconds)

    def _forget_closed(self) -> None:
        for place, reference in [*self._bound.items()]:
            bound = reference()
            if bound is None or bound.closed:
                del self._bound[place]

    def _look(self) -> float:
        """End connections if descriptors are short; return when to look again, in seconds."""
        limit = most_descriptors()
        if limit is None:
            return LOOK_SECONDS
        began, used = monotonic(), count_used(limit)
        connections = self._connections()
        ending = sum(one.is_cut for one in connections)
        short = used - ending - (limit - headroom(limit))
        if short > 0:
            self._end(newest_of_largest([one for one in connections if not one.is_cut], short), used, limit)
        if short > 0 or ending:
            return SHORT_SECONDS
        took = monotonic() - began
        if used > limit * 3 // 4:
            return max(NEAR_SECONDS, took * _SHARE / 10)
        return max(LOOK_SECONDS, took * _SHARE)

    def _connections(self) -> list[AcceptedConnection]:
        """Find the connections to what is bound; those that were not there at the last look are newer."""
        self._order += 1
        before, self._known = self._known, {}
        for descriptor in open_descriptors():
            with suppress(OSError):
                found = os.fstat(descriptor)
                if not stat.S_ISSOCK(found.st_mode):
                    continue
                known = before.get(descriptor)
                if known is None or found.st_ino != (known if isinstance(known, int) else known.inode):
                    known = self._met(descriptor, found.st_ino)
                self._known[descriptor] = known
        return [one for one in self._known.values() if isinstance(one, AcceptedConnection)]

    def _met(self, descriptor: int, inode: int) -> AcceptedConnection | int:
        """Find out what a socket is; its inode stands for one that is nothing of oz's."""
        with suppress(OSError), borrowed_socket(descriptor) as found:
            place = _local(found)
            if place in self._bound:
                # A socket that listens has no peer.
                peer = found.getpeername()
                return AcceptedConnection(descriptor, inode, self._order, _source(found, peer), place)
        return inode

    def _end(self, chosen: list[AcceptedConnection], used: int, limit: int) -> None:
        for one in chosen:
            with suppress(OSError), borrowed_socket(one.descriptor) as found:
                # libzmq may have closed it meanwhile, and something else have its number.
                if os.fstat(one.descriptor).st_ino == one.inode:
                    found.shutdown(socket.SHUT_RDWR)
                    one.is_cut = True
                    self.cut += 1
        own = f"process {os.getpid()}"
        with self.underway as underway:
            # libzmq connects again by itself.
            underway.add(used, sum(one.is_cut for one in chosen if one.source == own))
        if chosen:
            source, count = Counter(one.source for one in chosen).most_common(1)[0]
            _log.warning(
                "%d of %d file descriptors are in use: ended %d connections that came last, %d of them from "
                "%s, and %d so far; raise the limit (ulimit -n), or let a firewall bound the connections of "
                "one address",
                used,
                limit,
                len(chosen),
                count,
                source,
                self.cut,
            )


def count_used(limit: int) -> int:
    """Return how many descriptors are open."""
    try:
        # Linux tells it from 6.2 on, without a descriptor.
        return os.stat(_FOLDER).st_size or len(os.listdir(_FOLDER))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return limit
        raise


def _place(endpoint: str) -> object:
    """Return how the connections of an endpoint say where they are; None when they are no files."""
    scheme, _, address = endpoint.partition("://")
    if scheme == "tcp":
        return int(address.rpartition(":")[2])
    if scheme == "ipc":
        # An abstract name begins with a zero byte where libzmq writes @.
        return f"\0{address[1:]}".encode() if address.startswith("@") else address
    return None


def _local(found: socket.socket) -> object:
    address = found.getsockname()
    return address[1] if isinstance(address, tuple) else address


def _source(found: socket.socket, peer: Any) -> object:
    if isinstance(peer, tuple):
        return peer[0]
    if hasattr(socket, "SO_PEERCRED"):
        said = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        return f"process {_PEER.unpack(said)[0]}"
    return "this host"


WATCH = DescriptorWatch()
"""That of this process."""


# The thread is not in the child of a fork, and what was bound is the parent's.
after_fork(WATCH.__init__)  # type: ignore[misc]
