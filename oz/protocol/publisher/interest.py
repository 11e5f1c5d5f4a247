"""The interest of all subscribers of one publisher: their patterns and plain prefixes."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from oz.protocol.publisher.groups import Group
from oz.protocol.publisher.plain_interest import PlainInterest
from oz.protocol.publisher.recipients import Recipients, RecipientSets
from oz.protocol.publisher.stream import OutStream
from oz.protocol.stats import PublisherStats
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern

_log = logging.getLogger("oz.publisher")

MOST_REPORTED = 1_000
"""Patterns that are reported by name when they run out of time; the counter tells of the rest."""

NAME_SIZE = 14
"""The part of a stream's id that all streams of one subscriber have in common."""


class InterestTable:
    """The interests as they stand.

    Attributes:
        plain: those of plain subscriptions.
        streams: those of subscribers that have this publisher filter, by key.
        stats: what is counted.
        has_changed: an interest came or went; whoever remembers recipients must forget them.
    """

    __slots__ = (
        "_groups",
        "_index",
        "_pattern_count",
        "_recipient_sets",
        "_reported",
        "has_changed",
        "plain",
        "stats",
        "streams",
    )

    def __init__(self, stats: PublisherStats) -> None:
        """Start with none."""
        self.stats = stats
        self.plain = PlainInterest()
        self.streams: dict[bytes, OutStream] = {}
        self.has_changed = False
        self._recipient_sets = RecipientSets()
        self._groups: dict[str, Group] = {}
        self._index = self._make_index()
        self._pattern_count = 0
        self._reported: set[object] = set()

    @staticmethod
    def _make_index() -> PatternIndex:
        return PatternIndex(cache_size=0)

    def _changed(self) -> None:
        self.has_changed = True
        self._recipient_sets.clear()

    def _add_interest(self, stream: OutStream, pattern: Pattern) -> None:
        """Have a stream get what a pattern matches; it may be asked for several times."""
        count = stream.patterns.get(pattern, 0)
        stream.patterns[pattern] = count + 1
        if count == 0:
            self._index.add(pattern, stream)
            self._pattern_count += 1
            self._changed()

    def _remove_interest(self, stream: OutStream, pattern: Pattern) -> None:
        """Undo one of the times that a stream asked for a pattern."""
        count = stream.patterns.pop(pattern) - 1
        if count:
            stream.patterns[pattern] = count
        else:
            self._drop(stream, pattern)

    def _drop(self, stream: OutStream, pattern: Pattern) -> None:
        self._index.discard(pattern, stream)
        self._pattern_count -= 1
        self._changed()

    def _join_group(self, stream: OutStream) -> None:
        name = stream.delivery.group
        if name:
            self._groups.setdefault(name, Group(name)).join(stream, stream.delivery.policy)

    def _leave_group(self, stream: OutStream) -> None:
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
        if self._pattern_count:
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

    def counted(self) -> Iterable[OutStream]:
        """Return the streams on which an application's messages go out."""
        return self.streams.values()

    def count(self, subject: bytes | None, plain: bytes | None, known: Recipients | None = None) -> int:
        """Count the subscribers that declared themselves, and the plain subscriptions.

        Args:
            subject: count only those that want it; None counts all.
            plain: the same with the delimiter.
            known: what `find` has given for it, if no interest has changed since.
        """
        if subject is None or plain is None:
            streams = [one for one in self.streams.values() if one.patterns or one.delivery.is_shared]
        else:
            recipients = self.find(subject, plain) if known is None else known
            streams = [*recipients.streams, *(one for choice in recipients.choices for one in choice.members)]
            streams = [one for one in streams if not one.ending or one.still_wants(subject)]
        own = {one.name[:NAME_SIZE] for one in streams if not one.is_shared and one.vanished_at is None}
        shared = sum(one.listeners > 0 for one in streams if one.is_shared) if subject is not None else 0
        return len(own) + shared + self.plain.count(plain)
