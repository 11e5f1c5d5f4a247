"""A session of Spark Connect with a local server of its own; prints its results as JSON.

python connect_driver.py JOURNAL DIRECTORY
"""

import json
import sys

from pyspark.sql import SparkSession

import oz.spark


def main(journal, directory):
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    oz.spark.register(spark)
    frame = spark.read.format("oz").load(journal)
    stream = spark.readStream.format("oz").load(journal).select("offset").writeStream.format("parquet")
    stream = stream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    stream.start(f"{directory}/rows").awaitTermination(400)
    sink = {"endpoint": f"ipc://{directory}/bus-1,ipc://{directory}/bus-2"}
    frame.select("subject", "payload").write.format("oz").mode("append").options(**sink).save()
    found = {
        "source": frame.count(),
        "read": oz.spark.read(spark, journal, "n.1").count(),
        "matches": frame.where(oz.spark.matches("subject", "n.1")).count(),
        "match_all": frame.select(oz.spark.match_all("subject", ["n.1", "*.2"])).count(),
        "report": oz.spark.report(spark, frame).figures["total"]["messages"],
        "stream": spark.read.parquet(f"{directory}/rows").count(),
    }
    try:
        oz.spark.archive(spark, journal, f"{directory}/archive")
    except oz.spark.ArchiveError as error:
        found["archive"] = str(error)
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
