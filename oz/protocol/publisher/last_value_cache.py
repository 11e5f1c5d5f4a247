"""The last-value cache: the newest message of each subject, for subscribers that join later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

from oz.protocol.node.reserved_subjects import MARK
from oz.protocol.publisher.pattern_time import Allowance
from oz.protocol.publisher.sink import Clock
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern
from oz.wire.extras import Rich

LIMIT = 65_536
"""Subjects whose newest message a publisher keeps; those published longest ago go first."""

ALLOWANCE = 0.02
FOR_EACH = 0.00001
"""Seconds that the regexes and globs of one declaration have, and more for each subject that there is."""


class LastValueCache:
    """Subjects and the payloads last published on them.

    Attributes:
        count: the messages that were kept so far.
    """

    __slots__ = ("_newest", "_passed", "count")

    def __init__(self, passed: Clock | None = None) -> None:
        """Start empty.

        Args:
            passed: gives seconds, by which patterns that take long are bounded; None: they are not.
        """
        self._newest: OrderedDict[bytes, tuple[int, Any, int]] = OrderedDict()
        self.count = 0
        self._passed = passed

    def put(self, subject: bytes, payload: Any, position: int) -> None:
        """Keep a message in place of the one before."""
        newest = self._newest
        self.count += 1
        newest[subject] = (self.count, payload, position)
        newest.move_to_end(subject)  # the order is that of publishing
        if len(newest) > LIMIT:
            newest.popitem(last=False)

    def match(self, patterns: Iterable[Pattern]) -> list[Any]:
        """Return subject and payload in turn of all that some pattern matches; see `search`."""
        patterns = list(patterns)
        found = self.search(patterns, 0, [self.count] * len(patterns))
        return [one for item in found if item is not None for one in item[1:3]]

    def search(
        self, patterns: Iterable[Pattern], after: int, before: Sequence[int]
    ) -> Iterator[tuple[int, bytes, Any, int] | None]:
        """Find what some pattern matches, in steps of one pattern or subject, in the order of publishing.

        Regexes and globs have together `ALLOWANCE`, and `FOR_EACH` for each subject: what they would match
        beyond that is missing. So is what is published meanwhile.

        Args:
            patterns: the patterns.
            after: the count of the last message that is not looked at.
            before: for each pattern that of the last one that is; a message counts as later by any of them.

        Returns:
            Count, subject, payload and position of a message; None where there is nothing to be said.
        """
        timed, index = list[tuple[Pattern, int]](), PatternIndex[int](cache_size=0)
        for pattern, last in zip(patterns, before, strict=True):
            index.add(pattern, last)
            if pattern.literal is None and not (pattern.tokens or pattern.words):
                timed.append((pattern, last))
            yield None
        budget = None
        if self._passed is not None:
            budget = Allowance(self._passed, ALLOWANCE + FOR_EACH * len(self._newest))
            index._keep_to(budget)
        newest = max(before, default=0)
        for subject in list(self._newest):
            count, payload, position = self._newest.get(subject, (inf, None, 0))
            if after < count <= newest and (found := index.find(subject).values) and count <= min(found):
                yield int(count), subject, payload, position
            else:
                yield None
            while timed and budget is not None and budget.most <= 0:
                # To pass over each of them for each subject takes longer than what they had.
                index.discard(*timed.pop())


class NodeLastValueCache(LastValueCache):
    """As `LastValueCache`, but only what nodes say to all: no reserved subject, and no request."""

    __slots__ = ()

    def put(self, subject: bytes, payload: Any, position: int) -> None:
        """Keep a message, unless it is a request, or its subject is a reserved one."""
        is_request = type(payload) is Rich and payload.extras.reply_to is not None
        if not is_request and not subject.startswith(MARK):
            super().put(subject, payload, position)
