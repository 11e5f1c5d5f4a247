"""Finite automata over bytes. They find a subject that two patterns match, or that only one of two patterns matches.

Theory of operation. `Automaton` is a Thompson automaton of an expression. A move has a set of bytes, and reads one of
them. An epsilon move reads nothing. A set of bytes is an integer with one bit for each byte, so that one `&` computes
the intersection of two sets. `expand_state` follows the epsilon moves from a state, and caches the result.

`find_common` searches the product automaton, whose states are pairs of states. A path to a pair of final states is a
witness: a subject that both patterns match.

`find_difference` searches for a string that the inner automaton accepts and the outer automaton rejects. The outer
automaton is made deterministic during the search, by the subset construction. A node of the search is one inner state
and a set of outer states. If the inner state is final and no outer state is final, the path to the node is a
counterexample. Fewer outer states accept fewer strings. Therefore the search skips a node if it has already visited the
same inner state with a subset of the node's outer states.

Both searches use Dijkstra's algorithm, which finds the cheapest path first. Therefore the result is a shortest subject.
The cost of a path is its number of bytes. If a search counts characters, paths with equal numbers of characters are
compared by their bytes. Product automata may be very large. Therefore the searches count their steps and raise
`Undecidable` above a limit.
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
"""Maximum number of states of one automaton. A larger automaton raises `Undecidable`."""

Move = tuple[int, int]
"""Pair of a bit mask and the next state. The move reads one byte of the mask."""


class Automaton:
    """Automaton that accepts the byte strings of an expression. State 0 is the start."""

    def __init__(self, expression: Expression) -> None:
        """Build the states.

        Raises:
            Undecidable: the expression needs more than `MAX_STATES` states.
        """
        self._edges: list[list[Move]] = []
        self._epsilon: list[list[int]] = []
        self._expanded: dict[int, tuple[bool, tuple[Move, ...]]] = {}
        self._last = self._add(expression, self._new())

    def expand_state(self, state: int) -> tuple[bool, tuple[Move, ...]]:
        """Return whether epsilon moves lead from a state to a final state.

        Also return the byte moves that are possible after epsilon moves.
        """
        known = self._expanded.get(state)
        if known is None:
            reached = self._reach(state)
            moves = tuple(dict.fromkeys(move for each in reached for move in self._edges[each] if move[0]))
            known = self._expanded[state] = (self._last in reached, moves)
        return known

    def _reach(self, state: int) -> dict[int, None]:
        reached = {state: None}
        waiting = [state]
        while waiting:
            fresh = [each for each in self._epsilon[waiting.pop()] if each not in reached]
            reached.update(dict.fromkeys(fresh))
            waiting += fresh
        return reached

    def with_swapped_bytes(self, first: int, second: int) -> Automaton:
        """Return a copy with two bytes exchanged."""
        copy = Automaton.__new__(Automaton)
        copy._epsilon, copy._last, copy._expanded = self._epsilon, self._last, {}
        copy._edges = [[(_swap_bits(mask, first, second), to) for mask, to in each] for each in self._edges]
        return copy

    # The builders below add moves away from `start`, never moves to it, and return the end state.

    def _new(self) -> int:
        if len(self._edges) >= MAX_STATES:
            raise Undecidable(f"a pattern needs more than {MAX_STATES:,} states; make it shorter")
        self._edges.append([])
        self._epsilon.append([])
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
            self._epsilon[end].append(joined)
        return joined

    def _repeat(self, repeat: Repeat, start: int) -> int:
        item, minimum = (nonempty(repeat.item), 0) if nullable(repeat.item) else (repeat.item, repeat.minimum)
        if repeat.maximum is None:
            for _ in range(minimum - 1):
                start = self._add(item, start)
            return self._loop(item, start, at_least_once=minimum > 0)
        for _ in range(minimum):
            start = self._add(item, start)
        ends = [start]
        for _ in range(repeat.maximum - minimum):
            ends.append(self._add(item, ends[-1]))
        return self._join(ends)

    def _loop(self, item: Expression, start: int, *, at_least_once: bool) -> int:
        head = self._join([start])
        end = self._add(item, head)
        self._epsilon[end].append(head)
        return self._join([end] if at_least_once else [head])


def _swap_bits(mask: int, first: int, second: int) -> int:
    differ = (mask >> first ^ mask >> second) & 1
    return mask ^ (differ << first | differ << second)


MAX_STEPS = 5_000_000
"""Maximum number of steps in one search. These steps take about a second. A longer search raises `Undecidable`."""

_READABLE = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
# Bytes in the order in which a witness prefers them. Users read witnesses, so letters come first. Outside of ASCII, the
# lead bytes C3, E4 and F0 followed by A9 give visible characters: é, 䩩, 𩩩.
_ORDER = bytes(dict.fromkeys([*_READABLE, *range(0x21, 0x7F), 0x20, 0xC3, 0xE4, 0xF0, 0xA9, *range(256)]))
_CONTINUING = (1 << 0xC0) - (1 << 0x80)
"""Mask of the continuation bytes of UTF-8."""
_CHARACTER = 1 << 32
"""Cost of one character in a search that counts characters. Each byte adds a cost of 1."""


class Intersection:
    """Automaton that accepts a byte string if each of two automata accepts it."""

    def __init__(self, first: Automaton, second: Automaton) -> None:
        """Create an automaton whose states are pairs of states. A pair gets its number when a search reaches it."""
        self._sides = first, second
        self._pairs = [(0, 0)]
        self._numbers = {(0, 0): 0}

    def expand_state(self, state: int) -> tuple[bool, tuple[Move, ...]]:
        """Return whether both states of a pair are final, and the moves from the pair."""
        state_moves, other = (
            side.expand_state(each) for side, each in zip(self._sides, self._pairs[state], strict=True)
        )
        moves = (
            (mask & also, self._number((to, also_to)))
            for mask, to in state_moves[1]
            for also, also_to in other[1]
            if mask & also
        )
        return state_moves[0] and other[0], tuple(moves)

    def _number(self, pair: tuple[int, int]) -> int:
        number = self._numbers.setdefault(pair, len(self._pairs))
        if number == len(self._pairs):
            self._pairs.append(pair)
        return number


def find_common(
    first: Automaton | Intersection, second: Automaton, *, in_characters: bool = False
) -> bytes | None:
    """Return a shortest byte string that both automata accept; None if they accept no common string.

    Without `in_characters`, length is counted in bytes. With it, length is counted in characters, and both automata
    must accept only UTF-8.

    Raises:
        Undecidable: the search takes too many steps.
    """
    search = _Search((0, 0), in_characters)
    for here in search.queue():
        ends, moves = first.expand_state(here[0])
        other_ends, other_moves = second.expand_state(here[1])
        if ends and other_ends:
            return search.path(here)
        search.count_steps(len(moves) * len(other_moves))
        for mask, to in moves:
            for other_mask, other_to in other_moves:
                if mask & other_mask:
                    search.add((to, other_to), here, mask & other_mask)
    return None


def find_difference(
    inner: Automaton | Intersection, outer: Automaton, *, in_characters: bool = False
) -> bytes | None:
    """Return a shortest byte string that `inner` accepts and `outer` rejects; None if there is no such string.

    `in_characters` has the same meaning as in `find_common`.

    Raises:
        Undecidable: the search takes too many steps.
    """
    # A set of outer states is a bit mask, because a subset test of integers is cheap.
    search = _Search((0, 1), in_characters)
    seen: dict[int, list[int]] = {}
    for here in search.queue():
        state, around = here
        others = seen.setdefault(state, [])
        search.count_steps(len(others))
        if any(not other & ~around for other in others):
            continue
        others.append(around)
        ends, moves = inner.expand_state(state)
        if ends and not any(outer.expand_state(each)[0] for each in _members(around)):
            return search.path(here)
        outside = [move for each in _members(around) for move in outer.expand_state(each)[1]]
        for mask, to in moves:
            search.count_steps(len(outside))
            for part, following in _partition(mask, outside).items():
                search.add((to, following), here, part)
    return None


_Pair = tuple[int, int]


class _Search:
    """Dijkstra's search over pairs of states, with the cheapest predecessor of each pair."""

    def __init__(self, start: _Pair, in_characters: bool) -> None:
        self._from: dict[_Pair, tuple[_Pair, int] | None] = {start: None}
        self._costs = {start: 0}
        # Entries are cost, serial number and pair. The serial number decides between equal costs.
        self._heap = [(0, 0, start)]
        self._steps = 0
        self._character = _CHARACTER if in_characters else 0

    def queue(self) -> Iterator[_Pair]:
        while self._heap:
            cost, _, pair = heappop(self._heap)
            if cost == self._costs[pair]:
                yield pair

    def add(self, pair: _Pair, origin: _Pair, mask: int) -> None:
        """Add a move from `origin` to `pair` that reads one byte of the mask."""
        continuing = mask & _CONTINUING if self._character else 0
        cost = self._costs[origin] + 1 + (0 if continuing else self._character)
        if cost < self._costs.get(pair, cost + 1):
            self._costs[pair] = cost
            self._from[pair] = (origin, _readable_byte(continuing or mask))
            heappush(self._heap, (cost, len(self._from) + self._steps, pair))

    def count_steps(self, steps: int) -> None:
        self._steps += steps + 1
        if self._steps > MAX_STEPS:
            raise Undecidable(f"the comparison takes more than {MAX_STEPS:,} steps")

    def path(self, pair: _Pair) -> bytes:
        way = bytearray()
        while (origin := self._from[pair]) is not None:
            pair, byte = origin
            way.append(byte)
        return bytes(reversed(way))


class _SearchFunction(Protocol):
    def __call__(
        self, first: Automaton | Intersection, second: Automaton, /, *, in_characters: bool = False
    ) -> bytes | None: ...


def find_text(search: _SearchFunction, first: Automaton, second: Automaton) -> bytes | None:
    """Return the search result with the fewest characters.

    If no result is UTF-8, return the result with the fewest bytes.

    Raises:
        Undecidable: the search takes too many steps.
    """
    found = search(first, second, in_characters=True)
    if found is None or _is_text(found):
        return found
    text = search(Intersection(first, _any_text()), second, in_characters=True)
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


def _partition(mask: int, moves: list[Move]) -> dict[int, int]:
    """Split a set of bytes into parts, so that all bytes of a part lead to the same states.

    Return these states by part.
    """
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
def _readable_byte(mask: int) -> int:
    return next(byte for byte in _ORDER if mask >> byte & 1)
