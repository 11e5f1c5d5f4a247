"""`oz.spark.archive`: each record is in the lake once, whatever its subject, however often it runs."""

import os
import shutil

import pyarrow.compute as pc
import pytest

from spark import archive_lakes

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

import oz
import oz.spark
from oz.errors import LakeError
from oz.journal import Journal, Kind, Writer
from oz.spark import LakeLayout, archive, lake_files
from oz.spark.jobs.archiving import manifest
from oz.spark.jobs.archiving.writing import take_census
from support.sizes import size
from support.waiting import until

DAY_NS = 86_400_000_000_000


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def lake(tmp_path):
    return tmp_path / "lake"


def odd_records():
    """Odd subjects on three days, one of them before 1970, and losses between them."""
    times = [DAY_NS * 20_000 - 1, DAY_NS * 20_000, -1]
    for at, subject in enumerate(archive_lakes.ODD_SUBJECTS):
        yield oz.journal.Record(
            subject,
            b"%d" % at,
            time_ns=times[at % 3],
            origin=b"origin",
            sequence=at,
            reply_to=b"\xffreply" if at % 2 else None,
            headers=b"\x80" if at % 5 == 0 else None,
        )


@pytest.fixture(scope="module")
def odd(spark, tmp_path_factory):
    """A journal of odd subjects, archived in three steps; what the job said."""
    root = tmp_path_factory.mktemp("odd lakes {x} [y]")
    archive_lakes.write_journal(root / "journal", [odd_records(), archive_lakes.with_gaps(4), odd_records()])
    seen = []
    layout = LakeLayout(step_rows=20)
    done = archive(
        spark,
        root / "journal",
        root / "lake",
        layout=layout,
        unsealed=True,
        on_progress=lambda *it: seen.append(it),
    )
    return root, done, seen


def test_every_record_is_there_as_the_journal_has_it(odd):
    root, done, _ = odd
    archive_lakes.assert_same(root / "journal", root / "lake")
    assert (done.rows, done.gaps, done.end_offset) == (52, 2, 52)
    assert (done.skipped, done.unsealed, done.first_offset) == (0, 0, 0)


def test_folders_are_plain_names_by_day_and_first_token(odd):
    root, done, _ = odd
    paths = [path.relative_to(root / "lake").parts for path in (root / "lake").glob("day=*/*/*.parquet")]
    assert {day for day, *_ in paths} == {"day=2024-10-03", "day=2024-10-04", "day=1969-12-31"} | {
        f"day={day}" for day in done.days
    }
    tokens = {folder.removeprefix("first_token=") for _, folder, _ in paths}
    assert tokens >= {
        "flight",
        "a@2fb",
        "a@3db",
        "day@3d1",
        "@",
        "@c3@a9",
        "007",
        "@gaps",
        "@40gaps",
        "@other",
    }
    assert tokens - {"@gaps"} == done.tokens
    assert all(token.isascii() and "/" not in token for token in tokens)
    assert len(paths) == done.files


def test_a_reader_sees_the_right_partition_of_each_record(odd):
    root, *_ = odd
    table = archive_lakes.read(root / "lake", ["subject", "kind", "time_ns", "day", "first_token"])
    for row in table.to_pylist():
        expected = "@gaps" if row["kind"] else None
        if not row["kind"] and row["subject"].startswith(("flight.", "007.", "7.", "null.")):
            expected = row["subject"].partition(".")[0]
        assert expected in (None, row["first_token"]), row
        if row["time_ns"] < 0:
            assert row["day"] == "1969-12-31"


def test_every_file_is_sorted_by_subject(odd):
    root, *_ = odd
    assert all(archive_lakes.is_sorted(path) for path in lake_files(root / "lake"))


def test_losses_are_kept_in_folders_of_their_own(odd):
    root, *_ = odd
    table = archive_lakes.read(root / "lake").filter(pc.field("kind") != 0)
    assert table.sort_by("offset")["lost"].to_pylist() == [3, None]
    assert set(table["first_token"].to_pylist()) == {"@gaps"}


def test_spark_reads_it_by_its_plain_path_and_patterns_match(spark, odd):
    root, *_ = odd
    literal = str(root / "lake").translate({ord(each): f"\\{each}" for each in "{}[]"})
    rows = spark.read.parquet(literal).where("kind = 0")
    assert rows.count() == 50
    assert rows.where(oz.spark.matches("subject", "flight.*.LAX")).count() == 2
    raw = F.coalesce("subject_raw", F.col("subject").cast("binary"))
    assert rows.where(oz.spark.matches(raw, oz.compile(b"\xff*", "redis"))).count() == 2


