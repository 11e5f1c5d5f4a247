"""A journal read as a stream: what a query sees, where it goes on, and what stops it."""

import itertools
import json
import time

import pytest

from support.waiting import until

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

import oz
from oz.journal import Record, Writer
from oz.spark.source.options import read_options
from oz.spark.source.stream import JournalStreamReader
from spark.source_journals import begun, fill, numbered, rows_of, run_to_the_end, streamed
from spark.source_schema import SCHEMA


def reader(directory, **options):
    return JournalStreamReader(read_options({"journal": str(directory), **options}), SCHEMA)


def test_query_takes_batches_of_a_size_and_goes_on_where_it_was(spark, tmp_path):
    fill(tmp_path / "journal", [numbered(400), numbered(400, 400)])
    frame = streamed(spark, tmp_path / "journal", maxRowsPerTrigger=300, subject="n.*")
    query = run_to_the_end(frame, tmp_path)
    progress = [each for each in query.recentProgress if each.numInputRows]
    assert [each.numInputRows for each in progress] == [300, 300, 200]
    assert [json.loads(each.sources[0].endOffset)["offset"] for each in progress] == [300, 600, 800]
    latest = [json.loads(each.sources[0].latestOffset) for each in progress]
    assert [(each["offset"], each["lag"], each["lost"]) for each in latest] == [
        (800, 500, 0),
        (800, 200, 0),
        (800, 0, 0),
    ]
    fill(tmp_path / "journal", [numbered(100, 800)])
    assert sum(each.numInputRows for each in run_to_the_end(frame, tmp_path).recentProgress) == 100
    assert sorted(row.offset for row in rows_of(spark, tmp_path, "offset")) == list(range(900))


def test_what_is_wrong_with_a_stream_is_what_its_query_says(spark, tmp_path):
    fill(tmp_path / "journal", [numbered(7)])
    with pytest.raises(StreamingQueryException) as caught:
        run_to_the_end(streamed(spark, tmp_path / "journal", endingOffset=5), tmp_path)
    said = str(caught.value)
    assert "oz.errors.OptionError: option endingOffset: it is for a batch, with spark.read" in said


def test_two_queries_read_a_journal_at_once(spark, tmp_path):
    fill(tmp_path / "journal", [numbered(70)])
    queries = []
    for name, subject in (("few", "n.0\nn.2"), ("whole", ">")):
        frame = streamed(spark, tmp_path / "journal", subject=subject)
        writing = frame.select(frame.payload.cast("string").cast("int").alias("number")).writeStream
        writing = writing.format("memory").queryName(name).trigger(availableNow=True)
        queries.append(writing.option("checkpointLocation", str(tmp_path / name)).start())
    assert all(query.awaitTermination(400) for query in queries)
    assert sorted(row.number for row in spark.table("whole").collect()) == list(range(70))
    assert sorted(row.number for row in spark.table("few").collect()) == [
        number for number in range(70) if number % 7 in (0, 2)
    ]


@pytest.mark.heavy
def test_two_queries_follow_a_journal_while_it_is_written(spark, tmp_path):
    with Writer(tmp_path / "journal", segment_bytes=5000, retain_bytes=1 << 30) as writer:
        queries = []
        for name, subject in (("evens", "n.0\nn.2\nn.4\nn.6"), ("all_of_them", ">")):
            frame = streamed(spark, tmp_path / "journal", subject=subject)
            writing = frame.select("subject", frame.payload.cast("string").alias("number")).writeStream
            checkpoint = str(tmp_path / name)
            memory = writing.format("memory").queryName(name).option("checkpointLocation", checkpoint)
            queries.append(begun(memory))
        try:
            for at in range(10):
                writer.append(numbered(70, 70 * at))
            until(lambda: spark.table("evens").count() == 400, 120)
            until(lambda: spark.table("all_of_them").count() == 700, 120)
            numbers = [int(row.number) for row in spark.table("all_of_them").collect()]
            assert sorted(numbers) == list(range(700))
        finally:
            for query in queries:
                query.stop()


