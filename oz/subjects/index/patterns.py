"""`PatternIndex` finds the values of all patterns that match a subject. It caches the results.

Theory of operation. The index has three parts, and a pattern is in one of them:

- A literal is in a dict, under its subject. One lookup finds all matching literals.
- A pattern of words, such as `a.*.c`, is in a `WordTable` (words.py). A search in a table takes one lookup for each
  shape. There is one table for each rule by which dialects split subjects.
- A glob, a regex or a plain prefix is in a bucket for each of its prefixes (buckets.py). The patterns of a bucket are
  matched one by one.

Publishers repeat their subjects, so the index caches the result for each subject. When a pattern with wildcards is
added or removed, the index clears the cache. When a literal is added or removed, the index drops only the result for
its subject.

The match of a pattern can time out. The index cannot know then whether the pattern matches. Therefore the result lists
this pattern, and `match` raises PatternTimeout.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

from oz.errors import PatternTimeout, SubjectError
from oz.numbers import check_count
from oz.subjects.dialects.base import LONE_SURROGATE, Splitting
from oz.subjects.index.buckets import Match, PrefixBuckets
from oz.subjects.index.words import Leaf, WordTable, add_entry, entry_of, remove_entry, values_of
from oz.subjects.pattern import TIME_LIMIT, Pattern

if TYPE_CHECKING:
    # The values of an index without a type argument have the type Any. Before Python 3.13, `typing.TypeVar` has no
    # defaults.
    from typing_extensions import TypeVar

    Value = TypeVar("Value", bound=Hashable, default=Any)
else:
    from typing import TypeVar

    Value = TypeVar("Value")


_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")

_CLEANUP_STEPS = 4
"""Number of keys that `_empty_retired` deletes from retired dicts in one call."""


class AnswerCache(Generic[_Key, _Answer]):
    """Cache of recently used answers, in two generations.

    The cache adds answers to a newer dict. When this dict is full, it becomes the older dict, and the previous older
    dict is retired. When an answer in the older dict is used, it moves to the newer dict. The alternative, one dict
    that drops its first key for each new key, would be slow: to find the first key, Python steps over all deleted keys.

    A retired dict is emptied a few keys at a time. Therefore `clear` returns quickly, even if many thousands of answers
    are cached.
    """

    __slots__ = ("_half", "_older", "_retired", "newer")

    def __init__(self, size: int) -> None:
        """Create an empty cache.

        Args:
            size: maximum number of answers, rounded down to an even number; 0 disables the cache.
        """
        self._half = max(size // 2, 1) if size else 0
        self._older: dict[_Key, _Answer] = {}
        self._retired: list[dict[_Key, _Answer]] = []
        self.newer: dict[_Key, _Answer] = {}

    def __len__(self) -> int:
        return len(self.newer) + len(self._older)

    def find(self, key: _Key) -> _Answer | None:
        """Return the answer for a key that is not in `newer`. Return None if no answer is cached."""
        if not self._older:
            return None
        answer = self._older.pop(key, None)
        if answer is not None:
            self.put(key, answer)
        return answer

    def put(self, key: _Key, answer: _Answer) -> None:
        """Add an answer."""
        if not self._half:
            return
        if len(self.newer) >= self._half:
            if self._older:
                self._retired.append(self._older)
            self._older, self.newer = self.newer, {}
        self.newer[key] = answer
        if self._retired:
            self._empty_retired()

    def drop(self, key: _Key) -> None:
        """Remove the answer for a key."""
        self.newer.pop(key, None)
        self._older.pop(key, None)

    def clear(self) -> None:
        """Remove all answers."""
        if self.newer or self._older:
            self._retired += [generation for generation in (self.newer, self._older) if generation]
            self.newer, self._older = {}, {}
        if self._retired:
            self._empty_retired()

    def _empty_retired(self) -> None:
        retired = self._retired
        for _ in range(_CLEANUP_STEPS):
            if retired[-1]:
                retired[-1].popitem()
            else:
                retired.pop()
                if not retired:
                    return


CACHE_SIZE = 65_536
"""By default, an index caches the results for at most this number of subjects."""


class Matches(NamedTuple):
    """Result of a search for the patterns that match a subject."""

    values: tuple[Any, ...]
    """Values of the matching patterns, in no particular order."""
    timed_out: tuple[Pattern, ...]
    """Patterns whose match timed out, so that it is unknown whether they match."""


_NOTHING = Matches((), ())


class PatternIndex(Generic[Value]):
    """Index of patterns of all dialects. It returns the values of all patterns that match a subject.

    The values of a `PatternIndex[str]()` are texts. A pair of pattern and value that is added twice is kept only once.
    An added or removed pattern takes effect with the next subject. The cost of a change does not depend on the size of
    the index.
    """

    __slots__ = ("_buckets", "_cache", "_count", "_literals", "_tables")

    def __init__(self, *, cache_size: int = CACHE_SIZE) -> None:
        """Create an empty index.

        Args:
            cache_size: maximum number of subjects whose results are cached; 0 disables the cache.
        """
        self._literals: dict[bytes, Leaf] = {}
        self._tables: dict[Splitting, WordTable] = {}
        self._buckets = PrefixBuckets()
        check_count("cache_size", cache_size, 0, sys.maxsize)
        self._cache: AnswerCache[str | bytes, Matches] = AnswerCache(cache_size)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def _match_with(self, match: Match) -> None:
        """Set the function that matches globs and regexes.

        The function may skip patterns. Therefore an index with this function needs `cache_size=0`.
        """
        self._buckets.match = match

    @overload
    def add(self: PatternIndex[Pattern], pattern: Pattern, value: None = None) -> None: ...

    @overload
    def add(self, pattern: Pattern, value: Value) -> None: ...

    def add(self, pattern: Pattern, value: Hashable = None) -> None:
        """Add a pattern.

        Args:
            pattern: compiled pattern of any dialect.
            value: value that `match` returns for the pattern. If it is None, `match` returns the pattern itself.
        """
        entry = entry_of(pattern, value)
        if pattern._compiled.literal is not None:
            is_new = add_entry(self._literals, pattern._compiled.literal, entry)
        elif (words := pattern._compiled.tokens or pattern._compiled.words) is not None:
            is_new = self._table(pattern).add(words, entry)
        else:
            is_new = self._buckets.add(pattern, entry)
        if is_new:
            self._count += 1
            self._drop_answers(pattern)

    @overload
    def discard(self: PatternIndex[Pattern], pattern: Pattern, value: None = None) -> None: ...

    @overload
    def discard(self, pattern: Pattern, value: Value) -> None: ...

    def discard(self, pattern: Pattern, value: Hashable = None) -> None:
        """Remove a pair of pattern and value, if it exists."""
        entry = entry_of(pattern, value)
        if pattern._compiled.literal is not None:
            was_there = remove_entry(self._literals, pattern._compiled.literal, entry)
        elif (words := pattern._compiled.tokens or pattern._compiled.words) is not None:
            was_there = self._table(pattern).discard(words, entry)
        else:
            was_there = self._buckets.discard(pattern, entry)
        if was_there:
            self._count -= 1
            self._drop_answers(pattern)

    def match(self, subject: str | bytes) -> Sequence[Value]:
        """Return the values of all patterns that match a subject, in no particular order.

        Args:
            subject: text or bytes. Text represents bytes that are not UTF-8 by `surrogateescape`. A subject with these
                bytes matches no pattern of a text dialect.

        Raises:
            PatternTimeout: the match of a pattern timed out, so that the result is unknown.
            SubjectError: the text has a lone surrogate that represents no byte.
        """
        found = self._cache.newer.get(subject)
        if found is None:
            found = self._find(subject)
        if found[1]:
            raise PatternTimeout(found[1][0].text, subject, TIME_LIMIT)
        return found[0]

    def _find(self, subject: str | bytes) -> Matches:
        cache = self._cache
        found = cache.newer.get(subject)
        if found is None:
            found = cache.find(subject)
            if found is None:
                try:
                    found = self._search(subject)
                except UnicodeEncodeError:
                    # Several texts can represent the same bytes. They share one cached result, whose key is the bytes.
                    return self._find(_surrogate_bytes(subject))
                cache.put(subject, found)
        return found

    def _search(self, subject: str | bytes) -> Matches:
        text: str | None
        if isinstance(subject, str):
            text, subject = subject, subject.encode()
        else:
            text = _decode(subject)
        found: list[Leaf] = []
        leaf = self._literals.get(subject)
        if leaf is not None:
            found.append(leaf)
        if text is not None:
            self._search_words(subject, found)
        timed_out = self._buckets.walk(subject, text, found) if self._buckets else ()
        if not found and not timed_out:
            return _NOTHING
        # The call `Matches(…)` runs a Python function and takes twice the time.
        return tuple.__new__(Matches, (values_of(found), timed_out))

    def _search_words(self, subject: bytes, found: list[Leaf]) -> None:
        for way, table in self._tables.items():
            if table and (words := way.split(subject)) is not None:
                table.search(words, found, reserved=way.is_reserved(subject))

    def _table(self, pattern: Pattern) -> WordTable:
        way = pattern._dialect.splitting
        assert way is not None
        table = self._tables.get(way)
        if table is None:
            table = self._tables[way] = WordTable()
        return table

    def _drop_answers(self, pattern: Pattern) -> None:
        if pattern._compiled.literal is None:
            self._cache.clear()
            return
        self._cache.drop(pattern._compiled.literal)
        text = _decode(pattern._compiled.literal)
        if text is not None:
            self._cache.drop(text)


def _surrogate_bytes(subject: Any) -> bytes:
    try:
        return bytes(subject.encode(errors="surrogateescape"))
    except UnicodeEncodeError as bad:
        raise SubjectError("any", subject, bad.start, LONE_SURROGATE) from None


def _decode(subject: bytes) -> str | None:
    try:
        return subject.decode()
    except UnicodeDecodeError:
        return None
