"""Pipes: the queues between a socket and its connection, with their high-water marks.

As in libzmq, a pipe has two ends. One belongs to a socket. The other one belongs to the session of the
connection or, with `inproc`, to the other socket. The ends notify each other by commands, which a
socket processes later.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

import zmq

Message = tuple[bytes, ...]
"""Frames of one message. They pass together or not at all."""


class PipeOwner(Protocol):
    """Owner of an end of a pipe: a socket or a session, which receives events as commands."""

    def post(self, command: Callable[[], None]) -> None:
        """Add a command, to be called later."""

    def readable(self, end: End) -> None:
        """Handle that an end has messages."""

    def writable(self, end: End) -> None:
        """Handle that a full end has space again."""

    def hiccuped(self, end: End) -> None:
        """Send all subscriptions again, because the queue to the peer is new."""

    def terminated(self, end: End) -> None:
        """Remove an end that has ended."""


class End:
    """One end of a pipe.

    Attributes:
        owner: socket or session that reads and writes here.
        peer: other end.
        identity: ROUTING_ID of the peer of the connection, for a ROUTER.
        may_write: False after a write to a full pipe, until the peer has read.
        is_ending: whether the peer has ended; its messages can still be read.
    """

    __slots__ = (
        "_is_notified",
        "_low",
        "_mark",
        "_peers_read",
        "_read",
        "_written",
        "identity",
        "incoming",
        "is_closed",
        "is_ending",
        "may_write",
        "outgoing",
        "owner",
        "peer",
    )

    peer: End

    def __init__(self, owner: PipeOwner, *, mark: int, peers_mark: int) -> None:
        """Create an end without a peer; see `join`."""
        self.owner = owner
        self.incoming: deque[Message] = deque()
        self.outgoing: deque[Message] = deque()
        self.identity = b""
        self.may_write = True
        self.is_ending = self.is_closed = False
        self._written = self._peers_read = self._read = 0
        self._is_notified = False
        self.set_marks(mark, peers_mark)

    def set_marks(self, mark: int, peers_mark: int) -> None:
        """Set the high-water marks for outgoing and incoming messages; 0 is no limit."""
        self._mark = mark
        # The peer learns of free space whenever half of the messages are read.
        self._low = (peers_mark + 1) // 2

    # writing ---------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return whether one more message fits, as far as this end knows."""
        return not self._mark or self._written - self._peers_read < self._mark

    def try_write(self) -> bool:
        """Return whether a message can be written. After False nothing can be written until the peer has read."""
        if not self.may_write or self.is_ending or self.is_closed:
            return False
        if self._mark and self._written - self._peers_read >= self._mark:
            self.may_write = False
            return False
        return True

    def write(self, message: Message) -> bool:
        """Write a message; return whether there was space."""
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
        """Write a message after `try_write` has returned True."""
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
        """Return the next message, or None."""
        # As `take` and `count`, without a call for each.
        incoming = self.incoming
        if not incoming or self.is_closed:
            return None
        message = incoming.popleft()
        read, low = self._read, self._low
        if low and len(message) > 1 and not read % low:
            self._acknowledge()
        self._read = read = read + 1
        if low and not read % low:
            self._acknowledge()
        return message

    def take(self) -> Message | None:
        """Return the next message, or None, without counting it as read."""
        if self.is_closed or not self.incoming:
            return None
        message = self.incoming.popleft()
        if len(message) > 1 and self._low and not self._read % self._low:
            # libzmq checks the mark after each frame, but counts only the last frame of a message.
            self._acknowledge()
        return message

    def count(self) -> None:
        """Count a message as read, which frees space for the peer."""
        self._read = read = self._read + 1
        if self._low and not read % self._low:
            self._acknowledge()

    def _acknowledge(self) -> None:
        peer = self.peer
        peer.owner.post(partial(peer.acknowledge, self._read))

    def acknowledge(self, read: int) -> None:
        """Record the number of messages that the peer has read."""
        self._peers_read = read
        if not self.may_write and not self.is_closed and not self.is_ending:
            self.may_write = True
            self.owner.writable(self)

    # ending ----------------------------------------------------------------------------------------------

    def hiccup(self) -> None:
        """Replace the incoming queue. Unread messages are lost, and the peer sends its subscriptions again."""
        queue: deque[Message] = deque()
        self.incoming = queue
        peer = self.peer
        peer.owner.post(lambda: peer.begin_anew(queue))

    def begin_anew(self, queue: deque[Message]) -> None:
        """Use another outgoing queue."""
        if self.is_closed or self.is_ending:
            return
        self._written -= len(self.outgoing)
        self.outgoing = queue
        self.may_write = True
        self.owner.hiccuped(self)

    def close(self) -> None:
        """Close this end. The peer can still read the messages that were written."""
        if not self.is_closed:
            self.is_closed = True
            peer = self.peer
            peer.owner.post(peer.end)

    def end(self) -> None:
        """Record that the peer has closed its end. Its messages can still be read."""
        if self.is_closed or self.is_ending:
            return
        self.is_ending = True
        self.owner.readable(self)
        self.forget_if_read()

    def forget_if_read(self) -> None:
        """Remove this end at its owner, if the peer has closed and all messages are read."""
        if self.is_ending and not self.incoming and not self.is_closed:
            self.is_closed = True
            self.owner.terminated(self)


def join(one: End, other: End) -> None:
    """Join two ends to a pipe."""
    one.peer, other.peer = other, one
    one.incoming, other.incoming = other.outgoing, one.outgoing


class Again(zmq.Again):
    """`zmq.Again` without a call of libzmq for its text."""

    errno = errno.EAGAIN
    strerror = "Resource temporarily unavailable"

    def __init__(self) -> None:
        """Create the error."""
