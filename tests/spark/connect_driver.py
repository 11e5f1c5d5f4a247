"""What works with a session of Spark Connect, in a process with a local server of its own: prints it as JSON.

Arguments: the journal, and a directory to write to.
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import oz
import oz.spark


def main(journal, scratch):
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    oz.spark.register(spark)
    frame = spark.read.format("oz").option("journal", journal).load()
    stream = spark.readStream.format("oz").option("journal", journal).load().select("offset")
    writing = stream.writeStream.format("parquet").option("checkpointLocation", f"{scratch}/checkpoint")
    writing.trigger(availableNow=True).start(f"{scratch}/rows").awaitTermination(400)
    rows = frame.select("subject", F.lit("x").alias("payload"))
    sink = {"bind": "tcp://127.0.0.1:45999", "subscribers": "0", "staging": f"{scratch}/staging"}
    rows.write.format("oz").mode("append").options(**sink).save()
    oz.spark.publish_batches(**sink, run="named")(rows, 0)
    told = {
        "read": frame.count(),
        "native": frame.where(oz.spark.matches("subject", "n.1")).count(),
        "by Python": len(frame.select(oz.spark.match_all("subject", ["n.1", "*.2"])).collect()),
        "stream": spark.read.parquet(f"{scratch}/rows").count(),
    }
    for name, call in {
        "archive": lambda: oz.spark.archive(spark, journal, f"{scratch}/lake"),
        "publish_batches": lambda: oz.spark.publish_batches(**sink)(rows, 0),
    }.items():
        try:
            call()
        except oz.OzError as error:
            told[name] = str(error)
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
