"""The newest message of each subject, for queues with `overflow="conflate"`."""

from __future__ import annotations

from collections import OrderedDict

from oz.protocol.messages import Message

LIMIT = 65_536
"""Messages, or subjects with `overflow="conflate"`, that are kept unless said otherwise."""


class ConflatingStore:
    """A queue without a limit, of the newest message of each subject, in the order in which those came up."""

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
