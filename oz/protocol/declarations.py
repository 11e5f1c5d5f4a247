"""What one stream of a subscriber has asked of its publishers, in numbered chunks, and who has answered.

The first subscriptions are declared one by one, so that each counts at once. When there are many, the rest
are gathered into full chunks: a plain proxy drops what goes beyond its high-water mark, 1,000 keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oz.protocol.subscriptions import Subscription
from oz.wire.keys import CHUNK_SIZE, Declaration, Declared, Terms

AT_ONCE = 32
"""So many subscriptions are declared one by one before the rest are gathered; receiving starts anew."""

FIRST_PATIENCE, LONGEST_PATIENCE = 0.5, 8.0
"""Seconds for an answer before a chunk is declared again; doubled each time."""

GREETING = 10.0
"""Seconds after which a stream shows itself again: of what it declared, a proxy may have passed on nothing
to a publisher that came late, and then nobody knows of the other."""


class Chunk:
    """One chunk as it stands.

    Attributes:
        key: its bytes.
        members: the subscriptions in it and their patterns.
        wants_last_value: whether retained messages were asked for.
        declared_at: when, in monotonic seconds; None until it is first looked at.
        patience: seconds to wait for answers.
        root: the number under which it was declared first.
    """

    __slots__ = ("declared_at", "key", "members", "patience", "root", "wants_last_value")

    def __init__(
        self,
        key: bytes,
        members: list[tuple[Subscription, Declared]],
        patience: float,
        wants_last_value: bool,
        root: int,
    ) -> None:
        """For `Declarations`."""
        self.root = root
        self.key = key
        self.members = members
        self.patience = patience
        self.wants_last_value = wants_last_value
        self.declared_at: float | None = None


class Wishes:
    """What to ask of ZeroMQ: keys to subscribe to, then keys to unsubscribe from."""

    __slots__ = ("dropped", "wanted")

    def __init__(self, wanted: Iterable[bytes] = (), dropped: Iterable[bytes] = ()) -> None:
        """Begin with some, or none."""
        self.wanted = list(wanted)
        self.dropped = list(dropped)

    def add(self, other: Wishes) -> None:
        """Take in what other wishes say."""
        self.wanted.extend(other.wanted)
        self.dropped.extend(other.dropped)


class Declarations:
    """The chunks of one stream.

    Attributes:
        chunks: those that stand, by number.
    """

    __slots__ = (
        "_at_once",
        "_gathered",
        "_greeted_at",
        "_greeting",
        "_next",
        "_size",
        "_stream",
        "_terms",
        "chunks",
    )

    def __init__(self, stream: bytes, terms: Terms) -> None:
        """Start with none."""
        self._stream = stream
        self._terms = terms
        self._next = 1
        self._at_once = AT_ONCE
        self._gathered: list[tuple[Subscription, Declared]] = []
        self._size = 0
        self._greeting: bytes | None = None
        self._greeted_at: float | None = None
        self.chunks: dict[int, Chunk] = {}

    @property
    def last(self) -> int:
        """The number of the chunk that was declared last."""
        return self._next - 1

    @property
    def is_gathering(self) -> bool:
        """Whether something is still to be declared."""
        return bool(self._gathered)

    def add(self, subscription: Subscription, patterns: Iterable[Declared], *, last_value: bool) -> Wishes:
        """Declare what a subscription wants, now or with others."""
        members = [(subscription, one) for one in patterns]
        if last_value:
            # By itself: the retained messages are for this subscription only.
            return self._declare(members, last_value=True)
        if self._at_once > 0:
            self._at_once -= 1
            return self._declare(members)
        self._gathered.extend(members)
        self._size += sum(len(one.text) + 3 for _, one in members)
        return self._declare_gathered() if self._size >= CHUNK_SIZE else Wishes()

    def flush(self) -> Wishes:
        """Declare what was gathered; the next few subscriptions are declared at once again."""
        self._at_once = AT_ONCE
        return self._declare_gathered()

    def _declare_gathered(self) -> Wishes:
        gathered, self._gathered, self._size = self._gathered, [], 0
        return self._declare(gathered) if gathered else Wishes()

    def remove(self, subscription: Subscription) -> Wishes:
        """Take back what a subscription wanted; the rest of its chunks is declared anew."""
        self._gathered = [one for one in self._gathered if one[0] is not subscription]
        wishes = Wishes()
        for number, chunk in list(self.chunks.items()):
            if any(one is subscription for one, _ in chunk.members):
                wishes.add(self._replace([number], without=subscription))
        return wishes

    def renew(self, missing: Iterable[int], now: float) -> Wishes:
        """Declare again the chunks that stayed unanswered for too long, together where there is room.

        Args:
            missing: the chunks that some publisher has not answered.
            now: monotonic seconds.
        """
        overdue: dict[bool, list[int]] = {False: [], True: []}
        for number in missing:
            chunk = self.chunks.get(number)
            if chunk is None:
                continue
            if chunk.declared_at is None:
                chunk.declared_at = now
            elif now - chunk.declared_at >= chunk.patience:
                overdue[chunk.wants_last_value].append(number)
        wishes = Wishes()
        for number in overdue[True]:
            wishes.add(self._replace([number]))
        if overdue[False]:
            wishes.add(self._replace(overdue[False]))
        return wishes

    def greet(self, now: float) -> Wishes:
        """Declare an empty chunk in place of the last one, when that is due.

        Who does not know the stream answers that nothing else is live; then the rest is declared again.
        """
        if self._greeted_at is None:
            self._greeted_at = now
        if now - self._greeted_at < GREETING:
            return Wishes()
        self._greeted_at = now
        old, self._greeting = self._greeting, self._encode_empty()
        return Wishes([self._greeting], [old] if old is not None else [])

    def leave(self) -> Wishes:
        """Say goodbye: everything is taken back."""
        self._gathered = []
        dropped = [chunk.key for chunk in self.chunks.values()]
        if self._greeting is not None:
            dropped.append(self._greeting)
        self.chunks.clear()
        return Wishes([self._encode_empty(is_leaving=True)], dropped)

    def _encode_empty(self, *, is_leaving: bool = False) -> bytes:
        number = self._take_number()
        return Declaration(self._stream, number, self._terms, is_leaving=is_leaving).encode()

    def _replace(self, numbers: list[int], without: Subscription | None = None) -> Wishes:
        old = [self.chunks.pop(number) for number in numbers]
        members = [one for chunk in old for one in chunk.members if one[0] is not without]
        patience = min(LONGEST_PATIENCE, 2 * max(chunk.patience for chunk in old))
        if without is not None:
            patience = FIRST_PATIENCE
        root = old[0].root if old[0].wants_last_value else None
        wishes = self._declare(members, last_value=root is not None, patience=patience, root=root)
        wishes.dropped.extend(chunk.key for chunk in old)
        return wishes

    def _declare(
        self,
        members: list[tuple[Subscription, Declared]],
        *,
        last_value: bool = False,
        patience: float = FIRST_PATIENCE,
        root: int | None = None,
    ) -> Wishes:
        wishes = Wishes()
        for part in _parts(members):
            number = self._take_number()
            # A pattern that several subscriptions of a chunk share is declared once.
            patterns = tuple(dict.fromkeys(pattern for _, pattern in part))
            key = Declaration(self._stream, number, self._terms, last_value, patterns=patterns).encode()
            self.chunks[number] = Chunk(key, part, patience, last_value, number if root is None else root)
            wishes.wanted.append(key)
        return wishes

    def _take_number(self) -> int:
        number = self._next
        self._next += 1
        return number


def _parts(members: list[tuple[Subscription, Declared]]) -> Iterator[list[tuple[Subscription, Declared]]]:
    """Split what is to be declared into chunks of a bounded size."""
    part: list[tuple[Subscription, Declared]] = []
    size = 0
    for member in members:
        length = len(member[1].text) + 3
        if part and size + length > CHUNK_SIZE:
            yield part
            part, size = [], 0
        part.append(member)
        size += length
    if part:
        yield part
