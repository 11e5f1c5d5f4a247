"""The bridge: what peers ask for on another bus, what of it may pass, and an account of what passed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache

from oz.errors import ProtocolError, Undecidable
from oz.protocol.bridge import spanning_tree
from oz.protocol.bridge.spanning_tree import Offer
from oz.protocol.node.reserved_subjects import INBOX, LOCAL, OWN
from oz.protocol.publisher.accounts import Account
from oz.protocol.publisher.stream import NAME_SIZE, OutStream
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern, compile, may_take_long

VIA_SIZE = 8

MOST_PUBLISHERS = 10_000
"""Publishers that are remembered; the one that was heard least lately is forgotten first."""

MOST_INTERESTS = 20_000
"""Patterns of one connection that are asked for elsewhere at most: a forwarder is one connection there, and a
publisher grants it as much as anybody, for all on whose behalf it asks."""

_INBOX, _LOCAL, _OWN = INBOX.encode(), LOCAL.encode(), OWN.encode()
_OFFER = spanning_tree.PREFIX.encode()


Interest = tuple[Pattern, str]
"""Something that is asked for: a pattern, and the queue group that asks, or ""."""


class Ledger:
    """The interest of all that are connected to one publisher; not of those cut off or closing.

    Attributes:
        interests: how many streams ask for each.
        policies: of each queue group that of its senior member.
        offers: what other forwarders tell, the newest of each.
        withheld: the patterns that do not count, as their connection has `MOST_INTERESTS` that do, by stream.
    """

    __slots__ = (
        "_changes", "_counted", "_offered", "_shares", "interests", "offers", "policies", "withheld",
    )  # fmt: skip

    def __init__(self) -> None:
        """Start empty."""
        self.interests: dict[Interest, int] = {}
        self.policies: dict[str, str] = {}
        self.offers: list[Offer] = []
        self._counted: dict[OutStream, dict[Pattern, None]] = {}
        self._offered: dict[OutStream, dict[Pattern, Offer]] = {}
        self._changes: dict[Interest, bool] = {}
        self._shares: dict[Account, int] = {}
        self.withheld: dict[OutStream, dict[Pattern, None]] = {}

    def update(
        self,
        streams: Iterable[OutStream],
        changed: Mapping[OutStream, Iterable[Pattern]],
        silent: Container[bytes] = (),
    ) -> None:
        """Record changes.

        Args:
            streams: all that there are.
            changed: the patterns that came or went since the last call, of streams that were there then.
            silent: what the names of the streams of those begin with who say nothing any more. A forwarder
                that stands still passes nothing on: its offers do not count.
        """
        # In one order, whatever the hashes.
        standing = {one: None for one in streams if _stands(one)}
        for stream in [one for one in self._counted if one not in standing]:
            for pattern in self._counted.pop(stream):
                self._count(stream, pattern, -1)
            self._offered.pop(stream, None)
            self.withheld.pop(stream, None)
        for stream in standing:
            is_new = stream not in self._counted
            counted = self._counted.setdefault(stream, {})
            for pattern in stream.patterns if is_new else changed.get(stream, ()):
                self._note(stream, counted, pattern)
        self._grant()
        self.offers = spanning_tree.newest(
            offer
            for stream, offered in self._offered.items()
            if stream.name[:NAME_SIZE] not in silent
            for offer in offered.values()
        )
        seniors: dict[str, tuple[int, str]] = {}
        for stream in standing:
            if group := stream.delivery.group:
                member = stream.joined, stream.delivery.policy
                seniors[group] = min(seniors.get(group, member), member)
        self.policies = {group: policy for group, (_, policy) in seniors.items()}

    def _note(self, stream: OutStream, counted: dict[Pattern, None], pattern: Pattern) -> None:
        """Record whether a stream has a pattern."""
        is_there = pattern in stream.patterns
        if pattern.prefix.startswith(_OFFER):
            offered = self._offered.setdefault(stream, {})
            offered.pop(pattern, None)
            if is_there and pattern.is_literal:
                with suppress(ProtocolError):
                    offered[pattern] = spanning_tree.from_text(str(pattern.text)[len(spanning_tree.PREFIX) :])
        elif is_there != (pattern in counted) and not _is_private(pattern):
            if not is_there:
                del counted[pattern]
                self._count(stream, pattern, -1)
            elif self._has_room(stream):
                counted[pattern] = None
                self._count(stream, pattern, 1)
            else:
                self.withheld.setdefault(stream, {})[pattern] = None
        elif not is_there and stream in self.withheld:
            self.withheld[stream].pop(pattern, None)

    def _has_room(self, stream: OutStream) -> bool:
        """Tell whether another pattern of a connection may count; of those inside the process any may."""
        return not stream.account.name or self._shares.get(stream.account, 0) < MOST_INTERESTS

    def _grant(self) -> None:
        """Count what was withheld and has room now."""
        for stream, patterns in list(self.withheld.items()):
            while patterns and self._has_room(stream):
                pattern, _ = patterns.popitem()
                self._counted[stream][pattern] = None
                self._count(stream, pattern, 1)
            if not patterns:
                del self.withheld[stream]

    def _count(self, stream: OutStream, pattern: Pattern, change: int) -> None:
        share = self._shares.pop(stream.account, 0) + change
        if share:
            self._shares[stream.account] = share
        interest = pattern, stream.delivery.group
        before = self.interests.get(interest, 0)
        if before + change:
            self.interests[interest] = before + change
        else:
            del self.interests[interest]
        if not before or not before + change:
            # What came and went, or went and came, has not changed.
            if interest in self._changes:
                del self._changes[interest]
            else:
                self._changes[interest] = not before

    def take_changes(self) -> dict[Interest, bool]:
        """Return the interests that came (True) or went since this was asked last."""
        changes, self._changes = self._changes, {}
        return changes


def _stands(stream: OutStream) -> bool:
    is_there = stream.vanished_at is None and not stream.is_closing and not stream.is_gone
    return is_there and stream.is_held


def _is_private(pattern: Pattern) -> bool:
    """Tell whether a pattern asks for nothing that may leave its bus."""
    return all(prefix.startswith((_OWN, _LOCAL)) for prefix in pattern.prefixes)


class ImportFilter:
    """The filter of what may come onto one bus from another. It belongs to one thread."""

    __slots__ = ("_allowed", "_index")

    def __init__(self, allowed: Iterable[Pattern] = ()) -> None:
        """Take down what is allowed.

        Args:
            allowed: patterns; none allows everything.
        """
        self._allowed = tuple(allowed)
        self._index = PatternIndex(cache_size=65_536)
        for pattern in self._allowed:
            self._index.add(pattern)

    def narrow(self, pattern: Pattern) -> tuple[Pattern, ...]:
        """Return what to ask for on the other bus, so that no more than needed comes and is refused here."""
        return narrowed(pattern, self._allowed) if self._allowed else (pattern,)

    def lets(self, subject: bytes) -> bool:
        """Tell whether a message may come: one that is allowed, and answers to requests."""
        if subject.startswith((_OWN, _LOCAL)):
            return False
        return not self._allowed or subject.startswith(_INBOX) or bool(self._index.find(subject).values)


@lru_cache(maxsize=65_536)
def narrowed(pattern: Pattern, allowed: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """Return patterns that match what both match, and as little else as can be had without a new pattern."""
    if all(prefix.startswith(_INBOX) for prefix in pattern.prefixes):
        return (pattern,)
    found: dict[Pattern, None] = {}
    for one in allowed:
        try:
            if one.covers(pattern):
                return (pattern,)
            if pattern.covers(one):
                found[one] = None
            elif pattern.overlaps(one):
                found[pattern] = None
        except Undecidable:
            found[pattern] = None
    return (pattern,) if pattern in found else tuple(found)


@lru_cache(maxsize=65_536)
def quick_patterns(pattern: Pattern) -> tuple[Pattern, ...]:
    """Return patterns that match whatever one does and never take long: of a regex its prefixes.

    What comes to a forwarder was matched by a publisher with a budget, and is matched by another when it goes
    on. In between a stranger's regexes must not hold it up.
    """
    if not may_take_long(pattern):
        return (pattern,)
    return tuple(compile(prefix, "zmq") for prefix in pattern.prefixes)


def has_passed(via: object, name: bytes) -> bool:
    """Tell whether a message has passed a forwarder, or so many that it must be going round."""
    if type(via) is not bytes:
        return False
    passed = [via[at : at + VIA_SIZE] for at in range(0, len(via), VIA_SIZE)]
    return name in passed or len(passed) >= spanning_tree.MAX_PATH


class _Standing:
    """The numbers of one publisher that are accounted for: from `first` to before `expected`."""

    __slots__ = ("expected", "first")

    def __init__(self, sequence: int) -> None:
        self.first = self.expected = sequence


class Relaying:
    """Keeps account of numbered messages that come through links which break, and are replaced.

    A link that is new knows nothing of what the last one passed on. Numbers tell: of each publisher, every
    number is passed on or reported lost, once.
    """

    __slots__ = ("_standings",)

    def __init__(self) -> None:
        """Nobody was heard yet."""
        self._standings: dict[bytes, _Standing] = {}

    def take(self, origin: bytes, sequence: int, count: int) -> tuple[int, int]:
        """Record messages that came.

        Args:
            origin: their publisher.
            sequence: the number of the first.
            count: how many.

        Returns:
            How many were lost before them, and how many of them came before already and are to be skipped.
        """
        standing = self._find(origin, sequence)
        lost = max(0, sequence - standing.expected)
        seen = min(count, max(0, standing.expected - sequence))
        standing.expected = max(standing.expected, sequence + count)
        return lost, seen

    def lose(self, origin: bytes, sequence: int, count: int) -> int:
        """Record messages that a link says are lost.

        Returns:
            How many of them are not accounted for yet.
        """
        standing, end = self._find(origin, sequence), sequence + count
        ahead = max(0, end - max(standing.expected, sequence))
        behind = max(0, min(end, standing.first) - sequence)
        # What lies between two known stretches is lost too: nobody will bring it.
        ahead += max(0, sequence - standing.expected)
        standing.expected = max(standing.expected, end)
        standing.first = min(standing.first, sequence)
        return ahead + behind

    def reach(self, origin: bytes, sequence: int) -> int:
        """Record the number that comes next; return how many before it never came."""
        return self.take(origin, sequence, 0)[0]

    def _find(self, origin: bytes, sequence: int) -> _Standing:
        standing = self._standings.pop(origin, None)
        if standing is None:
            standing = _Standing(sequence)
            if len(self._standings) >= MOST_PUBLISHERS:
                del self._standings[next(iter(self._standings))]
        # The one heard last is the last in line.
        self._standings[origin] = standing
        return standing
