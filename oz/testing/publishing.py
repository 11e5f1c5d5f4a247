"""PUB, XPUB, SUB and XSUB: subscriptions, matching, and full pipes."""

from __future__ import annotations

from collections import deque

import zmq

from oz.testing.pipes import End, Message
from oz.testing.queues import FairQueue
from oz.testing.topics import Sizes, Topics

_VERBOSE = int(zmq.XPUB_VERBOSE)
_VERBOSER = int(zmq.XPUB_VERBOSER)
_MANUAL = int(zmq.XPUB_MANUAL)
_NODROP = int(zmq.XPUB_NODROP)
_ONLY_FIRST = int(zmq.ONLY_FIRST_SUBSCRIBE)
_SUBSCRIBE, _UNSUBSCRIBE = int(zmq.SUBSCRIBE), int(zmq.UNSUBSCRIBE)


class PublisherPipes:
    """PUB or XPUB.

    A message goes to the pipes that match its first frame and have space. A full pipe gets no messages until its
    peer has read. With XPUB_NODROP one full pipe that matches refuses the whole message.
    """

    def __init__(self, *, tells: bool) -> None:
        """Create a publisher without pipes.

        Args:
            tells: whether subscriptions can be received, as from an XPUB.
        """
        self._tells = tells
        self._ends: dict[End, None] = {}
        self._topics, self._asked = Topics(), Topics()
        self._pending: deque[Message] = deque()
        self._pending_ends: deque[End | None] = deque()
        self._last: End | None = None
        self._matching: list[End] = []
        self._is_lossless = self._is_manual = self._only_first = False
        self._is_verbose = self._tells_each_end = False

    # options ---------------------------------------------------------------------------------------------

    def set_option(self, option: int, value: int | bytes) -> bool:
        """Set an option of this type; return whether it is one."""
        if isinstance(value, bytes):
            return self._answer(option, value)
        if option == _NODROP:
            self._is_lossless = bool(value)
        elif option == _MANUAL:
            self._is_manual = bool(value)
        elif option == _VERBOSE:
            self._is_verbose, self._tells_each_end = bool(value), False
        elif option == _VERBOSER:
            self._is_verbose = self._tells_each_end = bool(value)
        elif option == _ONLY_FIRST:
            self._only_first = bool(value)
        else:
            return False
        return True

    def _answer(self, option: int, topic: bytes) -> bool:
        """Accept or end a subscription of the peer whose frame was received last, in manual mode."""
        if not self._is_manual or option not in (_SUBSCRIBE, _UNSUBSCRIBE):
            return False
        if self._last is not None:
            (self._topics.add if option == _SUBSCRIBE else self._topics.remove)(topic, self._last)
        return True

    def topics_count(self) -> int:
        """Return the number of topics with subscribers."""
        return len(self._topics)

    # pipes -----------------------------------------------------------------------------------------------

    def attach(self, end: End) -> None:
        """Add a pipe."""
        self._ends[end] = None
        self.readable(end)

    def readable(self, end: End) -> None:
        """Read all subscriptions of a pipe."""
        while (message := end.read()) is not None:
            self._take(message, end)

    def _take(self, message: Message, end: End) -> None:
        are_subscriptions = True
        others: list[bytes] = []
        for place, frame in enumerate(message):
            is_one = frame[:1] in (b"\0", b"\1") and are_subscriptions
            if place == 0:
                are_subscriptions = not self._only_first or is_one
            if is_one:
                self._take_subscription(frame, end)
            else:
                others.append(frame)
        if others and self._tells:
            self._pending.append(tuple(others))

    def _take_subscription(self, frame: bytes, end: End) -> None:
        topic, subscribes = frame[1:], frame[0] == 1
        if self._is_manual:
            (self._asked.add if subscribes else self._asked.remove)(topic, end)
            self._pending_ends.append(end)
            is_told = True
        elif subscribes:
            is_told = self._topics.add(topic, end) or self._is_verbose
        else:
            is_told = not self._topics.remove(topic, end) or self._tells_each_end
        if is_told and (self._tells or self._is_manual):
            self._pending.append((frame,))

    def terminated(self, end: End) -> None:
        """Remove a pipe, and report the topics without subscribers."""
        asked = self._asked if self._is_manual else self._topics
        for topic, is_last in asked.remove_end(end):
            if self._is_manual or self._tells_each_end or is_last:
                self._tell_end(topic)
        for _ in self._topics.remove_end(end):
            pass
        self._ends.pop(end, None)
        if self._last is end:
            self._last = None

    def _tell_end(self, topic: bytes) -> None:
        if self._tells:
            self._pending.append((b"\0" + topic,))
            if self._is_manual:
                self._last = None
                self._pending_ends.append(None)

    def writable(self, end: End) -> None:
        """Do nothing: each send checks the space of the pipes."""

    def hiccuped(self, end: End) -> None:
        """Do nothing: a publisher sends no subscriptions."""

    # messages --------------------------------------------------------------------------------------------

    def has_begun(self, end: End) -> bool:
        """Return whether a message of a pipe was announced and not received: never here."""
        return False

    def begin(self, first: bytes) -> bool:
        """Choose the receivers of a message by its first frame; return whether it may be sent."""
        matching = self._topics.match(first)
        if self._is_lossless:
            for end in matching:
                if end.may_write and not end.has_room():
                    return False
        self._matching = [end for end in matching if end.try_write()]
        return True

    def send(self, message: Message) -> None:
        """Send a message to the receivers that `begin` has chosen."""
        for end in self._matching:
            end.put(message)
        self._matching = []

    def receive(self) -> Message | None:
        """Return the next subscription, or message of an XSUB."""
        if not self._pending:
            return None
        if self._is_manual and self._pending_ends:
            last = self._pending_ends.popleft()
            self._last = last if last in self._ends else None
        return self._pending.popleft()

    def has_in(self) -> bool:
        """Return whether there is a subscription to receive."""
        return bool(self._pending)

    def has_out(self) -> bool:
        """Return whether a message can be sent: always."""
        return True


