"""A streaming query in a process that a test kills.

    python kill_driver.py MASTER JOURNAL DIRECTORY ENDPOINT ROWS [TIMEOUT]

It publishes the journal, and ends at the end of the journal. DIRECTORY holds the checkpoint; ROWS is the limit of a
micro-batch; TIMEOUT is an option of the sink.
"""

import sys

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
    master, *arguments = sys.argv[1:]
    session = oz.spark.session(master, **CONF)
    publish(session, *arguments)
