"""A stream as a publisher keeps it: who asked, with which delivery options, and where its sequence stands."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from math import inf
from typing import Any

from oz.errors import PatternTimeout, SubjectError
from oz.protocol.publisher.accounts import Account
from oz.protocol.publisher.backlog import Backlog
from oz.subjects.pattern import Pattern, may_take_long
from oz.wire import batch
from oz.wire.batch import head_end, head_start
from oz.wire.keys import DeliveryOptions
from oz.wire.positions import pack_differences

NAME_SIZE = 14
"""The part of a stream's id that all streams of one subscriber have in common."""

MOST_COMPARED, MOST_TRIED = 4_096, 64
"""Patterns of a stream whose prefixes are looked at, and whose regexes are tried, to find out whether it
still wants a subject: that takes about a millisecond."""

PLAIN, RICH, CONTROL, LAST_VALUES, LAST_VALUES_RICH = range(5)
"""Places in `OutStream.heads`."""

_NUMBER = (1 << 32) - 1
"""The part of a place that is the number of a chunk."""

_FLAGS = (batch.MESSAGES, batch.RICH, batch.CONTROL, batch.LAST_VALUES, batch.LAST_VALUES | batch.RICH)


class AcceptedChunk:
    """One declaration as it stands.

    Attributes:
        patterns: what it asks for.
        holders: the connections over which it was declared and not taken back.
        ends_at: monotonic seconds at which it ends, once nobody holds it.
        shared: the streams of its patterns, where those are shared.
        account: of the connection that declared it first.
        content: tells it from what somebody else may declare under its number.
    """

    __slots__ = ("account", "content", "ends_at", "holders", "patterns", "shared")

    def __init__(
        self,
        patterns: tuple[Pattern, ...],
        holders: int = 0,
        account: Account | None = None,
    ) -> None:
        """Begin."""
        self.account = account
        self.content = 0
        self.patterns = patterns
        self.holders = holders
        self.ends_at = 0.0
        self.shared: tuple[OutStream, ...] = ()


class Chunks(dict[int, AcceptedChunk]):
    """Chunks by their places; whose they are and which numbers they have is known without looking at all.

    A connection that goes on to declare has that asked for each of its frames.

    Attributes:
        owners: how many are of each account.
    """

    __slots__ = ("_farther", "owners")

    def __init__(self) -> None:
        """Start with none."""
        super().__init__()
        self.owners: Counter[Account | None] = Counter()
        self._farther: Counter[int] = Counter()

    def __setitem__(self, place: int, chunk: AcceptedChunk) -> None:
        """Put a chunk at a place."""
        if place in self:
            self.take(place)
        super().__setitem__(place, chunk)
        self.owners[chunk.account] += 1
        if place > _NUMBER:
            self._farther[number_of(place)] += 1

    def take(self, place: int) -> AcceptedChunk:
        """Take a chunk away; return it."""
        chunk = super().pop(place)
        _count_out(self.owners, chunk.account)
        if place > _NUMBER:
            _count_out(self._farther, number_of(place))
        return chunk

    def take_all(self) -> list[AcceptedChunk]:
        """Take all away; return them."""
        return [self.take(place) for place in list(self)]

    def has_number(self, number: int) -> bool:
        """Tell whether any of them has a number, at whatever place."""
        return number in self or number in self._farther


