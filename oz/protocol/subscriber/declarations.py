"""The declarations of one stream, in numbered chunks, and which publishers have answered.

The first subscriptions are declared one by one, so that each counts at once. When there are many, the rest
are collected into full chunks: a plain proxy drops what goes beyond its high-water mark, 1,000 keys. In the
same way the first few are taken back at once and the rest together, since what is left of a chunk has to be
declared anew. Small chunks are put together when there are many: publishers name all in each answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf

from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.keys import CHUNK_SIZE, Declaration, Declared, DeliveryOptions

AT_ONCE = 32
"""So many subscriptions are declared one by one before the rest are collected; receiving starts anew."""

BACK_AT_ONCE = 4
"""So many are taken back one by one before the rest are collected; `tidy` starts anew."""

SMALL = CHUNK_SIZE // 2
MOST_SMALL = 64
"""Bytes of patterns below which a chunk is small, and how many of those may stand side by side."""

FIRST_PATIENCE, LONGEST_PATIENCE = 0.5, 64.0
"""Seconds for an answer before a chunk is declared again; doubled each time. Then only answers to the new
number count: a publisher that takes longer than the longest each time would never be done."""

GREETING = 10.0
"""Seconds after which a stream shows itself again: of what it declared, a proxy may have passed on nothing
to a publisher that came late, and then nobody knows of the other."""


class Chunk:
    """One chunk as it stands.

    Attributes:
        key: its bytes.
        members: the subscriptions in it and their patterns.
        wants_last_value: whether last values were asked for.
        declared_at: when, in monotonic seconds; None until it is first looked at.
        patience: seconds to wait for answers.
        root: the number under which it was declared first.
        denied_as: the same, or that of the chunk that it was a part of and that may have been denied.
    """

    __slots__ = ("declared_at", "denied_as", "key", "members", "patience", "root", "wants_last_value")

    def __init__(
        self,
        key: bytes,
        members: list[tuple[Subscribed, Declared]],
        patience: float,
        wants_last_value: bool,
        root: int,
        denied_as: int,
    ) -> None:
        """For `Declarations`."""
        self.root = root
        self.denied_as = denied_as
        self.key = key
        self.members = members
        self.patience = patience
        self.wants_last_value = wants_last_value
        self.declared_at: float | None = None


class SubscriptionChanges:
    """Changes of what a socket subscribes to: keys to subscribe to, then keys to unsubscribe from."""

    __slots__ = ("dropped", "wanted")

    def __init__(self, wanted: Iterable[bytes] = (), dropped: Iterable[bytes] = ()) -> None:
        """Begin with some, or none."""
        self.wanted = list(wanted)
        self.dropped = list(dropped)

    def add(self, other: SubscriptionChanges) -> None:
        """Take in further changes."""
        self.wanted.extend(other.wanted)
        self.dropped.extend(other.dropped)


class Declarations:
    """The chunks of one stream.

    Attributes:
        chunks: those that stand, by number.
        greeting: the key of the present greeting; None where there was none.
    """

    __slots__ = (
        "_at_once", "_awaited", "_back_at_once", "_collected", "_delivery", "_greet_every", "_greeted_at",
        "_next", "_patience", "_places", "_shrunk", "_size", "_small", "_stream", "chunks", "greeting",
    )  # fmt: skip

    def __init__(
        self,
        stream: bytes,
        delivery: DeliveryOptions,
        *,
        greet_every: float = GREETING,
        patience: float = FIRST_PATIENCE,
    ) -> None:
        """Start with none.

        Args:
            stream: the id of the stream.
            delivery: how its messages are to be treated.
            greet_every: seconds between two greetings; see `greet`.
            patience: seconds for an answer before a chunk is declared again for the first time.
        """
        self._greet_every = greet_every
        self._patience = patience
        self._stream = stream
        self._delivery = delivery
        self._next = 1
        self._at_once = AT_ONCE
        self._back_at_once = BACK_AT_ONCE
        self._collected: list[tuple[Subscribed, Declared]] = []
        self._size = 0
        self.greeting: bytes | None = None
        self._greeted_at: float | None = None
        self._awaited = inf
        self.chunks: dict[int, Chunk] = {}
        self._places: dict[Subscribed, set[int]] = {}
        self._shrunk: set[int] = set()
        self._small: set[int] = set()

    @property
    def last(self) -> int:
        """The number of the chunk that was declared last."""
        return self._next - 1

    @property
    def newest(self) -> int:
        """The number of the newest chunk that stands; 0 when none does.

        Whoever has learned of it has learned of all that stand: they are told in the order of their numbers.
        """
        return next(reversed(self.chunks), 0)

    @property
    def is_collecting(self) -> bool:
        """Whether something is still to be declared."""
        return bool(self._collected)

    def add(
        self, subscription: Subscribed, patterns: Iterable[Declared], *, last_value: bool
    ) -> SubscriptionChanges:
        """Declare what a subscription wants, now or with others."""
        members = [(subscription, one) for one in patterns]
        if last_value:
            # By itself: the last values are for this subscription only.
            return self._declare(members, last_value=True)
        if self._at_once > 0:
            self._at_once -= 1
            return self._declare(members)
        self._collected.extend(members)
        self._size += _size(members)
        return self._declare_collected() if self._size >= CHUNK_SIZE else SubscriptionChanges()

    def flush(self) -> SubscriptionChanges:
        """Declare what was collected; the next few subscriptions are declared at once again."""
        self._at_once = AT_ONCE
        return self._declare_collected()

    def _declare_collected(self) -> SubscriptionChanges:
        collected, self._collected, self._size = self._collected, [], 0
        return self._declare(collected) if collected else SubscriptionChanges()

    def remove(self, subscription: Subscribed) -> SubscriptionChanges:
        """Take back what a subscription wanted; the rest of its chunks is declared anew, now or later."""
        places = self._places.pop(subscription, None)
        if places is None:
            self._collected = [one for one in self._collected if one[0] is not subscription]
            self._size = _size(self._collected)
            return SubscriptionChanges()
        for number in places:
            chunk = self.chunks[number]
            chunk.members = [one for one in chunk.members if one[0] is not subscription]
        self._shrunk |= places
        if self._back_at_once <= 0:
            return SubscriptionChanges()
        self._back_at_once -= 1
        return self._declare_shrunk()

    def part(self, subscriptions: Iterable[Subscribed]) -> tuple[SubscriptionChanges, SubscriptionChanges]:
        """Take back what subscriptions wanted, and then ask publishers for an answer: see `last`.

        They are asked again, sooner than `greet` would, until `settle`.
        """
        changes = SubscriptionChanges()
        for subscription in subscriptions:
            changes.add(self.remove(subscription))
        changes.add(self._declare_shrunk())
        self._awaited, self._greeted_at = FIRST_PATIENCE, None
        return changes, self._greet()

    def settle(self) -> None:
        """Record that nobody waits for an answer to what was taken back."""
        self._awaited = inf

    def _declare_shrunk(self) -> SubscriptionChanges:
        changes = SubscriptionChanges()
        for number in list(self._shrunk):
            changes.add(self._replace([number], is_news=True))
        return changes

    def renew(
        self, owed: Mapping[int, float], now: float, refused: Collection[int] = ()
    ) -> SubscriptionChanges:
        """Declare again the chunks that stayed unanswered for too long, together where there is room.

        Args:
            owed: the chunks that some publisher has not answered, each with when the first of those was found
                to be there: one that has only just come is not late.
            now: monotonic seconds.
            refused: those that some publisher refuses: each stays by itself.
        """
        overdue: dict[bool, list[int]] = {False: [], True: []}
        for number, since in owed.items():
            chunk = self.chunks.get(number)
            if chunk is None:
                continue
            if chunk.declared_at is None:
                chunk.declared_at = now
            elif now >= max(chunk.declared_at, since) + chunk.patience:
                overdue[chunk.wants_last_value or number in refused].append(number)
        changes = SubscriptionChanges()
        for number in overdue[True]:
            changes.add(self._replace([number]))
        if overdue[False]:
            changes.add(self._replace(overdue[False]))
        return changes

    def tidy(self, settled: Collection[int]) -> SubscriptionChanges:
        """Declare anew the chunks that have lost members, and put small ones together when there are many.

        Args:
            settled: the chunks that everybody has taken on.
        """
        self._back_at_once = BACK_AT_ONCE
        if self._shrunk:
            return self._declare_shrunk()
        small = self._small.intersection(settled)
        return self._replace(small, is_news=True) if len(small) > MOST_SMALL else SubscriptionChanges()

    def members(self, number: int) -> list[Subscribed]:
        """Return the subscriptions in a chunk; none if it does not stand."""
        chunk = self.chunks.get(number)
        return [] if chunk is None else list(dict.fromkeys(one for one, _ in chunk.members))

    def split(self, number: int) -> SubscriptionChanges:
        """Declare each subscription of a chunk by itself, if there are several."""
        members = self.members(number)
        changes = SubscriptionChanges()
        if len(members) > 1:
            old = self._withdraw(number)
            for subscription in members:
                part = [one for one in old.members if one[0] is subscription]
                changes.add(self._declare(part, denied_as=old.denied_as))
            changes.dropped.append(old.key)
        return changes

    def next_deadline(self, owed: Mapping[int, float]) -> float:
        """Return when something is to be declared again, or shown again, if nothing comes before.

        Args:
            owed: as `renew` is given it.

        Returns:
            Monotonic seconds; minus infinity for as soon as may be.
        """
        if self._shrunk or self._collected or self._greeted_at is None:
            return -inf
        deadlines = [self._greeted_at + min(self._greet_every, self._awaited)]
        for number, since in owed.items():
            chunk = self.chunks.get(number)
            if chunk is not None:
                at = -inf if chunk.declared_at is None else max(chunk.declared_at, since) + chunk.patience
                deadlines.append(at)
        return min(deadlines)

    def greet(self, now: float) -> SubscriptionChanges:
        """Declare an empty chunk in place of the last one, when that is due.

        Who does not know the stream answers that nothing else is live; then the rest is declared again.
        """
        if self._greeted_at is None:
            self._greeted_at = now
        if now < self._greeted_at + min(self._greet_every, self._awaited):
            return SubscriptionChanges()
        self._greeted_at = now
        self._awaited *= 2
        return self._greet()

    def _greet(self) -> SubscriptionChanges:
        old, self.greeting = self.greeting, self._encode_empty()
        return SubscriptionChanges([self.greeting], [old] if old is not None else [])

    def leave(self) -> SubscriptionChanges:
        """Say goodbye: everything is taken back."""
        self._collected = []
        dropped = [chunk.key for chunk in self.chunks.values()]
        if self.greeting is not None:
            dropped.append(self.greeting)
        for all_of_them in (self.chunks, self._places, self._shrunk, self._small):
            all_of_them.clear()
        return SubscriptionChanges([self._encode_empty(is_closing=True)], dropped)

    def _encode_empty(self, *, is_closing: bool = False) -> bytes:
        number = self._take_number()
        return Declaration(self._stream, number, self._delivery, is_closing=is_closing).encode()

    def _replace(self, numbers: Iterable[int], *, is_news: bool = False) -> SubscriptionChanges:
        """Declare the members of some chunks anew; `is_news` unless it is for want of an answer."""
        old = [self._withdraw(number) for number in numbers]
        members = [one for chunk in old for one in chunk.members]
        patience = min(LONGEST_PATIENCE, 2 * max(chunk.patience for chunk in old))
        root = old[0].root if len(old) == 1 else None
        changes = self._declare(
            members,
            last_value=old[0].wants_last_value,
            patience=None if is_news else patience,
            root=root,
            # What has not been answered in time may have been denied before, in another chunk.
            denied_as=min(chunk.denied_as for chunk in old),
        )
        changes.dropped.extend(chunk.key for chunk in old)
        return changes

    def _withdraw(self, number: int) -> Chunk:
        """Forget a chunk, whose members are to be declared elsewhere."""
        chunk = self.chunks.pop(number)
        self._shrunk.discard(number)
        self._small.discard(number)
        for subscription, _ in chunk.members:
            self._places[subscription].discard(number)
        return chunk

    def _declare(
        self,
        members: list[tuple[Subscribed, Declared]],
        *,
        last_value: bool = False,
        patience: float | None = None,
        root: int | None = None,
        denied_as: int | None = None,
    ) -> SubscriptionChanges:
        changes, patience = SubscriptionChanges(), patience or self._patience
        for part in _parts(members):
            number = self._take_number()
            # A pattern that several subscriptions of a chunk share is declared once.
            patterns = tuple(dict.fromkeys(pattern for _, pattern in part))
            key = Declaration(self._stream, number, self._delivery, last_value, patterns=patterns).encode()
            first = number if root is None else root
            chunk = Chunk(key, part, patience, last_value, first, first if denied_as is None else denied_as)
            self._keep(number, chunk)
            changes.wanted.append(key)
        if members and not last_value and _size(part) < SMALL:
            # The last part only: the others are as large as they can be.
            self._small.add(number)
        return changes

    def _keep(self, number: int, chunk: Chunk) -> None:
        self.chunks[number] = chunk
        for subscription, _ in chunk.members:
            self._places.setdefault(subscription, set()).add(number)

    def _take_number(self) -> int:
        number = self._next
        self._next += 1
        return number


def _size(members: Iterable[tuple[Subscribed, Declared]]) -> int:
    """Bytes of what is to be declared."""
    return sum(len(pattern.text) + 3 for _, pattern in members)


def _parts(members: list[tuple[Subscribed, Declared]]) -> Iterator[list[tuple[Subscribed, Declared]]]:
    """Split what is to be declared into chunks of a bounded size."""
    part: list[tuple[Subscribed, Declared]] = []
    size = 0
    for member in members:
        length = _size((member,))
        if part and size + length > CHUNK_SIZE:
            yield part
            part, size = [], 0
        part.append(member)
        size += length
    if part:
        yield part
