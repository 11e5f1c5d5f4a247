"""`df.write.format("oz")`: rows are published when all tasks are done, or not at all."""

import json
import os

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import msgpack
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from spark.sink_listening import Listening
from support.sizes import in_suite


@pytest.fixture(scope="module")
def sub():
    with Listening(filtering="publisher") as listening:
        yield listening


@pytest.fixture(autouse=True)
def _nothing_yet(sub):
    sub.messages.clear()


def rows(spark, count, partitions=3, payload="cast(id as string)"):
    return spark.range(0, count, 1, partitions).selectExpr("concat('a.', id) subject", f"{payload} payload")


def save(frame, sub, **options):
    writer = frame.write.format("oz").option("endpoint", sub.endpoint).options(**options)
    writer.mode("append").save()


def failure_of(frame, sub, **options):
    with pytest.raises(PySparkException) as raised:
        save(frame, sub, **options)
    return str(raised.value)


def test_rows_of_all_partitions_arrive_in_order(spark, sub, tmp_path):
    save(rows(spark, 5000), sub, staging=str(tmp_path / "staging"))
    assert [message.subject for message in sub.received(5000)] == [f"a.{number}" for number in range(5000)]
    assert list((tmp_path / "staging").iterdir()) == []


def test_many_rows_are_staged_in_files_and_leave_none(spark, sub, tmp_path):
    save(rows(spark, 20_000, payload="repeat('x', 200)"), sub, staging=str(tmp_path))
    assert [message.subject for message in sub.received(20_000)] == [f"a.{row}" for row in range(20_000)]
    assert os.listdir(tmp_path) == []


def test_structs_headers_and_keys_arrive(spark, sub):
    frame = spark.createDataFrame(
        [("d.1", (1, "x"), {"h": "v"}, "k")],
        "subject string, payload struct<i: int, s: string>, headers map<string, string>, key string",
    )
    save(frame, sub)
    save(frame, sub, payload="json")
    first, second = sub.received(2)
    assert (msgpack.unpackb(first.payload), dict(first.headers)) == ({"i": 1, "s": "x"}, {"h": "v"})
    assert json.loads(second.payload) == {"i": 1, "s": "x"}


def test_a_subject_that_is_no_utf8_arrives_in_a_byte_dialect(spark, tmp_path):
    frame = spark.createDataFrame([(b"a.\xff", b"1")], "subject binary, payload binary")
    with Listening("*", dialect="redis") as plain:
        assert r"row 0 of partition" in failure_of(frame.coalesce(1), plain)
        save(frame, plain, dialect="redis")
        assert plain.received(1)[0].subject_bytes == b"a.\xff"


@pytest.mark.parametrize("payload", in_suite(["repeat('x', 300)"], ["cast(id as string)"]))
def test_when_one_task_fails_nothing_is_published(spark, sub, tmp_path, payload):
    def fail_late(batches):
        yield from batches
        raise RuntimeError("this task fails when all its rows are staged")

    good = rows(spark, 10_000, 2, payload)
    bad = good.mapInArrow(fail_late, "subject string, payload string")
    assert "this task fails when all its rows are staged" in failure_of(
        good.union(bad), sub, staging=str(tmp_path)
    )
    assert os.listdir(tmp_path) == []
    save(rows(spark, 1), sub)
    assert [message.subject for message in sub.received(1)] == ["a.0"]


def test_a_row_that_cannot_be_published_fails_the_batch_and_is_named(spark, sub, tmp_path):
    frame = rows(spark, 100, 1).withColumn("subject", F.expr("if(subject = 'a.71', 'a..71', subject)"))
    said = failure_of(frame, sub, staging=str(tmp_path))
    assert "SinkError: row 71 of partition 0: nats subject 'a..71', position" in said
    assert "invalid=skip" in said
    save(frame.where("subject = 'a.99'"), sub)
    assert [message.subject for message in sub.received(1)] == ["a.99"]


def test_rows_that_cannot_be_published_can_be_skipped(spark, sub):
    frame = rows(spark, 100, 2).withColumn("subject", F.expr("if(payload like '%3', null, subject)"))
    save(frame, sub, invalid="skip")
    expected = [f"a.{number}" for number in range(100) if number % 10 != 3]
    assert [message.subject for message in sub.received(90)] == expected


def test_wrong_columns_are_named(spark, sub):
    said = failure_of(spark.range(1), sub)
    assert "there is no column 'subject', there is no column 'payload'" in said
    assert "The columns are: id bigint" in said


def test_a_wrong_option_is_named(spark, sub):
    assert "option subcribers: the sink has no such option; did you mean subscribers?" in failure_of(
        rows(spark, 1), sub, subcribers=1
    )


def test_overwriting_is_refused(spark, sub):
    with pytest.raises(PySparkException, match="what is published cannot be overwritten"):
        rows(spark, 1).write.format("oz").option("endpoint", sub.endpoint).mode("overwrite").save()


def test_nobody_there_fails_the_batch(spark, tmp_path):
    class Nowhere:
        endpoint = "tcp://127.0.0.1:1"

    said = failure_of(rows(spark, 10), Nowhere, timeout=0.2, staging=str(tmp_path))
    assert "tcp://127.0.0.1:1: 0 of 1 subscriptions came within 0.2 s" in said
    assert os.listdir(tmp_path) == []


def test_no_row_needs_no_subscriber(spark):
    class Nowhere:
        endpoint = "tcp://127.0.0.1:1"

    save(rows(spark, 10).where("false"), Nowhere)
