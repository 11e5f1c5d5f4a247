"""Streaming queries in a process that a test kills.

    python kill_driver.py MASTER rows|bus JOURNAL DIRECTORY TARGET ROWS [TIMEOUT]

`rows` writes the journal into Parquet files at TARGET, until the file `written` is in DIRECTORY and
everything is read. `bus` publishes the journal at the endpoint TARGET, and ends at the end of the journal.
DIRECTORY holds the checkpoint; ROWS is the limit of a micro-batch; TIMEOUT is an option of the sink.
"""

import sys
from pathlib import Path

import oz.spark

CONF = {
    "spark.executor.memory": "1g",
    "spark.task.maxFailures": 8,
    "spark.ui.enabled": False,
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.authenticate.socketTimeout": "300s",
}


def source(spark, journal, rows):
    options = {"maxRowsPerTrigger": rows, "numPartitions": 2, "subject": "number.*"}
    return (
        spark.readStream.format("oz")
        .options(**options)
        .load(str(journal))
        .select("offset", "subject", "payload")
    )


def write_rows(spark, journal, directory, target, rows):
    sink = source(spark, journal, rows).writeStream.format("parquet")
    query = sink.option("checkpointLocation", f"{directory}/checkpoint").start(str(target))
    while not Path(directory, "written").exists():
        if query.awaitTermination(0.2):
            raise RuntimeError("the query has ended")
    query.processAllAvailable()
    query.stop()


def publish(spark, journal, directory, target, rows, timeout=600):
    sink = (
        source(spark, journal, rows)
        .writeStream.format("oz")
        .option("endpoint", target)
        .option("timeout", timeout)
    )
    sink = sink.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    sink.start().awaitTermination()


if __name__ == "__main__":
    master, kind, *arguments = sys.argv[1:]
    session = oz.spark.session(master, **CONF)
    (write_rows if kind == "rows" else publish)(session, *arguments)
