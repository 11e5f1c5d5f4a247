"""Small automata over bytes: what an expression stands for, as states and moves."""

from __future__ import annotations

from oz.errors import Undecidable
from oz.subjects.expressions import (
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
