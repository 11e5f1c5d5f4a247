"""`match_all` and `join_patterns` beside a loop over the patterns."""

import random

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz.spark

PATTERNS = [
    "a.*",
    "a.b",
    "rv:a.>",
    "redis:*b",
    r"regex:^a\.\w$",
    "mqtt:a/+",
    "amqp:#.b",
    oz.compile("*.b"),
    "a.*",
    "zmq:a",
]
SUBJECTS = ["a.b", "a.c", "a/c", "b", "x", "", "a.b", "é.b", None]


def named(pattern):
    return pattern.text if isinstance(pattern, oz.Pattern) else pattern


def expected(subject):
    given = {named(pattern): pattern for pattern in PATTERNS}
    compiled = {
        name: each if isinstance(each, oz.Pattern) else oz.compile(each) for name, each in given.items()
    }
    return [name for name, pattern in compiled.items() if pattern.matches(subject)]


@pytest.fixture
def rows(spark):
    return spark.createDataFrame(list(enumerate(SUBJECTS)), "number int, subject string")


def test_one_pattern_alone_is_a_list_of_one(rows):
    found = rows.where("subject = 'a.b'").select(oz.spark.match_all("subject", "a.*").alias("patterns"))
    assert [row.patterns for row in found.collect()] == [["a.*"], ["a.*"]]


def test_match_all_lists_what_matches_in_the_order_given(rows):
    found = rows.select("subject", oz.spark.match_all("subject", PATTERNS).alias("patterns")).collect()
    assert [row.subject for row in found] == SUBJECTS
    assert rows.select(oz.spark.match_all("subject", PATTERNS)).columns[0].startswith("match_all(")
    for subject, patterns in found:
        assert patterns == (None if subject is None else expected(subject))


def test_join_patterns_gives_a_row_for_each_pattern(rows):
    joined = oz.spark.join_patterns(rows, "subject", PATTERNS)
    assert joined.columns == ["number", "subject", "pattern"]
    wanted = [
        (n, each, name) for n, each in enumerate(SUBJECTS) if each is not None for name in expected(each)
    ]
    assert sorted(map(tuple, joined.collect())) == sorted(wanted)


def test_join_patterns_names_its_column(rows):
    joined = oz.spark.join_patterns(rows, rows.subject, ["a.*"], name="interest")
    assert sorted(map(tuple, joined.collect())) == [
        (0, "a.b", "a.*"),
        (1, "a.c", "a.*"),
        (6, "a.b", "a.*"),
    ]


def test_thousands_of_patterns(spark):
    chance = random.Random(4)
    tokens = [f"t{number}" for number in range(30)]
    patterns = list({".".join(chance.choices([*tokens, "*"], k=3)) for _ in range(5_000)})
    subjects = [".".join(chance.choices(tokens, k=3)) for _ in range(3_000)]
    index = oz.PatternIndex()
    for pattern in patterns:
        index.add(oz.compile(pattern), pattern)
    rows = spark.createDataFrame([(each,) for each in subjects], "subject string")
    for subject, found in rows.select("subject", oz.spark.match_all("subject", patterns)).collect():
        assert set(found) == set(index.match(subject))


def test_bytes_that_are_not_utf8_match_byte_dialects(spark):
    rows = spark.createDataFrame([(b"a\xff",)], "subject binary")
    ((found,),) = rows.select(oz.spark.match_all("subject", ["*", ">", "redis:a*", "regex:.*"])).collect()
    assert found == ["redis:a*"]


def test_a_pattern_whose_text_spark_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="strings are UTF-8, and this pattern is not"):
        oz.spark.match_all("subject", [oz.compile(b"\xff", "redis")])


def test_no_patterns(rows):
    found = rows.select(oz.spark.match_all("subject", []).alias("patterns")).collect()
    assert [row.patterns for row in found] == [*[[]] * 8, None]
