"""Subscriptions of a subscriber: their streams, their declaration to publishers, and the match of received messages.

Theory of operation
-------------------
All links of a subscriber declare the same subscriptions. Each change of the subscriptions raises the number `revision`.
A link remembers the revision of its last declaration, and declares the changes since then. If the log of changes does
not reach back to this revision, the link declares all subscriptions with base 0.

Subscriptions with equal delivery options share a *stream*, which has a number. A stream number is never reused for
other options, because messages that were sent earlier would get the wrong options. A publisher sends a separate copy of
a message on each stream with a matching pattern. For each copy, `match` returns the matching subscriptions of its
stream. Stream 0 is the direct stream (`oz.wire.links`), which has no subscriptions and is never declared.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from oz.errors import ConfigurationError
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern
from oz.subjects.spelling import spell
from oz.wire import links
from oz.wire.links import DEFAULT_OPTIONS, SID, Item, StreamOptions

RESERVED = b"_OZ."
"""Prefix of subjects that oz itself publishes, for example advisories of a gateway."""
_LOG = 1_000  # Maximum number of changes that are kept for incremental declarations.
_MAX_NUMBERS = 65_535
DIRECT_OPTIONS = DEFAULT_OPTIONS
"""Options of the direct stream."""


class Subscription:
    """One pattern of a subscriber.

    Attributes:
        sid: number of the subscription; it is never reused.
        stream: number of the subscription's stream.
        pattern: compiled pattern.
        options: delivery options of the stream.
        last_value: whether publishers first send the newest message of each matching subject.
        owner: object that receives the messages, for example an `Inbox`.
        is_active: whether the subscription has not ended.
    """

    __slots__ = ("is_active", "last_value", "options", "owner", "pattern", "sid", "stream")

    def __init__(
        self, sid: int, stream: int, pattern: Pattern, options: StreamOptions, last_value: bool, owner: Any
    ) -> None:
        self.sid, self.stream, self.pattern, self.options = sid, stream, pattern, options
        self.last_value, self.owner = last_value, owner
        self.is_active = True

    @property
    def item(self) -> Item:
        """Entry for this subscription in a declaration."""
        return Item(self.sid, self.stream, *spell(self.pattern), self.last_value)


class Subscriptions:
    """All subscriptions of a subscriber.

    Attributes:
        revision: number of the last change; 0 before the first change.
        by_sid: dict of active subscriptions, by `sid`.
        is_drained: whether the whole subscriber is drained, so that other members receive its unhandled messages.
        index_class: class of the pattern index; each stream has an index.
    """

    index_class: type[PatternIndex[Subscription]] = PatternIndex

    def __init__(self) -> None:
        self.revision = 0
        self.by_sid: dict[int, Subscription] = {}
        self.is_drained = False
        self._retired: dict[int, Subscription] = {}
        self._numbers: dict[StreamOptions, int] = {}
        self._options: list[StreamOptions] = [DIRECT_OPTIONS]
        self._active: dict[int, int] = {}
        self._indexes: dict[int, PatternIndex[Subscription]] = {}
        self._log: deque[tuple[int, Subscription]] = deque(maxlen=_LOG)
        self._next_sid = 1
        self._full: tuple[int, list[bytes]] = 0, []

    def add(
        self,
        pattern: Pattern,
        options: StreamOptions = DEFAULT_OPTIONS,
        *,
        last_value: bool = False,
        owner: Any = None,
    ) -> Subscription:
        """Add a subscription. Afterwards the caller must call `declare` of each link.

        Args:
            pattern: compiled pattern.
            options: delivery options.
            last_value: whether publishers first send the newest message of each matching subject.
            owner: object that receives the messages.

        Raises:
            ConfigurationError: the subscriber has too many different delivery options.
            PatternError: the pattern cannot be encoded in a declaration.
        """
        spell(pattern)
        number = self._numbers.get(options)
        if number is None:
            number = len(self._options)
            if number > _MAX_NUMBERS:
                raise ConfigurationError(
                    "group", options.group, "argument",
                    f"the subscriber has used {_MAX_NUMBERS} different sets of delivery options; "
                    "reuse groups, or create another Subscriber",
                )  # fmt: skip
            if options not in self._numbers and len(self._active) >= links.MAX_STREAMS:
                raise ConfigurationError(
                    "group", options.group, "argument",
                    f"the subscriber has {links.MAX_STREAMS} different sets of delivery options at once; "
                    "unsubscribe, or use equal options",
                )  # fmt: skip
            self._numbers[options] = number
            self._options.append(options)
        subscription = Subscription(self._next_sid, number, pattern, options, last_value, owner)
        self._next_sid += 1
        self.by_sid[subscription.sid] = subscription
        self._active[number] = self._active.get(number, 0) + 1
        index = self._indexes.get(number)
        if index is None:
            # No cache here, because the dispatcher has a cache.
            index = self._indexes[number] = self.index_class(cache_size=0)
        index.add(pattern, subscription)
        self._changed(subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription, if it is active. Afterwards the caller must call `declare` of each link."""
        if self.retire(subscription):
            self.forget(subscription)

    def retire(self, subscription: Subscription) -> bool:
        """End a subscription at the publishers. Until `forget`, messages that arrive for it are still delivered.

        Returns:
            Whether the subscription was active.
        """
        if not subscription.is_active:
            return False
        subscription.is_active = False
        del self.by_sid[subscription.sid]
        self._retired[subscription.sid] = subscription
        self._changed(subscription)
        return True

    def forget(self, subscription: Subscription) -> None:
        """End the delivery to a retired subscription. Later declarations list the subscription as removed."""
        del self._retired[subscription.sid]
        self._full = 0, []
        number = subscription.stream
        self._indexes[number].discard(subscription.pattern, subscription)
        self._active[number] -= 1
        if not self._active[number]:
            del self._active[number], self._indexes[number]

    def release(self, subscription: Subscription) -> None:
        """Make the next declaration list a drained subscription as removed.

        Publishers then send its unhandled messages to other members.
        """
        self._changed(subscription)

    def renew(self) -> int:
        """Return a new revision without a change.

        When a link receives the ANSWER to this revision, it has received all messages that were published before.
        """
        self.revision += 1
        return self.revision

    def _changed(self, subscription: Subscription) -> None:
        self.revision += 1
        self._log.append((self.revision, subscription))

    def options_of(self, stream: int) -> StreamOptions | None:
        """Return the options of a stream; None for an unknown stream number."""
        return self._options[stream] if 0 <= stream < len(self._options) else None

    def declaration(self, base: int) -> tuple[list[bytes], bool]:
        """Return the frames that declare the current revision, and whether these frames replace all subscriptions.

        Args:
            base: revision that the publisher has; 0 if the publisher has no subscriptions.
        """
        log = self._log
        if not base or not log or log[0][0] > base + 1:
            revision = max(self.revision, 1)
            if self._full[0] != revision:
                # Keep the frames, because all links send them, and a publisher may request all subscriptions often.
                items = [subscription.item for subscription in self.by_sid.values()]
                streams = {number: self._options[number] for number in self._active}
                drained = [-sid for sid in self._retired]
                self._full = revision, links.split_declaration(revision, 0, streams, items, drained)
            return self._full[1], True
        added: dict[int, Subscription] = {}
        removed: list[int] = []
        for revision, change in reversed(log):
            if revision <= base:
                break
            added[change.sid] = change
        for change in added.values():
            if not change.is_active:
                removed.append(-change.sid if change.sid in self._retired else change.sid)
        items = [change.item for change in reversed(added.values()) if change.is_active]
        streams = {item.stream: self._options[item.stream] for item in items}
        return links.split_declaration(self.revision, base, streams, items, removed), False

    def match(self, stream: int, subject: bytes, extras: dict[str, Any] | None) -> tuple[Subscription, ...]:
        """Return the subscriptions of a stream that receive a message; empty if the message is unwanted.

        Args:
            stream: number of the stream.
            subject: subject as bytes.
            extras: undecoded extras of the message, or None. The extras of a last value contain the `sid` of the only
                subscription that receives it.
        """
        if extras is not None and SID in extras:
            subscription = self.by_sid.get(extras[SID]) if type(extras[SID]) is int else None
            return () if subscription is None or subscription.stream != stream else (subscription,)
        index = self._indexes.get(stream)
        if index is None:
            return ()
        found = tuple(index._find(subject).values)
        if subject.startswith(RESERVED):
            found = tuple(entry for entry in found if names_reserved(entry.pattern))
        return found


def names_reserved(pattern: Pattern) -> bool:
    """Return whether a pattern begins with `RESERVED`. Only then it receives subjects that oz itself publishes."""
    return all(prefix.startswith(RESERVED) for prefix in pattern.prefixes)
