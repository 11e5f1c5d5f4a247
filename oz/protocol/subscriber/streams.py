"""The streams of filtered subscriptions: each a key, its subscriptions and its publishers.

Subscriptions with the same delivery options share one stream, on which each message comes once. Each queue
group, and each `overflow`, is a stream of its own. Shared patterns have one each, with a key
that all subscribers to the pattern have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from math import inf

from oz.protocol.subscriber.declarations import FIRST_PATIENCE, GREETING, SubscriptionChanges
from oz.protocol.subscriber.publishers import DENIED_TOO, Publishers
from oz.protocol.subscriber.stream import Interest, Stream
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.subjects.index.patterns import PatternIndex
from oz.wire.declared import declare
from oz.wire.denials import Denial
from oz.wire.keys import ID_SIZE, Declared, DeliveryOptions, pattern_key, stream_key

RENEW_EVERY = 0.1
"""Seconds between two looks at what is unanswered."""

FEW, RENEW_EVERY_MORE, LONGEST_RENEW = 8, 0.005, 0.5
"""Seconds more for each publisher beyond a few, as it goes through all, and the most between two looks."""

_NAME_SIZE = ID_SIZE - 2
_MOST_NAMES = 65_536


class Streams:
    """All streams of one subscriber.

    Attributes:
        by_key: each stream by the key that its messages come on.
        is_collecting: something is still to be declared.
        publishers: those that were heard.
        due_at: when `renew` has something to do, in monotonic seconds, by what it found; minus infinity when
            something is there that was not when it looked last.
        interests: what is asked for, by delivery options.
        homes: the interest that each subscription is a part of.
        draining: the subscriptions that drain, and the declaration whose answer each waits for.
    """

    __slots__ = (
        "_goodbyes",
        "_greet_every",
        "_make_stream",
        "_met",
        "_name",
        "_number",
        "_patience",
        "_renew_at",
        "by_key",
        "draining",
        "due_at",
        "homes",
        "interests",
        "is_collecting",
        "publishers",
    )

    def __init__(
        self,
        random_bytes: Callable[[int], bytes],
        *,
        index: type[PatternIndex] = PatternIndex,
        ends_with_first: bool = False,
        greet_every: float = GREETING,
        patience: float = FIRST_PATIENCE,
    ) -> None:
        """Start with none.

        Args:
            random_bytes: such as `os.urandom`; the name of this subscriber is made with it.
            index: what finds the subscriptions that match.
            ends_with_first: whether the stream that is made first has the last name: libzmq tells a new
                connection all that is asked for in the order of the keys, so that its part comes last.
            greet_every: seconds between two greetings, which find publishers that have forgotten a stream.
            patience: seconds for an answer before something is declared again for the first time.
        """
        self._make_stream = partial(Stream, index=index)
        self._greet_every = greet_every
        self._patience = patience
        self._name = random_bytes(_NAME_SIZE)
        self._number = _MOST_NAMES - 2 if ends_with_first else 0
        self.interests: dict[DeliveryOptions, Interest] = {}
        self.homes: dict[Subscribed, Interest] = {}
        self.by_key: dict[bytes, Stream] = {}
        self.publishers = Publishers(self.interests, self.by_key)
        self._met: dict[bytes, float] = {}
        self.is_collecting = False
        self._renew_at = 0.0
        self.due_at = -inf
        self._goodbyes: dict[Interest, int] = {}
        self.draining: dict[Subscribed, int] = {}

    def add(
        self, subscription: Subscribed, delivery: DeliveryOptions, *, last_value: bool
    ) -> SubscriptionChanges:
        """Take a subscription in.

        Raises:
            PatternError: a pattern cannot be sent to publishers; nothing is changed then.
        """
        patterns = [declare(pattern) for pattern in subscription.patterns]
        self.due_at = -inf
        changes = SubscriptionChanges()
        interest = self.interests.get(delivery)
        is_new = interest is None
        if interest is None:
            name = self._next_name()
            stream = self._make_stream(stream_key(name), delivery, is_shared=False)
            interest = Interest(
                name, delivery, stream, greet_every=self._greet_every, patience=self._patience
            )
            self.interests[delivery] = interest
            self.by_key[interest.stream.key] = interest.stream
        self.homes[subscription] = interest
        interest.stream.table.add(subscription)
        changes.add(interest.declarations.add(subscription, patterns, last_value=last_value))
        if delivery.is_shared:
            # After the declaration, so that last values come before live traffic.
            changes.wanted.extend(self._share(subscription, patterns, delivery))
        if is_new:
            changes.wanted.append(interest.stream.key)
        self.is_collecting |= interest.declarations.is_collecting
        return changes

    def _next_name(self) -> bytes:
        """Name a stream: after many others, as none is named that still stands."""
        while True:
            self._number = (self._number + 1) % _MOST_NAMES
            name = self._name + self._number.to_bytes(ID_SIZE - _NAME_SIZE, "big")
            if stream_key(name) not in self.by_key:
                return name

    def _share(
        self, subscription: Subscribed, patterns: Iterable[Declared], delivery: DeliveryOptions
    ) -> list[bytes]:
        new = []
        for declared, pattern in zip(patterns, subscription.patterns, strict=True):
            key = pattern_key(declared)
            stream = self.by_key.get(key)
            if stream is None:
                stream = self.by_key[key] = self._make_stream(key, delivery, is_shared=True)
                new.append(key)
            stream.table.add_pattern(subscription, pattern)
        return new

    def part(self, *subscriptions: Subscribed) -> tuple[SubscriptionChanges, SubscriptionChanges]:
        """Ask for nothing more for subscriptions, which stand until `has_drained`: then remove them.

        Returns:
            What to ask first, and then: publishers answer the latter when they have seen the former.
        """
        first, then = SubscriptionChanges(), SubscriptionChanges()
        by_interest: dict[Interest, list[Subscribed]] = {}
        for subscription in subscriptions:
            if (interest := self.homes.get(subscription)) is not None:
                by_interest.setdefault(interest, []).append(subscription)
        for interest, members in by_interest.items():
            self.due_at = -inf
            taken_back, asked = interest.declarations.part(members)
            first.add(taken_back)
            then.add(asked)
            self.draining.update(dict.fromkeys(members, interest.declarations.last))
        return first, then

    def has_drained(self, subscription: Subscribed, among: Collection[bytes] | None = None) -> bool:
        """Tell whether nothing more can be on its way for a subscription.

        Args:
            subscription: one that was given to `part`.
            among: the publishers that count, of those that are there; None for all.
        """
        interest, number = self.homes.get(subscription), self.draining.get(subscription)
        if interest is None or number is None:
            return True
        return all(interest.stream.has_answered(origin, number) for origin in self._among(among))

    def stream(self, subscription: Subscribed) -> Stream | None:
        """Return the stream that a subscription has its messages from; None when it has ended."""
        interest = self.homes.get(subscription)
        return None if interest is None else interest.stream

    def remove(self, subscription: Subscribed) -> SubscriptionChanges:
        """Take a subscription out; with the last of its delivery options the stream says goodbye."""
        subscription.active = False
        self.draining.pop(subscription, None)
        interest = self.homes.pop(subscription, None)
        if interest is None:
            return SubscriptionChanges()
        self.due_at = -inf
        stream = interest.stream
        stream.table.remove(subscription)
        changes = SubscriptionChanges()
        if stream.table:
            changes.add(interest.declarations.remove(subscription))
        else:
            del self.interests[interest.delivery], self.by_key[stream.key]
            goodbye = interest.declarations.leave()
            changes.add(goodbye)
            # The goodbye too: nobody waits for an answer, and it would be said again at each reconnect.
            changes.dropped.extend((stream.key, *goodbye.wanted))
        if interest.delivery.is_shared:
            changes.dropped.extend(self._unshare(subscription))
        return changes

    def _unshare(self, subscription: Subscribed) -> list[bytes]:
        gone = []
        for pattern in subscription.patterns:
            key = pattern_key(declare(pattern))
            stream = self.by_key.get(key)
            if stream is not None:
                stream.table.remove(subscription)
                if not stream.table:
                    del self.by_key[key]
                    gone.append(key)
        return gone

    def leave(self) -> SubscriptionChanges:
        """Say goodbye on every stream; publishers answer that, and send nothing more."""
        changes = SubscriptionChanges()
        for interest in self.interests.values():
            goodbye = interest.declarations.leave()
            changes.add(goodbye)
            self._goodbyes[interest] = interest.declarations.last
        self.is_collecting = False
        return changes

    def has_left(self, among: Collection[bytes] | None = None) -> bool:
        """Tell whether every publisher has answered the goodbyes.

        Args:
            among: the publishers that count, of those that are there; None for all.
        """
        alive = self._among(among)
        return all(
            interest.stream.has_answered(origin, number)
            for interest, number in self._goodbyes.items()
            for origin in alive
        )

    def _among(self, among: Collection[bytes] | None) -> list[bytes]:
        return [one for one in self.publishers.alive() if among is None or one in among]

    def asked(self) -> dict[bytes, int]:
        """Return the number of the newest chunk that stands, by the name of its stream."""
        return {
            interest.name: newest
            for interest in self.interests.values()
            if (newest := interest.declarations.newest)
        }

    def flush(self) -> SubscriptionChanges:
        """Declare what was collected."""
        self.is_collecting = False
        self.due_at = -inf
        changes = SubscriptionChanges()
        for interest in self.interests.values():
            changes.add(interest.declarations.flush())
        return changes

    def note_news(self) -> None:
        """Record that a publisher has come, gone or answered, which `renew` is to look at."""
        self.due_at = -inf

    def renew(self, now: float) -> SubscriptionChanges:
        """Declare again what some publisher has left unanswered, and do what else `Declarations` has due."""
        changes = SubscriptionChanges()
        if now < self._renew_at or now < self.due_at or self._goodbyes:
            return changes
        more = max(0, len(self._met) - FEW) * RENEW_EVERY_MORE
        self._renew_at = now + min(RENEW_EVERY + more, LONGEST_RENEW)
        self.due_at = inf
        for interest, number, reason in self._denials():
            # For one of them perhaps: the others are not to go without. Very many would take so long to be
            # answered that they were declared again meanwhile.
            if reason is not DENIED_TOO:
                changes.add(interest.declarations.split(number))
        self._met = {origin: self._met.get(origin, now) for origin in self.publishers.alive()}
        for interest in self.interests.values():
            declarations = interest.declarations
            owed, last = self.publishers.owed(interest, self._met), declarations.last
            # What is refused stays by itself: for one pattern unknown to it a publisher refuses a chunk.
            refused = set().union(*(source.refused for source in interest.stream.sources.values()))
            if owed:
                changes.add(declarations.renew(owed, now, refused))
            changes.add(declarations.tidy(declarations.chunks.keys() - owed.keys() - refused))
            draining = (one for one in self.draining if self.homes.get(one) is interest)
            if all(map(self.has_drained, draining)):
                declarations.settle()
            changes.add(declarations.greet(now))
            # Of what was declared just now nobody knows yet how long it takes.
            due_at = -inf if declarations.last != last else declarations.next_deadline(owed)
            self.due_at = min(self.due_at, due_at)
        return changes

    def next_deadline(self) -> float | None:
        """Return when `renew` has something to do, by what it found when it was called last.

        Returns:
            Monotonic seconds; None for never.
        """
        if self._goodbyes or not self.interests:
            return None
        return max(self._renew_at, self.due_at)

    def has_answered(self, origin: bytes) -> bool:
        """Tell whether one publisher has answered everything that is declared."""
        if self.is_collecting or not self.interests:
            return False
        return all(
            (source := interest.stream.sources.get(origin)) is not None
            and interest.declarations.chunks.keys() <= source.answered | source.refused.keys()
            for interest in self.interests.values()
        )

    def forget(self, origin: bytes) -> None:
        """Forget a publisher that is gone for good, so that nobody waits for its answers."""
        self.due_at = -inf
        for stream in self.by_key.values():
            stream.sources.pop(origin, None)

    def denied(self) -> list[tuple[Subscribed, Denial]]:
        """Return the subscriptions that publishers deny, but for those denied together with others."""
        return [
            (members[0], reason)
            for interest, number, reason in self._denials()
            if len(members := interest.declarations.members(number)) == 1
        ]

    def _denials(self) -> list[tuple[Interest, int, Denial]]:
        return [
            (interest, number, reason)
            for interest in self.interests.values()
            for source in interest.stream.sources.values()
            for number, reason in source.refused.items()
            if isinstance(reason, Denial) and number in interest.declarations.chunks
        ]
