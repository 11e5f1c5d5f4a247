"""A lake that `oz spark archive` made: how long it takes to make, and `matches` beside `rlike` alone on it.

A journal is written, archived with the job's own defaults, and compacted if asked for. Then a pattern that
selects 1% of the messages is counted in turn by `matches` and by the same regex alone; both must agree.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import machine
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from spark_columns import show, timed

import oz.spark
from oz.journal import Writer

PIECE = 250_000
SPEC = "md.s07.*.k1.>"
REGEX = r"^md\.s07\.[^.]+\.k1\.[^.]+(\.[^.]+)*$"
"""One of 100 second tokens; within those all messages but for one in a thousand match."""


def write_journal(directory: Path, rows: int) -> None:
    """Write messages of 100 subjects' families, in turn, with small payloads."""
    with Writer(directory, sync="never", segment_bytes=64 << 20) as writer:
        for first in range(0, rows, PIECE):
            numbers = np.arange(first, min(first + PIECE, rows))
            families, kinds = numbers % 100, 1 + (numbers // 100 % 1000 == 0)
            subjects = [
                f"md.s{family:02}.n{number}.k{kind}.x"
                for family, number, kind in zip(families, numbers, kinds, strict=True)
            ]
            payloads = pa.array([b"%020d" % number for number in numbers], pa.binary())
            writer.append_columns({"subject": pa.array(subjects, pa.string()), "payload": payloads})


def compare(spark: SparkSession, lake: Path, rows: int, runs: int) -> None:
    """Print `matches` beside `rlike` alone."""
    found = spark.read.parquet(str(lake)).where("kind = 0")
    ours, theirs = oz.spark.matches("subject", SPEC), F.col("subject").rlike(REGEX)

    def count(condition: Column) -> Callable[[], int]:
        return lambda: found.filter(condition).agg(F.sum("sequence"), F.count("*")).first()[1]

    pairs = [(timed(count(theirs)), timed(count(ours))) for _ in range(runs + 1)][1:]  # one to warm up
    counts = {result for pair in pairs for _, result in pair}
    if len(counts) != 1:
        raise SystemExit(f"the two sides count {counts}: the comparison is void")
    show(f"matches beside rlike on the lake, {counts.pop():,} of {rows:,} messages", pairs)


def main() -> None:
    """Write, archive, compare."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=20_000_000, help="messages in the journal")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--compact", action="store_true", help="compact the lake before it is read")
    chosen = options.parse_args()
    print(machine.describe(), flush=True)
    spark = oz.spark.session("local[2]", **{"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as directory:
        journal, lake = Path(directory, "journal"), Path(directory, "lake")
        began = time.perf_counter()
        write_journal(journal, chosen.rows)
        size = sum(path.stat().st_size for path in journal.iterdir())
        print(f"journal: {size:,} bytes, {time.perf_counter() - began:.1f} s", flush=True)
        done = oz.spark.archive(spark, journal, lake, unsealed=True, compact=chosen.compact)
        print(
            f"archive: {done.rows:,} records in {done.seconds:.1f} s, {done.rows / done.seconds:,.0f}/s, "
            f"{done.files} files of {done.bytes:,} bytes, {done.merged} merged into {done.merged_into}",
            flush=True,
        )
        compare(spark, lake, chosen.rows, chosen.runs)
    print(machine.describe())
    spark.stop()


if __name__ == "__main__":
    main()