def test_a_checkpoint_of_another_journal_is_refused(spark, tmp_path):
    for name in ("journal", "other"):
        fill(tmp_path / name, [numbered(10)])
    run_to_the_end(streamed(spark, tmp_path / "journal"), tmp_path)
    with pytest.raises(StreamingQueryException, match=r"JournalError: .*other: this journal has the id"):
        run_to_the_end(streamed(spark, tmp_path / "other"), tmp_path)


def test_retention_that_has_passed_the_checkpoint_is_an_error_or_counted(spark, tmp_path):
    fill(tmp_path / "journal", [numbered(500)])
    run_to_the_end(streamed(spark, tmp_path / "journal"), tmp_path)
    fill(tmp_path / "journal", [numbered(500, 500 * at) for at in range(1, 9)], retain_bytes=40_000)
    first = oz.journal.Journal(tmp_path / "journal").first_offset
    assert first > 500
    said = rf"goes on at offset 500, and retention has removed all before {first}: {first - 500} records"
    with pytest.raises(StreamingQueryException, match=said):
        run_to_the_end(streamed(spark, tmp_path / "journal"), tmp_path)
    query = run_to_the_end(streamed(spark, tmp_path / "journal", failOnDataLoss="false"), tmp_path)
    assert json.loads(query.lastProgress.sources[0].endOffset)["lost"] == first - 500
    offsets = [row.offset for row in rows_of(spark, tmp_path, "offset")]
    assert sorted(offsets) == [*range(500), *range(first, 4500)]


def test_a_journal_that_is_not_there_ends_the_query_with_what_to_do(spark, tmp_path):
    with pytest.raises(Exception, match=r"JournalError: .*gone: there is no journal here; `oz record` or"):
        run_to_the_end(streamed(spark, tmp_path / "gone"), tmp_path)


# without Spark: what the reader says when Spark asks --------------------------------------------------------


def test_offsets_follow_the_options(tmp_path):
    fill(tmp_path / "journal", [numbered(100)])

    def begins(**options):
        return reader(tmp_path / "journal", **options).initialOffset()["offset"]

    assert begins() == 0
    assert begins(startingOffset="latest") == 100
    assert begins(startingOffset=42) == 42
    with pytest.raises(oz.errors.OptionError, match="the journal ends at offset 100"):
        begins(startingOffset=101)
    made = reader(tmp_path / "journal", maxRowsPerTrigger=30)
    assert made.getDefaultReadLimit() == ReadMaxRows(30)
    start = made.initialOffset()
    assert made.latestOffset(start, ReadMaxRows(30))["offset"] == 30
    assert made.latestOffset(start, ReadAllAvailable())["offset"] == 100
    assert reader(tmp_path / "journal").getDefaultReadLimit() == ReadAllAvailable()


def test_available_now_ends_at_what_was_there(tmp_path):
    fill(tmp_path / "journal", [numbered(100)])
    made = reader(tmp_path / "journal")
    made.prepareForTriggerAvailableNow()
    fill(tmp_path / "journal", [numbered(100, 100)])
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    assert end["offset"] == 100
    assert made.latestOffset(end, ReadAllAvailable()) == end
    assert made.reportLatestOffset()["lag"] == 100
    # A checkpoint that is further than that stays where it is.
    further = reader(tmp_path / "journal").latestOffset(start, ReadMaxRows(150))
    assert further["offset"] == 150
    assert made.latestOffset(further, ReadAllAvailable()) == further


def first_offset(journal):
    return oz.journal.Journal(journal).first_offset