class OutStream:
    """One key on which messages go out.

    Attributes:
        account: of the connection that it came over first.
        answer_at: when it may be answered again, in monotonic seconds.
        answer_from: the number up to which what waited when it was last declared goes out before the answer.
        name: the id that its subscriber gave it; the key itself for a shared pattern.
        key: the ZeroMQ subscription.
        delivery: how its messages are to be treated.
        epoch: which life of its numbering this is: what it counts under on the wire.
        heads: what frames begin with: plain, rich, control, last values and rich last values.
        sequence: the number of the next message.
        recorded: where it stood by the record that was made last; -1 before.
        joined: its place among all streams, by age.
        chunks: what is declared, by number; see `place`.
        ending: what was, and nobody holds any more; it is served until its time is over.
        refused: the chunks that were not accepted, and why.
        patterns: how often each pattern was declared.
        suspended: those of them that took too long, and are not served.
        sharers: of a shared pattern, the chunks that declare it: their streams and numbers.
        since: how many messages had gone into the last values when somebody began to listen.
        newest: the highest number of a chunk that was declared on it, whatever became of that.
        listeners: the connections over which the key itself is subscribed to.
        vanished_at: when the last connection was cut, in monotonic seconds.
        is_closing: it said goodbye.
        is_full: what was last sent on it found no room.
        is_gone: it is forgotten.
        goodbyes: the accounts of the connections over which it said goodbye.
        left_out_at: when one of several connections was last left out of what was sent, in monotonic seconds.
        refused_at: since when a record of where it stands finds no room, in monotonic seconds.
        unsent: frames that are to be sent as soon as there is room.
        send_buffer: the messages of an `overflow` that found no room: subjects and payloads.
        is_shared: whether it is that of a shared pattern.
    """

    __slots__ = (
        "account",
        "answer_at",
        "answer_from",
        "chunks",
        "delivery",
        "ending",
        "epoch",
        "goodbyes",
        "heads",
        "is_closing",
        "is_full",
        "is_gone",
        "is_shared",
        "joined",
        "key",
        "left_out_at",
        "listeners",
        "name",
        "newest",
        "patterns",
        "recorded",
        "refused",
        "refused_at",
        "send_buffer",
        "sequence",
        "sharers",
        "since",
        "suspended",
        "unsent",
        "vanished_at",
    )

    def __init__(
        self,
        name: bytes,
        key: bytes,
        delivery: DeliveryOptions,
        origin: bytes,
        number: int,
        account: Account | None = None,
    ) -> None:
        """Begin at sequence 0.

        Args:
            name: the id of the stream.
            key: its key.
            delivery: its delivery options.
            origin: the publisher.
            number: counts the streams of this publisher; a stream that was forgotten and comes back has
                a higher one, which is its epoch on the wire at first.
            account: of the connection that it came over.
        """
        self.account = Account() if account is None else account
        self.answer_at = -inf
        self.name = name
        self.key = key
        self.delivery = delivery
        self.is_shared = name == key
        self.number(origin, number)
        self.joined = number
        self.chunks = Chunks()
        self.ending = Chunks()
        self.refused: dict[int, str] = {}
        self.patterns: dict[Pattern, int] = {}
        self.suspended: set[Pattern] = set()
        self.sharers: dict[AcceptedChunk, tuple[OutStream, int]] = {}
        self.since = 0
        self.newest = 0
        self.recorded = -1
        self.listeners = 0
        self.vanished_at: float | None = None
        self.is_closing = False
        self.is_full = False
        self.is_gone = False
        self.goodbyes: tuple[Account, ...] = ()
        self.left_out_at = -inf
        self.refused_at = inf
        self.unsent: deque[tuple[bytes, ...]] = deque()
        self.send_buffer: Any = None

    def place(self, number: int, content: int) -> int:
        """Return where a chunk stands: at its number, or farther on where that is of somebody else's.

        Who knows the name of a stream may declare in it under any number, also one that its subscriber has
        used or is about to use. That is to have what it asks for all the same.

        Args:
            number: the chunk's.
            content: tells it from others of that number.
        """
        farther = number | (content & _NUMBER | 1) << 32
        if farther in self.chunks or farther in self.ending:
            return farther
        known = self.chunks.get(number) or self.ending.get(number)
        return number if known is None or known.content == content else farther

    def come_back(self, place: int) -> AcceptedChunk | None:
        """Return what stands at a place, or did until it was taken back; None where nothing does."""
        chunk = self.chunks.get(place)
        if chunk is None and place in self.ending:
            # A proxy may not have passed on that it was taken back.
            chunk = self.ending.take(place)
            chunk.holders = 0
        return chunk

    def hold(self, place: int, chunk: AcceptedChunk, content: int) -> None:
        """Record that one more connection has declared a chunk."""
        chunk.content = content
        chunk.holders += 1
        self.chunks[place] = chunk

    def refuse(self, number: int, reason: str) -> None:
        """Record that a chunk is refused, unless somebody else's of that number is not, or was not lately."""
        if not (self.chunks.has_number(number) or self.ending.has_number(number)):
            self.refused[number] = reason

    def live(self) -> list[int]:
        """Return the numbers of what is declared."""
        return list(dict.fromkeys(map(number_of, self.chunks)))

    def is_crowded(self, most: int, account: Account) -> bool:
        """Tell whether so many chunks are declared, half of them or more by one connection."""
        if len(self.chunks) + len(self.ending) + len(self.refused) < most:
            return False
        own = self.chunks.owners[account] + self.ending.owners[account]
        return own + len(self.refused) >= most // 2

    @property
    def share(self) -> bytes:
        """The name of that with which it has a turn in a group: its connection, or else its subscriber."""
        return self.account.name or self.name[:NAME_SIZE]

    def wants(self, subject: bytes) -> bool:
        """Tell whether one of its patterns matches; one that runs out of time or is suspended does not."""
        for pattern in self.patterns:
            if pattern in self.suspended or not subject.startswith(pattern.prefixes):
                continue
            try:
                if pattern.matches(subject):
                    return True
            except (SubjectError, PatternTimeout):
                continue
        return False

    def still_wants(self, subject: bytes) -> bool:
        """Tell whether one of those patterns matches that were not taken back; some pattern of its does.

        Where it takes long to find out, it does: what was taken back is gone in a second anyway.
        """
        if sum(len(chunk.patterns) for chunk in self.ending.values()) > MOST_COMPARED:
            return True
        ending = Counter(pattern for chunk in self.ending.values() for pattern in chunk.patterns)
        matching = _matching(ending, subject)
        if not matching or any(self.patterns[pattern] > ending[pattern] for pattern in matching):
            return True
        rest = _matching([one for one, count in self.patterns.items() if count > ending[one]], subject)
        return rest is None or bool(rest)

    def number(self, origin: bytes, epoch: int, sequence: int = 0) -> None:
        """Count under an epoch, from 0 or where that had come to."""
        self.epoch = epoch
        self.heads = tuple(head_start(self.key, one, origin, epoch) for one in _FLAGS)
        self.sequence = sequence
        self.answer_from = 0

    def frames(
        self, kind: int, sequence: int, positions: Sequence[int], body: bytes, chunk: bytes = b""
    ) -> tuple[bytes, ...]:
        """Make the frames of a batch, but for large payloads.

        Args:
            kind: its place in `heads`.
            sequence: of the first message.
            positions: of each message.
            body: the messages.
            chunk: what stands between head and body of last values.
        """
        width, steps = pack_differences(positions)
        end = head_end(sequence, len(positions), positions[0], width)
        return (self.heads[kind] + end + chunk + steps + body,)

    def record(self, sequence: int, position: int, body: bytes) -> tuple[bytes, ...]:
        """Make the frames of a control record.

        Args:
            sequence: of the message that comes next on the stream.
            position: of that which the publisher sends next to anybody.
            body: what it says.
        """
        return (self.heads[CONTROL] + head_end(sequence, 0, position) + body,)

    @property
    def asks(self) -> bool:
        """Whether anything is asked for, or was until lately."""
        return any(one.patterns for one in (*self.chunks.values(), *self.ending.values()))

    @property
    def has_messages(self) -> bool:
        """Whether messages go out on it: who shares patterns is given them on those of the patterns."""
        return self.is_shared or not self.delivery.is_shared

    @property
    def has_several(self) -> bool:
        """Whether more than one connection may listen on the key."""
        # Who shares a pattern declares it too, and is counted for both.
        return self.listeners > (2 if self.is_shared else 1)

    @property
    def backlog(self) -> Backlog | None:
        """The bytes that wait for its connection; None where there may be several."""
        return None if self.has_several else self.account.backlog

    @property
    def is_held(self) -> bool:
        """Whether any connection has a part of it."""
        return self.listeners > 0 or bool(self.chunks)


def number_of(place: int) -> int:
    """Return the number of the chunk that stands at a place."""
    return place & _NUMBER


def _count_out(counter: Counter[Any], one: Any) -> None:
    counter[one] -= 1
    if not counter[one]:
        del counter[one]


def _matching(patterns: Collection[Pattern], subject: bytes) -> list[Pattern] | None:
    """Return those patterns that match; None where that takes long to find out."""
    if len(patterns) > MOST_COMPARED:
        return None
    near = [one for one in patterns if subject.startswith(one.prefixes)]
    if len(near) > MOST_TRIED or any(map(may_take_long, near)):
        return None
    return [one for one in near if _matches(one, subject)]


def _matches(pattern: Pattern, subject: bytes) -> bool:
    try:
        return pattern.matches(subject)
    except SubjectError:
        # It is not text, and the dialect knows nothing else.
        return False
    except PatternTimeout:
        return True
