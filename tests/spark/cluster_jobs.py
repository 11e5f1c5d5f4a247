"""Jobs for a driver on a cluster: functions of a session. Their results can be pickled."""

from pyspark.sql import functions as F

import oz.spark
from spark.cluster import JOB_SECONDS
from support.waiting import until

SUBJECTS = ["flight.JFK.LAX.AA", "flight.EWR.ORD.UA", "flight.LGA.BOS.DL", "flight.JFK.LAX.B6", None]


def executors(spark):
    """Return the number of executor processes."""
    status = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return len(status) - 1  # the driver is one of them


def places(spark):
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
    rows = spark.createDataFrame([(subject,) for subject in SUBJECTS], "subject string")
    found = rows.repartition(2).filter(oz.spark.matches("subject", pattern)).collect()
    return sorted(row.subject for row in found)


def matching_all(spark, patterns):
    rows = spark.createDataFrame([(subject,) for subject in SUBJECTS], "subject string").repartition(2)
    found = rows.select("subject", oz.spark.match_all("subject", patterns).alias("found")).collect()
    return {row.subject: row.found for row in found}


def archive(spark, journal, path):
    """Archive twice; return rows of both runs, the archived offsets, and the messages in a report."""
    runs = [oz.spark.archive(spark, journal, path).rows for _ in range(2)]
    offsets = sorted(row.offset for row in oz.spark.read_archive(spark, path).select("offset").collect())
    return runs, offsets, oz.spark.report(spark, path).figures["total"]["messages"]


def failing(spark):
    raise ValueError(f"of {spark.sparkContext.master}")
