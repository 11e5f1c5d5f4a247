"""The time that a publisher gives to patterns: of each connection, and of all together.

Regexes and globs have to be tried one by one, and some take very long. Each connection has a credit, and all
together have one. It begins at so many look-ups' worth (`BURST`, `ALL_BURST`), and comes back with each
look-up and with the time that passes. Whoever uses it up loses the patterns that were measured as dearest
just then, until the rest fits: they are suspended, which `InterestTable` sees to. What could not be tried any
more is tried for the next subject.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from oz.protocol.publisher.stream import OutStream
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.subjects.index.budget import Attempt
from oz.subjects.index.words import Leaf, values_of
from oz.subjects.pattern import Pattern

MOST = 10
"""Look-ups' worth that one pattern may take on one subject; it is skipped for that subject then."""

BURST = 20
"""Look-ups' worth that a connection may use up at once: a pattern that is slow now and then is not dear."""

ALL_BURST = 10
"""The same for all connections together."""

REFILL = 0.05
"""Seconds of credit that come back with each second, for a publisher that publishes now and then."""

FAIR = 0.01
"""Part of the time of all that a connection may use though that is used up: nobody is dear with so little."""

LEAST = 0.01
"""Part of a look-up's worth that is no credit any more: nothing can be tried in it."""

MOST_SHARING = 64
"""Connections with the same pattern that are charged for it; with as many as that it is nobody's alone."""

MOST_PASSED_OVER = 1_000
"""Patterns that are passed over for one subject and kept: so many more would not be tried in time anyway.

Of a connection it is half as many after each time that it overdraws: one with hundreds of dear patterns is
done with after some ten messages, not after hundreds.
"""

MOST_OVERDUE = 4_000
"""Of those that are not, as many are suspended after one subject."""

MOST_LOOKED_AT = 2_048
"""Streams with the same pattern that are looked at to find those connections."""


class Stopwatch(NamedTuple):
    """Two clocks that tell how long patterns take.

    Attributes:
        passed: gives seconds that have passed, quickly.
        worked: gives seconds for which this thread has had a processor.
    """

    passed: Callable[[], float]
    worked: Callable[[], float]


def account_of(stream: OutStream) -> bytes:
    """Return what stands for the connection that a stream came over."""
    return stream.share


@dataclass(slots=True)
class _Account:
    """The credit of a connection, how often it overdrew, and what it did on this subject."""

    left: float
    looked_up: int
    passed: float
    overdrawn: int = 0
    passed_over: int = 0
    spent: float = 0.0
    tried: list[tuple[float, Pattern, Leaf]] = field(default_factory=list)


