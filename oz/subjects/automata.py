"""Small automata over bytes: what an expression stands for, and what two of them share or one takes alone.

What two share is searched in pairs of their states; whether one takes all that another does, in pairs of a
state of the one and a set of states of the other, made as they are met. Both searches take the cheapest way
first, so what they find is as short as can be: in bytes, or in characters and then in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush
from typing import Protocol

from oz.errors import Undecidable
from oz.subjects.expressions import (
    ANY_TEXT,
    Alt,
    Bytes,
    Chars,
    Expression,
    Repeat,
    Seq,
    Text,
    nonempty,
    nullable,
    utf8,
)

MAX_STATES = 50_000
"""How large an automaton may become."""

Move = tuple[int, int]
"""A set of bytes, as a number, and the state that they lead to."""


class Automaton:
    """Takes the byte strings that an expression stands for. State 0 is the start."""

    def __init__(self, expression: Expression) -> None:
        """Build the states.

        Raises:
            Undecidable: there would be more than `MAX_STATES`.
        """
        self._edges: list[list[Move]] = []
        self._silent: list[list[int]] = []
        self._closed: dict[int, tuple[bool, tuple[Move, ...]]] = {}
        self._last = self._add(expression, self._new())

    def closed(self, state: int) -> tuple[bool, tuple[Move, ...]]:
        """Tell whether a subject may end in a state, and what moves lead on."""
        known = self._closed.get(state)
        if known is None:
            reached = self._reach(state)
            moves = tuple(dict.fromkeys(move for each in reached for move in self._edges[each] if move[0]))
            known = self._closed[state] = (self._last in reached, moves)
        return known

    def _reach(self, state: int) -> dict[int, None]:
        reached = {state: None}
        waiting = [state]
        while waiting:
            fresh = [each for each in self._silent[waiting.pop()] if each not in reached]
            reached.update(dict.fromkeys(fresh))
            waiting += fresh
        return reached

    def renamed(self, first: int, second: int) -> Automaton:
        """Copy it with two bytes in each other's place."""
        copy = Automaton.__new__(Automaton)
        copy._silent, copy._last, copy._closed = self._silent, self._last, {}
        copy._edges = [[(_swapped(mask, first, second), to) for mask, to in each] for each in self._edges]
        return copy

    # Building: each of these adds what leads away from `start`, never what leads to it, and returns the end.

    def _new(self) -> int:
        if len(self._edges) >= MAX_STATES:
            raise Undecidable(f"a pattern needs more than {MAX_STATES:,} states")
        self._edges.append([])
        self._silent.append([])
        return len(self._edges) - 1

    def _step(self, start: int, mask: int) -> int:
        end = self._new()
        self._edges[start].append((mask, end))
        return end

    def _add(self, expression: Expression, start: int) -> int:
        match expression:
            case Text(value):
                for byte in value:
                    start = self._step(start, 1 << byte)
                return start
            case Bytes(mask):
                return self._step(start, mask)
            case Chars(ranges):
                return self._add(utf8(ranges), start)
            case Seq(items):
                for item in items:
                    start = self._add(item, start)
                return start
            case Alt(items):
                return self._join([self._add(item, start) for item in items])
            case Repeat():
                return self._repeat(expression, start)

    def _join(self, ends: list[int]) -> int:
        joined = self._new()
        for end in ends:
            self._silent[end].append(joined)
        return joined

    def _repeat(self, repeat: Repeat, start: int) -> int:
        item, least = (nonempty(repeat.item), 0) if nullable(repeat.item) else (repeat.item, repeat.least)
        if repeat.most is None:
            for _ in range(least - 1):
                start = self._add(item, start)
            return self._loop(item, start, at_least_once=least > 0)
        for _ in range(least):
            start = self._add(item, start)
        ends = [start]
        for _ in range(repeat.most - least):
            ends.append(self._add(item, ends[-1]))
        return self._join(ends)

    def _loop(self, item: Expression, start: int, *, at_least_once: bool) -> int:
        head = self._join([start])
        end = self._add(item, head)
        self._silent[end].append(head)
        return self._join([end] if at_least_once else [head])


def _swapped(mask: int, first: int, second: int) -> int:
    differ = (mask >> first ^ mask >> second) & 1
    return mask ^ (differ << first | differ << second)


MAX_WORK = 5_000_000
"""How many steps a question may take; about a second."""

_LIKED = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
# Of characters that are not ASCII, those that begin so and go on with A9 have a shape: é, 䩩, 𩩩.
_ORDER = bytes(dict.fromkeys([*_LIKED, *range(0x21, 0x7F), 0x20, 0xC3, 0xE4, 0xF0, 0xA9, *range(256)]))
_CONTINUING = (1 << 0xC0) - (1 << 0x80)
"""The bytes of UTF-8 that begin no character."""
_CHARACTER = 1 << 32
"""What a character costs where characters count; each byte costs 1 besides."""


