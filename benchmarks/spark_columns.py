"""Spark columns: `matches` beside `rlike` alone on Parquet, `match_all` beside a cross join.

The first pair runs in turn over one archive, sorted by subject, of which the pattern selects 1%; then over
the same rows unsorted, also with a pattern that begins with wildcards. Both count what matches, and must
agree. The cross join is far too slow to be run in full: it is measured on a sample of the rows with all
patterns, and its time for all rows is that of the sample times how many samples they make.
`match_all` is measured in full, and so is the making of its index.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import machine
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import oz
import oz.spark

PAIRS = {
    "s07.*.k1.>": r"^s07\.[^.]+\.k1\.[^.]+(\.[^.]+)*$",
    "*.*.k2.>": r"^[^.]+\.[^.]+\.k2\.[^.]+(\.[^.]+)*$",
}
"""One of 100 first tokens, within which all but one row in a thousand match; and one row in a thousand."""


def timed(action: Callable[[], object]) -> tuple[float, object]:
    """Run once; give the seconds and the result."""
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result


def write_archive(spark: SparkSession, path: str, rows: int, *, is_sorted: bool) -> None:
    """Write rows in many small row groups."""
    subject = F.expr("format_string('s%02d.n%d.k%d.x', id % 100, id, 1 + int(id div 100 % 1000 = 0))")
    made = spark.range(rows).select(subject.alias("subject"), F.col("id"))
    if is_sorted:
        made = made.repartitionByRange(4, "subject").sortWithinPartitions("subject")
    made.write.option("parquet.block.row.count.limit", 20_000).parquet(path)


def compare_filters(spark: SparkSession, rows: int, runs: int, *, is_sorted: bool) -> None:
    """Print `matches` beside `rlike` alone."""
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "archive"))
        write_archive(spark, path, rows, is_sorted=is_sorted)
        archive = spark.read.parquet(path)
        for spec, regex in list(PAIRS.items())[: 1 if is_sorted else None]:
            compare_pattern(archive, spec, regex, rows, runs, "sorted" if is_sorted else "unsorted")


def compare_pattern(archive: DataFrame, spec: str, regex: str, rows: int, runs: int, order: str) -> None:
    """Print the same for one pattern."""

    def count(condition: Column) -> Callable[[], int]:
        return lambda: archive.filter(condition).agg(F.sum("id"), F.count("*")).first()[1]

    ours, theirs = count(oz.spark.matches("subject", spec)), count(F.col("subject").rlike(regex))
    pairs = [(timed(theirs), timed(ours)) for _ in range(runs + 1)][1:]  # one to warm up
    counts = {result for pair in pairs for _, result in pair}
    if len(counts) != 1:
        raise SystemExit(f"the two sides count {counts}: the comparison is void")
    show(f"{spec} beside rlike, {counts.pop():,} of {rows:,} {order} rows", pairs)


def compare_joins(spark: SparkSession, rows: int, patterns: int, sample: int, runs: int) -> None:
    """Print `match_all` beside a cross join with rlike."""
    chance = random.Random(1)
    tokens = [f"t{number}" for number in range(100)]
    subjects = [".".join(chance.choices(tokens, k=4)) for _ in range(rows)]
    texts = sorted({".".join(wild(chance, chance.choices(tokens, k=4))) for _ in range(patterns * 2)})[
        :patterns
    ]
    many = spark.createDataFrame([(each,) for each in subjects], "subject string").repartition(2).cache()
    few = many.limit(sample).repartition(2).cache()
    written = [("^" + text.replace(".", r"\.").replace("*", "[^.]+") + "$",) for text in texts]
    regexes = F.broadcast(spark.createDataFrame(written, "regex string"))
    if many.count() != rows or few.count() != sample:
        raise SystemExit("the rows are not there")

    def cross() -> int:
        return few.crossJoin(regexes).filter(F.rlike(F.col("subject"), F.col("regex"))).count()

    def counted(dataframe: DataFrame) -> int:
        found = oz.spark.match_all("subject", texts)
        return dataframe.agg(F.sum(F.size(found))).first()[0]

    if cross() != counted(few):
        raise SystemExit("the two sides differ: the comparison is void")
    times = rows / sample
    pairs = []
    for _ in range(runs):
        theirs, _ = timed(cross)
        pairs.append(((theirs * times, None), timed(lambda: counted(many))))
    show(f"match_all beside a cross join, {patterns:,} patterns and {rows:,} rows", pairs)
    print(f"  the cross join was measured on {sample:,} rows, and multiplied by {times:g}")
    joined, _ = timed(lambda: oz.spark.join_patterns(many, "subject", texts).count())
    print(f"  join_patterns, one join: {joined:.2f} s")


def wild(chance: random.Random, tokens: list[str]) -> list[str]:
    """Put one wildcard among tokens."""
    tokens[chance.randrange(len(tokens))] = "*"
    return tokens


def show(name: str, pairs: list[tuple[tuple[float, object], tuple[float, object]]]) -> None:
    """Print the medians, and the ratio of each pair of runs."""
    ratios = [theirs / ours for (theirs, _), (ours, _) in pairs]
    plain = statistics.median(theirs for (theirs, _), _ in pairs)
    ours = statistics.median(ours for _, (ours, _) in pairs)
    each = ", ".join(f"{ratio:.1f}" for ratio in ratios)
    print(
        f"{name}: {plain:.2f} s beside {ours:.2f} s, ratio {statistics.median(ratios):.1f} ({each})",
        flush=True,
    )


def main() -> None:
    """Run both comparisons."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=20_000_000, help="rows of the archive")
    options.add_argument("--joined", type=int, default=1_000_000, help="rows to join with the patterns")
    options.add_argument("--patterns", type=int, default=10_000)
    options.add_argument("--sample", type=int, default=2_000, help="rows of the cross join")
    options.add_argument("--runs", type=int, default=5)
    chosen = options.parse_args()
    print(machine.describe(), flush=True)
    spark = oz.spark.session("local[2]", **{"spark.driver.memory": "4g"})
    for is_sorted in (True, False):
        compare_filters(spark, chosen.rows, chosen.runs, is_sorted=is_sorted)
    compare_joins(spark, chosen.joined, chosen.patterns, chosen.sample, min(chosen.runs, 3))
    print(machine.describe())
    spark.stop()


if __name__ == "__main__":
    main()
