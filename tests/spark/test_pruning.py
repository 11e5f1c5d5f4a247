"""Parquet reads only what the prefixes leave: seen in how many rows the scan puts out, not in bytes."""

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

import oz.spark
from spark.scanned import read_by

ROWS = 200_000
GROUP = 2_000


@pytest.fixture(scope="module")
def archive(spark, tmp_path_factory):
    """100 values in each of the first two tokens, sorted, in many row groups."""
    path = str(tmp_path_factory.mktemp("archive") / "sorted")
    subject = F.expr("format_string('s%02d.k%02d.n%d', id % 100, id div 100 % 100, id)")
    rows = spark.range(ROWS).select(subject.alias("subject")).repartition(1).sortWithinPartitions("subject")
    options = {"parquet.block.size": 16_384, "parquet.block.row.count.limit": GROUP}
    rows.write.options(**options).parquet(path)
    return path


def test_without_a_prefix_all_is_read(spark, archive):
    assert read_by(spark, archive, F.col("subject").rlike(r"^s07\.k.3\.")) == (200, ROWS)
    assert read_by(spark, archive, oz.spark.matches("subject", "*.k03.>")) == (2_000, ROWS)


@pytest.mark.parametrize(
    ("pattern", "count", "groups"),
    [
        ("s07.*.*", 2_000, 2),
        ("s07.k03.>", 20, 1),
        ("s07.k03.n307", 1, 1),
        ("redis:s07.k0[37].*", 40, 2),
        (r"regex:^(s07|s42|s99)\.k5.\.n.*", 600, 6),
        (r"regex:(?s)(s07|s42)\..*", 4_000, 4),
        (r"regex:^s07\.\p{L}5.\.n.*", 200, 2),
    ],
)
@pytest.mark.filterwarnings("ignore::oz.spark.PythonWarning")
def test_one_prefix_or_several_prune(spark, archive, pattern, count, groups):
    found, scanned = read_by(spark, archive, oz.spark.matches("subject", pattern))
    assert found == count
    assert count <= scanned <= groups * GROUP + GROUP


def test_a_prefix_that_ends_within_a_character_loses_nothing(spark, tmp_path):
    # Told of it as it is, Spark would have Parquet look for U+FFFD.
    path = str(tmp_path / "accents")
    subjects = [f"x{chr(0xC0 + at % 64)}.{at:05}" for at in range(20_000)]
    rows = spark.createDataFrame([(each,) for each in subjects], "subject string").repartition(1)
    rows.sortWithinPartitions("subject").write.option("parquet.block.row.count.limit", 500).parquet(path)
    pattern = oz.compile(b"x\xc3*", "redis")
    for condition in (oz.spark.matches("subject", pattern), oz.spark.prefix("subject", pattern)):
        found, _ = read_by(spark, path, condition)
        assert found == len(subjects)
    literal = oz.compile(b"x\xc3", "redis")
    assert read_by(spark, path, oz.spark.matches("subject", literal))[0] == 0