def test_available_now_ends_though_retention_is_quicker_than_the_query(tmp_path):
    """Of retention that goes on it saw new records lost at each look, and so began one more batch."""
    journal = tmp_path / "journal"
    with Writer(journal, segment_bytes=1, retain_bytes=1) as writer:
        writer.append(numbered(100))
        made = reader(journal, failOnDataLoss=False, maxRowsPerTrigger=10)
        start = made.initialOffset()
        made.prepareForTriggerAvailableNow()
        ends = [made.latestOffset(start, ReadMaxRows(10))]
        for first in range(100, 1000, 100):
            writer.append(numbered(50, first))  # what is kept are the last segments
            writer.append(numbered(50, first + 50))
            until(lambda first=first: first_offset(journal) >= first)
            ends.append(made.latestOffset(ends[-1], ReadMaxRows(10)))
    assert [end["offset"] for end in (ends[0], ends[-1])] == [10, 100]
    assert ends[-1] == ends[-2], "a query ends where two looks say the same"
    assert 0 < ends[-1]["lost"] <= 90
    assert made.partitions(ends[0], ends[-1]) == []
    # What was removed behind the end is for the next run to count.
    assert reader(journal, failOnDataLoss=False).latestOffset(ends[-1], ReadAllAvailable())["lost"] > 90


def test_available_now_that_has_read_all_is_not_told_of_what_retention_removes_then(tmp_path):
    journal = tmp_path / "journal"
    with Writer(journal, segment_bytes=1, retain_bytes=1) as writer:
        writer.append(numbered(100))
        made = reader(journal)
        made.prepareForTriggerAvailableNow()
        end = made.latestOffset(made.initialOffset(), ReadAllAvailable())
        for first in range(100, 500, 100):
            writer.append(numbered(100, first))
    assert made.latestOffset(end, ReadAllAvailable()) == end
    with pytest.raises(oz.JournalError, match="retention has removed"):
        reader(journal).latestOffset(end, ReadAllAvailable())


def test_a_range_that_was_planned_reads_the_same_after_more_came(tmp_path):
    fill(tmp_path / "journal", [numbered(100)])
    made = reader(tmp_path / "journal", numPartitions=3)
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())

    def read_again():
        another = reader(tmp_path / "journal", numPartitions=3)  # as after a restart
        shares = another.partitions(start, end)
        return [batch.to_pylist() for share in shares for batch in another.read(share)]

    before = read_again()
    fill(tmp_path / "journal", [numbered(500, 100 + 500 * at) for at in range(4)])  # seals what was open
    assert sum(map(len, before)) == 100
    assert [row for batch in read_again() for row in batch] == [row for batch in before for row in batch]


def test_losing_the_end_of_a_journal_is_not_taken_for_new_records(tmp_path, caplog):
    fill(tmp_path / "journal", [numbered(100)])
    made = reader(tmp_path / "journal")
    ahead = {**made.latestOffset(made.initialOffset(), ReadAllAvailable()), "offset": 150}
    with pytest.raises(oz.JournalError, match="has read up to offset 150, and the journal ends at 100"):
        reader(tmp_path / "journal").latestOffset(ahead, ReadAllAvailable())
    lenient = reader(tmp_path / "journal", failOnDataLoss="false")
    assert lenient.latestOffset(ahead, ReadAllAvailable())["offset"] == 100
    assert "the query goes on at offset 100" in caplog.text


def test_retention_between_planning_and_reading_is_an_error_or_passed_by(tmp_path, caplog):
    fill(tmp_path / "journal", [numbered(500, 500 * at) for at in range(6)])
    strict, lenient = (reader(tmp_path / "journal", failOnDataLoss=fails) for fails in ("true", "false"))
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    shares = strict.partitions(start, end)
    for base in (0, 500):
        (tmp_path / "journal" / f"{base:020}.arrow").unlink()
    with pytest.raises(oz.JournalError, match="after the query was planned; keep more"):
        [each for share in shares for each in strict.read(share)]
    assert sum(each.num_rows for share in shares for each in lenient.read(share)) == 2000
    assert "1000 records are passed by" in caplog.text
    # As after a restart, when the batch that was planned is run again.
    lenient.partitions(start, end)
    assert lenient.latestOffset(end, ReadAllAvailable())["lost"] == 1000


