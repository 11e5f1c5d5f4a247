"""`token`, `depth` and `prefix`."""

import itertools

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

import oz.spark

SUBJECTS = ["flight.JFK.LAX.AA", "a", "", ".", "a..b", "é.😀.x", "a/b|c", None]


def columns_of(spark, columns):
    """What each of some columns says of the subjects, by their keys."""
    rows = spark.createDataFrame([(each,) for each in SUBJECTS], "subject string")
    found = rows.select(*(column.alias(str(at)) for at, column in enumerate(columns.values()))).toArrow()
    return dict(zip(columns, (column.to_pylist() for column in found.columns), strict=True))


def at(tokens, n):
    index = n - 1 if n > 0 else n
    return tokens[index] if -len(tokens) <= index < len(tokens) else None


def test_token_counts_from_one_as_split_part_does(spark):
    cases = list(itertools.product([1, 2, 3, 4, 5, -1, -2, -4, -5], [".", "/", "|", "..", "b|"]))
    found = columns_of(spark, {case: oz.spark.token("subject", case[0], separator=case[1]) for case in cases})
    for n, separator in cases:
        wanted = [None if each is None else at(each.split(separator), n) for each in SUBJECTS]
        assert found[n, separator] == wanted, (n, separator)
    assert found[2, "."][0] == "JFK"


def test_there_is_no_token_0(spark):
    with pytest.raises(ValueError, match="counted from 1"):
        oz.spark.token("subject", 0)


@pytest.mark.parametrize("ansi", [True, False])
def test_depth_counts_tokens(spark, ansi):
    depths = {one: oz.spark.depth(F.col("subject"), separator=one) for one in (".", "/")}
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = columns_of(spark, {**depths, "none": oz.spark.token("subject", 9)})
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    for separator in depths:
        wanted = [None if each is None else len(each.split(separator)) for each in SUBJECTS]
        assert found[separator] == wanted, separator
    assert found["none"] == [None] * len(SUBJECTS)


def test_an_empty_separator_is_refused(spark):
    with pytest.raises(ValueError, match="separator is empty"):
        oz.spark.depth("subject", separator="")


def test_prefix_is_what_zeromq_lets_through(spark):
    specs = ["a", "flight.*.LAX.>", "*", r"regex:^(a|flight|é).*", "redis:[a.]*b"]
    found = columns_of(spark, {spec: oz.spark.prefix("subject", spec) for spec in specs})
    for spec in specs:
        prefixes = oz.compile(spec).prefixes
        wanted = [None if each is None else each.encode().startswith(prefixes) for each in SUBJECTS]
        assert found[spec] == wanted, spec
