"""Reserved subjects of a node. They begin with an underscore.

================ ========================================================================================
subject          rule
================ ========================================================================================
`_LOCAL.`        messages are sent only to sessions of this host, over ipc or inproc
`_INBOX.`        replies are sent as direct messages, and no pattern may match them
`_OZ.`           only oz itself publishes and receives messages with these subjects
other `_`        ordinary subjects, except that a pattern with a wildcard at its start does not match them
================ ========================================================================================

MQTT 3.1.1 has the same rule for wildcards and subjects that begin with `$` (section 4.7.2). TIBCO Rendezvous reserves
subjects that begin with an underscore (Concepts, "Distinguished Subject Names").
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from oz.errors import PatternError, SubjectError
from oz.publisher.groups import STANDBY
from oz.publisher.last_values import LastValues
from oz.publisher.routing import Interest
from oz.publisher.session import Stream
from oz.publisher.subjects import SubjectCheck
from oz.subjects.index.buckets import Match
from oz.subjects.index.patterns import Matches, PatternIndex
from oz.subjects.pattern import Pattern
from oz.subscriber.subscriptions import Subscriptions
from oz.transport.routers import LOCAL as LOCAL_ROUTE

LOCAL, INBOX, OWN = b"_LOCAL.", b"_INBOX.", b"_OZ."
_MARK = b"_"


class ReservedIndex(PatternIndex[Any]):
    """`PatternIndex` for nodes. A wildcard at the start of a pattern does not match subjects that begin with "_"."""

    __slots__ = ("_reserved",)

    def __init__(self, *, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self._reserved: PatternIndex[Any] = PatternIndex(cache_size=cache_size)

    def __len__(self) -> int:
        """Return the number of pairs of pattern and value.

        A pattern counts twice if some of its prefixes begin with "_" and other prefixes do not.
        """
        return super().__len__() + len(self._reserved)

    def _match_with(self, match: Match) -> None:
        super()._match_with(match)
        self._reserved._match_with(match)

    def add(self, pattern: Pattern, value: Hashable = None) -> None:
        """Add a pattern."""
        for is_reserved in _kinds(pattern):
            (self._reserved.add if is_reserved else super().add)(pattern, value)

    def discard(self, pattern: Pattern, value: Hashable = None) -> None:
        """Remove a pair of pattern and value, if the index has it."""
        for is_reserved in _kinds(pattern):
            (self._reserved.discard if is_reserved else super().discard)(pattern, value)

    def _find(self, subject: str | bytes) -> Matches:
        raw = subject.encode("utf-8", "surrogateescape") if isinstance(subject, str) else subject
        return self._reserved._find(raw) if raw.startswith(_MARK) else super()._find(subject)


def _kinds(pattern: Pattern) -> Iterator[bool]:
    yield from {prefix.startswith(_MARK) for prefix in pattern.prefixes}


class NodeInterest(Interest):
    """Patterns that the sessions of a node have declared."""

    index_class = ReservedIndex

    def add(self, pattern: Pattern, stream: Stream) -> None:
        """Add a pattern of a stream. The pattern `STANDBY` means that groups prefer members of other sessions."""
        if pattern.text == STANDBY:
            stream.session.is_standby = True
        super().add(pattern, stream)

    def discard(self, pattern: Pattern, stream: Stream) -> None:
        """Remove a pattern of a stream."""
        if pattern.text == STANDBY:
            stream.session.is_standby = False
        super().discard(pattern, stream)

    def _may_have(self, stream: Stream, subject: bytes) -> bool:
        return not subject.startswith(LOCAL) or stream.session.route.startswith(LOCAL_ROUTE)


class NodeSubscriptions(Subscriptions):
    """Subscriptions of a node."""

    index_class = ReservedIndex


class NodeLastValues(LastValues):
    """Last values of a node. Messages whose subjects begin with "_" are not kept."""

    def put(self, position: int, subject: bytes, payload: bytes, extras: Any) -> None:
        """Keep a message; see `LastValues.put`."""
        if not subject.startswith(_MARK):
            super().put(position, subject, payload, extras)


class NodeSubjects(SubjectCheck):
    """Check of the subjects that a program publishes on a node."""

    def __init__(
        self, dialect: str, endpoints: Callable[[], Iterable[str]], delimiter: bytes | None = None
    ) -> None:
        """Start with an empty cache; see `SubjectCheck`.

        The check allows `_LOCAL.` subjects even if the node has endpoints for other hosts, because `NodeInterest` keeps
        their messages on this host.
        """
        super().__init__(dialect, tuple, delimiter)

    def check(self, subject: Any) -> tuple[str, bytes]:
        """Return a subject as text and as bytes; see `SubjectCheck.check`.

        Raises:
            SubjectError: the subject is not allowed, or is an internal subject of oz.
        """
        found = super().check(subject)
        if found[1].startswith(OWN):
            rule = "subjects that begin with '_OZ.' are published by oz only"
            raise SubjectError(self._rules.name, subject, 0, rule)
        return found


def check_subscribed(pattern: Pattern) -> None:
    """Check a pattern that a program subscribes to on a node.

    Raises:
        PatternError: the pattern may match replies to other nodes, or internal subjects.
    """
    if reaches(pattern, INBOX):
        rule = "an inbox belongs to one node: request() receives the replies"
        raise PatternError(pattern.dialect, pattern.text, 0, rule)
    if reaches(pattern, OWN):
        rule = "subjects that begin with '_OZ.' belong to oz; on_event= reports what happens"
        raise PatternError(pattern.dialect, pattern.text, 0, rule)


def reaches(pattern: Pattern, reserved: bytes) -> bool:
    """Return whether a pattern may match subjects that begin with `reserved`, by the rules for nodes."""
    for prefix in pattern.prefixes:
        is_open = prefix.startswith(_MARK) and not pattern.is_literal
        if prefix.startswith(reserved[:-1]) or (is_open and reserved.startswith(prefix)):
            return True
    return False
