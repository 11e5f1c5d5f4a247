"""Pipes: the queues between a socket and its connection, with their high-water marks.

As in libzmq a pipe has two ends. One belongs to a socket. The other belongs to the session that has the
connection or, with `inproc`, to the other socket. Each end tells the other what happens by commands, which a
socket takes notice of only now and then. What is taken out of one is a frame, in place of pyzmq's.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

import zmq

Message = tuple[bytes, ...]
"""The frames of one message: they pass all together or not at all."""


class PipeOwner(Protocol):
    """The owner of an end of a pipe: a socket or a session, which hears of events by commands."""

    def post(self, command: Callable[[], None]) -> None:
        """Take notice of something later."""

    def readable(self, end: End) -> None:
        """Read from an end."""

    def writable(self, end: End) -> None:
        """Write to an end that was full."""

    def hiccuped(self, end: End) -> None:
        """Say again what the other side is to know: its queue began anew."""

    def terminated(self, end: End) -> None:
        """Forget an end: nothing comes from it any more."""


class End:
    """One end of a pipe.

    Attributes:
        owner: who reads and writes here.
        peer: the other end.
        identity: who is at the other end of the connection, for a ROUTER.
        may_write: False after the pipe was found full, until the peer says that it has read.
        is_ending: the peer is gone; what came from it can still be read.
        sources: the numbers of the connections by which came what is to be read; empty where there are none.
        came_by: the one by which came what was read last.
    """

    __slots__ = (
        "_is_notified",
        "_low",
        "_mark",
        "_peers_read",
        "_read",
        "_written",
        "came_by",
        "identity",
        "incoming",
        "is_closed",
        "is_ending",
        "may_write",
        "outgoing",
        "owner",
        "peer",
        "sources",
    )

    peer: End

    def __init__(self, owner: PipeOwner, *, mark: int, peers_mark: int) -> None:
        """Make an end that is not joined to another yet; see `join`."""
        self.owner = owner
        self.incoming: deque[Message] = deque()
        self.outgoing: deque[Message] = deque()
        self.sources: deque[int] = deque()
        self.came_by: int | None = None
        self.identity = b""
        self.may_write = True
        self.is_ending = self.is_closed = False
        self._written = self._peers_read = self._read = 0
        self._is_notified = False
        self.set_marks(mark, peers_mark)

    def set_marks(self, mark: int, peers_mark: int) -> None:
        """Set how many messages fit in each direction, out and in; 0 is without bounds."""
        self._mark = mark
        # The peer hears of room whenever half of it has been read.
        self._low = (peers_mark + 1) // 2

    # writing ---------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Tell whether one more message fits, as far as this end knows."""
        return not self._mark or self._written - self._peers_read < self._mark

    def try_write(self) -> bool:
        """Tell whether a message can be written; if not, none can be until the peer has read."""
        if not self.may_write or self.is_ending or self.is_closed:
            return False
        if self._mark and self._written - self._peers_read >= self._mark:
            self.may_write = False
            return False
        return True

    def write(self, message: Message) -> bool:
        """Write a message; tell whether there was room."""
        # As `try_write` and `put`, without a call for each.
        if not self.may_write or self.is_ending or self.is_closed:
            return False
        written = self._written
        if self._mark and written - self._peers_read >= self._mark:
            self.may_write = False
            return False
        self.outgoing.append(message)
        self._written = written + 1
        peer = self.peer
        if not peer._is_notified:
            peer._is_notified = True
            peer.owner.post(peer._notified)
        return True

    def put(self, message: Message) -> None:
        """Write a message for which `try_write` has just found room."""
        self.outgoing.append(message)
        self._written += 1
        peer = self.peer
        if not peer._is_notified:
            peer._is_notified = True
            peer.owner.post(peer._notified)

    def _notified(self) -> None:
        self._is_notified = False
        if not self.is_closed:
            self.owner.readable(self)

    # reading ---------------------------------------------------------------------------------------------

    def read(self) -> Message | None:
        """Take the next message, or None."""
        # As `take` and `count`, without a call for each.
        incoming = self.incoming
        if not incoming or self.is_closed:
            return None
        message = incoming.popleft()
        if self.sources:
            self.came_by = self.sources.popleft()
        read, low = self._read, self._low
        if low and len(message) > 1 and not read % low:
            self._acknowledge()
        self._read = read = read + 1
        if low and not read % low:
            self._acknowledge()
        return message

    def take(self) -> Message | None:
        """Take the next message, or None, without counting it as read."""
        if self.is_closed or not self.incoming:
            return None
        message = self.incoming.popleft()
        if self.sources:
            self.came_by = self.sources.popleft()
        if len(message) > 1 and self._low and not self._read % self._low:
            # libzmq looks after each frame, though it counts only the last of a message.
            self._acknowledge()
        return message

    def count(self) -> None:
        """Count a message as read, which makes room for the peer."""
        self._read = read = self._read + 1
        if self._low and not read % self._low:
            self._acknowledge()

    def _acknowledge(self) -> None:
        peer = self.peer
        peer.owner.post(partial(peer.acknowledge, self._read))

    def acknowledge(self, read: int) -> None:
        """Take notice of how much the peer has read in all."""
        self._peers_read = read
        if not self.may_write and not self.is_closed and not self.is_ending:
            self.may_write = True
            self.owner.writable(self)

    # ending ----------------------------------------------------------------------------------------------

    def hiccup(self) -> None:
        """Begin the queue towards this end anew: what was not read is lost, and the peer says it again."""
        queue: deque[Message] = deque()
        self.incoming = queue
        peer = self.peer
        peer.owner.post(lambda: peer.begin_anew(queue))

    def begin_anew(self, queue: deque[Message]) -> None:
        """Write to another queue from now on."""
        if self.is_closed or self.is_ending:
            return
        self._written -= len(self.outgoing)
        self.outgoing = queue
        self.may_write = True
        self.owner.hiccuped(self)

    def close(self) -> None:
        """Read and write nothing here any more; the peer can still read what was written."""
        if not self.is_closed:
            self.is_closed = True
            peer = self.peer
            peer.owner.post(peer.end)

    def end(self) -> None:
        """Take notice of the peer's end: what it has written is still to be read."""
        if self.is_closed or self.is_ending:
            return
        self.is_ending = True
        self.owner.readable(self)
        self.forget_if_read()

    def forget_if_read(self) -> None:
        """Have the owner forget this end when the peer is gone and all that it wrote is read."""
        if self.is_ending and not self.incoming and not self.is_closed:
            self.is_closed = True
            self.owner.terminated(self)


