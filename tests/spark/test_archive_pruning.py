"""`matches` on a lake that the job made reads little of it: seen in how many rows the scan puts out."""

import pytest

from spark import archive_lakes

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

import oz.spark
from oz.spark import LakeLayout, archive, lake_files
from spark.scanned import read_by

ROWS, GROUP = 60_000, 500


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """One first token, a hundred second ones, in an order that has nothing to do with theirs."""
    root = tmp_path_factory.mktemp("pruning")
    subjects = [f"md.k{at * 7919 % 100:02}.n{at}" for at in range(ROWS)]
    batches = [[(subject, b"x" * 20) for subject in subjects[at : at + 8000]] for at in range(0, ROWS, 8000)]
    archive_lakes.write_journal(root / "journal", batches)
    layout = LakeLayout(row_group_rows=GROUP)
    archive(spark, root / "journal", root / "lake", layout=layout, unsealed=True)
    return root / "lake"


def test_without_a_prefix_all_is_read(spark, lake):
    assert read_by(spark, lake, F.col("subject").rlike(r"^md\.k07\.")) == (600, ROWS)


@pytest.mark.parametrize(
    ("pattern", "count", "groups"),
    [("md.k07.*", 600, 2), ("md.k07.>", 600, 2), ("redis:md.k0[37].*", 1200, 4), ("md.k00.n0", 1, 1)],
)
def test_a_pattern_with_a_prefix_reads_the_row_groups_that_it_needs(spark, lake, pattern, count, groups):
    found, scanned = read_by(spark, lake, oz.spark.matches("subject", pattern))
    assert found == count
    assert count <= scanned <= (groups + 1) * GROUP


def test_a_folder_that_a_first_token_excludes_is_not_read(spark, lake):
    assert read_by(spark, lake, F.col("first_token") == "other") == (0, 0)


def test_row_groups_are_as_small_as_the_layout_says(lake):
    import pyarrow.parquet as pq

    for path in lake_files(lake):
        found = pq.read_metadata(path)
        assert all(found.row_group(at).num_rows <= GROUP for at in range(found.num_row_groups))