class SubscriberPipes:
    """SUB or XSUB. It sends its subscriptions to all publishers, and again after each fault."""

    def __init__(self, *, filters: bool) -> None:
        """Create a subscriber without subscriptions.

        Args:
            filters: whether messages are compared with the subscriptions, as in a SUB. A SUB cannot send.
        """
        self._filters = filters
        self._queue = FairQueue()
        self._counts: dict[bytes, int] = {}
        self._sizes = Sizes()
        self._next: Message | None = None
        self._uncounted: End | None = None
        self._only_first = False

    def set_option(self, option: int, value: int | bytes) -> bool:
        """Subscribe or unsubscribe, if this is a SUB; return whether the option is one of this type."""
        if option == _ONLY_FIRST and isinstance(value, int):
            self._only_first = bool(value)
            return True
        if not self._filters or not isinstance(value, bytes) or option not in (_SUBSCRIBE, _UNSUBSCRIBE):
            return False
        self._subscribe_or_not((b"\1" if option == _SUBSCRIBE else b"\0") + value)
        return True

    def topics_count(self) -> int:
        """Return the number of subscribed topics."""
        return len(self._counts)

    # pipes -----------------------------------------------------------------------------------------------

    def attach(self, end: End) -> None:
        """Add a pipe, and send it all subscriptions."""
        self._queue.add(end)
        self.hiccuped(end)

    def hiccuped(self, end: End) -> None:
        """Send all subscriptions in lexicographic order. Without space they are lost."""
        for topic in sorted(self._counts):
            end.write((b"\1" + topic,))

    def readable(self, end: End) -> None:
        """Do nothing: `receive` reads the messages."""

    def writable(self, end: End) -> None:
        """Do nothing: each send checks the space of the pipes."""

    def terminated(self, end: End) -> None:
        """Remove a pipe."""
        self._queue.remove(end)

    # messages --------------------------------------------------------------------------------------------

    def has_begun(self, end: End) -> bool:
        """Return whether a message of several frames was announced and not received."""
        return self._uncounted is end

    def begin(self, first: bytes) -> bool:
        """Allow every message. Without space it is lost."""
        if self._filters:
            raise zmq.ZMQError(zmq.ENOTSUP)
        return True

    def send(self, message: Message) -> None:
        """Send subscriptions, or another message, to all publishers."""
        are_subscriptions = not self._only_first
        if not (message[0][:1] in (b"\0", b"\1") and (len(message) == 1 or are_subscriptions)):
            self._send_to_all(message)
            return
        for frame in message:
            self._subscribe_or_not(frame)

    def _subscribe_or_not(self, frame: bytes) -> None:
        topic, subscribes = frame[1:], frame[:1] == b"\1"
        before = self._counts.get(topic, 0)
        if subscribes:
            # Sent each time, because a publisher in verbose mode reports each one.
            self._counts[topic] = before + 1
            if not before:
                self._sizes.add(topic)
        elif before > 1:
            self._counts[topic] = before - 1
            return
        elif before == 1:
            del self._counts[topic]
            self._sizes.remove(topic)
        else:
            return
        self._send_to_all((frame,))

    def _send_to_all(self, message: Message) -> None:
        for end in self._queue.ends:
            end.write(message)

    def receive(self) -> Message | None:
        """Return the next message that matches."""
        if self._next is None and not self.has_in():
            return None
        message, self._next = self._next, None
        if self._uncounted is not None:
            self._uncounted.count()
            self._uncounted = None
        return message

    def has_in(self) -> bool:
        """Return whether there is a message that matches. Other messages are dropped."""
        if self._next is not None:
            return True
        queue = self._queue
        while (found := queue.take()) is not None:
            end, message = found
            is_wanted = not self._filters or self._matches(message[0])
            if is_wanted:
                self._next = message
                if len(message) > 1:
                    # Only the first frame is read so far.
                    self._uncounted = end
                    return True
            end.count()
            if is_wanted:
                return True
        return False

    def has_out(self) -> bool:
        """Return whether the socket can send: an XSUB can."""
        return not self._filters

    def _matches(self, first: bytes) -> bool:
        for size in self._sizes.counts:  # noqa: SIM110 - half of what any() costs
            if first[:size] in self._counts:
                return True
        return False
