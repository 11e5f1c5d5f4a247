"""The interest of all subscribers of one publisher: their patterns and plain prefixes.

Keys are subscriptions too, and what is sent on them begins with the key. So a plain subscription to what a
key begins with, which is the empty one or a zero byte, is replaced by all that may begin a subject.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from oz.protocol.prefix_counts import PeerInterest
from oz.protocol.publisher.groups import Group
from oz.protocol.publisher.recipients import Recipients, RecipientSets
from oz.protocol.publisher.stream import OutStream
from oz.protocol.stats import PublisherStats
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern
from oz.wire.keys import OWN, Declared

_log = logging.getLogger("oz.publisher")

MOST_REPORTED = 1_000
"""Patterns that are reported by name when they run out of time; the counter tells of the rest."""


ALL_PLAIN = tuple(bytes((first,)) for first in range(1, 256)) + tuple(
    bytes((0, second)) for second in range(256) if second != OWN[1]
)
"""What stands for the empty subscription: all that may begin a subject, but not what begins a key."""

_ALL_PLAIN = frozenset(ALL_PLAIN)

_ZERO = b"\x00"
_PLAIN_ZERO = tuple(one for one in ALL_PLAIN if one[:1] == _ZERO)
"""What stands for the subscription to a zero byte, which would let the keys through too."""

UNREACHABLE = (b"", b"\x00")
"""The subjects that no key in `ALL_PLAIN` begins."""


class Keys(NamedTuple):
    """The keys to set in ZeroMQ for the connection that a key came from."""

    wanted: tuple[bytes, ...] = ()
    dropped: tuple[bytes, ...] = ()


NOTHING = Keys()


class PlainInterest(PeerInterest):
    """The plain subscriptions that a publisher has learned of."""

    __slots__ = ()

    def keys(self, key: bytes, *, comes: bool) -> Keys:
        """Say what a subscription that was learned just now means for ZeroMQ.

        What stands for the empty one may be asked for by itself too, and over which connections is not
        known. So it is rather kept too long: a subscriber passes over what it did not ask for.
        """
        stands_for = (key,) if key not in UNREACHABLE else _PLAIN_ZERO if key else ALL_PLAIN
        if comes:
            return Keys(wanted=stands_for)
        kept = {one for one in stands_for if self.has(one)}
        if self.has(b""):
            kept |= _ALL_PLAIN
        if self.has(_ZERO):
            kept.update(_PLAIN_ZERO)
        return Keys(dropped=tuple(one for one in stands_for if one not in kept))


class InterestWatcher(Protocol):
    """Looks at the interests as they come and go: a node, which learns by them who is connected to it."""

    def added(self, stream: OutStream, pattern: Pattern) -> None:
        """Learn that a stream asked for a pattern, once more or for the first time."""

    def dropped(self, stream: OutStream, pattern: Pattern) -> None:
        """Learn that a stream asks for a pattern no more."""

    def is_presence(self, stream: OutStream) -> bool:
        """Tell whether a stream shows who is connected: then its connection matters as an interest does."""

    def to_tell(self, streams: Iterable[OutStream]) -> Iterable[OutStream]:
        """Return those streams that are to be told where they stand; see `Router.to_tell`."""

    def finds_stranger(self, name: bytes, patterns: Iterable[Declared]) -> bool:
        """Tell whether a subscriber proves by patterns that it is to get nothing, for the first time."""

    def refusal(self, name: bytes) -> str | None:
        """Say why a subscriber gets nothing; None if it may get what it asks for."""


class InterestTable:
    """The interests as they stand.

    Attributes:
        plain: those of plain subscriptions.
        stats: what is counted.
        has_changed: an interest came or went; whoever remembers recipients must forget them.
        pattern_count: the patterns of all streams.
        watcher: who looks at them, if anybody.
    """

    __slots__ = (
        "_groups",
        "_index",
        "_recipient_sets",
        "_reported",
        "has_changed",
        "pattern_count",
        "plain",
        "stats",
        "watcher",
    )

    def __init__(self, stats: PublisherStats, index: PatternIndex, watcher: InterestWatcher | None) -> None:
        """Start with none; see `Router`."""
        self.stats = stats
        self.watcher = watcher
        self.plain = PlainInterest()
        self.has_changed = False
        self.pattern_count = 0
        self._recipient_sets = RecipientSets()
        self._groups: dict[str, Group] = {}
        self._index = index
        self._reported: set[object] = set()

    def changed(self) -> None:
        """Forget the recipients that were found."""
        self.has_changed = True
        self._recipient_sets.clear()

    def add(self, stream: OutStream, pattern: Pattern) -> None:
        """Have a stream get what a pattern matches; it may be asked for several times."""
        count = stream.patterns.get(pattern, 0)
        stream.patterns[pattern] = count + 1
        if count == 0:
            self._index.add(pattern, stream)
            self.pattern_count += 1
            self.changed()
        if self.watcher is not None:
            self.watcher.added(stream, pattern)

    def remove(self, stream: OutStream, pattern: Pattern) -> None:
        """Undo one of the times that a stream asked for a pattern."""
        count = stream.patterns.pop(pattern) - 1
        if count:
            stream.patterns[pattern] = count
        else:
            self.drop(stream, pattern)

    def drop(self, stream: OutStream, pattern: Pattern) -> None:
        """Have a stream get what a pattern matches no more, however often it was asked for."""
        self._index.discard(pattern, stream)
        self.pattern_count -= 1
        self.changed()
        if self.watcher is not None:
            self.watcher.dropped(stream, pattern)

    def join_group(self, stream: OutStream) -> None:
        """Make a stream a member of its queue group, if it has one."""
        name = stream.delivery.group
        if name:
            self._groups.setdefault(name, Group(name)).join(stream, stream.delivery.policy)

    def leave_group(self, stream: OutStream) -> None:
        """Take a stream out of its queue group."""
        group = self._groups.get(stream.delivery.group)
        if group is not None:
            group.leave(stream)
            if not group:
                del self._groups[stream.delivery.group]

    def find(self, subject: bytes, plain: bytes) -> Recipients:
        """Work out who wants a subject.

        Args:
            subject: its bytes.
            plain: what plain subscriptions are compared with: the subject and its delimiter, if any.
        """
        streams: Iterable[OutStream] = ()
        if self.pattern_count:
            found = self._index.find(subject)
            streams = found.values
            for pattern in found.timed_out:
                self._report_timeout(pattern, subject)
        return self._recipient_sets.find(streams, self._groups, is_plain=self.plain.matches(plain))

    def _report_timeout(self, pattern: Pattern, subject: bytes) -> None:
        self.stats.timed_out += 1
        if pattern not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add(pattern)
            _log.warning(
                "pattern %r ran out of time on %r; its subscribers miss such messages", pattern, subject
            )
