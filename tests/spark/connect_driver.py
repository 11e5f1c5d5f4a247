"""What works with a session of Spark Connect, in a process with a local server of its own: prints it as JSON.

Arguments: the journal, and a directory to write to.
"""

import json
import sys

from pyspark.sql import SparkSession

import oz.spark


def main(journal, scratch):
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    oz.spark.register(spark)
    frame = spark.read.format("oz").option("journal", journal).load()
    stream = spark.readStream.format("oz").option("journal", journal).load().select("offset")
    writing = stream.writeStream.format("parquet").option("checkpointLocation", f"{scratch}/checkpoint")
    writing.trigger(availableNow=True).start(f"{scratch}/rows").awaitTermination(400)
    told = {
        "read": frame.count(),
        "native": frame.where(oz.spark.matches("subject", "n.1")).count(),
        "by Python": len(frame.select(oz.spark.match_all("subject", ["n.1", "*.2"])).collect()),
        "stream": spark.read.parquet(f"{scratch}/rows").count(),
        "report": oz.spark.report(spark, frame).figures["total"]["messages"],
    }
    try:
        oz.spark.archive(spark, journal, f"{scratch}/archive")
    except oz.spark.ArchiveError as error:
        told["archive"] = str(error)
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
