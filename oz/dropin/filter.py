"""Patterns of one SUB socket, which decide whether the socket accepts a subject.

The filter counts the subscriptions to each pattern, as libzmq counts them for each prefix. Two calls of `subscribe`
need two calls of `unsubscribe`. In libzmq, the socket subscribes to every prefix of every pattern. If two patterns have
the same prefix, libzmq counts two subscriptions, and the prefix stays subscribed until both patterns are removed.

A filter with at most `FEW` patterns matches them one after the other. With more patterns, a `PatternIndex` selects the
patterns to match. The filter caches its answers, because publishers repeat their subjects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from oz.errors import PatternTimeout
from oz.subjects.dialects.base import Stem, Wild
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import LONG_PATTERN, TIME_LIMIT, Pattern, is_timed

FEW = 4
"""Maximum number of patterns without an index. For more patterns, a search in the index takes less time."""

ANSWERS = 8_192
"""Maximum number of cached answers, one for each subject."""

LONGEST_SUBJECT = 256
"""Maximum size of a subject whose answer is cached, in bytes. The limit bounds the memory that a peer can fill."""

Rule = tuple[tuple[bytes, ...], bool | None]
"""Simple pattern in a form that C code matches: literal texts, and a flag for the end of the subject.

A subject matches if it contains the texts in this order, with exactly one token between two texts. After the last text,
the flag allows one or more tokens (True), any text (None), or no text (False). For ASCII subjects, the match takes less
time than a search in `answers`."""

Matcher = Callable[[bytes], object]


class Filter:
    """Set of patterns with a count for each pattern.

    Attributes:
        is_active: whether a pattern that is not a prefix was ever added. While False, libzmq's filter by prefix
            suffices.
        answers: cached answers, as a dict from a subject to True if a pattern matches the subject, otherwise False.
        rules: rule of each pattern; empty if a pattern has no rule, or if there are more than `FEW` patterns.
    """

    __slots__ = ("_counts", "_decide", "_index", "answers", "is_active", "rules")

    def __init__(self) -> None:
        self.is_active = False
        self._counts: Counter[Pattern] = Counter()
        self._index: PatternIndex[Pattern] = PatternIndex(cache_size=0)
        self._decide: Matcher = _accept_all
        self.answers: dict[bytes, bool] = {}
        self.rules: list[Rule] = []

    def __len__(self) -> int:
        """Return the number of different patterns."""
        return len(self._counts)

    def add(self, pattern: Pattern) -> None:
        """Add one subscription to a pattern."""
        self._counts[pattern] += 1
        self.is_active = self.is_active or not pattern._dialect.is_prefix
        if self._counts[pattern] == 1:
            self._index.add(pattern)
            self._update()

    def discard(self, pattern: Pattern) -> bool:
        """Remove one subscription to a pattern; return False if the pattern has no subscription."""
        if pattern not in self._counts:
            return False
        self._counts[pattern] -= 1
        if not self._counts[pattern]:
            del self._counts[pattern]
            self._index.discard(pattern)
            self._update()
        return True

    def accepts(self, subject: bytes) -> bool:
        """Return whether a pattern matches a subject.

        Raises:
            PatternTimeout: no pattern matched, and the match of a pattern exceeded its time limit.
        """
        answer = self.answers.get(subject)
        return self.find(subject) if answer is None else answer

    def find(self, subject: bytes) -> bool:
        """Match a subject whose answer is not cached; see `accepts`."""
        answer = bool(self._decide(subject))
        if len(subject) <= LONGEST_SUBJECT:
            if len(self.answers) >= ANSWERS:
                self.answers.clear()
            self.answers[subject] = answer
        return answer

    def _update(self) -> None:
        """Choose the method of matching for the current patterns, and clear the cached answers."""
        self.answers.clear()
        has_rules = self.is_active and len(self._counts) <= FEW
        rules = [_rule(pattern) for pattern in self._counts] if has_rules else []
        # The list is changed in place, because C code keeps a reference to it.
        self.rules[:] = () if None in rules else [rule for rule in rules if rule is not None]
        if not self.is_active:
            self._decide = _accept_all
        elif len(self._counts) > FEW or any(_is_costly(pattern) for pattern in self._counts):
            self._decide = self._search
        elif len(self._counts) == 1:
            self._decide = _matcher(*self._counts)
        else:
            matchers = [_matcher(pattern) for pattern in self._counts]
            self._decide = lambda subject: any(matches(subject) for matches in matchers)

    def _search(self, subject: bytes) -> bool:
        found, timed_out = self._index._find(subject)
        if timed_out and not found:
            raise PatternTimeout(timed_out[0].text, subject, TIME_LIMIT)
        return bool(found)


def _rule(pattern: Pattern) -> Rule | None:
    """Return the rule of a pattern; None if no rule can express the pattern."""
    if pattern._compiled.literal is not None:
        return (pattern._compiled.literal,), False
    if pattern._dialect.is_prefix:
        return (pattern.prefixes[0],), None
    texts: list[list[bytes]] = [[]]
    for token in pattern._compiled.tokens or (Wild.ANY,):
        if isinstance(token, Stem) or token is Wild.ANY:
            return None
        texts[-1].append(token if isinstance(token, bytes) else b"")
        if token is Wild.ONE:
            texts.append([b""])
    return tuple(b".".join(text) for text in texts), token is Wild.REST


def _accept_all(subject: bytes) -> object:
    return True


def _is_costly(pattern: Pattern) -> bool:
    """Return whether a pattern needs the index, because it has a time limit or a very long text."""
    return is_timed(pattern) or len(pattern.text) > LONG_PATTERN


def _matcher(pattern: Pattern) -> Matcher:
    """Return a function that matches one pattern and has the same result as the index."""
    if pattern._compiled.literal is not None:
        return pattern._compiled.literal.__eq__
    if pattern._dialect.is_prefix:
        prefix = pattern.prefixes[0]
        return lambda subject: subject.startswith(prefix)
    fullmatch = pattern.regex.fullmatch
    if pattern._dialect.is_bytes:
        return fullmatch

    def matches_text(subject: bytes) -> object:
        try:
            return fullmatch(subject.decode())
        except UnicodeDecodeError:
            return None

    return matches_text
