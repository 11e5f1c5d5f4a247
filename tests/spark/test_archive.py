"""Archives hold each record once, also after kills, and other tools read them at every moment."""

import fcntl
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

import oz.spark
import oz.spark.archive as archiving
from oz.spark.archive import ArchiveError, archive_batch, read_archive
from support.sizes import size

SCHEMA = (
    "offset long, time timestamp, kind byte, subject string, payload binary, subject_raw binary, reply_to binary, "
    "headers binary, origin binary, sequence long, position long, lost long"
)
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
TOKENS = ["flight", "weather", "a/b=c%", "", "é", "x" * 300, "42", "007"]


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


def test_parquet_skips_row_groups_in_an_archive(spark, tmp_path):
    subject = F.expr("format_string('flight.k%03d.n%d', id % 100, id)")
    columns = {
        "time": F.timestamp_seconds("id"),
        "kind": F.lit(0).cast("byte"),
        "subject": subject,
        "offset": F.col("id"),
    }
    archive_batch(tmp_path / "archive")(spark.range(100_000).withColumns(columns).drop("id"), 0)
    found = read_archive(spark, tmp_path / "archive").where(oz.spark.matches("subject", "flight.k042.*"))
    execution = found._jdf.queryExecution()
    assert len(execution.executedPlan().executeCollect()) == 1_000
    waiting = [execution.executedPlan()]
    while "FileSourceScanExec" not in waiting[0].getClass().getName():
        node = waiting.pop(0)
        waiting += [node.children().apply(at) for at in range(node.children().size())]
    assert waiting[0].metrics().apply("numOutputRows").value() <= 40_000


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
    with pytest.raises(ArchiveError, match="overlap"):
        append(spark, path, 20, 30)


class Killed(BaseException):
    """Ends a run at once, as a kill does: only the operating system cleans up after it."""


def run(spark, path):
    for first, end in [(0, 20), (20, 40), (40, 60)]:
        append(spark, path, first, end)
    with archiving._opened(spark, path) as store:
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
    for kill_at in range(1, 200, size(3, 1)):
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
    assert kills >= 10
    assert [each.name for each in archiving._Files(spark, path).batches()] == [
        f"batch={0:020}-{60:020}",
        f"batch={60:020}-{70:020}",
    ]
