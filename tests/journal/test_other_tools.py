"""One-liners of docs/journal.md: DuckDB, Polars and pandas read sealed files while a recorder runs."""

import re
import signal
from pathlib import Path

import msgpack
import pyarrow.dataset as ds
import pytest

import oz
from oz.journal import Journal, Writer
from support import scripts, waiting

DOCS = Path(__file__).parents[2] / "docs" / "journal.md"


def rows_by(tool, directory):
    """Return the number of rows, as a tool reads them."""
    if tool == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        return duckdb.sql(
            f"SELECT count(*) FROM '{directory}/*.parquet' WHERE subject LIKE 'md.%'"
        ).fetchall()[0][0]
    if tool == "polars":
        polars = pytest.importorskip("polars")
        return polars.scan_parquet(f"{directory}/*.parquet").filter(polars.col("kind") == 0).collect().height
    if tool == "pandas":
        pandas = pytest.importorskip("pandas")
        files = sorted(Path(directory).glob("*.parquet"))
        return sum(len(pandas.read_parquet(file)) for file in files)
    return ds.dataset(sorted(map(str, Path(directory).glob("*.parquet")))).count_rows()


@pytest.mark.parametrize("tool", ["duckdb", "polars", "pandas", "pyarrow"])
def test_other_tools_read_the_sealed_part_while_a_recorder_runs(tmp_path, tool):
    directory = tmp_path / "recorded"
    with oz.Publisher("tcp://127.0.0.1:*") as publisher:
        arguments = ("record", "md.>", "--journal", directory, "--connect", publisher.endpoint)
        with scripts.started("-m", "oz", *arguments, "--segment-bytes", "20K") as recorder:
            publisher.wait_for_subscribers(timeout=waiting.DEADLINE)
            count = 0

            def has_sealed():
                nonlocal count
                for _ in range(100):
                    publisher.publish(f"md.{count % 7}", b"%d" % count + bytes(50))
                    count += 1
                publisher.flush()
                return len(list(directory.glob("*.parquet"))) > 3

            waiting.until(has_sealed)
            sealed = [segment for segment in Journal(directory).segments if segment.is_sealed]
            found = rows_by(tool, directory)
            assert sealed[-1].end <= found <= count
            recorder.send_signal(signal.SIGINT)
            _, said = recorder.communicate(timeout=60)
            assert recorder.returncode == 0, said
    end = Journal(directory).end_offset
    assert rows_by(tool, directory) == end == sum(1 for _ in Journal(directory).read())


def test_values_are_those_of_the_journal(tmp_path):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    with Writer(tmp_path) as writer:
        writer.append(
            {
                "subject": [f"a.{at}" for at in range(50)],
                "payload": [b"%d" % at for at in range(50)],
                "time_ns": range(10**18, 10**18 + 50_000, 1000),
                "sequence": range(50),
            }
        )
    table = Journal(tmp_path).table()
    pattern = f"{tmp_path}/*.parquet"
    found = duckdb.sql(f"SELECT * FROM '{pattern}' ORDER BY \"offset\"").fetchall()
    assert [row[:5] for row in found] == [tuple(row.values())[:5] for row in table.to_pylist()]
    assert (
        polars.read_parquet(pattern).to_arrow().select(["offset", "sequence"]).to_pylist()
        == table.select(["offset", "sequence"]).to_pylist()
    )
    frame = Journal(tmp_path).to_pandas() if pytest.importorskip("pandas") else None
    assert list(frame["payload"]) == [b"%d" % at for at in range(50)]


@pytest.mark.documents
def test_the_documented_one_liners_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Writer("recorded") as writer:
        writer.append([(f"md.{at % 5}", msgpack.packb({"bid": at})) for at in range(100)])
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    for block in blocks:
        if "import duckdb" in block or "import polars" in block or "import pandas" in block:
            scripts.run("-c", block)
