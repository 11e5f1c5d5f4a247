"""The interest of all subscribers of one publisher, and the recipients that each subject has by it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Any, Protocol

from oz.logs import peer_logger
from oz.protocol.prefix_counts import PlainInterest
from oz.protocol.publisher.groups import Choice, Group
from oz.protocol.publisher.pattern_time import PatternTime
from oz.protocol.publisher.stream import OutStream, number_of
from oz.protocol.stats import PublisherStats
from oz.subjects.index.patterns import Matches, PatternIndex
from oz.subjects.pattern import Pattern
from oz.wire.keys import Declared

_log = peer_logger("oz.publisher")

MOST_REPORTED = 10
"""Patterns that are reported by name when they run out of time; the counter tells of the rest."""

MOST_SEARCHED = 1_000
"""Patterns among which the declaration of one is looked for, to tell it; with more it is the newest."""

LONGEST_SHOWN = 100
"""Characters of a pattern that are shown of it."""

NOBODY, PLAIN, ROUTED = 0, 1, 2


class Recipients:
    """The recipients of messages. Subjects with the same recipients share one object, so that batches fill.

    Attributes:
        kind: `NOBODY`, or of `PLAIN` and `ROUTED` those that apply, added.
        streams: the streams that each message goes out on.
        choices: for each queue group, the members of which one gets it.
        is_simple: whether a message goes out as it is on every stream: no groups, no `overflow`.
    """

    __slots__ = ("choices", "is_simple", "kind", "streams")

    def __init__(
        self, *, is_plain: bool, streams: tuple[OutStream, ...], choices: tuple[Choice, ...]
    ) -> None:
        """Put together who wants it."""
        self.kind = PLAIN * is_plain | ROUTED * bool(streams or choices)
        self.streams = streams
        self.choices = choices
        self.is_simple = not choices and all(one.delivery.overflow is None for one in streams)

    @property
    def all_streams(self) -> list[OutStream]:
        """All streams that it may go out on: of a group each member that wants it."""
        return [*self.streams, *(one for choice in self.choices for one in choice.members)]

    @property
    def count(self) -> int | None:
        """The streams and queue groups, counted; None where plain subscribers get a message too."""
        return None if self.kind & PLAIN else len(self.streams) + len(self.choices)


class RecipientSets:
    """All recipients in use; forgotten whenever an interest comes or goes."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """Start with none."""
        self._known: dict[Any, Recipients] = {}

    def clear(self) -> None:
        """Forget all. Messages that wait may have been given one already: it is marked as outdated."""
        for recipients in self._known.values():
            for choice in recipients.choices:
                choice.is_outdated = True
        self._known.clear()

    def find(self, found: Iterable[OutStream], groups: dict[str, Group], *, is_plain: bool) -> Recipients:
        """Return the recipients made of some streams.

        Args:
            found: the streams with a pattern that matches.
            groups: the queue groups by name.
            is_plain: whether a plain subscription matches.
        """
        members = frozenset(found)
        recipients = self._known.get((members, is_plain))
        if recipients is None:
            streams, grouped = [], dict[str, list[OutStream]]()
            for stream in sorted(members, key=lambda one: one.joined):
                if stream.delivery.group:
                    grouped.setdefault(stream.delivery.group, []).append(stream)
                else:
                    streams.append(stream)
            choices = tuple(Choice(groups[name], several, groups) for name, several in grouped.items())
            recipients = Recipients(is_plain=is_plain, streams=tuple(streams), choices=choices)
            self._known[members, is_plain] = recipients
        return recipients


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
        to_answer: streams that are to be told where they stand, such as whose pattern was suspended.
        groups: the queue groups by name.
        index: finds the streams with a pattern that matches.
    """

    __slots__ = (
        "_found_last",
        "_has_warned",
        "_pattern_time",
        "_prefixes",
        "_recipient_sets",
        "_recipients_last",
        "_reported",
        "groups",
        "has_changed",
        "index",
        "pattern_count",
        "plain",
        "stats",
        "to_answer",
        "watcher",
    )

    def __init__(
        self,
        stats: PublisherStats,
        index: PatternIndex,
        watcher: InterestWatcher | None,
        pattern_time: PatternTime | None = None,
    ) -> None:
        """Start with none; see `Router`."""
        self.stats = stats
        self.watcher = watcher
        self.plain = PlainInterest()
        self._prefixes = self.plain.counts
        self.has_changed = False
        self.pattern_count = 0
        self._found_last: Matches | None = None
        self._recipients_last: Recipients
        self._recipient_sets = RecipientSets()
        self.groups: dict[str, Group] = {}
        self.index = index
        self._reported: set[object] = set()
        self._pattern_time = pattern_time
        if pattern_time is not None:
            index._keep_to(pattern_time)
        self._has_warned = False
        self.to_answer: OrderedDict[OutStream, None] = OrderedDict()

    def changed(self) -> None:
        """Forget the recipients that were found."""
        self.has_changed = True
        self._found_last = None
        self._recipient_sets.clear()

    def add(self, stream: OutStream, pattern: Pattern) -> None:
        """Have a stream get what a pattern matches; it may be asked for several times."""
        count = stream.patterns.get(pattern, 0)
        stream.patterns[pattern] = count + 1
        if count == 0:
            self.index.add(pattern, stream)
            self.pattern_count += 1
            self.changed()
        elif pattern in stream.suspended:
            # Whoever asks once more is given another chance.
            stream.suspended.discard(pattern)
            self.index.add(pattern, stream)
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
        self.index.discard(pattern, stream)
        stream.suspended.discard(pattern)
        self.pattern_count -= 1
        self.changed()
        if self.watcher is not None:
            self.watcher.dropped(stream, pattern)

    def join_group(self, stream: OutStream) -> None:
        """Make a stream a member of its queue group, if it has one."""
        name = stream.delivery.group
        if name:
            self.groups.setdefault(name, Group(name)).join(stream, stream.delivery.policy)

    def leave_group(self, stream: OutStream) -> None:
        """Take a stream out of its queue group."""
        group = self.groups.get(stream.delivery.group)
        if group is not None:
            group.leave(stream)
            if not group:
                del self.groups[stream.delivery.group]

    def find(self, subject: bytes) -> Recipients:
        """Work out who wants a subject.

        Args:
            subject: its bytes.
        """
        is_plain = bool(self._prefixes) and self.plain.matches(subject)
        if not self.pattern_count:
            return self._recipient_sets.find((), self.groups, is_plain=is_plain)
        found = self.index.find(subject)
        time = self._pattern_time
        is_in_time = time is None or not (time.overdue or time.skipped)
        if found is self._found_last and is_in_time and not is_plain:
            # An index gives the same for all inboxes of a node, and each reply goes to one of its own.
            return self._recipients_last
        for pattern in found.timed_out:
            self._report_timeout(pattern, subject)
        if time is not None and not is_in_time:
            self._keep_to_time(time)
        recipients = self._recipient_sets.find(found.values, self.groups, is_plain=is_plain)
        if is_in_time and not (found.timed_out or is_plain):
            self._found_last, self._recipients_last = found, recipients
        return recipients

    def _report_timeout(self, pattern: Pattern, subject: bytes) -> None:
        self.stats.timed_out += 1
        if pattern not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add(pattern)
            _log.warning(
                "pattern %r ran out of time on %r; its subscribers miss such messages", pattern, subject
            )

    # patterns that take too long -------------------------------------------------------------------------

    def _keep_to_time(self, time: PatternTime) -> None:
        """Suspend what is overdue, and count what was passed over."""
        self.stats.timed_out += time.skipped
        # Whoever was passed over is not to miss the next message on the same subject.
        self.has_changed = True
        time.skipped = 0
        for pattern, stream in time.overdue:
            self._suspend(stream, pattern)
        time.overdue.clear()

    def _suspend(self, stream: OutStream, pattern: Pattern) -> None:
        """Have a stream get what a pattern matches no more until it asks for that again, and tell it so."""
        if pattern in stream.suspended or pattern not in stream.patterns:
            return
        stream.suspended.add(pattern)
        self.index.discard(pattern, stream)
        self.changed()
        self.stats.suspended += 1
        reason = suspension(pattern)
        for owner, number in _declarations_of(stream, pattern):
            owner.refused[number_of(number)] = reason
            self.to_answer[owner] = None
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s; `stats.suspended` counts more of them", reason)


def _declarations_of(stream: OutStream, pattern: Pattern) -> list[tuple[OutStream, int]]:
    """Return the streams that are told of a pattern, and the numbers of their chunks that ask for it."""
    if stream.is_shared:
        return [one for one in islice(stream.sharers.values(), MOST_SEARCHED) if not one[0].is_gone]
    if len(stream.patterns) > MOST_SEARCHED:
        return [(stream, number) for number in list(stream.chunks)[-1:]]
    return [(stream, number) for number, chunk in stream.chunks.items() if pattern in chunk.patterns]


def suspension(pattern: Pattern) -> str:
    """Say why a stream gets nothing for a pattern."""
    return (
        f"pattern {shown(pattern)} takes this publisher too long and is suspended: write it so that it "
        "cannot backtrack, or with words, and subscribe again"
    )


def shown(pattern: Pattern) -> str:
    """Return the text of a pattern, or how it begins."""
    text = repr(pattern.text)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"
