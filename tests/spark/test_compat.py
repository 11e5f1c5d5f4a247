"""Checkpoints that each version left: a query goes on where it was, and reads nothing twice."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import pyarrow.dataset

from oz.journal import Journal, Writer
from spark.source_journals import run_to_the_end, streamed

KEPT = sorted((Path(__file__).parents[1] / "compat").glob("*/journal*-checkpoint"))


@pytest.mark.parametrize("checkpoint", KEPT, ids=lambda path: path.parent.name)
def test_a_query_goes_on_from_a_checkpoint_of_an_earlier_version(spark, tmp_path, checkpoint):
    journal = checkpoint.with_name(checkpoint.name.removesuffix("-checkpoint"))
    shutil.copytree(journal, tmp_path / "journal")
    shutil.copytree(checkpoint, tmp_path / "checkpoint")
    end = Journal(tmp_path / "journal").end_offset
    with Writer(tmp_path / "journal") as writer:
        writer.append([("a.new", b"1"), ("a.new", b"2")])
    run_to_the_end(streamed(spark, tmp_path / "journal"), tmp_path)
    # Spark itself would look for what the query wrote before it came here.
    rows = pyarrow.dataset.dataset([str(path) for path in (tmp_path / "rows").glob("*.parquet")])
    assert sorted(rows.to_table(columns=["offset"])["offset"].to_pylist()) == [end, end + 1]
