"""Interest: the patterns of all sessions, which decide the streams that receive a subject.

Theory of operation
-------------------
`Interest` keeps the patterns of all sessions in one `PatternIndex`, which maps each pattern to its streams. Each pair
of pattern and stream has a count, because several subscriptions of a subscriber may have the same pattern.

A `Route` is the result for one subject: the streams without a group, and for each group the matching members. Routes
are cached by subject. Any added or removed pattern clears the cache. Equal tuples of recipients are the same object,
so that a batch can compare tuples by identity.

A pattern is suspended when three of its matches have exceeded the time limit. The suspended pattern is removed from
the index, and the subscribers that declared it get a refusal.

During the search for one subject, a session may have `SLOW_MATCHES` slow matches. Then the search skips the remaining
regexes of this session, and counts each of its slow patterns as if the pattern had exceeded the time limit. Therefore
a session with many almost too slow patterns delays `publish` by a few milliseconds only, and the patterns of
other sessions are not affected.
"""

from __future__ import annotations

from collections.abc import Callable

from oz.publisher.groups import Group
from oz.publisher.session import Session, Stream
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.index.words import Leaf, values_of
from oz.subjects.pattern import Pattern, match_within

CACHED_SUBJECTS = 65_536
STRIKES = 3
"""A pattern is suspended when this number of matches has exceeded the time limit."""
SLOW = 0.1
"""A match counts as slow if it takes at least this fraction of the time limit."""
SLOW_MATCHES = 8
"""Maximum number of slow matches that a session may have for one subject. The limit is above 1, because a garbage
collection may make one match slow."""
PATTERN_TIME = 0.001
"""Time limit in seconds for one match."""
_MAX_CHOICES = 4_096  # Maximum number of tuples in `Interest._choices`.


class Route:
    """Recipients of one subject.

    Attributes:
        subject: subject as bytes.
        plain: streams without a group.
        groups: pairs of a group and its members that match, in the order in which the members joined.
    """

    __slots__ = ("_choices", "groups", "plain", "subject")

    def __init__(
        self, subject: bytes, streams: list[Stream], choices: dict[tuple[Stream, ...], tuple[Stream, ...]]
    ):
        self.subject = subject
        plain = tuple(stream for stream in streams if stream.group is None)
        self.plain = choices.setdefault(plain, plain)
        members: dict[Group, list[Stream]] = {}
        for stream in streams:
            if stream.group is not None:
                members.setdefault(stream.group, []).append(stream)
        self.groups = [(group, tuple(_on_duty(found))) for group, found in members.items()]
        self._choices = choices

    def recipients(self, key: bytes, now: float) -> tuple[Stream, ...]:
        """Return the plain streams and one member of each group.

        Args:
            key: key of the message, or its subject; sticky groups choose a member by this key.
            now: current time in seconds.
        """
        if not self.groups:
            return self.plain
        chosen = list(self.plain)
        for group, members in self.groups:
            member = group.pick(members, key, now)
            if member is not None:
                chosen.append(member)
        found = tuple(chosen)
        choices = self._choices
        if len(choices) >= _MAX_CHOICES:
            choices.clear()
        return choices.setdefault(found, found)


def _on_duty(members: list[Stream]) -> list[Stream]:
    """Return the members that do not stand by (see `oz.publisher.groups`). If all stand by, return all members."""
    return [member for member in members if not member.session.is_standby] or members