class Meet:
    """Takes what two automata take."""

    def __init__(self, first: Automaton, second: Automaton) -> None:
        """Number pairs of states as they are met; 0 is the pair of the two starts."""
        self._sides = first, second
        self._pairs = [(0, 0)]
        self._numbers = {(0, 0): 0}

    def closed(self, state: int) -> tuple[bool, tuple[Move, ...]]:
        """As `Automaton.closed`."""
        one, other = (side.closed(each) for side, each in zip(self._sides, self._pairs[state], strict=True))
        moves = (
            (mask & also, self._number((to, also_to)))
            for mask, to in one[1]
            for also, also_to in other[1]
            if mask & also
        )
        return one[0] and other[0], tuple(moves)

    def _number(self, pair: tuple[int, int]) -> int:
        number = self._numbers.setdefault(pair, len(self._pairs))
        if number == len(self._pairs):
            self._pairs.append(pair)
        return number


def shared(first: Automaton | Meet, second: Automaton, *, in_characters: bool = False) -> bytes | None:
    """Find a shortest byte string that both take: in bytes, or in characters if it is UTF-8.

    Raises:
        Undecidable: it takes too many steps.
    """
    search = _Search((0, 0), in_characters)
    for here in search.queue():
        ends, moves = first.closed(here[0])
        other_ends, other_moves = second.closed(here[1])
        if ends and other_ends:
            return search.path(here)
        search.spend(len(moves) * len(other_moves))
        for mask, to in moves:
            for other_mask, other_to in other_moves:
                if mask & other_mask:
                    search.add((to, other_to), here, mask & other_mask)
    return None


def alone(inner: Automaton | Meet, outer: Automaton, *, in_characters: bool = False) -> bytes | None:
    """Find a shortest byte string that `inner` takes and `outer` does not; see `shared`.

    Raises:
        Undecidable: it takes too many steps.
    """
    # A set of states of `outer` is a number. A smaller set takes less, so what it has seen need not be seen
    # again with a larger one.
    search = _Search((0, 1), in_characters)
    seen: dict[int, list[int]] = {}
    for here in search.queue():
        state, around = here
        others = seen.setdefault(state, [])
        search.spend(len(others))
        if any(not other & ~around for other in others):
            continue
        others.append(around)
        ends, moves = inner.closed(state)
        if ends and not any(outer.closed(each)[0] for each in _members(around)):
            return search.path(here)
        outside = [move for each in _members(around) for move in outer.closed(each)[1]]
        for mask, to in moves:
            search.spend(len(outside))
            for part, following in _parts(mask, outside).items():
                search.add((to, following), here, part)
    return None


_Pair = tuple[int, int]


class _Search:
    """Pairs of states, the cheapest first, each with the cheapest way that led to it."""

    def __init__(self, start: _Pair, in_characters: bool) -> None:
        self._from: dict[_Pair, tuple[_Pair, int] | None] = {start: None}
        self._costs = {start: 0}
        # The second number keeps the order of those that cost the same.
        self._waiting = [(0, 0, start)]
        self._work = 0
        self._character = _CHARACTER if in_characters else 0

    def queue(self) -> Iterator[_Pair]:
        while self._waiting:
            cost, _, pair = heappop(self._waiting)
            if cost == self._costs[pair]:
                yield pair

    def add(self, pair: _Pair, origin: _Pair, mask: int) -> None:
        """Note that any byte of a set leads from one pair to another."""
        continuing = mask & _CONTINUING if self._character else 0
        cost = self._costs[origin] + 1 + (0 if continuing else self._character)
        if cost < self._costs.get(pair, cost + 1):
            self._costs[pair] = cost
            self._from[pair] = (origin, _liked(continuing or mask))
            heappush(self._waiting, (cost, len(self._from) + self._work, pair))

    def spend(self, steps: int) -> None:
        self._work += steps + 1
        if self._work > MAX_WORK:
            raise Undecidable(f"the comparison takes more than {MAX_WORK:,} steps")

    def path(self, pair: _Pair) -> bytes:
        way = bytearray()
        while (origin := self._from[pair]) is not None:
            pair, byte = origin
            way.append(byte)
        return bytes(reversed(way))


class _Question(Protocol):
    def __call__(
        self, first: Automaton | Meet, second: Automaton, /, *, in_characters: bool = False
    ) -> bytes | None: ...


def preferring_text(search: _Question, first: Automaton, second: Automaton) -> bytes | None:
    """Do a search for the text of the fewest characters, or the fewest bytes where nothing found is UTF-8.

    Raises:
        Undecidable: it takes too many steps.
    """
    found = search(first, second, in_characters=True)
    if found is None or _is_text(found):
        return found
    text = search(Meet(first, _any_text()), second, in_characters=True)
    return search(first, second) if text is None else text


def _is_text(found: bytes) -> bool:
    try:
        found.decode()
    except UnicodeDecodeError:
        return False
    return True


@lru_cache(maxsize=1)
def _any_text() -> Automaton:
    return Automaton(ANY_TEXT)


def _parts(mask: int, moves: list[Move]) -> dict[int, int]:
    """Split a set of bytes by what they lead to: each part with its set of states."""
    parts = {mask: 0}
    for other, to in moves:
        for part, following in list(parts.items()):
            both = part & other
            if both:
                del parts[part]
                parts[both] = following | 1 << to
                if both != part:
                    parts[part ^ both] = following
    return parts


def _members(states: int) -> Iterator[int]:
    while states:
        lowest = states & -states
        yield lowest.bit_length() - 1
        states ^= lowest


@lru_cache(maxsize=1024)
def _liked(mask: int) -> int:
    """Choose the byte of a set that reads best."""
    return next(byte for byte in _ORDER if mask >> byte & 1)
