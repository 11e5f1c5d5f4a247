"""An archive that `oz.spark.archive` writes: its speed, its size, and `matches` beside `rlike` alone on it.

A pattern that selects 1% of the messages is counted in turn by `matches` and by an equal regex. The counts
must agree.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import machine
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from spark_columns import show, timed

import oz.spark
from oz.journal import Writer

APPEND_ROWS = 50_000
PATTERN = "md.s07.*.k1.>"
REGEX = r"^md\.s07\.[^.]+\.k1\.[^.]+(\.[^.]+)*$"
"""One of 100 second tokens. All its messages but one of a thousand match."""


def write_journal(directory: Path, rows: int) -> None:
    """Write messages of 100 families of subjects in turn, with payloads of 20 bytes."""
    with Writer(directory, sync="none") as writer:
        for first in range(0, rows, APPEND_ROWS):
            numbers = range(first, min(first + APPEND_ROWS, rows))
            subjects = [f"md.s{at % 100:02}.n{at}.k{1 + (at // 100 % 1000 == 0)}.x" for at in numbers]
            payloads = pa.array([b"%020d" % at for at in numbers], pa.binary())
            writer.append({"subject": pa.array(subjects, pa.string()), "payload": payloads})


def compare(messages: DataFrame, rows: int, runs: int) -> None:
    """Print `matches` beside `rlike` alone."""

    def count(condition: Column) -> Callable[[], int]:
        return lambda: messages.filter(condition).agg(F.sum("offset"), F.count("*")).first()[1]

    ours, theirs = count(oz.spark.matches("subject", PATTERN)), count(F.col("subject").rlike(REGEX))
    pairs = [(timed(theirs), timed(ours)) for _ in range(runs + 1)][1:]  # the first pair warms up
    counts = {result for pair in pairs for _, result in pair}
    if len(counts) != 1:
        raise SystemExit(f"the two sides count {counts}: the comparison is void")
    show(f"matches beside rlike on the archive, {counts.pop():,} of {rows:,} messages", pairs)


def main() -> None:
    """Write a journal, archive it, and compare both ways to filter the archive."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=4_000_000)
    options.add_argument("--runs", type=int, default=5)
    chosen = options.parse_args()
    print(machine.describe(), flush=True)
    spark = oz.spark.session("local[2]", **{"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as directory:
        journal, archive = Path(directory, "journal"), Path(directory, "archive")
        write_journal(journal, chosen.rows)
        seconds, done = timed(lambda: oz.spark.archive(spark, journal, archive))
        size = sum(file.stat().st_size for file in archive.rglob("*.parquet"))
        rate, each = chosen.rows / seconds, size / chosen.rows
        print(f"archive: {seconds:.1f} s, {rate:,.0f} records/s, {each:.1f} bytes each, {done}", flush=True)
        compare(oz.spark.read_archive(spark, archive), chosen.rows, chosen.runs)
    print(machine.describe())
    spark.stop()


if __name__ == "__main__":
    main()
