"""Many patterns at once: which of them match a subject, and the answers that are remembered."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

from oz.errors import PatternTimeout, SubjectError
from oz.numbers import check_count
from oz.subjects.dialects.base import LONE_SURROGATE, Splitting
from oz.subjects.index.buckets import PrefixBuckets
from oz.subjects.index.budget import Budget
from oz.subjects.index.words import Leaf, WordTable, entry_of, put, take, values_of
from oz.subjects.pattern import TIME_LIMIT, Pattern

if TYPE_CHECKING:
    # Without a type of its own an index gives Any. Python's own TypeVar has defaults from 3.13 on.
    from typing_extensions import TypeVar

    Value = TypeVar("Value", bound=Hashable, default=Any)
else:
    from typing import TypeVar

    Value = TypeVar("Value")


_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")

_AT_ONCE = 4
"""How many steps of clearing up each change of the memory brings along."""


class AnswerCache(Generic[_Key, _Answer]):
    """Remembers answers, and forgets those not asked for lately.

    There are two dicts. When the newer is half of the allowed size, it takes the place of the older, which is
    dropped; an answer found in the older one comes into the newer. A dict with one key taken out for each
    that comes in would be slow: Python looks for its first key past all that were before it.

    Dicts that were dropped are emptied a few keys at a time, so that forgetting all of many thousand answers,
    which happens whenever a pattern comes or goes, costs nothing just then.
    """

    __slots__ = ("_half", "_older", "_retired", "newer")

    def __init__(self, size: int) -> None:
        """Start empty.

        Args:
            size: how many answers to remember at most, as an even number; 0 for none.
        """
        self._half = max(size // 2, 1) if size else 0
        self._older: dict[_Key, _Answer] = {}
        self._retired: list[dict[_Key, _Answer]] = []
        self.newer: dict[_Key, _Answer] = {}

    def __len__(self) -> int:
        """Count the answers that are remembered."""
        return len(self.newer) + len(self._older)

    def find(self, key: _Key) -> _Answer | None:
        """Return the answer for a key that is not in `newer`."""
        if not self._older:
            return None
        answer = self._older.pop(key, None)
        if answer is not None:
            self.put(key, answer)
        return answer

    def put(self, key: _Key, answer: _Answer) -> None:
        """Remember an answer."""
        if not self._half:
            return
        if len(self.newer) >= self._half:
            if self._older:
                self._retired.append(self._older)
            self._older, self.newer = self.newer, {}
        self.newer[key] = answer
        if self._retired:
            self._clear_up()

    def drop(self, key: _Key) -> None:
        """Forget one answer."""
        self.newer.pop(key, None)
        self._older.pop(key, None)

    def forget(self) -> None:
        """Forget all answers."""
        if self.newer or self._older:
            self._retired += [one for one in (self.newer, self._older) if one]
            self.newer, self._older = {}, {}
        if self._retired:
            self._clear_up()

    def _clear_up(self) -> None:
        retired = self._retired
        for _ in range(_AT_ONCE):
            if retired[-1]:
                retired[-1].popitem()
            else:
                retired.pop()
                if not retired:
                    return


CACHE_SIZE = 65_536
"""How many subjects an index remembers the answer for."""


class Matches(NamedTuple):
    """The result of an index for one subject."""

    values: tuple[Any, ...]
    """The values of the patterns that match, in no particular order."""
    timed_out: tuple[Pattern, ...]
    """The patterns that ran out of time; whether they match is not known."""


_NOTHING = Matches((), ())


class PatternIndex(Generic[Value]):
    """Finds the values of all patterns that match a subject. Patterns of all dialects mix.

    `PatternIndex[str]()` is one whose values are text. Each pair of pattern and value is kept once: adding it
    again changes nothing. Looking a subject up does not visit patterns that cannot match: words are looked up
    in dicts, other patterns by the lengths of the prefixes that there are, and the last `CACHE_SIZE` subjects
    are remembered. What is added or taken out counts from the next subject on, and costs the same however
    much there is.
    """

    __slots__ = ("_buckets", "_cache", "_count", "_literals", "_tables")

    def __init__(self, *, cache_size: int = CACHE_SIZE) -> None:
        """Start empty.

        Args:
            cache_size: how many subjects to remember the answer for; 0 for an owner with its own cache.
        """
        self._literals: dict[bytes, Leaf] = {}
        self._tables: dict[Splitting, WordTable] = {}
        """By the way in which dialects take subjects apart."""
        self._buckets = PrefixBuckets()
        check_count("cache_size", cache_size, 0, sys.maxsize)
        self._cache: AnswerCache[str | bytes, Matches] = AnswerCache(cache_size)
        self._count = 0

    def __len__(self) -> int:
        """Count the pairs of pattern and value."""
        return self._count

    def _keep_to(self, budget: Budget) -> None:
        """Keep the patterns that have to be tried to a budget.

        Args:
            budget: decides. What it passes over is missing from the answer, so that an index with a budget is
                made with `cache_size=0`.
        """
        self._buckets.budget = budget

    @overload
    def add(self: PatternIndex[Pattern], pattern: Pattern, value: None = None) -> None: ...

    @overload
    def add(self, pattern: Pattern, value: Value) -> None: ...

    def add(self, pattern: Pattern, value: Hashable = None) -> None:
        """Add a pattern.

        Args:
            pattern: a compiled pattern of any dialect.
            value: what `match` gives for it; the pattern itself when None.
        """
        entry = entry_of(pattern, value)
        if pattern.literal is not None:
            is_new = put(self._literals, pattern.literal, entry)
        elif (words := pattern.tokens or pattern.words) is not None:
            is_new = self._table(pattern).add(words, entry)
        else:
            is_new = self._buckets.add(pattern, entry)
        if is_new:
            self._count += 1
            self._forget(pattern)

    @overload
    def discard(self: PatternIndex[Pattern], pattern: Pattern, value: None = None) -> None: ...

    @overload
    def discard(self, pattern: Pattern, value: Value) -> None: ...

    def discard(self, pattern: Pattern, value: Hashable = None) -> None:
        """Take a pair of pattern and value out, if it is there."""
        entry = entry_of(pattern, value)
        if pattern.literal is not None:
            was_there = take(self._literals, pattern.literal, entry)
        elif (words := pattern.tokens or pattern.words) is not None:
            was_there = self._table(pattern).discard(words, entry)
        else:
            was_there = self._buckets.discard(pattern, entry)
        if was_there:
            self._count -= 1
            self._forget(pattern)

    def match(self, subject: str | bytes) -> Sequence[Value]:
        """Find the values of all patterns that match a subject, in no particular order.

        Args:
            subject: text or bytes. What is not UTF-8, be it bytes or text made of them by
                `surrogateescape`, matches no pattern of a text dialect.

        Raises:
            PatternTimeout: a pattern ran out of time, so that the whole answer is not known.
            SubjectError: text with a lone surrogate that stands for no byte.
        """
        found = self._cache.newer.get(subject)
        if found is None:
            found = self.find(subject)
        if found[1]:
            raise PatternTimeout(found[1][0].text, subject, TIME_LIMIT)
        return found[0]

    def find(self, subject: str | bytes) -> Matches:
        """Find what `match` finds, and report patterns that ran out of time beside it."""
        cache = self._cache
        found = cache.newer.get(subject)
        if found is None:
            found = cache.find(subject)
            if found is None:
                try:
                    found = self._search(subject)
                except UnicodeEncodeError:
                    # Remembered by its bytes: these may be written in several ways, and are forgotten in one.
                    return self.find(_escaped(subject))
                cache.put(subject, found)
        return found

    def _search(self, subject: str | bytes) -> Matches:
        text: str | None
        if isinstance(subject, str):
            text, subject = subject, subject.encode()
        else:
            text = _decoded(subject)
        found: list[Leaf] = []
        leaf = self._literals.get(subject)
        if leaf is not None:
            found.append(leaf)
        if text is not None:
            self._search_words(subject, found)
        timed_out = self._buckets.walk(subject, text, found) if self._buckets else ()
        if not found and not timed_out:
            return _NOTHING
        # Not by `Matches(…)`, which is a function in Python and takes twice as long.
        return tuple.__new__(Matches, (values_of(found), timed_out))

    def _search_words(self, subject: bytes, found: list[Leaf]) -> None:
        for way, table in self._tables.items():
            if table and (words := way.split(subject)) is not None:
                table.search(words, found, reserved=way.is_reserved(subject))

    def _table(self, pattern: Pattern) -> WordTable:
        way = pattern.splitting
        assert way is not None
        table = self._tables.get(way)
        if table is None:
            table = self._tables[way] = WordTable()
        return table

    def _forget(self, pattern: Pattern) -> None:
        """Forget the answers that a pattern which came or went may have changed."""
        if pattern.literal is None:
            self._cache.forget()
            return
        self._cache.drop(pattern.literal)
        text = _decoded(pattern.literal)
        if text is not None:
            self._cache.drop(text)


def _escaped(subject: Any) -> bytes:
    """Return the bytes of text with lone surrogates, as far as `surrogateescape` made them."""
    try:
        return bytes(subject.encode(errors="surrogateescape"))
    except UnicodeEncodeError as bad:
        raise SubjectError("any", subject, bad.start, LONE_SURROGATE) from None


def _decoded(subject: bytes) -> str | None:
    try:
        return subject.decode()
    except UnicodeDecodeError:
        return None
