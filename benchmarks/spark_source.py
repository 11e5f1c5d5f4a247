"""The source of journals beside Spark's own: batches beside Parquet and tuples, streams beside Parquet.

    python benchmarks/spark_source.py [--rows 2000000] [--runs 5] [--directory DIR]

A journal of JSON payloads (about 85 bytes, no two alike) is read, and the very same rows as Spark has written
them to Parquet with its defaults. All sides run in turn on two cores:

- batch: all columns to Spark's `noop` sink, beside Parquet read by Spark's native reader
- memory: the same beside a Python source that yields Arrow batches of those rows which it need not make
- tuples: the same beside a Python source that yields the same rows as tuples
- stream: into Parquet with `availableNow`, beside Spark's stream from Parquet, in as many micro-batches

A ratio is what the source reads in a second, divided by what the other side does. The program ends with an
error that names what is too little, and the load: beside much other work these numbers mean little.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import machine
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import oz.spark
from oz.journal import COLUMNS, Journal, Writer
from oz.journal.ranges import read_range
from oz.spark.source.rows import DDL, DecodedRows

WANTED = {"batch": 0.5, "memory": 0.5, "tuples": 5.0, "stream": 0.5}
GROUP = 8000
SUBJECTS = [f"md.{market}.{symbol}" for market in range(40) for symbol in range(25)]


def write_journal(directory: str, rows: int) -> None:
    """Record messages that are like those of a market."""
    chance = random.Random(1)
    with Writer(directory, sync="never") as writer:
        for first in range(0, rows, GROUP):
            numbers = range(first, min(first + GROUP, rows))
            writer.append_columns(
                {
                    "subject": [chance.choice(SUBJECTS) for _ in numbers],
                    "payload": [payload(chance, number) for number in numbers],
                    "origin": b"0123456789abcdef",
                    "sequence": list(numbers),
                }
            )


def payload(chance: random.Random, number: int) -> bytes:
    """Make one payload."""
    fields = {
        "price": chance.randrange(10**6) / 100,
        "size": chance.randrange(1000),
        "id": number,
        "venue": chance.choice("ABCDEF"),
        "note": chance.getrandbits(64),
    }
    return json.dumps(fields).encode()


class Tuples(DataSource):
    """What a Python source looks like that knows nothing of Arrow."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tuples"

    def schema(self) -> str:
        """The same columns."""
        return ", ".join(f"`{name}` {kind}" for name, kind in DDL.items())

    def reader(self, schema: Any) -> DataSourceReader:
        """Make its reader."""
        return TupleReader(self.options["journal"], int(self.options["end"]))