def test_progress_tells_how_much_of_how_much(odd):
    _, _, seen = odd
    assert [(done, total) for done, total, _ in seen] == [(0, 52), (20, 52), (40, 52), (52, 52)]


def test_it_goes_on_where_it_ended_and_a_second_run_changes_nothing(spark, journal, lake):
    archive_lakes.write_journal(journal, [archive_lakes.numbered(0, 500)])
    first = archive(spark, journal, lake)
    assert (first.rows, first.unsealed) == (0, 500)
    assert archive(spark, journal, lake, unsealed=True).rows == 500
    before = archive_lakes.files(lake)
    assert archive(spark, journal, lake, unsealed=True).rows == 0
    assert archive_lakes.files(lake) == before
    archive_lakes.write_journal(journal, [archive_lakes.numbered(500, 800)])
    done = archive(spark, journal, lake, unsealed=True)
    assert (done.rows, done.first_offset, done.end_offset) == (300, 0, 800)
    archive_lakes.assert_same(journal, lake)
    assert not lake.with_name("lake.staging").exists()


def test_all_columns_have_statistics_and_times_are_of_microseconds(spark, journal, lake):
    import pyarrow.parquet as pq

    archive_lakes.write_journal(journal, [archive_lakes.numbered(0, 100)])
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    archive(spark, journal, lake, unsealed=True)
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before
    [path, *_] = lake_files(lake)
    found = pq.ParquetFile(path)
    assert str(found.schema_arrow.field("time").type) == "timestamp[us, tz=UTC]"
    group = found.metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert all(columns[name].statistics.has_min_max for name in ("offset", "time", "subject"))
    assert columns["subject"].compression == "ZSTD"


def test_tokens_beyond_the_bound_share_a_folder_and_those_that_have_one_keep_it(spark, journal, lake):
    many = [(f"t{at % 300}.x", b"") for at in range(1000)]
    archive_lakes.write_journal(journal, [many + [("often.x", b"")] * 50 + [("also.x", b"")] * 40])
    layout = LakeLayout(most_tokens=2)
    assert archive(spark, journal, lake, layout=layout, unsealed=True).tokens == {"often", "also", "@other"}
    archive_lakes.write_journal(journal, [[("new.x", b"")] * 500 + [("also.x", b"")]])
    assert archive(spark, journal, lake, layout=layout, unsealed=True).tokens == {"also", "@other"}
    assert manifest.load(lake).tokens == ["often", "also"]
    archive_lakes.assert_same(journal, lake)


def test_another_separator_ends_the_first_token(spark, journal, lake):
    archive_lakes.write_journal(journal, [[("a.b/c", b""), ("d/e", b"")]])
    done = archive(spark, journal, lake, layout=LakeLayout(separator="/"), unsealed=True)
    assert done.tokens == {"a@2eb", "d"}


def test_compaction_merges_files_and_keeps_every_record(spark, odd, tmp_path):
    root, *_ = odd
    before = archive_lakes.files(root / "lake")
    done = archive(spark, root / "journal", root / "lake", compact=True)
    after = archive_lakes.files(root / "lake")
    assert done.merged - done.merged_into == len(before) - len(after) > 0
    assert len({path.rsplit("/", 1)[0] for path in after}) == len(after)
    archive_lakes.assert_same(root / "journal", root / "lake")
    assert all(archive_lakes.is_sorted(path) for path in lake_files(root / "lake"))
    again = archive(spark, root / "journal", root / "lake", compact=True)
    assert (again.merged, archive_lakes.files(root / "lake")) == (0, after)


@pytest.mark.sized
def test_what_is_large_is_compacted_into_several_files(spark, journal, lake):
    steps = size(5, 6)
    rows = size(20, 500)
    archive_lakes.write_journal(journal, [[("a.b", os.urandom(1_000)) for _ in range(steps * rows)]])
    archive(spark, journal, lake, layout=LakeLayout(step_rows=rows), unsealed=True)
    sizes = [os.path.getsize(path) for path in lake_files(lake)]
    assert len(sizes) == steps
    layout = LakeLayout(file_bytes=2 * max(sizes) + 2)
    done = archive(spark, journal, lake, layout=layout, compact=True)
    assert (done.merged, done.merged_into, len(lake_files(lake))) == (steps, 2, 2)
    archive_lakes.assert_same(journal, lake)
    assert archive(spark, journal, lake, layout=layout, compact=True).merged == 0


