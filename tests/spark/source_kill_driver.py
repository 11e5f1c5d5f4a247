"""A streaming query from a journal into Parquet, in a process that a test kills.

Arguments: Spark's master, the journal, the directory of checkpoint and rows, records of a batch. It ends when
the file `written` is in that directory and all is read.
"""

import sys
from pathlib import Path

import oz.spark


def follow(spark, journal, directory, rows):
    """Write all that comes into Parquet."""
    source = spark.readStream.format("oz").option("journal", journal).option("subject", "number.*")
    frame = source.option("maxRowsPerTrigger", rows).option("numPartitions", 2).load()
    sink = frame.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    query = sink.start(f"{directory}/rows")
    while not Path(directory, "written").exists():
        if query.awaitTermination(0.2):
            raise RuntimeError("the query has ended")
    query.processAllAvailable()
    query.stop()


def main(master, *arguments):
    conf = {"spark.executor.memory": "1g", "spark.task.maxFailures": 8}
    follow(oz.spark.session(master, **conf), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
