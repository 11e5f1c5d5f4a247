"""Last values: the newest message of each subject, kept and served to subscribers that join later.

Those who ask get them a part at a time, one declaration after the other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any

from oz.protocol.node.reserved_subjects import MARK
from oz.protocol.publisher.accounts import Account
from oz.protocol.publisher.pattern_time import Allowance
from oz.protocol.publisher.sink import Clock
from oz.protocol.publisher.stream import OutStream
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


SLICE = 0.001
"""Seconds for which last values are looked for at a time."""

MOST_ITEMS = 512
"""Subjects and payloads in one batch of them."""

Send = Callable[[OutStream, int, list[Any], list[int]], object]
"""Sends some last values on a stream, for the number of a chunk: subjects and payloads in turn, and
positions."""


class _Asked:
    """One chunk that asked for last values.

    Attributes:
        stream: its stream.
        number: its number.
        before: for each pattern the count of messages from which on they come to it as they are published.
        after: the count up to which it was served.
        steps: the search, once it has begun.
    """

    __slots__ = ("after", "before", "number", "steps", "stream")

    def __init__(self, stream: OutStream, number: int, before: Sequence[int]) -> None:
        self.stream = stream
        self.number = number
        self.before = before
        self.after = 0
        self.steps: Iterator[tuple[int, bytes, Any, int] | None] | None = None


class LastValueServing:
    """Serves those who asked for last values; connections take turns."""

    __slots__ = ("_cache", "_clock", "_is_held", "_send", "_turns")

    def __init__(
        self, cache: LastValueCache, clock: Clock, send: Send, is_held: Callable[[OutStream], bool]
    ) -> None:
        """Start with nobody.

        Args:
            cache: the last values.
            clock: what time it is.
            send: sends some.
            is_held: tells whether something on a stream waits that must go first.
        """
        self._cache = cache
        self._clock = clock
        self._send = send
        self._is_held = is_held
        self._turns: OrderedDict[Account, deque[_Asked]] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether somebody is to be served."""
        return bool(self._turns)

    def ask(self, stream: OutStream, number: int, before: Sequence[int]) -> None:
        """Serve a chunk.

        Args:
            stream: the stream that declared it.
            number: its place there.
            before: for each of its patterns the count of the last message that does not come by itself.
        """
        self._turns.setdefault(stream.account, deque()).append(_Asked(stream, number, before))

    def work(self) -> bool:
        """Serve for as long as a slice lasts; tell whether more can be served at once."""
        ends = self._clock() + SLICE
        held = 0
        while self._turns and held < len(self._turns):
            account, waiting = next(iter(self._turns.items()))
            asked = waiting[0]
            if self._is_held(asked.stream) and not asked.stream.is_gone:
                # Begun anew behind what it has got: a search that waits would keep all subjects.
                asked.steps = None
                held += 1
                waiting.rotate(-1)
                self._turns.move_to_end(account)
                continue
            held = 0
            if self._serve(asked, ends):
                waiting.popleft()
                self._turns.move_to_end(account)
                if not waiting:
                    del self._turns[account]
            if self._clock() >= ends:
                return bool(self._turns)
        return False

    def _serve(self, asked: _Asked, ends: float) -> bool:
        """Serve one chunk until a batch is full or the time is over; tell whether it has got all."""
        stream, items, positions = asked.stream, list[Any](), list[int]()
        chunk = stream.chunks.get(asked.number)
        if stream.is_gone or chunk is None:
            return True
        if asked.steps is None:
            asked.steps = self._cache.search(chunk.patterns, asked.after, asked.before)
        is_over = True
        for found in asked.steps:
            if found is not None:
                asked.after, *item, position = found
                items += item
                positions.append(position)
            if len(items) >= MOST_ITEMS or self._clock() >= ends:
                is_over = False
                break
        if items:
            self._send(stream, asked.number, items, positions)
        return is_over
