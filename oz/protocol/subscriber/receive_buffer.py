"""The receive buffer: messages of a subscription that wait while the application is busy elsewhere."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from oz.protocol.messages import Message

LIMIT = 65_536
"""Messages, or subjects with `overflow="conflate"`, that are kept unless said otherwise."""


class ReceiveBuffer(Protocol):
    """Messages that wait, of which some may be dropped."""

    def put(self, messages: list[Message]) -> int:
        """Take messages in; return how many, of these or older ones, were dropped."""
        ...

    def pop(self) -> Message | None:
        """Return the next one, if there is any."""
        ...

    def retain(self, wanted: Iterable[Message]) -> None:
        """Keep only these."""
        ...

    def __iter__(self) -> Iterator[Message]:
        """Go through them."""
        ...

    def __bool__(self) -> bool:
        """Whether there are any."""
        ...


class ConflatingBuffer:
    """The newest message of each subject, in the order in which the subjects came up."""

    __slots__ = ("_limit", "_messages")

    def __init__(self, limit: int) -> None:
        """Start empty; `limit` counts subjects, of which the oldest go when there are more."""
        self._limit = limit
        self._messages: OrderedDict[str | bytes, Message] = OrderedDict()

    def __iter__(self) -> Iterator[Message]:
        """Go through the messages."""
        return iter(list(self._messages.values()))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._messages)

    def put(self, messages: list[Message]) -> int:
        """Take messages in; return how many were dropped."""
        kept = self._messages
        before = len(kept) + len(messages)
        for message in messages:
            kept[message.subject] = message
        while len(kept) > self._limit:
            kept.popitem(last=False)
        return before - len(kept)

    def pop(self) -> Message | None:
        """Return the message of the subject that came up first."""
        return self._messages.popitem(last=False)[1] if self._messages else None

    def retain(self, wanted: Iterable[Message]) -> None:
        """Keep only these."""
        self._messages = OrderedDict((message.subject, message) for message in wanted)


class ConflatingStore:
    """The same as a queue without a limit, for those who count what waits in several."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        """Start empty."""
        self._messages: OrderedDict[str | bytes, Message] = OrderedDict()

    def __len__(self) -> int:
        """Count the messages."""
        return len(self._messages)

    def replace(self, message: Message) -> bool:
        """Put a message in the place of an older one, if there is one."""
        if message.subject not in self._messages:
            return False
        self._messages[message.subject] = message
        return True

    def append(self, message: Message) -> None:
        """Put a message of a subject of which there is none at the end."""
        self._messages[message.subject] = message

    def popleft(self) -> Message:
        """Take out the message of the subject that came up first, or raise IndexError."""
        if not self._messages:
            raise IndexError
        return self._messages.popitem(last=False)[1]


class DropOldestBuffer:
    """The newest so many messages."""

    __slots__ = ("_limit", "_messages")

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self._limit = limit
        self._messages: deque[Message] = deque(maxlen=limit)

    def __iter__(self) -> Iterator[Message]:
        """Go through the messages."""
        return iter(list(self._messages))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._messages)

    def put(self, messages: list[Message]) -> int:
        """Take messages in; return how many were dropped."""
        before = len(self._messages) + len(messages)
        self._messages.extend(messages)
        return before - len(self._messages)

    def pop(self) -> Message | None:
        """Return the oldest."""
        return self._messages.popleft() if self._messages else None

    def retain(self, wanted: Iterable[Message]) -> None:
        """Keep only these."""
        self._messages = deque(wanted, maxlen=self._limit)


class DropNewestBuffer(DropOldestBuffer):
    """The first so many messages; while they wait, what comes after them is dropped."""

    __slots__ = ()

    def put(self, messages: list[Message]) -> int:
        """Take messages in; return how many were dropped."""
        room = max(0, self._limit - len(self._messages))
        self._messages.extend(messages[:room])
        return max(0, len(messages) - room)


def for_overflow(overflow: str | None, limit: int) -> ReceiveBuffer | None:
    """Make the receive buffer of an overflow; None for None, which drops nothing."""
    if overflow == "conflate":
        return ConflatingBuffer(limit)
    if overflow == "drop_oldest":
        return DropOldestBuffer(limit)
    return DropNewestBuffer(limit) if overflow == "drop_newest" else None
