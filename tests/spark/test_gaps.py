"""`gaps`: the messages missing before each row."""

import random

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

import oz.spark
from oz.journal import Record
from spark.recorded import as_dataframe, record_journal

NUMBERED = "offset long, origin binary, sequence long"


def found(spark, rows, **how):
    table = spark.createDataFrame(rows, NUMBERED)
    column = oz.spark.gaps("sequence", "origin", **how)
    return [row.gap for row in table.select("offset", column.alias("gap")).orderBy("offset").collect()]


def test_missing_numbers_are_counted_for_each_origin_by_itself(spark):
    rows = [(0, b"a", 5), (1, b"b", 0), (2, b"a", 6), (3, b"b", 3), (4, b"a", 10), (5, b"b", 4)]
    assert found(spark, rows) == [None, None, 0, 2, 3, 0]
    assert found(spark, rows, order="offset") == [None, None, 0, 2, 3, 0]


def test_what_has_no_number_or_no_origin_has_no_gap(spark):
    rows = [(0, b"a", 1), (1, None, None), (2, b"a", None), (3, None, 7), (4, b"a", 3), (5, None, 9)]
    assert found(spark, rows) == [None, None, None, None, 1, None]
    assert found(spark, rows, order="offset") == [None, None, None, None, 1, None]


def test_a_restarted_publisher_is_another_origin(spark):
    rows = [(0, b"first", 7), (1, b"first", 8), (2, b"second", 0), (3, b"second", 1)]
    assert found(spark, rows) == [None, 0, None, 0]


def test_a_count_that_begins_anew_is_no_loss_in_the_order_of_offsets(spark):
    rows = [(0, b"a", 0), (1, b"a", 1), (2, b"a", 5), (3, b"a", 0), (4, b"a", 2)]
    assert found(spark, rows, order="offset") == [None, 0, 3, None, 1]


def test_late_and_repeated_messages_are_not_missing(spark):
    rows = [(0, b"a", 0), (1, b"a", 2), (2, b"a", 1), (3, b"a", 2), (4, b"a", 3)]
    assert found(spark, rows) == [None, 0, 0, 0, 0]


def test_numbers_of_a_recording_say_what_its_gap_records_say(spark, tmp_path):
    chance = random.Random(1)
    sequences = {b"\x01" * 16: 0, b"\x02" * 16: 0}
    records, lost = [], dict.fromkeys(sequences, 0)
    for number in range(2000):
        origin = chance.choice(list(sequences))
        if number > 10 and chance.random() < 0.05:
            count = chance.randint(1, 30)
            records.append(Record.of_gap("nats:>", count, origin=origin, sequence=sequences[origin]))
            sequences[origin] += count
            lost[origin] += count
        records.append(Record(f"a.{number % 7}", b"", origin=origin, sequence=sequences[origin]))
        sequences[origin] += 1
    directory = record_journal(tmp_path / "recorded", records)
    for rows in (
        as_dataframe(spark, directory).where("kind = 0"),
        spark.read.format("oz").option("journal", str(directory)).load(),
    ):
        for order in (None, "offset"):
            counted = rows.select("origin", oz.spark.gaps("sequence", "origin", order=order).alias("gap"))
            sums = counted.groupBy("origin").agg(F.sum("gap").alias("lost")).collect()
            # What is lost before the first message of an origin is only in the gap record.
            assert {bytes(row.origin): row.lost for row in sums} == lost


def test_columns_may_be_columns(spark):
    rows = spark.createDataFrame([(0, "a", 1), (1, "a", 4)], "at int, who string, n int")
    column = oz.spark.gaps(rows.n, F.upper("who"), order=rows.at)
    assert [row[0] for row in rows.orderBy("at").select(column).collect()] == [None, 2]
