"""The subscriptions of one subscriber, and who gets what arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oz.numbers import check_number
from oz.protocol.messages import Message
from oz.protocol.node.reserved_subjects import INBOX
from oz.protocol.node.reserved_subjects import OWN as RESERVED
from oz.subjects.index.patterns import Matches, PatternIndex
from oz.subjects.pattern import Pattern
from oz.wire.keys import OWN

CACHE_SIZE = 65_536
LONGEST_REMEMBERED = 1_024
"""How many subjects a subscriber remembers the route of, and the bytes of the longest."""

_INBOX, _RESERVED = INBOX.encode(), RESERVED.encode()

Handler = Callable[[Message], Any]


def _nothing_to_wait_for(subscription: Subscribed, timeout: float) -> bool:
    return True


class Subscribed:
    """One call of `subscribe`: its patterns and its handler, until it is undone.

    Attributes:
        patterns: the compiled patterns.
        handler: what is called with each message.
        active: False once it has been undone; nothing is delivered for it any more.
        left: messages after which it ends, or None; 0 once it has had its last.
    """

    __slots__ = (
        "__weakref__",
        "_cancel",
        "_drain",
        "_found_by",
        "_last",
        "active",
        "handler",
        "left",
        "patterns",
    )

    answer: Callable[[Message, Any, Any], Any] | None = None
    """Publishes a reply to a message, where a node has made it; `Message.reply` calls it."""

    def __init__(
        self,
        patterns: Iterable[Pattern],
        handler: Handler,
        cancel: Callable[[Subscribed], Any],
        max_messages: int | None = None,
        drain: Callable[[Any, float], Any] = _nothing_to_wait_for,
    ) -> None:
        """For `subscribe`."""
        self.patterns = self._found_by = tuple(dict.fromkeys(patterns))
        self.handler = handler
        self.active = True
        self.left = max_messages
        self._last: Message | None = None
        self._cancel = cancel
        self._drain = drain

    def _find_by(self, patterns: tuple[Pattern, ...]) -> None:
        """Find its messages by other patterns among those that come; to be said before it is taken in."""
        self._found_by = patterns

    def count(self, message: Message) -> None:
        """Count a message; with the last one the subscription ends."""
        assert self.left is not None
        self.left -= 1
        if self.left == 0:
            self._last = message
            self.unsubscribe()

    def wants(self, message: Message) -> bool:
        """Tell whether a message may be delivered for it: it stands, or this is its last."""
        return self.active or self._last is message

    def unsubscribe(self) -> None:
        """End it: nothing more is delivered, not even what was queued. A second call does nothing."""
        if self.active:
            self._cancel(self)

    def drain(self, timeout: float = 1.0) -> Any:
        """End it, and lose nothing; see `oz.Subscription.drain`. In asyncio it is awaited."""
        check_number("timeout", timeout)
        return self._drain(self, timeout)

    @property
    def prefixes(self) -> list[bytes]:
        """The prefixes of all its patterns."""
        return [prefix for pattern in self.patterns for prefix in pattern.prefixes]

    def __repr__(self) -> str:
        """Show the patterns and whether it still stands."""
        state = "" if self.active else " ended"
        return f"<oz.Subscription {', '.join(repr(pattern.text) for pattern in self.patterns)}{state}>"


class Route:
    """The route of one subject: the subscriptions that get its messages.

    Attributes:
        subject: as text; what is not UTF-8 by `surrogateescape`.
        is_text: it is UTF-8.
        subscriptions: all that match.
        is_clear: somebody wants it, and no pattern ran out of time.
        is_counted: some subscription ends after so many messages.
        is_malformed: it is not UTF-8 and nobody wants it.
        timed_out: the patterns that ran out of time.
    """

    __slots__ = (
        "is_clear",
        "is_counted",
        "is_malformed",
        "is_text",
        "subject",
        "subscriptions",
        "timed_out",
    )

    def __init__(
        self,
        subject: str,
        subscriptions: tuple[Subscribed, ...],
        timed_out: tuple[Pattern, ...],
        *,
        is_text: bool = True,
    ) -> None:
        """Work the route out from the subscriptions that match."""
        self.subject = subject
        self.is_text = is_text
        self.subscriptions = subscriptions
        self.is_clear = bool(subscriptions) and not timed_out
        self.is_counted = any(one.left is not None for one in subscriptions)
        # Nothing matched, and text dialects could not even try: the subject is not theirs to read.
        self.is_malformed = not subscriptions and not is_text
        self.timed_out = timed_out

    def renamed(self, subject: str) -> Route:
        """Return the same for another subject that is text."""
        # Not by the class, which works all out: each reply has a subject of its own, and so a route.
        route = Route.__new__(Route)
        route.subject = subject
        route.is_text = True
        route.subscriptions = self.subscriptions
        route.is_clear = self.is_clear
        route.is_counted = self.is_counted
        route.is_malformed = False
        route.timed_out = self.timed_out
        return route

    def narrowed_to(self, some: set[Subscribed]) -> Route:
        """Return a route that leads to some of its subscriptions only."""
        subscriptions = tuple(one for one in self.subscriptions if one in some)
        return Route(self.subject, subscriptions, self.timed_out, is_text=self.is_text)


class SubscriptionTable:
    """All subscriptions of one subscriber, or of one of its streams, and the routes that follow from them.

    Attributes:
        routes: those that are remembered, by subject.
    """

    __slots__ = (
        "_found_last",
        "_inbox",
        "_index",
        "_standing",
        "routes",
    )

    def __init__(self, index: type[PatternIndex[Subscribed]] = PatternIndex) -> None:
        """Start with none.

        Args:
            index: what finds the patterns that match.
        """
        self._index = index(cache_size=0)
        self._standing: dict[Subscribed, None] = {}
        self.routes: dict[bytes, Route] = {}
        self._found_last: Matches | None = None
        self._inbox: Route

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._standing)

    def __iter__(self) -> Any:
        """Go through the subscriptions, the oldest first."""
        return iter(tuple(self._standing))

    def add(self, subscription: Subscribed) -> None:
        """Take a subscription in."""
        for pattern in subscription._found_by:
            self._index.add(pattern, subscription)
        self._stand(subscription)

    def add_pattern(self, subscription: Subscribed, pattern: Pattern) -> None:
        """Take in one of the patterns of a subscription, which ZeroMQ is not asked for by prefix."""
        self._index.add(pattern, subscription)
        self._stand(subscription)

    def _stand(self, subscription: Subscribed) -> None:
        self._standing[subscription] = None
        self._forget()

    def _forget(self) -> None:
        self.routes.clear()
        self._found_last = None

    def remove(self, subscription: Subscribed) -> None:
        """Take a subscription out."""
        subscription.active = False
        if subscription not in self._standing:
            return
        del self._standing[subscription]
        for pattern in subscription._found_by:
            self._index.discard(pattern, subscription)
        self._forget()

    def route(self, subject: bytes) -> Route:
        """Say who gets the messages of a subject, and remember it."""
        if subject.startswith(OWN):
            # A batch for others, which an empty prefix lets through behind a proxy: not worth remembering.
            return Route("", (), ())
        found = self._index.find(subject)
        is_inbox = subject.startswith(_INBOX)
        if is_inbox and found is self._found_last and subject.isascii():
            # What an index gives for all inboxes of one owner leads to the same.
            return self._inbox.renamed(subject.decode())
        text, is_text = _readable(subject)
        values = dict.fromkeys(found.values)
        if subject.startswith(_RESERVED):
            values = dict.fromkeys(one for one in values if _asks_for_reserved(one, subject))
        route = Route(text, tuple(values), found.timed_out, is_text=is_text)
        if is_inbox and is_text:
            self._found_last, self._inbox = found, route
        if len(subject) > LONGEST_REMEMBERED or is_inbox:
            # Each inbox is the subject of one answer: to remember them would drive out all others.
            return route
        if len(self.routes) >= CACHE_SIZE:
            # All at once: finding the oldest again and again would walk over the slots of those gone before.
            self._forget()
        self.routes[subject] = route
        return route


def _asks_for_reserved(subscription: Subscribed, subject: bytes) -> bool:
    """Tell whether a subscription names one of oz's own subjects: `>` is for those of applications."""
    return any(
        all(prefix.startswith(_RESERVED) for prefix in pattern.prefixes) and pattern.matches(subject)
        for pattern in subscription._found_by
    )


def _readable(subject: bytes) -> tuple[str, bool]:
    try:
        return subject.decode(), True
    except UnicodeDecodeError:
        return subject.decode(errors="surrogateescape"), False
