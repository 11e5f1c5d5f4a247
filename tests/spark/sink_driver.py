"""A streaming query from a journal to the bus, in a process that a test kills.

Arguments: the journal, the checkpoint, where to publish, records of a batch. It ends when all is published.
"""

import sys

import oz.spark


def publish(spark, journal, checkpoint, endpoint, rows):
    """Publish what of a journal the checkpoint says is not published yet."""
    source = spark.readStream.format("oz").option("journal", journal).option("maxRowsPerTrigger", rows)
    # Two partitions a batch; without the raw ones, subjects are text.
    frame = source.option("numPartitions", 2).load().select("subject", "payload")
    sink = frame.writeStream.format("oz").option("endpoint", endpoint).option("timeout", 600)
    sink = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    sink.start().awaitTermination()


def main(*arguments):
    publish(oz.spark.session("local[2]", **{"spark.sql.shuffle.partitions": 2}), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
