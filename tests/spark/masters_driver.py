"""Source, columns, sink and archive in a session on a master; prints the results as JSON.

    python masters_driver.py MASTER JOURNAL DIRECTORY ENDPOINT

`sc:` before a master means Spark Connect with a local server of its own. On other masters the first attempt of each
task of the sink fails after its rows are published.
"""

import json
import sys

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import oz.spark
from support.waiting import until

CONF = {
    "spark.executor.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.enabled": False,
    "spark.python.authenticate.socketTimeout": "300s",
    # The name of this machine need not lead to it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def fail_at_first(batches):
    yield from batches
    if TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("the first attempt")


def place(_):
    import os

    return f"{os.getppid()} {sys.executable}"


def archived(spark, journal, path):
    """Return the rows of two runs and the archived offsets, or the error."""
    try:
        runs = [oz.spark.archive(spark, journal, path).rows for _ in range(2)]
    except oz.spark.ArchiveError as error:
        return str(error)
    return [*runs, oz.spark.read_archive(spark, path).select("offset").distinct().count()]


def main(master, journal, directory, endpoint):
    if is_connect := master.startswith("sc:"):
        spark = SparkSession.builder.remote(master[3:]).getOrCreate()
        oz.spark.register(spark)
    else:
        spark = oz.spark.session(master, **CONF)
        status = spark.sparkContext._jsc.sc().statusTracker()
        until(lambda: len(status.getExecutorInfos()) == 3, 500)  # the driver is one of them
    frame = spark.read.format("oz").option("numPartitions", 2).load(journal)
    stream = spark.readStream.format("oz").load(journal).select("offset").writeStream.format("parquet")
    stream = stream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    stream.start(f"{directory}/rows").awaitTermination(400)
    rows = frame.select("subject", "payload")
    failing = rows if is_connect else rows.mapInArrow(fail_at_first, rows.schema)
    failing.write.format("oz").mode("append").option("endpoint", endpoint).save()
    places = spark.range(1000, numPartitions=8).select(F.udf(place)("id").alias("place")).distinct().collect()
    found = {
        "workers": len({row.place.split()[0] for row in places}),
        "programs": len({row.place.split()[1] for row in places}),
        "source": frame.count(),
        "read": oz.spark.read(spark, journal, "n.1").count(),
        "matches": frame.where(oz.spark.matches("subject", "n.1")).count(),
        "in python": frame.repartition(2).where(oz.spark.matches("subject", r"regex:.*\b1\b")).count(),
        "match_all": frame.select(oz.spark.match_all("subject", ["n.1", "*.2"])).count(),
        "report": oz.spark.report(spark, frame).figures["total"]["messages"],
        "stream": spark.read.parquet(f"{directory}/rows").select("offset").distinct().count(),
        "archive": archived(spark, journal, f"{directory}/archive"),
    }
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
