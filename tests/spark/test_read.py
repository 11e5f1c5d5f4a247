"""`oz.spark.read`: a journal through Spark's own Parquet reader."""

import re

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

import oz
import oz.spark
from oz.errors import JournalError
from oz.journal import SCHEMA, Journal, Writer
from spark.journals import append_numbers, open_journal, time_of

ROWS = 300


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A journal with three sealed segments and an active one, at a path that globs and URIs could misread."""
    directory = tmp_path_factory.mktemp("journals") / "a b%20[1]{x}"
    with open_journal(directory, ROWS, sealed=240):
        yield str(directory)


def offsets(frame):
    return sorted(row.offset for row in frame.select("offset").collect())


def expected(journal, *patterns, **options):
    return Journal(journal).table(list(patterns) or None, columns=["offset"], **options)["offset"].to_pylist()


def test_the_rows_are_those_of_the_journal(spark, recorded):
    frame = oz.spark.read(spark, recorded, gaps=True)
    assert list(frame.columns) == SCHEMA.names
    rows = [tuple(row) for row in frame.orderBy("offset").collect()]
    table = Journal(recorded).table(gaps=True)
    columns = [table[name].to_pylist() for name in SCHEMA.names]
    columns[1] = [column.replace(tzinfo=None) for column in columns[1]]  # the session's time zone is UTC
    assert rows == list(zip(*columns, strict=True))
    assert offsets(oz.spark.read(spark, recorded)) == expected(recorded)


@pytest.mark.parametrize(
    "pattern",
    ["a.*", "redis:a.?", "regex:^a\\.b", "x.y", ["b.c", "a.b"]],
)
def test_patterns_select_what_the_journal_selects(spark, recorded, pattern):
    patterns = [pattern] if isinstance(pattern, str) else pattern
    found = offsets(oz.spark.read(spark, recorded, pattern))
    assert found == expected(recorded, *patterns)


@pytest.mark.parametrize(
    ("bounds", "first", "end"),
    [
        ({"start": 100, "end": 250}, 100, 250),
        ({"start": time_of(50), "end": time_of(60).isoformat()}, 50, 60),
        ({"start": 10, "end": time_of(20)}, 10, 20),
        ({"start": "-1h", "end": "now"}, 0, 0),
        ({"start": 270}, 270, ROWS),
    ],
)
def test_offsets_and_times_bound_the_rows(spark, recorded, bounds, first, end):
    assert offsets(oz.spark.read(spark, recorded, gaps=True, **bounds)) == list(range(first, end))


def test_spark_reads_only_row_groups_that_may_match(spark, tmp_path):
    subjects = [f"s{number:02}.x" for number in range(40)]
    with Writer(tmp_path) as writer:
        for subject in subjects:
            writer.append({"subject": [subject] * 1000, "payload": b"x"})
            if subject.endswith("9.x"):
                writer.roll()
        writer.wait_sealed()
        frame = oz.spark.read(spark, tmp_path, "s07.*")
        assert frame.count() == 1000
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "StringStartsWith(subject,s07.)" in plan
        # Three of four files have no matching subject in their lists.
        assert len(re.findall(r"\.parquet", " ".join(frame.inputFiles()))) == 1


def test_records_that_are_appended_later_are_not_in_the_frame(spark, tmp_path):
    with Writer(tmp_path) as writer:
        append_numbers(writer, 0, 10, roll=False)
        before = oz.spark.read(spark, tmp_path)
        append_numbers(writer, 10, 20)  # seals what the frame read as the active segment
        assert offsets(before) == list(range(10))
        assert offsets(oz.spark.read(spark, tmp_path)) == list(range(20))


def test_small_appends_share_a_task(spark, tmp_path):
    with Writer(tmp_path) as writer:
        for first in range(0, 50, 5):
            append_numbers(writer, first, first + 5, roll=False)
        frame = oz.spark.read(spark, tmp_path)
        assert (frame.rdd.getNumPartitions(), offsets(frame)) == (1, list(range(50)))


def test_an_empty_journal_gives_no_rows_and_all_columns(spark, tmp_path):
    with Writer(tmp_path / "empty"):
        frame = oz.spark.read(spark, tmp_path / "empty")
        assert (list(frame.columns), frame.count()) == (SCHEMA.names, 0)
    with pytest.raises(JournalError):
        oz.spark.read(spark, tmp_path / "nothing")


def test_a_flipped_byte_fails_the_query(spark, tmp_path):
    with Writer(tmp_path) as writer:
        writer.append([(f"n.{at % 5}", b"%d" % at * 20) for at in range(2000)])
    [sealed] = tmp_path.glob("*.parquet")
    data = bytearray(sealed.read_bytes())
    data[len(data) // 2] ^= 1
    sealed.write_bytes(data)
    with pytest.raises(Exception, match=f"CRC checksum|{sealed.name}"):
        oz.spark.read(spark, tmp_path).agg(
            *(F.max(name) for name in ("payload", "subject", "offset"))
        ).collect()


def test_missing_records_are_an_error_unless_allowed(spark, tmp_path):
    with Writer(tmp_path, retain_bytes=1) as writer:
        append_numbers(writer, 0, 10)
        append_numbers(writer, 10, 20)
        append_numbers(writer, 20, 30)
        assert offsets(oz.spark.read(spark, tmp_path)) == list(range(20, 30))
        with pytest.raises(JournalError, match="15 records are not in the journal any more, offsets 5 to 19"):
            oz.spark.read(spark, tmp_path, start=5)
        frame = oz.spark.read(spark, tmp_path, start=5, fail_on_loss=False)
        assert offsets(frame) == list(range(20, 30))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"start": 301}, "ends at offset 300"),
        ({"end": -1}, "at least 0"),
        ({"start": "yesterday"}, "is not a time"),
    ],
)
def test_wrong_bounds_are_refused(spark, recorded, bounds, message):
    with pytest.raises(oz.ConfigurationError, match=message):
        oz.spark.read(spark, recorded, **bounds)
    with pytest.raises(ValueError, match="list of patterns is empty"):
        oz.spark.read(spark, recorded, [])
