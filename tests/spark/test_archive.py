"""Archives hold each record once, also after kills, and other tools read them at every moment."""

import fcntl
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import pyarrow.compute as pc
import pyarrow.parquet as pq

import oz
import oz.spark
from oz.journal import Writer
from oz.spark.archive import ArchiveError, archive_batch, read_archive
from support.sizes import size

archiving = import_module("oz.spark.archive")  # the name oz.spark.archive is the function

SCHEMA = (
    "offset long, time timestamp, kind byte, subject string, payload binary, subject_raw binary, "
    "reply_to binary, headers binary, origin binary, sequence long, position long, lost long"
)
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
TOKENS = ["flight", "weather", "a/b=c%", "", "é", "😀" * 60, "42", "007"]


def row(offset):
    """Return a record; the records around offset 50 are of two days, and every 13th is a gap record."""
    time = MIDNIGHT + timedelta(seconds=offset - 50)
    if offset % 13 == 12:
        return (offset, time, 1, ">", b"", None, None, None, b"p", offset, None, 3)
    subject = f"{TOKENS[offset % len(TOKENS)]}.n{offset % 10}"
    return (offset, time, 0, subject, b"%d" % offset, None, None, None, b"p", offset, None, None)


def rows(spark, first, end):
    return spark.createDataFrame([row(offset) for offset in range(first, end)], SCHEMA)


def append(spark, path, first, end, **options):
    archive_batch(path, **options)(rows(spark, first, end), 0)


def contents(spark, path):
    """Return what Spark, DuckDB, Polars and pandas read; all of them the same offsets and payloads."""
    import duckdb
    import pandas
    import polars

    files = f"{path}/**/*.parquet"
    table = duckdb.sql(
        f"select * from read_parquet('{files}', hive_partitioning=true) order by \"offset\""
    ).to_arrow_table()
    by_duckdb = table.select(["offset", "payload"]).to_pylist()
    by_polars = (
        polars.scan_parquet(files, hive_partitioning=True)
        .select("offset", "payload")
        .sort("offset")
        .collect()
    )
    assert by_polars.to_dicts() == by_duckdb
    by_pandas = pandas.read_parquet(path).sort_values("offset")
    assert by_pandas[["offset", "payload"]].to_dict("records") == by_duckdb
    by_spark = read_archive(spark, path).select("offset", "payload").orderBy("offset").toArrow().to_pylist()
    assert by_spark == by_duckdb
    return [(each["offset"], each["payload"]) for each in by_duckdb]


def expected(first, end):
    return [(offset, row(offset)[4]) for offset in range(first, end)]


def test_batches_are_partitioned_by_day_and_first_token_and_read_alike_by_all_tools(spark, tmp_path):
    path = tmp_path / "archive"
    append(spark, path, 0, 100)
    append(spark, path, 100, 120)
    assert contents(spark, path) == expected(0, 120)
    found = read_archive(spark, path)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        days = {
            (str(each.day), each.first_token)
            for each in found.select("day", "first_token").distinct().collect()
        }
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    tokens = {"flight", "weather", "a/b=c%", "@other", "é", "42", "007", "@gaps"}
    assert days == {(day, token) for day in ("2026-03-01", "2026-03-02") for token in tokens}
    restored = found.drop("batch", "day", "first_token").orderBy("offset").collect()
    assert restored == rows(spark, 0, 120).collect()
    assert not any(entry.name.startswith("_") for entry in path.rglob("*"))


def test_a_repeated_or_overlapping_micro_batch_writes_no_record_twice(spark, tmp_path):
    path = f"file://{tmp_path}/archive/"
    for first, end in [(0, 30), (0, 30), (10, 40), (5, 20), (40, 41)]:
        append(spark, path, first, end)
    assert contents(spark, tmp_path / "archive") == expected(0, 41)


def test_rare_tokens_share_a_directory(spark, tmp_path):
    append(spark, tmp_path / "archive", 0, 200, max_tokens=3, separator=".")
    found = read_archive(spark, tmp_path / "archive")
    counts = {each.first_token: each["count"] for each in found.groupBy("first_token").count().collect()}
    assert len(counts) <= 5
    assert {"@gaps", "@other"} <= counts.keys()
    assert sum(counts.values()) == 200


