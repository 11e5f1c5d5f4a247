"""A year of flights through the whole pipeline: sockets, journal, archive, streaming join, sockets again.

    python examples/spark/flight_year.py              all 336,776 flights of 2013, in two to three minutes
    python examples/spark/flight_year.py --days 14    the first two weeks

Flights and weather reports are published over TCP and recorded in a journal. Spark archives the journal,
reads it as two streams, joins each flight with the weather of its hour, and publishes the delays of each
route and week. A subscriber adds them up; the sums must be those of the CSV files.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import delay_query
import delay_totals
import flight_data
from flight_recording import record
from pyspark.sql import SparkSession

import oz
import oz.spark

ROWS_A_BATCH = 60_000


def main() -> int:
    """Run the pipeline; 1 if the sums are not those of the CSV files."""
    parser = argparse.ArgumentParser(description="A year of flights through the whole pipeline.")
    parser.add_argument("--days", type=int, default=366, help="how many days of the year  [default: all]")
    parser.add_argument("--directory", type=Path, help="where journal and archive stay  [default: nowhere]")
    parser.add_argument("--master", default="local[2]", help="where Spark runs  [default: local[2]]")
    parser.add_argument("--json", action="store_true", help="write what was found as JSON, not as a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oz-flights-") as temporary:
        found = run(options.directory or Path(temporary), options.days, options.master)
    print(json.dumps(found) if options.json else delay_totals.table(found["totals"]))
    return 0 if found["equal"] and found["dropped"] == 0 else 1


def run(directory: Path, days: int, master: str) -> dict[str, object]:
    """Run all of it, and say what was found."""
    journal = directory / "journal"
    with _step("read the CSV files") as note:
        events = flight_data.events(days)
        expected = delay_totals.totals_of_csv(days)
        note(f"{sum(sums['flights'] for sums in expected.values()):,} flights on {len(expected)} routes")
    with _step("publish and record") as note:
        recorded = record(events, journal)
        note(f"{recorded:,} messages, all of them recorded")
    spark = oz.spark.session(master, **{"spark.sql.shuffle.partitions": 2})
    try:
        with _step("archive as Parquet") as note:
            archived = oz.spark.archive(spark, journal, directory / "lake", unsealed=True)
            note(f"{archived.rows:,} rows in {archived.files} files of {archived.bytes / 1e6:.0f} MB")
        with _step("stream, join, publish") as note:
            streamed = stream_delays(spark, journal, directory / "checkpoint")
            note(f"{streamed['messages']:,} messages; {streamed['dropped']} rows dropped as too late")
    finally:
        spark.stop()
    equal = streamed["totals"] == expected
    _tell(f"the sums of {len(expected)} routes {'equal' if equal else 'DIFFER FROM'} those of the CSV files")
    return {"equal": equal, "recorded": recorded, "archived": archived.rows, **streamed}


def stream_delays(spark: SparkSession, journal: Path, checkpoint: Path) -> dict[str, object]:
    """Run the query over what was recorded, while a subscriber adds up what it publishes."""
    flights = delay_query.stream(spark, journal, "flight.>", delay_query.FLIGHT, ROWS_A_BATCH)
    weather = delay_query.stream(spark, journal, "weather.*", delay_query.WEATHER, ROWS_A_BATCH)
    delays = delay_query.messages(delay_query.statistics(flights, weather))
    with oz.Subscriber(bind="tcp://127.0.0.1:*", filtering="publisher", dedupe=True) as subscriber:
        subscriber.subscribe("stats.delay.*.*")
        listener = delay_totals.Listener(subscriber)
        try:
            sink = delays.writeStream.format("oz").option("endpoint", subscriber.endpoint)
            sink = sink.option("payload", "json").option("checkpointLocation", str(checkpoint))
            query = sink.trigger(availableNow=True).start()
            query.awaitTermination()
        finally:
            listener.stop()
    operators = [one for batch in query.recentProgress for one in batch.stateOperators]
    return {
        "totals": listener.totals,
        "messages": listener.received,
        "batches": len(query.recentProgress),
        "dropped": sum(one.numRowsDroppedByWatermark for one in operators),
    }


@contextmanager
def _step(name: str) -> Iterator[Callable[[str], None]]:
    started = time.monotonic()
    notes: list[str] = []
    yield notes.append
    _tell(f"{name:22} {time.monotonic() - started:6.1f} s  {', '.join(notes)}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
