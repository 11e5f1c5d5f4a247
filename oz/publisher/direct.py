"""Direct stream of a session, by which a node sends replies and introductions to one other node.

Stream 0 exists in each session without a declaration. Its messages match no pattern, and no overflow policy or memory
limit drops them: a full direct stream refuses the next message. When the session ends, its messages are discarded.

The object is created with the first direct message. Therefore sessions of publishers that are no nodes have no such
object.
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
        """Whether `publish` must check the space of this stream: always False."""
        return False

    def keep(self, body: Body, flags: int) -> None:
        """Add a body to the backlog. The caller has checked `has_space`."""
        self._append(body, flags)

    def drop_oldest(self, count: int) -> int:
        """Drop nothing, because direct messages are never dropped."""
        return 0

    def drop_backlog(self) -> None:
        """Drop nothing: the messages are given up when the session ends."""

    def count_lost(self, count: int | None) -> None:
        """Count nothing, because messages that were lost before the publisher were not direct messages."""
