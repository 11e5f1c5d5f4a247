"""`df.writeStream.format("oz")`: batches are published once, and the same when they run again."""

import json
import os
import time

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.errors import PySparkException

import oz
import oz.spark
from oz.spark.sink.publishing import series_of
from spark.sink_listening import Listening
from spark.source_journals import fill, numbered, streamed
from support.ports import lasting_endpoint
from support.waiting import until


@pytest.fixture
def files(spark, tmp_path):
    """Three files of 1,000 rows, as a stream that has one file in a batch."""
    source = str(tmp_path / "source")
    for first in (0, 1000, 2000):
        rows = spark.range(first, first + 1000, 1, 1).selectExpr("concat('n.', id) subject", "'p' payload")
        rows.write.mode("append").parquet(source)
        time.sleep(0.01)  # files are taken by their times
    return (
        spark.readStream.schema("subject string, payload string")
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
    )


def started(frame, endpoint, checkpoint, *, name=None, **options):
    writer = frame.writeStream.format("oz").option("endpoint", endpoint).options(**options)
    writer = writer.queryName(name) if name else writer
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def run(frame, endpoint, checkpoint, **options):
    query = started(frame, endpoint, checkpoint, **options)
    query.awaitTermination()
    return query


def failure_of(frame, endpoint, checkpoint, **options):
    with pytest.raises(PySparkException) as raised:
        run(frame, endpoint, checkpoint, **options)
    return str(raised.value)


def numbers(messages):
    return [int(message.subject[2:]) for message in messages]


def test_all_batches_arrive_and_progress_counts_them(files, tmp_path):
    with Listening(filtering="publisher") as sub:
        query = run(files, sub.endpoint, tmp_path / "checkpoint", name="published")
        assert sorted(numbers(sub.received(3000))) == list(range(3000))
    assert query.name == "published"
    assert [one["sink"]["numOutputRows"] for one in query.recentProgress if one["numInputRows"]] == [1000] * 3
    # The last batch stays until the next is published: should this one run again, it is to be the same.
    assert os.listdir(tmp_path / "checkpoint" / "oz-staging" / query.id) == ["2"]
    assert len(sub.messages) == 3000


def test_a_batch_that_nobody_took_is_published_when_the_query_starts_again(files, tmp_path):
    said = failure_of(files, "tcp://127.0.0.1:1", tmp_path / "checkpoint", timeout=0.2)
    assert "SinkError: tcp://127.0.0.1:1: 0 of 1 subscriptions came within 0.2 s" in said
    with Listening(filtering="publisher") as sub:
        run(files, sub.endpoint, tmp_path / "checkpoint")
        assert sorted(numbers(sub.received(3000))) == list(range(3000))
    assert len(sub.messages) == 3000


@pytest.mark.heavy
def test_a_batch_that_runs_again_has_the_same_rows_though_spark_makes_others(files, tmp_path):
    """The payload is another in each run: some of a batch is published, and then all of it once more."""
    made = files.selectExpr("subject", "concat(uuid(), repeat('x', 60000)) payload").repartition(1)
    with Listening(high_water_mark=2) as sub:
        # It stops reading in the middle of the first batch.
        sub.pause_after(1)
        said = failure_of(made, sub.endpoint, tmp_path / "checkpoint", timeout=5)
        assert "is published again, with the same ids, when the query starts again" in said
        sub.go_on()
        run(made, sub.endpoint, tmp_path / "checkpoint")
        until(lambda: len({message.subject for message in sub.messages}) == 3000, 100)
    payloads = {}
    for message in sub.messages:
        payloads.setdefault(message.subject, []).append(message.payload[:36])
    assert any(len(each) > 1 for each in payloads.values())
    assert all(len(set(each)) == 1 for each in payloads.values())


@pytest.fixture
def counting(spark, tmp_path):
    """Give a stream that counts messages by their subjects, in two batches."""
    fill(tmp_path / "journal", [numbered(14), numbered(7)])
    source = streamed(spark, tmp_path / "journal", maxRowsPerTrigger=14)
    counts = source.groupBy("subject").count().selectExpr("subject", "cast(count as string) payload")
    return counts.coalesce(1).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))


def said_by(sub, count):
    return [(message.subject, message.payload) for message in sub.received(count)]