def test_what_retention_removed_is_an_error_or_counted(spark, journal, lake):
    with Writer(journal, segment_bytes=1, retain_bytes=1) as writer:
        writer.append(archive_lakes.numbered(0, 100))
        archive(spark, journal, lake, unsealed=True)
        for at in range(100, 600, 100):
            writer.append(archive_lakes.numbered(at, at + 100))
    first = Journal(journal).first_offset
    assert first > 100
    with pytest.raises(oz.JournalError, match=rf"removed the records from offset 100 to {first - 1}"):
        archive(spark, journal, lake, unsealed=True)
    done = archive(spark, journal, lake, unsealed=True, fail_on_data_loss=False)
    assert (done.skipped, done.rows, done.end_offset) == (first - 100, 600 - first, 600)
    assert manifest.load(lake).missing == [[100, first]]
    assert sorted(archive_lakes.offsets(lake)) == [*range(100), *range(first, 600)]
    assert archive(spark, journal, lake, unsealed=True).skipped == 0


def test_retention_removes_nothing_of_a_step_that_is_at_work(spark, journal, lake, monkeypatch):
    with Writer(journal, segment_bytes=1, retain_bytes=1) as writer:
        writer.append(archive_lakes.numbered(0, 100))

        def counted_later(*given):
            # The step has taken hold by now, and nothing is read yet.
            for first in (100, 200):
                writer.append(archive_lakes.numbered(first, first + 100))
            until(lambda: next(journal.glob("*.arrow"), None))
            return take_census(*given)

        monkeypatch.setattr("oz.spark.jobs.archive.take_census", counted_later)
        done = archive(spark, journal, lake, unsealed=True)
    assert done.rows == 100
    archive_lakes.assert_each_once(lake, 100)


def test_damage_is_an_error_and_nothing_of_the_step_is_seen(spark, journal, lake):
    archive_lakes.write_journal(journal, [archive_lakes.numbered(0, 1000)])
    [stream] = journal.glob("*.arrows")
    content = bytearray(stream.read_bytes())
    content[-50] ^= 255
    stream.write_bytes(content)
    with pytest.raises(oz.JournalError, match=r"byte \d+: .*checksum.*repair"):
        archive(spark, journal, lake, unsealed=True)
    assert archive_lakes.files(lake) == []
    Journal(journal).repair()
    done = archive(spark, journal, lake, unsealed=True)
    assert done.rows == done.gaps + len(list(Journal(journal).read()))
    kinds = archive_lakes.columns_of_lake(lake)["kind"] if done.rows else []
    assert set(kinds) <= {0, int(Kind.DAMAGED)}


def test_a_journal_that_lost_its_end_is_refused(spark, journal, lake, tmp_path):
    archive_lakes.write_journal(journal, [archive_lakes.numbered(0, 10)])
    shutil.copytree(journal, tmp_path / "older")
    archive_lakes.write_journal(journal, [archive_lakes.numbered(10, 20)])
    archive(spark, journal, lake, unsealed=True)
    with pytest.raises(LakeError, match=r"holds records up to offset 20, and the journal .* ends at 10"):
        archive(spark, tmp_path / "older", lake, unsealed=True)
    archive_lakes.write_journal(tmp_path / "older", [archive_lakes.numbered(10, 30)])  # it is further now
    with pytest.raises(LakeError, match=r"epoch [0-9a-f]{16}, which this journal does not have"):
        archive(spark, tmp_path / "older", lake, unsealed=True)


def test_another_journal_is_refused_and_so_is_a_second_archiver(spark, journal, lake, tmp_path):
    archive_lakes.write_journal(journal, [archive_lakes.numbered(0, 10)])
    archive_lakes.write_journal(tmp_path / "other", [archive_lakes.numbered(0, 10)])
    refused = []

    def second(*_):
        with pytest.raises(LakeError, match="another archiver is at work"):
            archive(spark, journal, lake, unsealed=True)
        refused.append(True)

    archive(spark, journal, lake, unsealed=True, on_progress=second)
    assert refused
    with pytest.raises(LakeError, match="the lake of another journal"):
        archive(spark, tmp_path / "other", lake, unsealed=True)
    archive_lakes.assert_same(journal, lake)


def test_an_empty_journal_makes_an_empty_lake_and_none_is_an_error(spark, journal, lake):
    Writer(journal).close()
    assert archive(spark, journal, lake, unsealed=True, compact=True).rows == 0
    assert lake_files(lake) == []
    with pytest.raises(oz.JournalError, match="there is no journal here"):
        archive(spark, journal.with_name("nowhere"), lake)
