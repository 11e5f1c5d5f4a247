"""Filters that Spark hands over: they prune where asked for, and frames that share one load stay right."""

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceReader

import oz.spark
from oz.spark.registration import OzDataSource
from spark.source_journals import fill, loaded, numbered, streamed

FLAG = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def by_letter(tmp_path_factory):
    directory = tmp_path_factory.mktemp("letters") / "journal"
    fill(directory, [numbered(1000, 1000 * at, f"{letter}." + "{}") for at, letter in enumerate("abcdef")])
    return directory


@pytest.fixture
def pushing(spark):
    spark.conf.set(FLAG, "true")
    yield spark
    spark.conf.unset(FLAG)


@pytest.fixture
def each_apart(pushing):
    """Take filters as where Spark keeps them apart: here a load has one query, with one filter."""

    class Trusting(OzDataSource):
        def _keeps_filters_apart(self):
            return True

    pushing.dataSource.register(Trusting)
    yield pushing
    oz.spark.register(pushing)


def scanned(frame):
    """How many rows match, and how many the source gave."""
    plan = frame._jdf.queryExecution().executedPlan()
    count, waiting = len(plan.executeCollect()), [plan]
    while waiting:
        node = waiting.pop()
        if "BatchScanExec" in node.getClass().getName():
            return count, node.metrics().apply("numOutputRows").value()
        children = node.children()
        waiting += [children.apply(at) for at in range(children.size())]
    raise AssertionError("no scan")


def test_matches_prunes_segments_and_rows(each_apart, by_letter):
    frame = loaded(each_apart, by_letter, pushFilters="true")
    matching = frame.where(oz.spark.matches("subject", "c.1"))
    assert scanned(matching) == (143, 143)
    frame = loaded(each_apart, by_letter, pushFilters="true")
    assert scanned(frame.where(oz.spark.matches("subject", "redis:c.*[12]"))) == (286, 1000)


@pytest.mark.parametrize(
    ("pattern", "count", "read"),
    [
        ("redis:c.[12]", 286, 1000),  # not c.0 nor c.3 either, which only the whole pattern tells
        ("regex:^c[.](1|3).*", 286, 1000),
        (r"regex:(c[.]1|c[.]2)\b.*", 286, 1000),
        ("redis:[cd].1", 286, 6000),
    ],
)
@pytest.mark.filterwarnings("ignore::oz.spark.PythonWarning")
def test_what_several_prefixes_have_in_common_prunes(each_apart, by_letter, pattern, count, read):
    frame = loaded(each_apart, by_letter, pushFilters="true")
    assert scanned(frame.where(oz.spark.matches("subject", pattern))) == (count, read)


def test_filters_are_refused_where_spark_would_mix_them_up(pushing, by_letter):
    if "pushLimit" in vars(DataSourceReader):
        pytest.skip("this PySpark keeps the filters of a load apart")
    for way in (loaded, streamed):
        with pytest.raises(
            PySparkException, match="option pushFilters='true': this PySpark gives all queries"
        ):
            way(pushing, by_letter, pushFilters="true")


def test_frames_of_one_load_are_right_with_the_flag_of_spark_on(pushing, by_letter):
    """PySpark 4.3 gives all queries of one load() what it planned with the filters of the last."""
    takes_filters = "pushLimit" in vars(DataSourceReader)
    frame = loaded(pushing, by_letter, pushFilters=takes_filters)
    assert frame.where("subject = 'c.1'").count() == 143
    assert frame.count() == 6000
    both = frame.where("subject = 'a.1'").union(frame.where("subject = 'b.1'"))
    assert {row[0] for row in both.groupBy("subject").agg(F.count("*")).collect()} == {"a.1", "b.1"}