def test_a_second_writer_and_overlapping_batches_are_refused(spark, tmp_path):
    path = tmp_path / "archive"
    append(spark, path, 0, 10)
    with open(f"{path}.staging/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ArchiveError, match="another process writes to this archive"):
            append(spark, path, 10, 20)
    first = next(path.iterdir())
    os.rename(first, path / f"batch={0:020}-{15:020}")
    (path / f"batch={9:020}-{20:020}").mkdir()
    with pytest.raises(ArchiveError, match="hold the same records"):
        append(spark, path, 20, 30)


class Killed(BaseException):
    """Ends a run at once, as a kill does: only the operating system cleans up after it."""


def run(spark, path):
    for first, end in [(0, 20), (20, 40), (40, 60)]:
        append(spark, path, first, end)
    with archiving._open_archive(spark, path) as store:
        archiving._compact(store, archiving.Layout(), 1_000)
    append(spark, path, 60, 70)


def offsets(path):
    """Return the visible offsets, as DuckDB reads them."""
    import duckdb

    if not list(Path(path).glob("**/*.parquet")):
        return []
    return [
        row[0] for row in duckdb.sql(f"select \"offset\" from '{path}/**/*.parquet' order by 1").fetchall()
    ]


@pytest.mark.sized
def test_a_run_killed_at_any_step_is_completed_by_the_next_run(spark, tmp_path, monkeypatch):
    remaining = None  # steps before the kill

    def step():
        nonlocal remaining
        if remaining is not None:
            remaining -= 1
            if remaining <= 0:
                raise Killed

    def stage(store, rows, layout, staged):
        """Write a batch without a Spark job, which takes seconds."""
        table = rows.toArrow()
        directory = Path(staged.removeprefix("file:"))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "part.parquet").write_bytes(b"PAR1")
        step()
        pq.write_table(table, directory / "part.parquet")
        first, end = pc.min_max(table["offset"]).as_py().values()
        return archiving._Written(table.num_rows, first, table.num_rows and end + 1)

    monkeypatch.setattr(archiving._Store, "_stage", stage)
    for name in ("make", "move", "delete"):
        method = getattr(archiving._Files, name)
        counted = lambda self, *arguments, method=method: (step(), method(self, *arguments))[1]  # noqa: E731
        monkeypatch.setattr(archiving._Files, name, counted)
    kills = 0
    for kill_at in range(1, 200, size(7, 1)):
        path, remaining = tmp_path / str(kill_at), kill_at
        with suppress(Killed):
            run(spark, path)
        is_complete, remaining = remaining > 0, None
        visible = offsets(path)
        assert visible == sorted(set(visible)), kill_at
        if is_complete:
            break
        kills += 1
        run(spark, path)
        assert offsets(path) == list(range(70)), kill_at
        assert not list(Path(f"{path}.staging").glob("**/batch=*")), kill_at
    assert kills >= size(4, 10)
    assert [each.name for each in archiving._Files(spark, path).batches()] == [
        f"batch={0:020}-{60:020}",
        f"batch={60:020}-{70:020}",
    ]


def write_journal(directory, first, end, **options):
    """Append records to a journal; a roll in the middle leaves a sealed and an active segment."""
    with Writer(directory, **options) as writer:
        for offset in range(first, end):
            _, time, kind, subject, payload, *_, lost = row(offset)
            record = {
                "subject": subject,
                "payload": payload,
                "time": time,
                "kind": kind,
                "lost": lost,
                "origin": b"p",
            }
            assert writer.append([record]) == offset + 1
            if offset == (first + end) // 2:
                writer.roll()


def test_a_journal_is_archived_step_by_step_and_compacted(spark, tmp_path):
    journal, path = tmp_path / "journal", tmp_path / "archive"
    write_journal(journal, 0, 100)
    seen = []
    done = oz.spark.archive(spark, journal, path, batch_rows=40, on_progress=lambda *each: seen.append(each))
    assert (done.rows, done.first_offset, done.end_offset) == (100, 0, 100)
    assert done.batches >= 3
    assert seen[0] == (0, 100)
    assert seen[-1] == (100, 100)
    assert contents(spark, path) == expected(0, 100)
    assert oz.spark.archive(spark, journal, path).rows == 0
    write_journal(journal, 100, 120)
    done = oz.spark.archive(spark, journal, path, compact=True)
    assert (done.rows, done.merged_into) == (20, 1)
    assert len(list(path.iterdir())) == 1
    assert contents(spark, path) == expected(0, 120)


def test_records_that_retention_removed_are_an_error_or_skipped(spark, tmp_path):
    journal, path = tmp_path / "journal", tmp_path / "archive"
    write_journal(journal, 0, 20)
    oz.spark.archive(spark, journal, path)
    for first in (20, 40):
        write_journal(journal, first, first + 20)
    for sealed in sorted(journal.glob("*.parquet"))[:-1]:
        sealed.unlink()
    with pytest.raises(oz.JournalError, match="retention removed the offsets 20 to"):
        oz.spark.archive(spark, journal, path)
    done = oz.spark.archive(spark, journal, path, fail_on_loss=False)
    assert done.end_offset == 60
    kept = [offset for offset, _ in contents(spark, path)]
    assert kept == [*range(20), *range(done.first_offset, 60)]


def test_a_stream_archives_new_records_and_goes_on_where_a_batch_run_ended(spark, tmp_path):
    journal, path = tmp_path / "journal", tmp_path / "archive"
    write_journal(journal, 0, 20)
    oz.spark.archive(spark, journal, path)
    write_journal(journal, 20, 40)
    query = oz.spark.archive_stream(spark, journal, path, interval=0.1)
    try:
        query.processAllAvailable()
        write_journal(journal, 40, 50)
        query.processAllAvailable()
    finally:
        query.stop()
    write_journal(journal, 50, 60)
    oz.spark.archive(spark, journal, path)
    assert contents(spark, path) == expected(0, 60)