class PatternTime:
    """Keeps patterns to `Limits.pattern_time` and `all_pattern_time`; the budget of a publisher's index.

    Attributes:
        clock: gives seconds that have passed.
        most: seconds that a pattern may take on one subject while nothing is tight.
        is_tight: whether somebody's credit is short.
        overdue: patterns that are to be suspended, and their streams; whoever does it takes them out.
        skipped: how many patterns were passed over, until whoever counts them sets it to 0.
        accounts: of those whose patterns take long, by name.
        poor: the accounts that have had their share.
    """

    __slots__ = (
        "_all",
        "_calm_at",
        "_each",
        "_exhausted",
        "_fair",
        "_least",
        "_looked_up",
        "_passed_over",
        "_slice",
        "_spent",
        "_together",
        "_touched",
        "_worked",
        "_worked_at",
        "accounts",
        "clock",
        "is_tight",
        "most",
        "overdue",
        "poor",
        "skipped",
    )

    def __init__(self, stopwatch: Stopwatch, limits: Limits = DEFAULT_LIMITS) -> None:
        """Start with nobody in debt.

        Args:
            stopwatch: measures.
            limits: `pattern_time` and `all_pattern_time` are kept to.
        """
        self.clock, self._worked = stopwatch
        self._each, self._together = limits.pattern_time, limits.all_pattern_time
        self.most = min(MOST * self._each, MOST * self._together, 3600.0)
        self._fair = FAIR * self._together
        self._least = LEAST * min(self._each, self.most)
        # In a slice nobody can overdraw while all have credit.
        self._slice = min(self._each, self._together)
        self.accounts: dict[bytes, _Account] = {}
        self._touched: dict[bytes, _Account] = {}
        self.poor: set[bytes] = set()
        self._all = _Account(ALL_BURST * self._together, 0, 0.0)
        self._looked_up = 0
        self._calm_at = 0
        self._worked_at = 0.0
        self._spent = 0.0
        self._passed_over = 0
        self._exhausted: set[object] = set()
        self.is_tight = False
        self.overdue: list[tuple[Pattern, OutStream]] = []
        self.skipped = 0

    # the budget of an index ------------------------------------------------------------------------------

    def begin(self) -> float:
        """Begin to look a subject up; see `Budget`."""
        self._looked_up += 1
        self._spent = 0.0
        self._passed_over = 0
        self._exhausted.clear()
        self._worked_at = self._worked()
        if self.accounts and self._looked_up > self._calm_at:
            self.accounts.clear()
            self.poor.clear()
            self.is_tight = False
        if not self.accounts:
            return self._slice
        self._refill(self._all, self._together, ALL_BURST)
        self._see_how_tight()
        return self._slice / 10

    def limit(self, leaf: Leaf) -> float:
        """Return the seconds that a pattern may take now; see `Budget`."""
        alone = leaf[1] if isinstance(leaf, tuple) else None
        if alone is None or alone not in self._exhausted:
            credit = self._credit(leaf)
            if credit > self._least:
                return min(credit, self.most)
            if alone is not None:
                self._exhausted.add(alone)
        self.skipped += 1
        self._passed_over += 1
        is_one_too_many = self._passed_over > MOST_PASSED_OVER or (
            alone is not None and self._pass_over(alone)
        )
        if is_one_too_many and len(self.overdue) < MOST_OVERDUE:
            self.overdue += _entries(leaf)
        return 0.0

    def _pass_over(self, stream: Any) -> bool:
        """Pass over a pattern of one stream; tell whether its connection has had too many of those."""
        account = self._account(account_of(stream))
        account.passed_over += 1
        return account.passed_over > MOST_PASSED_OVER >> account.overdrawn

    def _credit(self, leaf: Leaf) -> float:
        """Return the most that any of those has left who asked for a pattern."""
        names = _accounts_of(leaf)
        if len(names) >= MOST_SHARING:
            return self.most
        accounts = map(self._account, names)
        # Once all is used up, whoever has taken little may still try.
        return max(min(one.left, max(self._all.left, self._fair - one.spent)) for one in accounts)

    def spend(self, tried: list[Attempt]) -> float:
        """Record which patterns were tried; see `Budget`."""
        worked = self._worked()
        spent, self._worked_at = worked - self._worked_at, worked
        if self.accounts or spent + self._spent >= self._slice:
            # The others took less than a slice together, even by a clock that also counts while the thread
            # has no processor.
            *others, (pattern, leaf, began, ended) = tried
            for other, others_leaf, others_began, others_ended in others:
                self._charge(other, others_leaf, others_ended - others_began)
            rest = spent - sum(one[3] - one[2] for one in others)
            self._charge(pattern, leaf, max(0.0, min(ended - began, rest)))
            self._see_how_tight()
        self._spent += spent
        return self._slice / 10 if self.accounts else self._slice

    def end(self, tried: list[Attempt]) -> None:
        """Record that a subject was looked up, and settle who has overdrawn; see `Budget`."""
        if not self.accounts:
            return
        if tried:
            self.spend(tried)
        if self._spent >= self._slice:
            self._calm_at = self._looked_up + BURST
        for name, account in self._touched.items():
            if account.left <= self._least:
                self._suspend(account.tried, account.spent, self._each, [name])
                account.left = 0.0
                account.overdrawn += 1
        if self._all.left <= self._least:
            dear = [one for one in self._touched.items() if one[1].spent > self._fair]
            # One that several share took its time once.
            attempts = {
                pattern: (seconds, pattern, leaf)
                for _, account in dear
                for seconds, pattern, leaf in account.tried
            }
            self._suspend(attempts.values(), self._spent, self._together, [name for name, _ in dear])
            self._all.left = 0.0
            for _, account in dear:
                account.overdrawn += 1
        for account in self._touched.values():
            account.spent = 0.0
            account.tried.clear()
        self._touched.clear()

    # accounts --------------------------------------------------------------------------------------------

    def _account(self, name: bytes) -> _Account:
        account = self.accounts.get(name)
        if account is None:
            account = _Account(BURST * self._each, self._looked_up, self.clock())
            self.accounts[name] = account
        elif account.looked_up != self._looked_up:
            self._refill(account, self._each, BURST)
            if account.left >= self.most:
                self.poor.discard(name)
        return account

    def _refill(self, account: _Account, each: float, burst: int) -> None:
        count, now = self._looked_up - account.looked_up, self.clock()
        account.left = min(burst * each, account.left + count * each + REFILL * (now - account.passed))
        account.looked_up, account.passed, account.passed_over = self._looked_up, now, 0

    def _charge(self, pattern: Pattern, leaf: Leaf, seconds: float) -> None:
        self._all.left -= seconds
        for name in _accounts_of(leaf):
            account = self._touched[name] = self._account(name)
            account.left -= seconds
            account.spent += seconds
            account.tried.append((seconds, pattern, leaf))
            if account.left < self.most:
                self.poor.add(name)

    def _see_how_tight(self) -> None:
        self.is_tight = bool(self.poor) or self._all.left < self.most

    def _suspend(
        self, tried: Iterable[tuple[float, Pattern, Leaf]], spent: float, most: float, names: Iterable[bytes]
    ) -> None:
        """Suspend the dearest of some patterns until the rest takes no more than it may."""
        owners = set(names)
        for seconds, pattern, leaf in sorted(tried, key=lambda one: -one[0]):
            if spent <= most:
                break
            spent -= seconds
            self.overdue += [(pattern, one) for one in values_of([leaf]) if account_of(one) in owners]


