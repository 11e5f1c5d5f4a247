"""The send buffer: what waits at a publisher for a stream that is full, as its subscriber chose."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, Protocol

from oz.protocol import receive_buffer
from oz.protocol.outgoing import OutStream


class SendBuffer(Protocol):
    """Messages of one stream that found no room."""

    def put(self, stream: OutStream, items: list[Any]) -> int:
        """Take subjects and payloads in; give how many messages the subscriber will miss for it."""
        ...

    def take(self, stream: OutStream, most: int) -> tuple[int, list[Any]]:
        """Give the sequence of the first, and subjects and payloads of at most so many messages."""
        ...

    def drop(self, count: int) -> None:
        """Forget those that were given."""
        ...

    def __bool__(self) -> bool:
        """Whether any are held."""
        ...


class DropOldestSendBuffer:
    """The newest so many messages; each has its sequence, so that those dropped show as a gap."""

    __slots__ = ("_items",)

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self._items: deque[tuple[bytes, Any]] = deque(maxlen=limit)

    def __bool__(self) -> bool:
        """Whether any are held."""
        return bool(self._items)

    def put(self, stream: OutStream, items: list[Any]) -> int:
        """Take messages in."""
        pairs = list(zip(items[0::2], items[1::2], strict=True))
        before = len(self._items) + len(pairs)
        self._items.extend(pairs)
        stream.sequence += len(pairs)
        return before - len(self._items)

    def take(self, stream: OutStream, most: int) -> tuple[int, list[Any]]:
        """Give the oldest of them."""
        pairs = list(islice(self._items, most))
        return stream.sequence - len(self._items), [part for pair in pairs for part in pair]

    def drop(self, count: int) -> None:
        """Forget the oldest."""
        for _ in range(count):
            self._items.popleft()


class ConflatingSendBuffer:
    """The newest message of each subject. Those that it stands for were never numbered: they are no gap."""

    __slots__ = ("_limit", "_newest")

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self._limit = limit
        self._newest: dict[bytes, Any] = {}

    def __bool__(self) -> bool:
        """Whether any are held."""
        return bool(self._newest)

    def put(self, stream: OutStream, items: list[Any]) -> int:
        """Take messages in; beyond the limit the subject that came up first is missed."""
        newest = self._newest
        for at in range(0, len(items), 2):
            newest[items[at]] = items[at + 1]
        missed = max(0, len(newest) - self._limit)
        self.drop(missed)
        # What is missed is numbered as if it had gone first, so that it shows as a gap.
        stream.sequence += missed
        return missed

    def take(self, stream: OutStream, most: int) -> tuple[int, list[Any]]:
        """Give those whose subjects came up first; they are numbered when they are dropped from here."""
        pairs = islice(self._newest.items(), most)
        return stream.sequence, [part for pair in pairs for part in pair]

    def drop(self, count: int) -> None:
        """Forget those that were given."""
        for subject in list(islice(self._newest, count)):
            del self._newest[subject]


def send_buffer_of(stream: OutStream) -> SendBuffer | None:
    """Give the send buffer of a stream; None when its overflow needs none."""
    if stream.send_buffer is None:
        limit = stream.delivery.limit or receive_buffer.LIMIT
        if stream.delivery.overflow == "conflate":
            stream.send_buffer = ConflatingSendBuffer(limit)
        elif stream.delivery.overflow == "drop_oldest":
            stream.send_buffer = DropOldestSendBuffer(limit)
    send_buffer: SendBuffer | None = stream.send_buffer
    return send_buffer