COUNTED = [(f"n.{number}", b"2") for number in range(7)], [(f"n.{number}", b"3") for number in range(7)]


def test_complete_publishes_the_whole_result_with_each_batch(counting):
    with Listening(filtering="publisher") as sub:
        counting.format("oz").option("endpoint", sub.endpoint).outputMode("complete")
        counting.trigger(availableNow=True).start().awaitTermination()
        said = said_by(sub, 14)
    assert (sorted(said[:7]), sorted(said[7:])) == COUNTED


def test_update_publishes_what_changed_once_though_a_batch_runs_again(counting, tmp_path):
    def run():
        counting.outputMode("update").trigger(availableNow=True).start().awaitTermination()

    with Listening(filtering="publisher", dedupe=True) as sub:
        staging = tmp_path / "staging"
        counting.foreachBatch(oz.spark.publish_batches(sub.endpoint, staging=staging))
        run()
        said = said_by(sub, 14)
        assert (sorted(said[:7]), sorted(said[7:])) == COUNTED
        # Spark has not noted that the last batch is done, and runs it again.
        (tmp_path / "checkpoint" / "commits" / "1").unlink()
        (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
        fill(tmp_path / "journal", [numbered(1)])
        run()
        assert said_by(sub, 15)[14:] == [("n.0", b"4")]
    assert [os.listdir(one) for one in staging.iterdir()] == [["2"]]
    assert len(sub.messages) == 15


def test_an_option_of_publish_batches_is_checked_at_once():
    with pytest.raises(oz.OptionError, match="did you mean subscribers"):
        oz.spark.publish_batches("tcp://127.0.0.1:1", subscriber=2)
    with pytest.raises(oz.OptionError, match="the number that Spark gives each batch"):
        oz.spark.publish_batches("tcp://127.0.0.1:1", batch=2)


def test_batches_that_nobody_takes_are_dropped_on_request_and_counted(files, tmp_path):
    query = run(files, "tcp://127.0.0.1:1", tmp_path / "checkpoint", absent="drop", timeout=0.2)
    counted = tmp_path / "checkpoint" / "oz-staging" / query.id / "dropped.json"
    assert json.loads(counted.read_text()) == {"batch": 2, "rows": 3000}


def test_a_query_waits_on_request_until_somebody_listens(files, tmp_path):
    endpoint = lasting_endpoint()
    query = started(files, endpoint, tmp_path / "checkpoint", absent="wait", timeout=3)
    until(lambda: list(tmp_path.glob("checkpoint/oz-staging/*/0/batch.oz")), 100)
    # The subscriber also has to read within the timeout, beside a busy machine.
    time.sleep(3.5)  # longer than the timeout, which would have ended it
    with Listening(filtering="publisher", bind=endpoint) as sub:
        query.awaitTermination()
        assert sorted(numbers(sub.received(3000))) == list(range(3000))


def test_wrong_columns_end_the_query_and_are_named(files, tmp_path):
    said = failure_of(
        files.selectExpr("subject as topic", "payload"), "tcp://127.0.0.1:1", tmp_path / "checkpoint"
    )
    assert "SinkError: the sink cannot publish these rows: there is no column 'subject'" in said


def test_a_null_subject_ends_the_query_and_the_row_is_named(files, tmp_path):
    bad = files.selectExpr("if(subject = 'n.7', null, subject) subject", "payload")
    with Listening() as sub:
        said = failure_of(bad, sub.endpoint, tmp_path / "checkpoint")
    assert "SinkError: row 7 of partition 0: the subject is null; nothing of this batch was published" in said
    assert sub.messages == []


def test_two_queries_at_once_do_not_mix(files, tmp_path):
    with Listening("n.*", filtering="publisher") as one, Listening("n.*", filtering="publisher") as two:
        checkpoints = [tmp_path / "one", tmp_path / "two"]
        queries = [
            started(files, sub.endpoint, each) for sub, each in zip((one, two), checkpoints, strict=True)
        ]
        for query in queries:
            query.awaitTermination()
        for sub in (one, two):
            assert sorted(numbers(sub.received(3000))) == list(range(3000))
    assert [len(sub.messages) for sub in (one, two)] == [3000, 3000]
    assert series_of("one", 0, 0) != series_of("two", 0, 0)
