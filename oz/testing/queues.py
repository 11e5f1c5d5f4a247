"""DEALER, ROUTER and PAIR, and the fair queue, which SUB uses too."""

from __future__ import annotations

from itertools import count

import zmq

from oz.testing.pipes import End, Message

_MANDATORY = int(zmq.ROUTER_MANDATORY)
_ROUTER_HANDOVER = int(zmq.ROUTER_HANDOVER)
_PROBE_ROUTER = int(zmq.PROBE_ROUTER)
_CONNECT_ROUTING_ID = int(zmq.CONNECT_ROUTING_ID)


class FairQueue:
    """Reads one message of each pipe in turn.

    Attributes:
        ends: the pipes.
    """

    def __init__(self) -> None:
        """Create it without pipes."""
        self.ends: list[End] = []
        self._at = 0

    def add(self, end: End) -> None:
        """Add a pipe."""
        self.ends.append(end)

    def remove(self, end: End) -> None:
        """Remove a pipe."""
        if end in self.ends:
            self.ends.remove(end)

    def read(self) -> tuple[End, Message] | None:
        """Return the next message and its pipe, or None."""
        found = self.take()
        if found is not None:
            found[0].count()
        return found

    def take(self) -> tuple[End, Message] | None:
        """Return the next message and its pipe, without counting the message as read."""
        ends, at = self.ends, self._at
        for end in ends:
            if end.incoming or end.is_ending:
                break
        else:
            return None
        size = len(ends)
        for _ in range(size):
            if at >= size:
                at %= size
            end = ends[at]
            self._at = at = at + 1
            if end.incoming or end.is_ending:
                message = end.take()
                if end.is_ending:
                    end.forget_if_read()
                    size = len(ends)
                if message is not None:
                    return end, message
        return None

    def has_in(self) -> bool:
        """Return whether there is a message."""
        for end in self.ends:  # noqa: SIM110 - half of what any() costs, and the simulation asks very often
            if end.incoming and not end.is_closed:
                return True
        return False


class Balancing:
    """DEALER, or PAIR with one pipe. Messages go to the pipes with space in turn, or wait."""

    def __init__(self, *, most: int | None = None) -> None:
        """Create it without pipes.

        Args:
            most: number of pipes at most; further pipes are refused.
        """
        self._queue = FairQueue()
        self._most = most
        self._at = 0
        self._to: End | None = None

    def set_option(self, option: int, value: int | bytes) -> bool:
        """Return that this type has no options."""
        return False

    def topics_count(self) -> int:
        """Raise an error: this type has no topics."""
        raise zmq.ZMQError(zmq.EINVAL)

    def attach(self, end: End) -> None:
        """Add a pipe, or refuse it."""
        if self._most is not None and len(self._queue.ends) >= self._most:
            end.close()
        else:
            self._queue.add(end)

    def readable(self, end: End) -> None:
        """Do nothing: `receive` reads the messages."""

    def writable(self, end: End) -> None:
        """Do nothing: each send checks the space of the pipes."""

    def hiccuped(self, end: End) -> None:
        """Do nothing: unsent messages are lost."""

    def terminated(self, end: End) -> None:
        """Remove a pipe."""
        self._queue.remove(end)
        if self._to is end:
            self._to = None

    def has_begun(self, end: End) -> bool:
        """Return whether a message of a pipe was announced and not received: never here."""
        return False

    def begin(self, first: bytes) -> bool:
        """Choose a pipe; return whether one has space."""
        ends = self._queue.ends
        for _ in range(len(ends)):
            self._at %= len(ends)
            end = ends[self._at]
            self._at += 1
            if end.try_write():
                self._to = end
                return True
        return False

    def send(self, message: Message) -> None:
        """Send a message to the pipe that `begin` has chosen."""
        if self._to is not None:
            self._to.write(message)
            self._to = None

    def receive(self) -> Message | None:
        """Return the next message."""
        found = self._queue.read()
        return None if found is None else found[1]

    def has_in(self) -> bool:
        """Return whether there is a message."""
        return self._queue.has_in()

    def has_out(self) -> bool:
        """Return whether a pipe has space."""
        return any(end.try_write() for end in self._queue.ends)


