"""One-liners of docs/journal.md: DuckDB, Polars and pandas read sealed files while a writer is open."""

import re
from pathlib import Path

import msgpack
import pyarrow.dataset as ds
import pytest

from oz.journal import Journal, Writer
from support import scripts

DOCS = Path(__file__).parents[2] / "docs" / "journal.md"


def rows_by(tool, directory):
    """Return the number of rows, as a tool reads them."""
    if tool == "duckdb":
        query = f"SELECT count(*) FROM '{directory}/*.parquet' WHERE subject LIKE 'md.%'"
        return pytest.importorskip("duckdb").sql(query).fetchall()[0][0]
    if tool == "polars":
        polars = pytest.importorskip("polars")
        return polars.scan_parquet(f"{directory}/*.parquet").filter(polars.col("kind") == 0).collect().height
    if tool == "pandas":
        pandas = pytest.importorskip("pandas")
        return sum(len(pandas.read_parquet(file)) for file in sorted(Path(directory).glob("*.parquet")))
    return ds.dataset(sorted(map(str, Path(directory).glob("*.parquet")))).count_rows()


@pytest.mark.parametrize("tool", ["duckdb", "polars", "pandas", "pyarrow"])
def test_other_tools_read_the_sealed_part_while_a_writer_is_open(tmp_path, tool):
    with Writer(tmp_path, segment_bytes=20_000) as writer:
        for first in range(0, 2_000, 100):
            writer.append((f"md.{at % 7}", b"%d" % at + bytes(50)) for at in range(first, first + 100))
        writer.wait_sealed()
        sealed = [segment for segment in Journal(tmp_path).segments if segment.is_sealed]
        assert rows_by(tool, tmp_path) == sealed[-1].end > 0
    assert rows_by(tool, tmp_path) == 2_000


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
    columns = ["offset", "sequence"]
    read = polars.read_parquet(pattern).to_arrow()
    assert read.select(columns).to_pylist() == table.select(columns).to_pylist()
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
