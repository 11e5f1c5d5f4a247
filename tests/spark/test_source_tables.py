"""`CREATE TABLE … USING oz`: a journal as a table of Spark's catalog."""

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructField, StructType

from oz.errors import OptionError
from oz.spark.registration import options_in, options_of_table, with_options
from oz.spark.source.rows import ddl
from spark.source_journals import fill, numbered, rows_of, run_to_the_end

ODD = {"journal": '/a b/it\'s "c"\\d=é&1', "subject": "nats:a,b.>\nrv:*.%41", "empty": ""}


def test_options_of_any_text_come_back_from_the_comment():
    written = with_options(ddl("raw", None), ODD)
    comment = written.partition("COMMENT '")[2].partition("'")[0]
    assert written == ddl("raw", None).replace("NOT NULL", f"NOT NULL COMMENT '{comment}'", 1)
    assert "\\" not in comment
    assert options_in(StructType([StructField("offset", LongType(), False, {"comment": comment})])) == ODD
    assert options_in(StructType([StructField("offset", LongType(), False, {"comment": "mine"})])) == {}


def test_what_spark_says_of_a_table_is_no_option():
    given = {"provider": "oz", "owner": "root", "k": "v", "journal": "/j", "option.journal": "/j"}
    assert options_of_table(given) == {"journal": "/j"}
    assert options_of_table({"journal": "/j"}) is None
    with pytest.raises(OptionError, match=r"location='file:/x': .* as the option journal"):
        options_of_table({**given, "location": "file:/x"})


def test_a_table_has_its_journals_by_their_whole_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"provider": "oz", "option.journal": " one\nfile:two/j*\n/three "}
    assert options_of_table(given) == {"journal": f"{tmp_path}/one\n{tmp_path}/two/j*\n/three"}
    assert options_of_table({"provider": "oz", "option.JOURNAL": "s3://b/x"}) == {"JOURNAL": "s3://b/x"}


@pytest.fixture
def made(spark, tmp_path):
    """Make the table `recorded`, of what a journal has under some subjects."""
    fill(tmp_path / "journal", [numbered(70)])
    options = f"journal '{tmp_path / 'journal'}', subject 'n.1\\nn.2', payload 'string'"
    spark.sql(f"CREATE TABLE recorded USING oz OPTIONS ({options}) COMMENT 'a table' TBLPROPERTIES ('k'='v')")
    yield tmp_path
    spark.sql("DROP TABLE recorded")


def test_a_table_is_the_journal_with_its_options(spark, made):
    def count(query):
        return spark.sql(query).first()[0]

    assert count("SELECT count(*) FROM recorded") == 20
    assert count("SELECT max(payload) FROM recorded WHERE subject = 'n.2'") == "9"
    assert count("SELECT count(*) FROM recorded WITH (subject = 'n.3', startingOffset = 30)") == 6
    assert spark.table("recorded").join(spark.table("recorded"), "offset").count() == 20
    fill(made / "journal", [numbered(7)])
    assert count("SELECT count(*) FROM recorded") == 22


def test_a_table_is_a_stream_too(spark, made):
    run_to_the_end(spark.readStream.table("recorded"), made)
    assert {row.subject for row in rows_of(spark, made, "subject")} == {"n.1", "n.2"}


def test_a_view_has_its_options_from_spark(spark, made):
    spark.sql(f"CREATE TEMPORARY VIEW seen USING oz OPTIONS (journal '{made / 'journal'}', subject 'n.5')")
    assert spark.sql("SELECT count(*) FROM seen").first()[0] == 10
    spark.catalog.dropTempView("seen")


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        (["CREATE TABLE bad USING oz OPTIONS (jurnal '/x')"], "option jurnal: there is no such option"),
        (["CREATE TABLE bad USING oz OPTIONS (journal '/nowhere')"], "/nowhere: there is no journal here"),
        (
            ["CREATE TABLE bad (subject STRING) USING oz OPTIONS (journal '/x')", "SELECT * FROM bad"],
            "Spark keeps no options of a table that is made with columns: leave the columns out",
        ),
        (
            ["CREATE TABLE bad (subject STRING) USING oz", "INSERT INTO bad VALUES ('a')"],
            "A table of Spark's catalog is for reading only",
        ),
    ],
)
def test_a_table_that_cannot_work_says_why(spark, queries, said):
    *before, last = queries
    try:
        for query in before:
            spark.sql(query)
        with pytest.raises(PySparkException) as caught:
            spark.sql(last).collect()
        assert said in str(caught.value)
    finally:
        spark.sql("DROP TABLE IF EXISTS bad")