def join(one: End, other: End) -> None:
    """Make a pipe of two ends."""
    one.peer, other.peer = other, one
    one.incoming, other.incoming = other.outgoing, one.outgoing


_SOURCE = int(zmq.SRCFD)


class Again(zmq.Again):
    """Stands for what pyzmq raises, which asks libzmq for the text of its error each time."""

    errno = errno.EAGAIN
    strerror = "Resource temporarily unavailable"

    def __init__(self) -> None:
        """Say no more than that."""


class ModelFrame:
    """A frame that was received, as `recv(copy=False)` gives it.

    Attributes:
        bytes: what is in it.
        more: whether another frame of the message follows.
    """

    __slots__ = ("_key", "_source", "bytes", "more")

    def __init__(self, data: bytes, more: bool, source: int | None, key: str = "") -> None:
        """Put it together.

        Args:
            data: what is in it.
            more: whether another frame of the message follows.
            source: the number of the connection that it came by.
            key: the public key of who sent it; empty where the sockets have none.
        """
        self.bytes = data
        self.more = more
        self._source = source
        self._key = key

    def get(self, option: int | str) -> int | str:
        """Return by what it came: SRCFD is the number of a connection, and all is called one host.

        Raises:
            zmq.ZMQError: nobody knows, or it is another property.
        """
        if option == "User-Id" and self._key:
            return self._key
        if self._source is None or option not in (_SOURCE, "Peer-Address"):
            raise zmq.ZMQError(zmq.EINVAL)
        return self._source if option == _SOURCE else "127.0.0.1"
