"""`token`, `depth` and `prefix`."""

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

import oz.spark

SUBJECTS = ["flight.JFK.LAX.AA", "a", "", ".", "a..b", "é.😀.x", "a/b|c", None]


def column_of(spark, column):
    rows = spark.createDataFrame([(each,) for each in SUBJECTS], "subject string")
    return [row.answer for row in rows.select(column.alias("answer")).collect()]


def at(tokens, n):
    index = n - 1 if n > 0 else n
    return tokens[index] if -len(tokens) <= index < len(tokens) else None


@pytest.mark.parametrize("separator", [".", "/", "|", "..", "b|"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, -1, -2, -4, -5])
def test_token_counts_from_one_as_split_part_does(spark, n, separator):
    wanted = [None if each is None else at(each.split(separator), n) for each in SUBJECTS]
    assert column_of(spark, oz.spark.token("subject", n, separator=separator)) == wanted


def test_the_origin_of_a_flight(spark):
    assert column_of(spark, oz.spark.token("subject", 2))[0] == "JFK"


def test_there_is_no_token_0(spark):
    with pytest.raises(ValueError, match="counted from 1"):
        oz.spark.token("subject", 0)


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("ansi", [True, False])
def test_depth_counts_tokens(spark, separator, ansi):
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        wanted = [None if each is None else len(each.split(separator)) for each in SUBJECTS]
        assert column_of(spark, oz.spark.depth(F.col("subject"), separator=separator)) == wanted
        assert column_of(spark, oz.spark.token("subject", 9)) == [None] * len(SUBJECTS)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_an_empty_separator_is_refused(spark):
    with pytest.raises(ValueError, match="separator is empty"):
        oz.spark.depth("subject", separator="")


@pytest.mark.parametrize("spec", ["a", "flight.*.LAX.>", "*", r"regex:^(a|flight|é).*", "redis:[a.]*b"])
def test_prefix_is_what_zeromq_lets_through(spark, spec):
    prefixes = oz.parse(spec).prefixes
    wanted = [None if each is None else each.encode().startswith(prefixes) for each in SUBJECTS]
    assert column_of(spark, oz.spark.prefix("subject", spec)) == wanted
