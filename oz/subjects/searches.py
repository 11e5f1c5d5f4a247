"""The two questions asked of automata: what two of them share, and what one takes alone.

What two share is searched in pairs of their states; whether one takes all that another does, in pairs of a
state of the one and a set of states of the other, made as they are met. Both searches go breadth first, so
what they find is as short as can be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache

from oz.errors import Undecidable
from oz.subjects.automata import Automaton, Move
from oz.subjects.expressions import ANY_TEXT

MAX_WORK = 5_000_000
"""How many steps a question may take; about a second."""

_LIKED = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
_ORDER = bytes([*_LIKED, *(byte for byte in (*range(0x21, 0x7F), 0x20, *range(256)) if byte not in _LIKED)])


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


def shared(first: Automaton | Meet, second: Automaton) -> bytes | None:
    """Find a shortest byte string that both take.

    Raises:
        Undecidable: it takes too many steps.
    """
    search = _Search((0, 0))
    for here in search.queue():
        ends, moves = first.closed(here[0])
        other_ends, other_moves = second.closed(here[1])
        if ends and other_ends:
            return search.path(here)
        search.spend(len(moves) * len(other_moves))
        for mask, to in moves:
            for other_mask, other_to in other_moves:
                if mask & other_mask:
                    search.add((to, other_to), here, _liked(mask & other_mask))
    return None


def alone(inner: Automaton | Meet, outer: Automaton) -> bytes | None:
    """Find a shortest byte string that `inner` takes and `outer` does not.

    Raises:
        Undecidable: it takes too many steps.
    """
    # A set of states of `outer` is a number. A smaller set takes less, so what it has seen need not be seen
    # again with a larger one.
    search = _Search((0, 1))
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
                search.add((to, following), here, _liked(part))
    return None


_Pair = tuple[int, int]


class _Search:
    """Pairs of states, breadth first, each with the way that led to it."""

    def __init__(self, start: _Pair) -> None:
        self._from: dict[_Pair, tuple[_Pair, int] | None] = {start: None}
        self._waiting = deque([start])
        self._work = 0

    def queue(self) -> Iterator[_Pair]:
        while self._waiting:
            yield self._waiting.popleft()

    def add(self, pair: _Pair, origin: _Pair, byte: int) -> None:
        if pair not in self._from:
            self._from[pair] = (origin, byte)
            self._waiting.append(pair)

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


def preferring_text(
    search: Callable[[Automaton | Meet, Automaton], bytes | None], first: Automaton, second: Automaton
) -> bytes | None:
    """Do a search, and return something longer if only that is UTF-8, which can be read.

    Raises:
        Undecidable: it takes too many steps.
    """
    found = search(first, second)
    try:
        if found is not None:
            found.decode()
        return found
    except UnicodeDecodeError:
        text = search(Meet(first, _any_text()), second)
        return found if text is None else text


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