def test_a_batch_is_limited_in_bytes_of_the_journal(tmp_path):
    fill(tmp_path / "journal", [numbered(500, 500 * at) for at in range(6)])
    size = sum(each.stat().st_size for each in (tmp_path / "journal").glob("*.arrow*"))
    made = reader(tmp_path / "journal", maxBytesPerTrigger=size // 4)
    assert made.getDefaultReadLimit() == ReadMaxBytes(size // 4)
    at, ends = made.initialOffset(), []
    while not ends or ends[-1] < 3000:
        at = made.latestOffset(at, ReadMaxBytes(size // 4))
        ends.append(at["offset"])
    assert 4 <= len(ends) <= 6
    assert max(after - before for before, after in itertools.pairwise([0, *ends])) < 1500
    tiny = reader(tmp_path / "journal", maxBytesPerTrigger=1)
    assert tiny.latestOffset(tiny.initialOffset(), ReadMaxBytes(1))["offset"] == 1
    both = reader(tmp_path / "journal", maxBytesPerTrigger=size, maxRowsPerTrigger=30)
    assert both.latestOffset(both.initialOffset(), both.getDefaultReadLimit())["offset"] == 30


def test_a_batch_waits_until_there_is_enough_or_for_its_delay(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("oz.spark.source.stream.time.monotonic", lambda: now)
    fill(tmp_path / "journal", [numbered(10)])
    made = reader(tmp_path / "journal", minOffsetsPerTrigger=50, maxTriggerDelay="1m")
    limit = made.getDefaultReadLimit()
    assert limit == ReadMinRows(50)
    first = made.latestOffset(made.initialOffset(), limit)
    assert first["offset"] == 10  # as Kafka's: what is there at the start is taken at once
    fill(tmp_path / "journal", [numbered(10, 10)])
    assert made.latestOffset(first, limit) == first
    now += 59.0
    assert made.latestOffset(first, limit) == first
    now += 1.0
    second = made.latestOffset(first, limit)
    assert second["offset"] == 20
    fill(tmp_path / "journal", [numbered(50, 20)])
    assert made.latestOffset(second, limit)["offset"] == 70


def test_what_is_there_is_not_waited_for_when_the_query_is_to_end(tmp_path):
    fill(tmp_path / "journal", [numbered(10)])
    made = reader(tmp_path / "journal", minOffsetsPerTrigger=50)
    first = made.latestOffset(made.initialOffset(), ReadMinRows(50))
    fill(tmp_path / "journal", [numbered(10, 10)])
    made.prepareForTriggerAvailableNow()
    assert made.latestOffset(first, ReadMinRows(50))["offset"] == 20


def test_a_time_that_counts_from_now_says_where_a_new_query_begins_and_no_more(tmp_path):
    """What was not read before a restart is read after it, however old it is by then."""
    hour = 3_600 * 10**9
    now = time.time_ns()
    for ago in (5, 3, 1):
        fill(tmp_path / "journal", [[Record("a", time_ns=now - ago * hour) for _ in range(100)]])
    made = reader(tmp_path / "journal", startingTime="-2h")
    assert made.initialOffset()["offset"] == 200
    assert reader(tmp_path / "journal", startingTime="-4h").initialOffset()["offset"] == 100
    assert reader(tmp_path / "journal", startingTime="now").initialOffset()["offset"] == 300
    assert reader(tmp_path / "journal", startingTime="-9h", startingOffset=50).initialOffset()["offset"] == 50
    start = reader(tmp_path / "journal").initialOffset()  # of a checkpoint of long ago
    shares = made.partitions(start, made.latestOffset(start, ReadAllAvailable()))
    assert sum(batch.num_rows for share in shares for batch in made.read(share)) == 300
