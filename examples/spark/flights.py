"""A bus that is recorded, archived, reported and analysed, in cells as of a notebook.

    pip install 'ozmq[spark-java]'
    python flights.py

Run the file in an empty directory, or run its cells one after the other in an editor that knows `# %%`.
It creates `recorded` (the journal), `archive` (Parquet files) and `report.html`.
"""

# %% Record: one node publishes the flights of January 2013 as MessagePack; a recorder writes a journal.
import os
import threading
import time

from pyspark.sql import functions as F

import oz
import oz.journal
import oz.spark
from oz.demo import flights

BUS = f"flights-{os.getpid()}"
messages = flights.load()

with (
    oz.Node("airport", bus=BUS, on_full="block") as airport,
    oz.Node("recorder", bus=BUS, codec=None) as listener,
    oz.journal.Recorder("recorded", "flight.>", source=listener) as recorder,
):
    recording = threading.Thread(target=recorder.run)
    recording.start()
    airport.wait_for_subscribers(subject="flight.JFK.LAX.AA")
    for subject, payload in messages:
        airport.publish(subject, payload)
    airport.flush()
    while recorder.stats.recorded + recorder.stats.lost < len(messages):
        time.sleep(0.05)
    recorder.stop()
    recording.join()
print(f"recorded {recorder.stats.recorded:,} messages, {recorder.stats.lost} lost")

# %% Archive: Spark copies the journal to Parquet files by day and first token, sorted by subject.
spark = oz.spark.session("local[2]")
done = oz.spark.archive(spark, "recorded", "archive")
print(f"archived {done.rows:,} records up to offset {done.end_offset:,}")

# %% Report: rates, top subjects, sizes and losses on one page.
oz.spark.report(spark, "archive").save(html="report.html")
print("open report.html in a browser")

# %% Analyse: payloads become columns, subjects become tokens.
traffic = oz.spark.read_archive(spark, "archive").where("kind = 0")
decoded = traffic.select(
    "subject",
    oz.spark.token("subject", 3).alias("destination"),
    oz.spark.from_msgpack("payload", "carrier string, dep_delay int, distance int").alias("flight"),
)

# %% The destinations from JFK with the longest delays. Spark reads only row groups with such subjects.
jfk = decoded.where(oz.spark.matches("subject", "flight.JFK.>"))
delays = jfk.groupBy("destination").agg(
    F.count("*").alias("flights"), F.round(F.avg("flight.dep_delay"), 1).alias("delay")
)
delays.where("flights >= 100").orderBy(F.desc("delay")).limit(5).show()

# %% Which of three subscriptions would have received each flight?
interests = ["flight.JFK.>", "flight.*.LAX.*", r"regex:^flight\.[^.]+\.[^.]+\.(UA|AA)$"]
joined = oz.spark.join_patterns(traffic, "subject", interests)
joined.groupBy("pattern").count().orderBy("pattern").show(truncate=False)

# %% DuckDB, Polars and pandas read the same files:
#    duckdb -c "select first_token, count(*) from 'archive/**/*.parquet' group by all"
spark.stop()
