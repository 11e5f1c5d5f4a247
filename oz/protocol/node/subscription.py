"""The subscriptions of a node: the queue between the bus and a handler, and what nodes count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from oz.protocol.messages import Message
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.subjects.pattern import Pattern


class Pending(Protocol):
    """The place where messages of a subscription wait: for its handler, or to be received."""

    @property
    def waiting(self) -> int:
        """Messages that wait."""

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too many waited."""

    @property
    def handled(self) -> int:
        """Messages that were handled, or received."""

    @property
    def failed(self) -> int:
        """Messages at which the handler raised."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for its handler, nor is being handled."""

    def put(self, message: Message) -> None:
        """Take a message in."""

    def drain(self, timeout: float | None) -> Any:
        """Wait until all is handled; give whether it is, on asyncio when awaited."""

    def end(self) -> None:
        """Tell those who receive that no more comes; what is here stays."""

    def abandon(self) -> int:
        """Have no more handled, since the node closes; give how many messages are dropped for that."""

    def close(self) -> int:
        """Forget what waits, and ignore what is still put; give how many messages waited."""


@dataclass(frozen=True, slots=True)
class NodeParts:
    """The parts that a node puts together to what its `subscribe` gives.

    Attributes:
        patterns: what it asks for.
        queue: where its messages wait.
        cancel: ends it.
        drain: ends it when it has handled what is on its way.
        answer: publishes a reply to a message; `Message.reply` calls it.
        group: its queue group, or "".
        max_messages: after which it ends, or None.
    """

    patterns: Iterable[Pattern]
    queue: Pending
    cancel: Callable[[Subscribed], Any]
    drain: Callable[[Any, float], Any]
    answer: Callable[[Message, Any, Any], Any]
    group: str
    max_messages: int | None


Refusable = Literal["announcement", "introduction", "reply"]
"""What a node may refuse of others."""


@dataclass(slots=True)
class NodeStats:
    """The counts of a node and its messages. Plain integers; a copy as of when you asked for it."""

    published: int = 0
    """Messages given to `publish`, requests and replies included."""
    unwanted: int = 0
    """Those that nobody had asked for."""
    missed: int = 0
    """Messages for which a peer had no room, counted for each: it learns of them by a gap."""
    received: int = 0
    """Messages that came in, those of the node itself included."""
    lost: int = 0
    """Messages known to have been lost on the way here."""
    handled: int = 0
    """Messages that handlers have handled, or that were received of subscriptions without one."""
    failed: int = 0
    """Messages at which a handler raised."""
    dropped: int = 0
    """Messages dropped because too many waited for a handler."""
    waiting: int = 0
    """Messages that wait for a handler now."""
    requests: int = 0
    """Requests sent: not those that nobody would have answered."""
    replies: int = 0
    """Replies given."""
    late_replies: int = 0
    """Replies that came when nobody waited for them any more; they are dropped."""
    replies_dropped: int = 0
    """Replies given to requesters who could not be reached."""
    no_responders: int = 0
    """Requests that nobody would have answered."""
    advisories: int = 0
    """Advisories published."""
    malformed: int = 0
    """Frames that meant nothing."""
    refused_introductions: int = 0
    """Announcements of peers at endpoints that this node does not connect to."""
    refused_announcements: int = 0
    """Announcements of a node by somebody else, and those that contradict what is known of it."""
    refused_replies: int = 0
    """Replies that were wanted elsewhere than in an inbox, and those to an inbox that nobody was told of."""
    denied: int = 0
    """Subscriptions and messages of peers that their keys do not allow; docs/permissions.md."""
    contradictions: int = 0
    """Frames that contradict what their publisher said before: perhaps somebody else uses its name."""
