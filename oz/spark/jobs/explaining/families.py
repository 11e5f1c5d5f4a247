"""Families of subjects, and what another order of their tokens would save: the what-if of `explain`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oz.spark.columns import depth
from oz.spark.jobs.explaining.rewriting import TokenPattern, reordered

MOST_EXACT = 10
"""With more tokens than this to put in order, each next one is chosen as if it were the last."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of one pattern on a family of subjects, all of as many tokens.

    Attributes:
        literal: the positions at which it has a literal, as bits: position 0 is bit 0.
        bytes_by_agreement: the bytes of the subjects that agree with it at exactly those of its literals.
    """

    literal: int
    bytes_by_agreement: Mapping[int, int]

    def passing(self, chosen: int) -> int:
        """Return the bytes of the subjects that agree with it at least at these of its literals."""
        return sum(size for agreed, size in self.bytes_by_agreement.items() if agreed & chosen == chosen)


def let_through(demands: Sequence[Demand], order: Sequence[int]) -> int:
    """Return the bytes that the prefixes of all patterns let through, with tokens in an order."""
    return sum(through_one(demand, order) for demand in demands)


def through_one(demand: Demand, order: Sequence[int]) -> int:
    """Return the bytes that the prefix of one pattern lets through."""
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
    """Return what it saves to put a token behind others that are chosen already."""
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


MOST_FAMILIES = 20
MOST_PATTERNS = 256
"""So many of the patterns whose prefixes let the most through in vain have the order of tokens looked at."""

_ROW = "first string, depth int, number int, literals array<string>"


@dataclass
class Family:
    """Subjects of as many tokens, and with the same first one where every pattern has a literal there.

    Attributes:
        first: that token, or None.
        depth: how many tokens.
        demands: what each pattern asks of it, by the pattern's number.
        examples: a subject that each of them matches, if there is one.
    """

    first: str | None
    depth: int
    demands: dict[int, Demand] = field(default_factory=dict)
    examples: dict[int, str] = field(default_factory=dict)


def what_if(
    spark: SparkSession, subjects: DataFrame, patterns: dict[int, TokenPattern], separator: str
) -> list[dict[str, Any]]:
    """Find for each family the order of tokens in which prefixes let the least through.

    Only patterns that may match subjects of a family count in it.

    Args:
        spark: the session.
        subjects: of `traffic_by_subject`; read twice.
        patterns: by number; all with this separator.
        separator: what stands between tokens.

    Returns:
        For each family, those where most is saved first: `first_token`, `tokens`, `order` (for each place the
        present place of the token that comes there, from 1), `is_best` (or only a good one), bytes that
        prefixes let through `now` and `then`, bytes `wanted`, and an `example`.
    """
    if not patterns:
        return []
    tokens = F.split("subject", f"\\Q{separator}\\E").alias("tokens")
    by_first = all(isinstance(pattern.front[0], bytes) for pattern in patterns.values())
    first = F.substring_index("subject", separator, 1) if by_first else F.lit(None).cast("string")
    table = subjects.select(
        "subject", "bytes", tokens, first.alias("first"), depth("subject", separator=separator).alias("depth")
    )
    families = _families(spark, table, patterns)
    said = [_said(family, patterns, separator, fixed=int(by_first)) for family in families]
    return sorted(said, key=lambda one: (one["then"] - one["now"], one["first_token"] or "", one["tokens"]))


def _families(spark: SparkSession, table: DataFrame, patterns: dict[int, TokenPattern]) -> list[Family]:
    asked = _asked(table, patterns)
    if not asked:
        return []
    demands = F.broadcast(spark.createDataFrame(asked, _ROW))
    is_same = F.zip_with("tokens", "literals", lambda mine, theirs: F.coalesce(mine == theirs, F.lit(False)))
    rows = (
        table.alias("s")
        .join(demands.alias("d"), F.expr("s.first <=> d.first and s.depth = d.depth"))
        .groupBy("d.first", "d.depth", "number", is_same.alias("agreed"))
        .agg(
            F.sum("bytes").alias("bytes"), F.max_by("subject", F.struct("bytes", "subject")).alias("example")
        )
        .collect()
    )
    literals = {
        (first, deep, number): _bits(each is not None for each in row) for first, deep, number, row in asked
    }
    sizes: dict[tuple[Any, ...], dict[int, int]] = defaultdict(dict)
    examples = {}
    for row in rows:
        key, agreed = (row.first, row.depth, row.number), _bits(row.agreed)
        sizes[key][agreed] = row.bytes
        if agreed == literals[key]:
            examples[key] = row.example
    families: dict[tuple[Any, ...], Family] = {}
    for key in sorted(sizes, key=str):
        *of, number = key
        family = families.setdefault(tuple(of), Family(*of))
        family.demands[number] = Demand(literals[key], sizes[key])
        if key in examples:
            family.examples[number] = examples[key]
    return list(families.values())


def _asked(table: DataFrame, patterns: dict[int, TokenPattern]) -> list[tuple[Any, ...]]:
    """Say what each pattern asks of each family that it may match, of the families with the most traffic."""
    firsts = {_first(pattern) for pattern in patterns.values()}
    least = min(len(pattern.front) for pattern in patterns.values())
    found = (
        table.where(F.col("depth") >= least)
        .where(F.col("first").isNull() | F.col("first").isin(*filter(None, firsts)))
        .groupBy("first", "depth")
        .agg(F.sum("bytes").alias("bytes"))
        .orderBy(F.desc("bytes"), "first", "depth")
        .limit(MOST_FAMILIES)
        .collect()
    )
    return [
        (row.first, row.depth, number, literals)
        for row in found
        for number, pattern in patterns.items()
        if row.first is None or row.first == _first(pattern)
        if (literals := pattern.at_depth(row.depth)) is not None
    ]


def _first(pattern: TokenPattern) -> str | None:
    token = pattern.front[0]
    return token.decode() if isinstance(token, bytes) else None


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << at for at, flag in enumerate(flags) if flag)


def _said(family: Family, patterns: dict[int, TokenPattern], separator: str, *, fixed: int) -> dict[str, Any]:
    demands = list(family.demands.values())
    order, is_best = best_order(demands, family.depth, fixed=fixed)
    present = range(family.depth)
    return {
        "first_token": family.first,
        "tokens": family.depth,
        "patterns": len(demands),
        "order": [at + 1 for at in order],
        "is_best": is_best,
        "now": let_through(demands, present),
        "then": let_through(demands, order),
        "wanted": sum(demand.passing(demand.literal) for demand in demands),
        "example": _example(family, patterns, order, separator),
    }


def _example(
    family: Family, patterns: dict[int, TokenPattern], order: Sequence[int], separator: str
) -> dict[str, Any] | None:
    """Show the pattern for which most is saved, and a subject that it matches."""
    present = range(family.depth)

    def saved(number: int) -> int:
        demand = family.demands[number]
        return through_one(demand, present) - through_one(demand, order)

    if list(order) == list(present):
        return None
    number = max(family.demands, key=lambda each: (saved(each), each in family.examples, -each))
    subject = family.examples.get(number)
    return {
        "pattern": number,
        "becomes": patterns[number].rewritten(order),
        "subject": subject,
        "subject_becomes": subject if subject is None else reordered(subject, order, separator),
    }
