"""What is read at all, and how it is shared out. No session is needed."""

import itertools
import random

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import pyarrow as pa

import oz
from oz.journal import Record, Writer
from oz.journal.ranges import RangeGone, Span, identity_of, read_range, spans_of
from oz.spark.source.batch import JournalReader
from oz.spark.source.journal import PlannedJournal
from oz.spark.source.options import read_options
from oz.spark.source.planning import share_out
from oz.spark.source.wanted import WantedRecords
from spark.source_journals import fill, numbered
from spark.source_schema import SCHEMA


def reader(directory, **options):
    return JournalReader(read_options({"journal": str(directory), **options}), SCHEMA)


def ranges(made):
    return [tuple(each) for share in made.partitions() for each in share.ranges]


def rows(made):
    batches = [batch for share in made.partitions() for batch in made.read(share)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@pytest.fixture
def by_letter(tmp_path):
    """Six sealed segments of 1000 records, each with a letter of its own, and one that grows."""
    groups = [numbered(1000, 1000 * at, f"{letter}." + "{}") for at, letter in enumerate("abcdefg")]
    fill(tmp_path / "journal", groups)
    return tmp_path / "journal"


def test_a_subject_among_many_is_planned_only_where_it_is(tmp_path):
    many = [(f"md.{at % 10}.s{at}", b"") for at in range(100)]
    groups = [[*many, ("md.7.needle", b"")] if at == 3 else many for at in range(6)]
    fill(tmp_path / "journal", groups, segment_bytes=1)
    for wanted in ({"subject": "md.7.needle"}, {"subject": "md.*.needle"}):
        assert ranges(reader(tmp_path / "journal", **wanted, endingOffset=500)) == [(300, 401)]


def test_segments_without_a_match_are_never_planned(by_letter):
    assert ranges(reader(by_letter)) == [(0, 7000)]
    assert ranges(reader(by_letter, subject="c.*")) == [(2000, 3000), (6000, 7000)]  # the last grows
    assert ranges(reader(by_letter, subject="rv:a.3\nf.>", endingOffset=6000)) == [(0, 1000), (5000, 6000)]
    assert ranges(reader(by_letter, subject="x", endingOffset=6000)) == []
    assert ranges(reader(by_letter, startingOffset=1500, endingOffset=1600)) == [(1500, 1600)]


def test_offsets_beyond_the_end_are_refused(by_letter):
    for name in ("startingOffset", "endingOffset"):
        with pytest.raises(
            oz.errors.OptionError, match=f"option {name}=7001: the journal ends at offset 7000"
        ):
            reader(by_letter, **{name: 7001}).partitions()
    assert ranges(reader(by_letter, startingOffset=7000)) == []
    assert ranges(reader(by_letter, startingOffset=5, endingOffset=5)) == []


def test_segments_of_other_times_are_never_planned(tmp_path):
    second = 1_000_000_000
    groups = [[Record("a", time_ns=at * second) for _ in range(500)] for at in range(1, 6)]
    fill(tmp_path / "journal", groups)
    made = reader(tmp_path / "journal", startingTime=2, endingTime=4, endingOffset=2000)
    assert ranges(made) == [(500, 1500)]
    assert {row["time_ns"] for row in rows(made)} == {2 * second, 3 * second}


def test_shares_are_even_whole_and_in_order():
    chance = random.Random(3)
    for _ in range(300):
        spans, at = [], 0
        for _ in range(chance.randrange(1, 8)):
            at += chance.choice([0, 5])
            length = chance.choice([1, 2, 10, 1000])
            spans.append(Span(at, at + length, float(chance.choice([0, 10, 10_000])), None))
            at += length
        total, count = sum(span.rows for span in spans), chance.randrange(1, 9)
        shares = share_out(spans, count, None)
        offsets = [offset for share in shares for first, end in share for offset in range(first, end)]
        assert offsets == [offset for span in spans for offset in range(span.first, span.end)]
        sizes = [sum(end - first for first, end in share) for share in shares]
        assert len(sizes) == min(count, total)
        assert max(sizes) - min(sizes) <= 1
        assert len(share_out(spans, None, 10)) == -(-total // 10)
    assert share_out([], 4, None) == []


def test_large_files_make_more_partitions_than_small_ones():
    spans = [Span(0, 1_000_000, float(1 << 30), None), Span(1_000_000, 2_000_000, 0.0, None)]
    shares = share_out(spans, None, None)
    assert len(shares) == 10
    assert sum(share[0][0] < 1_000_000 for share in shares) == 10


@pytest.mark.parametrize(
    ("megabytes", "tasks", "partitions"),
    [
        (1, 1, 1),
        (1, 64, 1),
        (20, 1, 1),
        (20, 2, 2),
        (20, 64, 2),
        (100, 4, 4),
        (300, 1, 3),
        (300, 2, 4),
        (300, 64, 37),
    ],
)
def test_partitions_keep_all_tasks_busy_unless_they_would_be_small(megabytes, tasks, partitions):
    spans = [Span(0, 1000, float(megabytes << 20) - 100_000, None)]
    assert len(share_out(spans, None, None, tasks)) == partitions


def test_a_session_says_how_many_tasks_it_runs_at_once(spark, tmp_path):
    with Writer(tmp_path) as writer:
        writer.append_columns(
            {"subject": ["a"] * 200_000, "payload": [b"x"] * 200_000, "sequence": list(range(200_000))}
        )
    rows = spark.read.format("oz").option("journal", str(tmp_path)).load()
    assert rows.rdd.getNumPartitions() == min(2, spark.sparkContext.defaultParallelism)


def test_a_limit_counts_only_what_may_be_wanted(by_letter):
    def limited(most, **options):
        read = read_options({"journal": str(by_letter), **options})
        wanted = WantedRecords(read.patterns(), None, None, False)
        return PlannedJournal(read, wanted).limited(0, 7000, most)

    assert limited(10) == 10
    assert limited(1000) == 1000
    assert limited(99_999) == 7000
    assert limited(10, subject="e.>") == 4010
    assert limited(1000, subject="e.>") == 5000


def test_a_range_reads_the_same_in_whatever_pieces(by_letter):
    whole = pa.concat_tables(read_range(by_letter, 0, 7000))
    chance = random.Random(5)
    cuts = [0, *sorted(chance.sample(range(1, 7000), 40)), 7000]
    pieces = [table for first, end in itertools.pairwise(cuts) for table in read_range(by_letter, first, end)]
    assert pa.concat_tables(pieces).equals(whole)


def test_a_range_that_retention_has_reached_is_refused(by_letter):
    (by_letter / "00000000000000000000.arrow").unlink()
    with pytest.raises(RangeGone, match="from offset 10 to 999 are no longer there"):
        list(read_range(by_letter, 10, 2000))
    with pytest.raises(oz.JournalError, match="and not journal 00"):
        list(read_range(by_letter, 1000, 2000, journal="00"))
    (by_letter / "00000000000000003000.arrow").unlink()
    with pytest.raises(oz.JournalError, match="from offset 3000 on are missing"):
        list(read_range(by_letter, 1000, 5000))


def test_retention_that_comes_in_while_segments_are_listed_is_noticed(by_letter, monkeypatch):
    monkeypatch.setattr(
        "oz.spark.source.journal.spans_of", lambda *arguments: remove() or spans_of(*arguments)
    )

    def remove():
        (by_letter / "00000000000000000000.arrow").unlink()

    with pytest.raises(
        oz.JournalError, match="goes on at offset 0, and retention has removed all before 1000"
    ):
        reader(by_letter).partitions()


def test_only_the_batch_that_is_asked_for_is_opened_past_the_end(tmp_path):
    """What follows an acknowledged end may be half written."""
    writer = Writer(tmp_path / "journal")
    end = writer.append(numbered(10))
    writer.append(numbered(10, 10))
    [segment] = (tmp_path / "journal").glob("*.arrows")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 5)
    assert sum(table.num_rows for table in read_range(tmp_path / "journal", 0, end)) == 10
    with pytest.raises(oz.JournalError, match=r"ends within a message|checksum"):
        list(read_range(tmp_path / "journal", 0, end + 10))
    with pytest.raises(oz.JournalError, match="were written"):
        writer.close()
    with pytest.raises(oz.JournalError, match="there is no journal here"):
        identity_of(tmp_path)