class _TimeLimit:
    """Limits of the search for one subject: time of each match, and number of slow matches of each session.

    Attributes:
        has_skipped: whether the search has skipped patterns, because a session had too many slow matches.
    """

    def __init__(self, seconds: float, processor_clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, processor_clock
        self.begin()

    def begin(self) -> None:
        """Reset the counts before a search."""
        self.has_skipped = False
        self._slow: list[tuple[Pattern, Leaf]] = []
        self._slow_of: dict[Session, int] = {}

    def match(self, pattern: Pattern, leaf: Leaf, subject: str | bytes) -> bool:
        """Return whether a pattern matches; False for a skipped pattern.

        Raises:
            PatternTimeout: the match takes longer than the time limit.
        """
        if self._slow_of and self._is_over(leaf):
            self.has_skipped = True
            return False
        began = self._clock()
        try:
            return match_within(pattern, subject, self._seconds)
        finally:
            if self._clock() - began >= SLOW * self._seconds:
                self._slow.append((pattern, leaf))
                for entry in values_of((leaf,)):
                    self._slow_of[entry.session] = self._slow_of.get(entry.session, 0) + 1

    def slow(self) -> list[Pattern]:
        """If the search has skipped patterns, return the slow patterns of the sessions with too many slow matches."""
        return [pattern for pattern, leaf in self._slow if self.has_skipped and self._is_over(leaf)]

    def _is_over(self, leaf: Leaf) -> bool:
        """Return whether all sessions that have the pattern of `leaf` have reached `SLOW_MATCHES` in this search."""
        slow = self._slow_of
        return all(slow.get(entry.session, 0) >= SLOW_MATCHES for entry in values_of((leaf,)))


class Interest:
    """Patterns of all sessions of a publisher.

    Attributes:
        routes: cached routes by subject; None for a subject without recipients. `publish` reads this dict directly.
        groups: groups by name; a group without members is removed.
        on_change: function that `Interest` calls when cached routes become invalid, so that the engine clears its
            own caches.
        on_suspended: function that `Interest` calls with each suspended pattern and the streams that had this
            pattern.
        index_class: class of the index; a subclass of `Interest` may replace it.
    """

    index_class: type[PatternIndex[Stream]] = PatternIndex

    def __init__(
        self, pattern_time: float = PATTERN_TIME, processor_clock: Callable[[], float] = float
    ) -> None:
        """Start without patterns.

        Args:
            pattern_time: time limit in seconds for one match.
            processor_clock: function that returns processor time in seconds.
        """
        self.routes: dict[str, Route | None] = {}
        self.groups: dict[str, Group] = {}
        self.on_change: Callable[[], None] = lambda: None
        self.on_suspended: Callable[[Pattern, list[Stream]], None] = lambda pattern, streams: None
        self._index: PatternIndex[Stream] = self.index_class(cache_size=0)
        self._limit = _TimeLimit(pattern_time, processor_clock)
        self._index._match_with(self._limit.match)
        self._counts: dict[Pattern, dict[Stream, int]] = {}
        self._strikes: dict[Pattern, int] = {}
        self._choices: dict[tuple[Stream, ...], tuple[Stream, ...]] = {}
        self._joined = 0

    def add(self, pattern: Pattern, stream: Stream) -> None:
        """Add a pattern to a stream. The first pattern makes the stream a member of its group."""
        streams = self._counts.setdefault(pattern, {})
        streams[stream] = streams.get(stream, 0) + 1
        if streams[stream] == 1:
            self._index.add(pattern, stream)
        stream.patterns += 1
        if stream.patterns == 1:
            self._joined += 1
            stream.joined = self._joined
            if stream.group is not None:
                self.groups.setdefault(stream.group.name, stream.group)
                stream.group.join(stream)
        self.forget()

    def discard(self, pattern: Pattern, stream: Stream) -> None:
        """Remove a pattern from a stream. Without patterns, the stream leaves its group."""
        streams = self._counts[pattern]
        streams[stream] -= 1
        if not streams[stream]:
            del streams[stream]
            self._index.discard(pattern, stream)
            if not streams:
                del self._counts[pattern]
                self._strikes.pop(pattern, None)
        stream.patterns -= 1
        if not stream.patterns:
            self.leave(stream)
        self.forget()

    def leave(self, stream: Stream) -> None:
        """Remove a stream from its group."""
        group = stream.group
        if group is not None:
            group.leave(stream)
            if not group.members and self.groups.get(group.name) is group:
                del self.groups[group.name]

    def group(self, name: str, policy: str) -> Group:
        """Return the group with this name. If there is none, return a new group; `add` registers it."""
        return self.groups.get(name) or Group(name, policy)

    def forget(self) -> None:
        """Clear the cached routes."""
        if self.routes:
            self.routes, self._choices = {}, {}
        self.on_change()

    def find(self, subject: str, raw: bytes) -> Route | None:
        """Return the route of a subject; None if no session receives the subject.

        Args:
            subject: subject as text, which is the key of the cache.
            raw: subject as bytes.
        """
        try:
            return self.routes[subject]
        except KeyError:
            pass
        self._limit.begin()
        streams, timed_out = self._index._find(raw)
        alive = [
            stream for stream in set(streams) if not stream.session.has_ended and self._may_have(stream, raw)
        ]
        alive.sort(key=lambda stream: stream.joined)
        route = Route(raw, alive, self._choices) if alive else None
        if timed_out or self._limit.has_skipped:
            # An incomplete result is not cached.
            self._strike((*timed_out, *self._limit.slow()))
            return route
        if len(self.routes) >= CACHED_SUBJECTS:
            self.routes = {}
        self.routes[subject] = route
        return route

    def _may_have(self, stream: Stream, subject: bytes) -> bool:
        """Return whether a stream with a matching pattern may receive a subject. A subclass for nodes can refuse."""
        return True

    def _strike(self, patterns: tuple[Pattern, ...]) -> None:
        for pattern in set(patterns):
            count = self._strikes[pattern] = self._strikes.get(pattern, 0) + 1
            if count >= STRIKES:
                streams = list(self._counts.get(pattern, ()))
                for stream in streams:
                    self._index.discard(pattern, stream)
                self.forget()
                self.on_suspended(pattern, streams)