class Allowance:
    """A budget that is used up once: that of one question about many subjects.

    Attributes:
        clock: gives seconds that have passed.
        most: seconds that are left.
        is_tight: always: each pattern is looked at.
    """

    __slots__ = ("clock", "is_tight", "most")

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        """Start with so many seconds."""
        self.clock = clock
        self.most = seconds
        self.is_tight = True

    def begin(self) -> float:
        """Begin to look a subject up; see `Budget`."""
        return 0.0

    def limit(self, leaf: Leaf) -> float:
        """Return the seconds that are left; see `Budget`."""
        return self.most

    def spend(self, tried: list[Attempt]) -> float:
        """Record which patterns were tried; see `Budget`."""
        self.most = max(0.0, self.most - sum(ended - began for _, _, began, ended in tried))
        return 0.0

    def end(self, tried: list[Attempt]) -> None:
        """Record the last patterns that were tried; see `Budget`."""
        self.spend(tried)


def _entries(leaf: Any) -> Iterable[tuple[Pattern, OutStream]]:
    return leaf if isinstance(leaf, dict) else (leaf,)


def _accounts_of(leaf: Leaf) -> Collection[bytes]:
    if type(leaf) is not dict:
        (stream,) = values_of([leaf])
        return (account_of(stream),)
    names: set[bytes] = set()
    for stream in islice(leaf.values(), MOST_LOOKED_AT):
        names.add(account_of(stream))
        if len(names) >= MOST_SHARING:
            break
    return names
