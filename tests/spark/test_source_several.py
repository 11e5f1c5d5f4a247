"""Several journals read as one source."""

import itertools
import json

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

import oz
from oz.errors import OptionError
from oz.spark.source.options import read_options
from oz.spark.source.planning import shared_among
from oz.spark.source.stream import JournalStreamReader
from spark.source_journals import fill, numbered, rows_of, run_to_the_end
from spark.source_schema import SCHEMA


def reader(where, **options):
    return JournalStreamReader(read_options({"journal": str(where), **options}), SCHEMA)


def offsets(data):
    return [each["offset"] for each in data["journals"]]


@pytest.fixture
def three(tmp_path):
    for at, rows in enumerate((10, 200, 30)):
        fill(tmp_path / f"host{at}" / "journal", [numbered(rows)])
    return tmp_path / "host*" / "journal"


def test_a_batch_and_a_stream_read_all_that_a_glob_finds(spark, three, tmp_path):
    for reading in (
        spark.read.format("oz").load(str(three)),
        spark.read.format("oz").option("journal", str(three)).load(),
    ):
        found = {row.journal: row["count"] for row in reading.groupBy("journal").count().collect()}
        assert found == {
            str(tmp_path / f"host{at}" / "journal"): rows for at, rows in enumerate((10, 200, 30))
        }
    (tmp_path / "query").mkdir()
    frame = spark.readStream.format("oz").option("maxRowsPerTrigger", 100).load(str(three))
    query = run_to_the_end(frame, tmp_path / "query")
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [100, 100, 40]
    assert json.loads(query.lastProgress.sources[0].latestOffset)["lag"] == 0
    # One has more, and there is another.
    fill(tmp_path / "host0" / "journal", [numbered(5, 10)])
    fill(tmp_path / "host9" / "journal", [numbered(7)])
    run_to_the_end(spark.readStream.format("oz").load(str(three)), tmp_path / "query")
    rows = rows_of(spark, tmp_path / "query", "journal", "offset")
    assert len(rows) == len(set(rows)) == 252


# without Spark --------------------------------------------------------


def test_a_limit_is_shared_out_and_what_one_has_not_goes_to_others():
    assert shared_among({"a": 5, "b": 100, "c": 40}, 60) == {"a": float("inf"), "c": 27, "b": 28}
    assert shared_among({"a": 5, "b": 3}, 60) == {"a": float("inf"), "b": float("inf")}
    assert shared_among({"a": 5, "b": 3, "c": 9}, 1) == {"b": 0, "a": 0, "c": 1}
    assert set(shared_among({"a": 5}, None).values()) == {float("inf")}


def test_available_now_reaches_the_end_of_each_and_no_more(three, tmp_path):
    made = reader(three, maxRowsPerTrigger=7)
    made.prepareForTriggerAvailableNow()
    fill(tmp_path / "host1" / "journal", [numbered(50, 200)])
    at, seen = made.initialOffset(), []
    while not seen or seen[-1] != at:
        seen.append(at)
        at = made.latestOffset(at, ReadMaxRows(7))
        assert sum(offsets(at)) - sum(offsets(seen[-1])) <= 7
    assert offsets(at) == [10, 200, 30]
    shares = [made.partitions(first, last) for first, last in itertools.pairwise(seen)]
    rows = [batch.num_rows for some in shares for share in some for batch in made.read(share)]
    assert sum(rows) == 240
    assert made.reportLatestOffset()["lag"] == 50


def test_a_batch_waits_for_what_all_have_together(three, tmp_path):
    made = reader(three, minOffsetsPerTrigger=20)
    first = made.latestOffset(made.initialOffset(), ReadMinRows(20))
    for at, before in enumerate((10, 200, 30)):
        assert made.latestOffset(first, ReadMinRows(20)) == first
        fill(tmp_path / f"host{at}" / "journal", [numbered(7, before)])
    assert offsets(made.latestOffset(first, ReadMinRows(20))) == [17, 207, 37]


def test_a_query_of_one_journal_goes_on_with_several(three, tmp_path):
    one = reader(tmp_path / "host1" / "journal")
    start = one.latestOffset(one.initialOffset(), ReadMaxRows(150))
    made = reader(three)
    assert offsets(made.latestOffset(start, ReadAllAvailable())) == [10, 200, 30]
    shares = made.partitions(start, made.latestOffset(start, ReadAllAvailable()))
    assert sum(batch.num_rows for share in shares for batch in made.read(share)) == 90


def test_a_journal_that_is_no_longer_given_is_an_error_or_left(three, tmp_path, caplog):
    start = reader(three).initialOffset()
    left = f"{tmp_path / 'host0' / 'journal'}\n{tmp_path / 'host2' / 'journal'}"
    with pytest.raises(
        oz.JournalError, match=r"the query has read journal .*, and none of the directories has it"
    ):
        reader(left).latestOffset(start, ReadAllAvailable())
    made = reader(left, failOnDataLoss="false")
    assert offsets(made.latestOffset(start, ReadAllAvailable())) == [10, 30]
    assert "goes on without it" in caplog.text


def test_a_query_of_several_journals_goes_on_with_one(three, tmp_path, caplog):
    several = reader(three)
    start = several.latestOffset(several.initialOffset(), ReadAllAvailable())
    alone = tmp_path / "host1" / "journal"
    fill(alone, [numbered(5, 200)])
    with pytest.raises(oz.JournalError, match="none of the directories has it: give it again, or go on"):
        reader(alone).latestOffset(start, ReadAllAvailable())
    made = reader(alone, failOnDataLoss="false")
    end = made.latestOffset(start, ReadAllAvailable())
    assert end["offset"] == 205
    assert sum(batch.num_rows for share in made.partitions(start, end) for batch in made.read(share)) == 5
    assert "goes on without it" in caplog.text


def test_what_makes_sense_for_one_journal_only_is_refused(three):
    for options in ({"startingOffset": 5}, {"endingOffset": 5}):
        with pytest.raises(OptionError, match="several journals have offsets of their own"):
            read_options({"journal": str(three), **options})
    with pytest.raises(OptionError, match="there is no journal that the glob finds"):
        read_options({"journal": str(three / "no*")})
