"""`CREATE TEMPORARY VIEW … USING oz`: a journal as a view of a Spark session."""

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.errors import PySparkException

from spark.source_journals import fill, numbered


def test_view_reads_the_journal_with_its_options(spark, tmp_path):
    fill(tmp_path / "journal", [numbered(70)])
    options = f"journal '{tmp_path / 'journal'}', subject 'n.5'"
    spark.sql(f"CREATE TEMPORARY VIEW seen USING oz OPTIONS ({options})")
    try:
        assert spark.sql("SELECT count(*) FROM seen").first()[0] == 10
    finally:
        spark.catalog.dropTempView("seen")


def test_table_is_refused_with_the_statement_for_a_view(spark, tmp_path):
    fill(tmp_path / "journal", [numbered(7)])
    with pytest.raises(PySparkException, match="Create a view: CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE refused USING oz OPTIONS (journal '{tmp_path / 'journal'}')")
