"""Spark: patterns on columns, and journals as a source. `tox -e spark` runs these tests."""

import pytest

from contract.adapter import compile_pattern, journal_writer, matches_column, spark_session
from contract.promises import promise

PATTERNS = ["a.*", "a.>", "redis:a.[bc]*", "regex:^(a|b)[.]c.*", "mqtt:a/+", "amqp:#.c"]
SUBJECTS = ["a.b", "a.c", "a.b.c", "b.c", "a", "a/b", "a/b/c", "a.café", "x.c"]


@pytest.fixture(scope="module")
def spark():
    pytest.importorskip("pyspark")
    made = spark_session()
    yield made
    made.stop()


@promise("matches() selects the subjects that oz itself matches, in each dialect.")
def test_matches_agrees_with_oz(spark):
    table = spark.createDataFrame([(subject,) for subject in SUBJECTS], "subject string")
    for pattern in PATTERNS:
        selected = {row.subject for row in table.where(matches_column("subject", pattern)).collect()}
        assert selected == {subject for subject in SUBJECTS if compile_pattern(pattern).matches(subject)}, (
            pattern
        )


@promise("A journal that Spark reads gives each record once, with its offset.")
def test_journal_gives_each_record_once(spark, tmp_path):
    with journal_writer(tmp_path, segment_bytes=4096) as writer:
        for at in range(0, 500, 50):
            writer.append((f"a.{number}", b"%d" % number) for number in range(at, at + 50))
    rows = (
        spark.read.format("oz")
        .option("subject", "a.*")
        .load(str(tmp_path))
        .select("offset", "subject")
        .collect()
    )
    assert sorted((row.offset, row.subject) for row in rows) == [(at, f"a.{at}") for at in range(500)]
