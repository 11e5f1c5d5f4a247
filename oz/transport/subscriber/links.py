"""By which connections publishers are heard, and whether those stand.

libzmq tells with each message the descriptor that it came by. What has that number later, if anything, is
another socket, with another inode: so the end of a connection is seen without a monitor, which would be two
more sockets for each subscriber.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from oz.errors import ProtocolError
from oz.protocol.subscriber.absences import Absences, Link
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.transport.backend import Backend
from oz.wire.batch import key_size, parse_head

_EVENTS, _NOBLOCK, _POLLIN = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.POLLIN)
_SOURCE = int(zmq.SRCFD)
_PEER = "Peer-Address"
_IS_LOCAL = re.compile(r"[^:]*(:\d+){3}").fullmatch
"""Of a connection by ipc:// libzmq names user, group and process behind what it takes for a host."""

CAN_TELL = sys.platform != "win32"
"""Whether descriptors of sockets have inodes."""

NO_LINK = Link(None)


class PublisherLinks:
    """The connections of one subscriber with publisher-side filtering.

    Attributes:
        is_curious: whether messages are to be read by `read_with_link`, and given to `note`.
    """

    __slots__ = ("_absences", "_decoder", "_inode", "is_curious")

    def __init__(self, decoder: BatchDecoder, inode: Callable[[int], int | None]) -> None:
        """Start without knowing any.

        Args:
            decoder: takes in what comes.
            inode: tells what a descriptor is of; see `Backend`.
        """
        self._decoder = decoder
        self._inode = inode
        self._absences = Absences(decoder.streams.publishers)
        self.is_curious = True

    def note(self, frame: bytes, link: Link) -> None:
        """Record the connection that a message came by, if it is of a publisher that filters."""
        with suppress(ProtocolError):
            origin = parse_head(frame, key_size(frame)).origin
            if self._decoder.streams.publishers.heard_at(origin) is not None:
                self._absences.note(origin, link)

    def forgive(self) -> None:
        """Have the end of a connection not count that this subscriber is about to end itself."""
        self._absences.forgive(self.has_ended)
        self.is_curious = True

    def settle(self) -> None:
        """Find out whether the connections of all publishers are known; every publisher has answered."""
        self.is_curious = self._absences.find_curious()

    def look(self, now: float, *, is_idle: bool) -> None:
        """Report that messages may be missing of publishers that are gone without a goodbye.

        Args:
            now: monotonic seconds.
            is_idle: all that has come was read.
        """
        gone = self._absences.look(now, self.has_ended, is_idle=is_idle)
        self.is_curious = self._absences.is_curious
        for origin in gone:
            self._decoder.losses.lose_track(origin, None, is_in_place=False)

    def is_alone(self) -> bool:
        """Tell whether nobody that was heard is there any more, so that nothing is to be said to anybody."""
        return self._absences.is_alone(self.has_ended)

    def has_ended(self, link: Link) -> bool:
        """Tell whether a connection is closed at this end."""
        descriptor = link.descriptor
        return descriptor is not None and (link.inode is None or link.inode != self._inode(descriptor))

    def next_deadline(self) -> float | None:
        """Return when to look next, in monotonic seconds; None for never."""
        return self._absences.next_deadline()


def read_with_link(
    backend: Backend, socket: Any, flags: int, note: Callable[[zmq.Frame], object] | None = None
) -> tuple[list[bytes], Link]:
    """Return the frames of the next message, and the connection that they came by.

    Args:
        backend: of the socket.
        socket: the subscriber's.
        flags: 0 or `zmq.NOBLOCK`.
        note: called with the first frame.

    Raises:
        zmq.Again: there is none.
    """
    if flags & _NOBLOCK and not int(backend.get(socket, _EVENTS)) & _POLLIN:
        # No frame is made in vain: pyzmq looks for signals as it frees one, and Python drops what a handler
        # raises there, as Ctrl-C does.
        raise zmq.Again(zmq.EAGAIN)
    frame = backend.recv(socket, flags, False, False)
    link = _link_of(backend, frame)
    if note is not None:
        note(frame)
    frames = [frame.bytes]
    while frame.more:
        frame = backend.recv(socket, 0, False, False)
        frames.append(frame.bytes)
    return frames, link


def _link_of(backend: Backend, frame: zmq.Frame) -> Link:
    with suppress(zmq.ZMQError):
        # An error: it came by none that libzmq tells of.
        descriptor = int(frame.get(_SOURCE))
        return Link(descriptor, backend.inode(descriptor), _IS_LOCAL(str(frame.get(_PEER))) is not None)
    return NO_LINK
