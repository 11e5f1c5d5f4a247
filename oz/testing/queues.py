"""Sockets that take turns among their pipes: DEALER, ROUTER and PAIR, and the fair queue that SUB has too."""

from __future__ import annotations

from itertools import count

import zmq

from oz.testing.pipes import End, Message

_MANDATORY = int(zmq.ROUTER_MANDATORY)
_ROUTER_HANDOVER = int(zmq.ROUTER_HANDOVER)
_PROBE_ROUTER = int(zmq.PROBE_ROUTER)
_CONNECT_ROUTING_ID = int(zmq.CONNECT_ROUTING_ID)


class FairQueue:
    """Reads from several pipes, a message of each in turn.

    Attributes:
        ends: the pipes.
    """

    def __init__(self) -> None:
        """Begin without a pipe."""
        self.ends: list[End] = []
        self._at = 0

    def add(self, end: End) -> None:
        """Read from a pipe too."""
        self.ends.append(end)

    def remove(self, end: End) -> None:
        """Read from a pipe no more."""
        if end in self.ends:
            self.ends.remove(end)

    def read(self) -> tuple[End, Message] | None:
        """Take the next message and tell from where, or None."""
        found = self.take()
        if found is not None:
            found[0].count()
        return found

    def take(self) -> tuple[End, Message] | None:
        """Do the same without counting the message as read."""
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
        """Tell whether there is a message."""
        for end in self.ends:  # noqa: SIM110 - half of what any() costs, and the simulation asks very often
            if end.incoming and not end.is_closed:
                return True
        return False


class Balancing:
    """A DEALER, or a PAIR, which has one pipe: messages go to those in turn that have room, or wait."""

    came_from: End | None = None

    def __init__(self, *, most: int | None = None) -> None:
        """Begin without a pipe.

        Args:
            most: how many pipes are used at most; others are refused.
        """
        self._queue = FairQueue()
        self._most = most
        self._at = 0
        self._to: End | None = None

    def set_option(self, option: int, value: int | bytes) -> bool:
        """Tell that there is no such option."""
        return False

    def topics_count(self) -> int:
        """Refuse: such sockets have no topics."""
        raise zmq.ZMQError(zmq.EINVAL)

    def attach(self, end: End) -> None:
        """Use a pipe, or refuse it."""
        if self._most is not None and len(self._queue.ends) >= self._most:
            end.close()
        else:
            self._queue.add(end)

    def readable(self, end: End) -> None:
        """Do nothing: what is there is read when somebody receives."""

    def writable(self, end: End) -> None:
        """Do nothing: whether a pipe can be written is asked for each message."""

    def hiccuped(self, end: End) -> None:
        """Do nothing: what was not sent is lost."""

    def terminated(self, end: End) -> None:
        """Forget a pipe."""
        self._queue.remove(end)
        if self._to is end:
            self._to = None

    def has_begun(self, end: End) -> bool:
        """Tell whether a message of a pipe is announced and not received; never here."""
        return False

    def begin(self, first: bytes) -> bool:
        """Choose a pipe; tell whether one has room."""
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
        """Send a message by the pipe that was chosen."""
        if self._to is not None:
            self._to.write(message)
            self._to = None

    def receive(self) -> Message | None:
        """Take the next message."""
        found = self._queue.read()
        return None if found is None else found[1]

    def has_in(self) -> bool:
        """Tell whether there is a message."""
        return self._queue.has_in()

    def has_out(self) -> bool:
        """Tell whether a pipe has room."""
        return any(end.try_write() for end in self._queue.ends)


class Routing:
    """A ROUTER: messages begin with the identity of whom they come from and go to."""

    came_from: End | None = None

    def __init__(self) -> None:
        """Begin without a pipe."""
        self._queue = FairQueue()
        self._ends: dict[bytes, End] = {}
        self._names: dict[End, bytes] = {}
        self._numbers = count(1)
        self._is_mandatory = self._hands_over = self._probes = False
        self._next_name = b""
        self._to: End | None = None

    def set_option(self, option: int, value: int | bytes) -> bool:
        """Set an option of such sockets; tell whether it is one.

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
        """Refuse: such sockets have no topics."""
        raise zmq.ZMQError(zmq.EINVAL)

    def attach(self, end: End) -> None:
        """Use a pipe, unless another has its identity."""
        # CONNECT_ROUTING_ID names the next pipe only, which `connect` attaches at once.
        name, self._next_name = self._next_name or end.identity, b""
        name = name or b"\0" + next(self._numbers).to_bytes(4, "big")
        if (other := self._ends.get(name)) is not None:
            if not self._hands_over:
                # libzmq leaves such a pipe without a way to it, and reads nothing from it.
                return
            self._queue.remove(other)
            other.close()
            self._names.pop(other, None)
        self._ends[name], self._names[end] = end, name
        self._queue.add(end)
        if self._probes:
            end.write((b"",))

    def readable(self, end: End) -> None:
        """Do nothing: what is there is read when somebody receives."""

    def writable(self, end: End) -> None:
        """Do nothing: whether a pipe can be written is asked for each message."""

    def hiccuped(self, end: End) -> None:
        """Do nothing: what was not sent is lost."""

    def terminated(self, end: End) -> None:
        """Forget a pipe and its identity."""
        self._queue.remove(end)
        name = self._names.pop(end, None)
        if name is not None and self._ends.get(name) is end:
            del self._ends[name]

    def has_begun(self, end: End) -> bool:
        """Tell whether a message of a pipe is announced and not received; never here."""
        return False

    def begin(self, first: bytes) -> bool:
        """Find whom a message goes to; tell whether it may be sent.

        Raises:
            zmq.ZMQError: nobody has that identity, and ROUTER_MANDATORY is set.
        """
        self._to = end = self._ends.get(first)
        if end is None and self._is_mandatory:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        if end is not None and not end.try_write():
            self._to = None
            return not self._is_mandatory
        return True

    def send(self, message: Message) -> None:
        """Send the rest of a message to whom its first frame names; without room it is lost."""
        if self._to is not None and len(message) > 1:
            self._to.write(message[1:])
        self._to = None

    def receive(self) -> Message | None:
        """Take the next message, with the identity of whom it comes from before it."""
        found = self._queue.read()
        return None if found is None else (self._names.get(found[0], found[0].identity), *found[1])

    def has_in(self) -> bool:
        """Tell whether there is a message."""
        return self._queue.has_in()

    def has_out(self) -> bool:
        """Tell whether something can be sent; without ROUTER_MANDATORY always."""
        return not self._is_mandatory or any(end.try_write() for end in self._queue.ends)
