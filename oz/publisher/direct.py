"""Direct stream of a session: a node sends replies and introductions to one other node on this stream.

Each session has stream 0, without a declaration. The messages of stream 0 need not match a pattern. Overflow policies
and memory limits do not apply to the stream. If the stream is full, it refuses the next message. When the session ends,
the publisher discards the waiting messages.

The object is created for the first direct message. Only nodes send direct messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oz.publisher.session import Stream
from oz.wire import links

if TYPE_CHECKING:
    from oz.publisher.batching import Body, Recipients
    from oz.publisher.session import Session

MAX_DIRECT = 10_000
"""Maximum number of direct messages that wait for space in the window of a session."""


class DirectStream(Stream):
    """Stream 0 of a session.

    Attributes:
        alone: recipients of a direct message: a tuple with this stream only.
    """

    __slots__ = ("alone",)

    def __init__(self, session: Session) -> None:
        super().__init__(session, links.DIRECT, links.DEFAULT_OPTIONS, None)
        self.limit = MAX_DIRECT
        self.alone: Recipients = (self,)

    @property
    def is_nearly_full(self) -> bool:
        """Always False, because a full direct stream never delays `publish`."""
        return False

    def keep(self, body: Body, flags: int) -> None:
        """Add a body to the backlog. The caller has checked `has_space`."""
        self._append(body, flags)

    def drop_oldest(self, count: int) -> int:
        """Drop nothing, because direct messages are never dropped."""
        return 0

    def drop_backlog(self) -> None:
        """Drop nothing, because direct messages stay until the session ends."""

    def count_lost(self, count: int | None) -> None:
        """Do nothing, because the lost messages were not direct messages."""
