"""Jobs for a driver on a cluster: functions of a session that return values which can be pickled."""

from pyspark import TaskContext
from pyspark.sql import functions as F

import oz.spark
from spark.cluster import JOB_SECONDS
from support.waiting import until

SUBJECTS = ["flight.JFK.LAX.AA", "flight.EWR.ORD.UA", "flight.LGA.BOS.DL", "flight.JFK.LAX.B6", None]


def executors(spark):
    """Return the number of executor processes."""
    status = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return len(status) - 1  # the driver is one of them


def worker_places(spark):
    """Return parent process and program of each Python worker."""
    until(lambda: executors(spark) == 2, JOB_SECONDS / 2)

    @F.udf("string")
    def place(_):
        import os
        import sys

        return f"{os.getppid()} {sys.executable}"

    rows = spark.range(1000, numPartitions=8).select(place("id").alias("place")).distinct()
    return sorted(row.place.split(" ", 1) for row in rows.collect())


def matching(spark, pattern):
    """Return the subjects that match; a pattern that Java cannot evaluate needs oz on executors."""
    rows = spark.createDataFrame([(subject,) for subject in SUBJECTS], "subject string")
    found = rows.repartition(2).filter(oz.spark.matches("subject", pattern)).collect()
    return sorted(row.subject for row in found)


def archive(spark, journal, path):
    """Archive twice; return rows of both runs, the archived offsets, and the messages in a report."""
    runs = [oz.spark.archive(spark, journal, path).rows for _ in range(2)]
    offsets = sorted(row.offset for row in oz.spark.read_archive(spark, path).select("offset").collect())
    return runs, offsets, oz.spark.report(spark, path).figures["total"]["messages"]


def count_by_both(spark, journal, pattern):
    """Count the matching rows by `read` and by `format("oz")`, and the workers that took part."""
    native = oz.spark.read(spark, journal, pattern)
    source = spark.read.format("oz").options(subject=pattern, numPartitions=4).load(journal)
    return native.count(), source.count(), source.exceptAll(native.select(source.columns)).count()


def stream_into_parquet(spark, journal, directory):
    """Stream a journal into Parquet files; return the numbers of rows and of distinct offsets."""
    stream = spark.readStream.format("oz").options(maxRowsPerTrigger=1000, numPartitions=2).load(journal)
    sink = stream.select("offset").writeStream.format("parquet")
    sink = sink.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    sink.start(f"{directory}/rows").awaitTermination()
    return tuple(
        spark.read.parquet(f"{directory}/rows").agg(F.count("*"), F.count_distinct("offset")).first()
    )


def publish_though_first_attempts_fail(spark, journal, endpoint):
    """Publish a journal; the first attempt of each task fails after most of its rows are published."""
    rows = spark.read.format("oz").options(numPartitions=2).load(journal).select("subject", "payload")

    def fail_at_first(batches):
        yield from batches
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first attempt")

    failing = rows.mapInArrow(fail_at_first, rows.schema)
    failing.write.format("oz").mode("append").options(endpoint=endpoint).save()
