"""Jobs for a driver on a cluster: functions of a session, each returning what can be pickled."""

from pathlib import Path

from pyspark.sql import functions as F

import oz.spark
from spark import source_kill_driver
from spark.cluster import JOB_SECONDS
from spark.source_journals import run_to_the_end
from support.waiting import until

SUBJECTS = ["flight.JFK.LAX.AA", "flight.EWR.ORD.UA", "flight.LGA.BOS.DL", "flight.JFK.LAX.B6", None]


def executors(spark):
    """Count the processes beside the driver's that hold Spark's blocks: the executors."""
    status = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return len(status) - 1


def places(spark):
    """Where Python workers run: their process's parents, and the programs."""
    # Spark begins with whoever is there, and one may have been killed by the job before.
    until(lambda: executors(spark) == 2, JOB_SECONDS / 2)

    @F.udf("string")
    def place(_):
        import os
        import sys

        return f"{os.getppid()} {sys.executable}"

    rows = spark.range(1000, numPartitions=8).select(place("id").alias("place")).distinct()
    return sorted(row.place.split(" ", 1) for row in rows.collect())


def matching(spark, pattern):
    rows = spark.createDataFrame([(subject,) for subject in SUBJECTS], "subject string")
    found = rows.repartition(2).filter(oz.spark.matches("subject", pattern)).collect()
    return sorted(row.subject for row in found)


def matching_all(spark, patterns):
    rows = spark.createDataFrame([(subject,) for subject in SUBJECTS], "subject string").repartition(2)
    found = rows.select("subject", oz.spark.match_all("subject", patterns).alias("found")).collect()
    return {row.subject: row.found for row in found}


def failing(spark):
    raise ValueError(f"of {spark.sparkContext.master}")


# The source, the sink and the jobs ------------------------------------------------------------------------


def read(spark, journal, subject):
    """Read a journal in a batch: the offsets, and how many partitions Spark made."""
    source = spark.read.format("oz").options(journal=journal, subject=subject, numPartitions=4)
    rows = source.load()
    return sorted(row.offset for row in rows.select("offset").collect()), rows.rdd.getNumPartitions()


def stream_into_parquet(spark, journal, directory):
    """Stream a journal into Parquet, in several micro-batches; the offsets that are there."""
    source = spark.readStream.format("oz").options(journal=journal, maxRowsPerTrigger=700)
    rows = source.option("payload", "json").option("payloadSchema", "n BIGINT").load()
    query = run_to_the_end(rows.select("offset", "payload.n"), Path(directory), JOB_SECONDS)
    found = spark.read.parquet(f"{directory}/rows").collect()
    assert len(query.recentProgress) > 1
    return sorted((row.offset, row.n) for row in found)


def publish(spark, journal, endpoint, staging):
    """Publish what was recorded under other subjects."""
    rows = spark.read.format("oz").options(journal=journal, numPartitions=3).load()
    again = rows.select(F.concat(F.lit("again."), "subject").alias("subject"), "payload")
    again.write.format("oz").mode("append").options(endpoint=endpoint, staging=staging).save()


def stream_to_the_bus(spark, journal, endpoint, directory):
    """Publish what is streamed."""
    rows = spark.readStream.format("oz").options(journal=journal, maxRowsPerTrigger=1000).load()
    again = rows.select(F.concat(F.lit("again."), "subject").alias("subject"), "payload")
    sink = again.writeStream.format("oz").options(
        endpoint=endpoint, checkpointLocation=f"{directory}/checkpoint"
    )
    sink.trigger(availableNow=True).start().awaitTermination()


def archive(spark, journal, lake):
    """Archive twice; what the runs did, and what Spark finds in the lake."""
    runs = [oz.spark.archive(spark, journal, lake, unsealed=True).rows for _ in range(2)]
    rows = spark.read.parquet(lake)
    found = rows.filter(oz.spark.matches("subject", "flight.*.LAX.>")).count()
    return runs, sorted(row.offset for row in rows.select("offset").collect()), found


def report(spark, source):
    return oz.spark.report(spark, source).figures


def follow(spark, journal, directory, rows):
    """Stream a journal that is written into Parquet, until it is said to be all."""
    source_kill_driver.follow(spark, journal, directory, rows)


def numbers_found(spark, rows):
    """Count the rows in Parquet, their offsets, their numbers, and give the last of these and any odd one."""
    found = spark.read.parquet(rows).withColumn("number", F.col("payload").cast("string").cast("long"))
    counted = found.agg(
        F.count("*"),
        F.count_distinct("offset"),
        F.count_distinct("number"),
        F.max("number"),
        F.count_if(F.col("number") != F.col("offset")),
    )
    return tuple(counted.first())
