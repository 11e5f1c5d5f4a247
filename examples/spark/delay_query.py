"""The streaming query: flights joined with the weather of their hour, and summed up by route and week."""

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import oz.spark

FLIGHT = "time_hour STRING, origin STRING, dest STRING, dep_delay BIGINT"
WEATHER = "time_hour STRING, origin STRING, precip DOUBLE"
LATE_BY = "24 hours"
"""How late a message may be. The longest delay of the year is less; what came later would be dropped."""


def stream(spark: SparkSession, journal: Path, subject: str, columns: str, most_rows: int) -> DataFrame:
    """Read one kind of message, with its hour as the event time."""
    source = spark.readStream.format("oz").options(
        journal=str(journal), subject=subject, maxRowsPerTrigger=most_rows
    )
    messages = source.option("payload", "json").option("payloadSchema", columns).load()
    hour = F.to_timestamp("payload.time_hour").alias("hour")
    return messages.select(hour, "subject", "payload.*").withWatermark("hour", LATE_BY)


def statistics(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Join and sum up. A row is final: a week is given when no flight of it can come any more."""
    reports = weather.select(F.col("origin").alias("at"), F.col("hour").alias("reported"), F.col("precip"))
    same_hour = (F.col("origin") == F.col("at")) & (F.col("hour") == F.col("reported"))
    joined = flights.join(reports, same_hour, "left_outer")
    week = F.window("hour", "7 days").alias("week")
    route = (oz.spark.token("subject", 2).alias("from"), oz.spark.token("subject", 3).alias("to"))
    in_rain = F.col("precip") > 0
    return joined.groupBy(week, *route).agg(
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        _sum(F.col("dep_delay")).alias("delay"),
        F.count_if(in_rain & F.col("dep_delay").isNotNull()).alias("departed_in_rain"),
        _sum(F.when(in_rain, F.col("dep_delay"))).alias("delay_in_rain"),
        F.count_if(F.col("reported").isNull()).alias("without_weather"),
    )


def messages(found: DataFrame) -> DataFrame:
    """Make messages of them: `stats.delay.<origin>.<dest>`."""
    subject = F.concat_ws(".", F.lit("stats.delay"), "from", "to").alias("subject")
    numbers = [name for name in found.columns if name not in ("week", "from", "to")]
    week = F.date_format("week.start", "yyyy-MM-dd").alias("week")
    return found.select(subject, F.struct(week, *numbers).alias("payload"))


def _sum(minutes: Column) -> Column:
    return F.coalesce(F.sum(minutes), F.lit(0))