class TupleReader(DataSourceReader):
    """Yields records one by one."""

    def __init__(self, directory: str, end: int) -> None:
        """Prepare."""
        self._directory = directory
        self._end = end

    def partitions(self) -> list[InputPartition]:
        """Two halves."""
        middle = self._end // 2
        return [InputPartition((0, middle)), InputPartition((middle, self._end))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read one half."""
        import datetime

        first, end = partition.value
        for one in Journal(self._directory).read(start=first, end=end):
            moment = datetime.datetime.fromtimestamp(one.time_ns / 1e9, datetime.UTC)
            text = one.subject if isinstance(one.subject, str) else one.subject.decode(errors="replace")
            yield (
                *(one.offset, moment, one.time_ns, one.kind, one.lost, one.origin, one.sequence, text),
                *(None, one.reply_to, one.headers, one.payload, one.position),
            )


class Memory(DataSource):
    """The least that a Python source costs: its batches are in a file without compression."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "memory"

    def schema(self) -> str:
        """The same columns."""
        return ", ".join(f"`{name}` {kind}" for name, kind in DDL.items())

    def reader(self, schema: Any) -> DataSourceReader:
        """Make its reader."""
        return MemoryReader(self.options["file"])


class MemoryReader(DataSourceReader):
    """Yields batches as they are in the file."""

    def __init__(self, file: str) -> None:
        """Prepare."""
        self._file = file

    def partitions(self) -> list[InputPartition]:
        """Those with even numbers, and the others."""
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one half."""
        with pa.memory_map(self._file) as mapped:
            batches = pa.ipc.open_file(mapped)
            for number in range(partition.value, batches.num_record_batches, 2):
                yield batches.get_batch(number)


def write_batches(journal: str, file: str, schema: StructType) -> None:
    """Write down what the source yields."""
    rows = DecodedRows(schema, "raw")
    columns = [name for name in COLUMNS if name in rows.columns]
    with (
        pa.OSFile(file, "wb") as out,
        pa.ipc.new_file(out, to_arrow_schema(schema, timezone="UTC")) as writer,
    ):
        for table in read_range(Path(journal), 0, Journal(journal).end_offset, columns):
            for batch in rows.of(table):
                writer.write_batch(batch)


def to_nowhere(frame: DataFrame) -> None:
    """Read all of it."""
    frame.write.format("noop").mode("overwrite").save()


def to_parquet(frame: DataFrame, directory: str) -> None:
    """Stream what there is into Parquet.

    Raises:
        SystemExit: the query failed.
    """
    # Anew each time: what an earlier query still does there is no matter of this one.
    with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as place:
        writing = frame.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
        query = writing.trigger(availableNow=True).start(f"{place}/rows")
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise SystemExit(f"a stream failed at a load of {load():.1f}: {reason(error)}") from None


def reason(error: StreamingQueryException) -> str:
    """Say why a query failed, without where in Java, and what a load has to do with it."""
    lines = str(error).splitlines()
    said = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("at ")]
    late = "failed to connect back" in str(error)
    why = "; Spark gives the process of a stream 10 s to start, and this machine took longer: run it again"
    return " ".join(said)[:1000] + (why if late else "")


def load() -> float:
    """How many programs wanted a processor in the last minute."""
    return os.getloadavg()[0]


def timed(action: Callable[[], object]) -> float:
    """Run once; give the seconds."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def compare(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], rows: int, runs: int
) -> list[str]:
    """Run both in turn, and print rates and the ratio; give what is too little, if it is."""
    for warm_up in (ours, theirs):
        warm_up()
    pairs = [(timed(ours), timed(theirs)) for _ in range(runs)]
    ratio = statistics.median(theirs / ours for ours, theirs in pairs)
    rates = [f"{rows / statistics.median(side):,.0f}" for side in zip(*pairs, strict=True)]
    spread = machine.spread([theirs / ours for ours, theirs in pairs])
    wanted = WANTED[name]
    print(
        f"{name}: {rates[0]} rows/s beside {rates[1]} rows/s, ratio {spread}; "
        f"{wanted:g} is wanted: {'as wanted' if ratio >= wanted else 'TOO LITTLE'}",
        flush=True,
    )
    # Down, or what is just too little would read as what is wanted.
    return [] if ratio >= wanted else [f"{name} {math.floor(ratio * 1000) / 1000:.3f} of {wanted:g}"]


def compare_all(spark: SparkSession, directory: str, rows: int, runs: int, batches: int) -> list[str]:
    """Compare what there is to compare; give what is too little."""
    journal, parquet = f"{directory}/journal", f"{directory}/parquet"
    write_journal(journal, rows)
    reading = spark.read.format("oz").option("journal", journal)
    ours = reading.load()
    ours.repartition(2 * batches).write.parquet(parquet)
    theirs = spark.read.parquet(parquet)
    if ours.count() != rows or theirs.count() != rows:
        raise SystemExit("the rows are not there")
    little = compare("batch", lambda: to_nowhere(ours), lambda: to_nowhere(theirs), rows, runs)

    write_batches(journal, f"{directory}/batches", ours.schema)
    spark.dataSource.register(Memory)
    memory = spark.read.format("memory").option("file", f"{directory}/batches").load()
    little += compare("memory", lambda: to_nowhere(ours), lambda: to_nowhere(memory), rows, runs)

    halves = reading.option("numPartitions", 2).load()
    spark.dataSource.register(Tuples)
    tuples = spark.read.format("tuples").option("journal", journal).option("end", rows).load()
    little += compare("tuples", lambda: to_nowhere(halves), lambda: to_nowhere(tuples), rows, runs)

    stream = spark.readStream.format("oz").option("journal", journal)
    stream = stream.option("maxRowsPerTrigger", -(-rows // batches)).option("numPartitions", 2).load()
    files = spark.readStream.schema(theirs.schema).option("maxFilesPerTrigger", 2).parquet(parquet)
    return little + compare(
        "stream",
        lambda: to_parquet(stream, directory),
        lambda: to_parquet(files, directory),
        rows,
        runs,
    )


def main() -> None:
    """Compare, and say whether the source is as fast as it should be."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--batches", type=int, default=4, help="micro-batches of a stream")
    options.add_argument("--directory", help="where to write; the system's temporary directory")
    chosen = options.parse_args()
    print(machine.describe(), flush=True)
    spark = oz.spark.session("local[2]", **{"spark.driver.memory": "3g"})
    with tempfile.TemporaryDirectory(dir=chosen.directory and Path(chosen.directory)) as directory:
        little = compare_all(spark, directory, chosen.rows, chosen.runs, chosen.batches)
    print(machine.describe())
    spark.stop()
    if little:
        raise SystemExit(
            f"too little: {', '.join(little)}; the load was {load():.1f}, on {os.cpu_count()} cores"
        )


if __name__ == "__main__":
    main()