class Routing:
    """ROUTER: the first frame of a message is the name of the sender or the receiver."""

    def __init__(self) -> None:
        """Create it without pipes."""
        self._queue = FairQueue()
        self._ends: dict[bytes, End] = {}
        self._names: dict[End, bytes] = {}
        self._numbers = count(1)
        self._is_mandatory = self._hands_over = self._probes = False
        self._next_name = b""
        self._to: End | None = None

    def set_option(self, option: int, value: int | bytes) -> bool:
        """Set an option of this type; return whether it is one.

        Raises:
            RuntimeError: CONNECT_ROUTING_ID names a pipe that exists, for which libzmq ends the process.
        """
        if isinstance(value, bytes):
            if value in self._ends:
                raise RuntimeError(f"CONNECT_ROUTING_ID {value!r} is in use: libzmq ends the process")
            self._next_name = value
            return option == _CONNECT_ROUTING_ID
        if option == _PROBE_ROUTER:
            self._probes = bool(value)
        elif option == _MANDATORY:
            self._is_mandatory = bool(value)
        elif option == _ROUTER_HANDOVER:
            self._hands_over = bool(value)
        else:
            return False
        return True

    def topics_count(self) -> int:
        """Raise an error: this type has no topics."""
        raise zmq.ZMQError(zmq.EINVAL)

    def attach(self, end: End) -> None:
        """Add a pipe, unless another one has its name."""
        # CONNECT_ROUTING_ID names the next pipe only, which `connect` attaches at once.
        name, self._next_name = self._next_name or end.identity, b""
        name = name or b"\0" + next(self._numbers).to_bytes(4, "big")
        if (other := self._ends.get(name)) is not None:
            if not self._hands_over:
                # libzmq neither reads from such a pipe nor writes to it.
                return
            self._queue.remove(other)
            other.close()
            self._names.pop(other, None)
        self._ends[name], self._names[end] = end, name
        self._queue.add(end)
        if self._probes:
            end.write((b"",))

    def readable(self, end: End) -> None:
        """Do nothing: `receive` reads the messages."""

    def writable(self, end: End) -> None:
        """Do nothing: each send checks the space of the pipes."""

    def hiccuped(self, end: End) -> None:
        """Do nothing: unsent messages are lost."""

    def terminated(self, end: End) -> None:
        """Remove a pipe and its name."""
        self._queue.remove(end)
        name = self._names.pop(end, None)
        if name is not None and self._ends.get(name) is end:
            del self._ends[name]

    def has_begun(self, end: End) -> bool:
        """Return whether a message of a pipe was announced and not received: never here."""
        return False

    def begin(self, first: bytes) -> bool:
        """Find the receiver of a message; return whether it may be sent.

        Raises:
            zmq.ZMQError: no pipe has the name, and ROUTER_MANDATORY is set.
        """
        self._to = end = self._ends.get(first)
        if end is None and self._is_mandatory:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        if end is not None and not end.try_write():
            self._to = None
            return not self._is_mandatory
        return True

    def send(self, message: Message) -> None:
        """Send the frames behind the name to the receiver. Without space they are lost."""
        if self._to is not None and len(message) > 1:
            self._to.write(message[1:])
        self._to = None

    def receive(self) -> Message | None:
        """Return the next message, with the name of its sender as the first frame."""
        found = self._queue.read()
        return None if found is None else (self._names.get(found[0], found[0].identity), *found[1])

    def has_in(self) -> bool:
        """Return whether there is a message."""
        return self._queue.has_in()

    def has_out(self) -> bool:
        """Return whether a message can be sent: without ROUTER_MANDATORY always."""
        return not self._is_mandatory or any(end.try_write() for end in self._queue.ends)
