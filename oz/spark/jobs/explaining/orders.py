"""The order of tokens in which the prefixes of some patterns let the least through. No Spark in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

MOST_EXACT = 10
"""With more tokens than this to put in order, each next one is chosen as if it were the last."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one pattern asks of a family of subjects, all of as many tokens.

    Attributes:
        literal: the positions at which it has a literal, as bits: position 0 is bit 0.
        bytes_by_agreement: the bytes of the subjects that agree with it at exactly those of its literals.
    """

    literal: int
    bytes_by_agreement: Mapping[int, int]

    def passing(self, chosen: int) -> int:
        """Give the bytes of the subjects that agree with it at least at these of its literals."""
        return sum(size for agreed, size in self.bytes_by_agreement.items() if agreed & chosen == chosen)


def let_through(demands: Sequence[Demand], order: Sequence[int]) -> int:
    """Give the bytes that the prefixes of all patterns let through, with tokens in an order."""
    return sum(through_one(demand, order) for demand in demands)


def through_one(demand: Demand, order: Sequence[int]) -> int:
    """Give the bytes that the prefix of one pattern lets through."""
    chosen = 0
    for position in order:
        if not demand.literal >> position & 1:
            break
        chosen |= 1 << position
    return demand.passing(chosen)


def best_order(demands: Sequence[Demand], depth: int, *, fixed: int = 0) -> tuple[list[int], bool]:
    """Find the order that lets the least through; of several, the one that is nearest to the present one.

    Args:
        demands: the patterns.
        depth: how many tokens the subjects have.
        fixed: how many tokens stay in front.

    Returns:
        For each place the present position of the token that comes there, from 0; and whether no order is
        better, rather than that none was found.
    """
    present = list(range(depth))
    useful = [at for at in present[fixed:] if any(demand.literal >> at & 1 for demand in demands)]
    is_exact = len(useful) <= MOST_EXACT
    start = (1 << fixed) - 1
    # Behind a token that is a wildcard to a pattern, no order of the others does anything for it.
    able = [demand for demand in demands if demand.literal & start == start]
    gain = _gains(able)
    front = _exact(useful, start, gain) if is_exact else _greedy(useful, start, gain)
    order = [*present[:fixed], *front, *(at for at in present[fixed:] if at not in front)]
    if let_through(demands, order) >= let_through(demands, present):
        return present, is_exact
    return order, is_exact


_Gain = Callable[[int, int], int]


def _gains(demands: Sequence[Demand]) -> _Gain:
    """Give what it saves to put a token behind others that are chosen already."""
    passing = [cache(demand.passing) for demand in demands]

    @cache
    def gain(chosen: int, position: int) -> int:
        after = chosen | 1 << position
        return sum(
            through(chosen) - through(after)
            for demand, through in zip(demands, passing, strict=True)
            if demand.literal & after == after
        )

    return gain


def _exact(useful: Sequence[int], start: int, gain: _Gain) -> list[int]:
    """Try all orders, by way of the sets that they begin with."""

    @cache
    def best(chosen: int) -> tuple[int, tuple[int, ...]]:
        found: tuple[int, tuple[int, ...]] = (0, ())
        for position in useful:
            if not chosen >> position & 1:
                saved, rest = best(chosen | 1 << position)
                saved += gain(chosen, position)
                if saved > found[0]:
                    found = saved, (position, *rest)
        return found

    return list(best(start)[1])


def _greedy(useful: Sequence[int], start: int, gain: _Gain) -> list[int]:
    chosen, order = start, list[int]()
    worth = 0  # what is chosen last for nothing stays where it is
    while left := [at for at in useful if not chosen >> at & 1]:
        saved, nearest = max((gain(chosen, at), -at) for at in left)
        order.append(-nearest)
        chosen |= 1 << -nearest
        worth = len(order) if saved else worth
    return order[:worth]
