"""`oz.spark.read` and `format("oz")` beside Spark's own Parquet reader, on one journal.

    python benchmarks/spark_source.py [--rows 2000000] [--runs 7] [--directory DIR]

The journal has 1,000 subjects, JSON payloads of about 85 bytes, and a twentieth of its rows in the active
segment. All sides run in turn on two cores; Spark's noop sink takes the rows.

- full: all columns, by `read`, beside `spark.read.parquet` of the sealed files
- subject: one subject of 1,000, beside `spark.read.parquet(...).where("subject = ...")`
- format: all columns by `format("oz")`, beside `spark.read.parquet`

A ratio is the rows in a second of the first side divided by the rows in a second of the second. The program
ends with an error if a ratio is too small.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import machine
from pyspark.sql import DataFrame, SparkSession

import oz.spark
from oz.journal import Writer

WANTED = {"full": 0.9, "subject": 0.9, "format": 0.3}
GROUP = 8000
SUBJECTS = [f"md.{market}.{symbol}" for market in range(40) for symbol in range(25)]
SUBJECT = "md.7.7"


def append(writer: Writer, first: int, end: int) -> None:
    """Append messages that are like those of a market."""
    chance = random.Random(first)
    for at in range(first, end, GROUP):
        numbers = range(at, min(at + GROUP, end))
        columns = {
            "subject": [chance.choice(SUBJECTS) for _ in numbers],
            "payload": [payload(chance, number) for number in numbers],
            "origin": b"0123456789abcdef",
            "sequence": numbers,
            "position": numbers,
        }
        writer.append(columns)


def payload(chance: random.Random, number: int) -> bytes:
    """Return a JSON payload of about 85 bytes."""
    fields = {"n": number, "bid": round(chance.uniform(90, 110), 4), "ask": round(chance.uniform(90, 110), 4)}
    return json.dumps({**fields, "size": chance.randrange(1000), "venue": chance.choice("ABCD")}).encode()


def drain(frame: DataFrame) -> None:
    """Read all columns of all rows."""
    frame.write.format("noop").mode("overwrite").save()


def sides(spark: SparkSession, journal: str) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return both sides of each comparison."""
    files = f"{journal}/*.parquet"
    return {
        "full": (lambda: drain(oz.spark.read(spark, journal)), lambda: drain(spark.read.parquet(files))),
        "subject": (
            lambda: drain(oz.spark.read(spark, journal, SUBJECT)),
            lambda: drain(spark.read.parquet(files).where(f"subject = '{SUBJECT}'")),
        ),
        "format": (
            lambda: drain(spark.read.format("oz").load(journal)),
            lambda: drain(spark.read.parquet(files)),
        ),
    }


def seconds(work: Callable[[], object]) -> float:
    """Measure one run."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Write the journal, measure, print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--directory", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        journal = str(Path(directory, "recorded"))
        sealed = options.rows * 19 // 20
        with Writer(journal, sync="none") as writer:
            append(writer, 0, sealed)
            writer.roll()
            writer.wait_sealed(timeout=None)
            append(writer, sealed, options.rows)
            spark = oz.spark.session("local[2]", **{"spark.ui.enabled": False})
            found = {}
            for name, (ours, theirs) in sides(spark, journal).items():
                ours()
                theirs()
                pairs = [(seconds(ours), seconds(theirs)) for _ in range(options.runs)]
                share = 1.0 if name == "subject" else options.rows / sealed
                ratios = [share * other / own for own, other in pairs]
                found[name] = statistics.median(ratios)
                own, other = (statistics.median(side) for side in zip(*pairs, strict=True))
                least = min(own for own, _ in pairs), min(other for _, other in pairs)
                spread = f"{found[name]:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                times = f"{own:.2f} beside {other:.2f}, least {least[0]:.2f} beside {least[1]:.2f}"
                print(f"{name}: {spread}, seconds {times}", flush=True)
            spark.stop()
    print(f"{machine.describe()}; load {os.getloadavg()[0]:.0f}")
    if small := [name for name, ratio in found.items() if ratio < WANTED[name]]:
        sys.exit(f"too small: {', '.join(small)}")


if __name__ == "__main__":
    main()
