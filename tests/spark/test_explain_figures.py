"""What `explain` says beside the same computed by plain Python."""

import json
import random

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz
import oz.spark
from spark.recorded import as_dataframe, random_records, record_journal

PATTERNS = [
    "a.*",
    ">",
    "*.b.>",
    "a.b",
    "rv:b.>",
    "redis:[abc].*d*",
    "redis:raw*",
    r"regex:^(a|b)\..*e$",
    "zmq:a",
    "a.*",
    "nobody.is.here",
    "redis:*<script>*",
]


def exact(subject):
    return subject.encode() if isinstance(subject, str) else subject


def amounts(found):
    return {
        "messages": len(found),
        "bytes": sum(len(exact(one.subject)) + len(one.payload) for one in found),
        "subjects": len({one.subject for one in found}),
    }


def does_match(pattern, subject):
    try:
        return pattern.matches(subject)
    except oz.SubjectError:
        return False


@pytest.mark.parametrize("seed", [1, 2])
def test_each_pattern_beside_plain_python(spark, tmp_path, seed):
    records = random_records(seed, count=300)
    directory = record_journal(tmp_path / "recorded", records)
    messages = [one for one in records if one.kind == 0]
    found = oz.spark.explain(spark, directory, PATTERNS)
    assert found.figures["traffic"] == amounts(messages)
    anyone = [set(), set()]
    for spec, said in zip(PATTERNS, found.patterns, strict=True):
        pattern = oz.compile(spec)
        matched = [at for at, one in enumerate(messages) if does_match(pattern, one.subject)]
        passed = [at for at, one in enumerate(messages) if exact(one.subject).startswith(pattern.prefixes)]
        anyone[0].update(passed)
        anyone[1].update(matched)
        assert said["pattern"] == spec
        assert said["matched"] == amounts([messages[at] for at in matched]), spec
        assert said["let_through"] == amounts([messages[at] for at in passed]), spec
        assert said["in_vain"]["bytes"] == said["let_through"]["bytes"] - said["matched"]["bytes"]
        assert said["selectivity"] == len(matched) / len(messages)
    together = found.figures["together"]
    for key, places in zip(("with_prefixes", "routed"), anyone, strict=True):
        assert together[key]["bytes"] == amounts([messages[at] for at in places])["bytes"]
        name = {"with_prefixes": "let_through", "routed": "matched"}[key]
        assert found.figures["apart"][key]["bytes"] == sum(one[name]["bytes"] for one in found.patterns)
    assert together["saved"]["bytes"] == together["with_prefixes"]["bytes"] - together["routed"]["bytes"]
    json.loads(found.json())


@pytest.fixture
def flights(spark):
    chance = random.Random(3)
    rows = [
        (
            f"flight.{chance.choice(['JFK', 'EWR', 'LGA'])}.{chance.choice(['LAX', 'BOS', 'ORD'])}.{number}",
            bytes(90),
        )
        for number in range(600)
    ]
    return spark.createDataFrame([*rows, ("other.x", b"")], "subject string, payload binary")


def bytes_of(rows, prefixes):
    kept = [tuple(row) for row in rows if row.subject.startswith(prefixes)]
    return sum(len(subject) + len(payload) for subject, payload in kept)


def test_the_order_of_tokens_that_lets_the_least_through(spark, flights):
    found = oz.spark.explain(spark, flights, ["flight.*.LAX.>", "flight.*.BOS.*", "flight.*.*.7"])
    [order] = found.orders
    assert (order["first_token"], order["tokens"], order["order"], order["is_best"]) == (
        "flight",
        4,
        [1, 3, 2, 4],
        True,
    )
    rows = [row for row in flights.collect() if row.subject != "other.x"]
    everything = bytes_of(rows, "flight.")
    assert order["now"] == 3 * everything
    moved = [".".join((a, c, b, d)) for a, b, c, d in (row.subject.split(".") for row in rows)]
    through = sum(90 + len(one) for one in moved if one.startswith(("flight.LAX.", "flight.BOS.")))
    assert order["then"] == through + everything
    example = order["example"]
    assert example["pattern"] in ("flight.*.LAX.>", "flight.*.BOS.*")
    assert oz.compile(example["pattern"]).matches(example["subject"])
    assert oz.compile(example["becomes"]).matches(example["subject_becomes"])
    assert sorted(example["subject"].split(".")) == sorted(example["subject_becomes"].split("."))


def test_a_leading_wildcard_lets_the_first_token_move(spark):
    rows = spark.createDataFrame(
        [(f"{what}.{where}", bytes(10)) for what in ("time", "price", "wind") for where in ("east", "west")],
        "subject string, payload binary",
    )
    [order] = oz.spark.explain(spark, rows, ["*.east"]).orders
    assert (order["first_token"], order["order"]) == (None, [2, 1])
    assert (order["example"]["becomes"], order["then"]) == ("east.*", order["wanted"])


def test_mqtt_patterns_are_taken_apart_at_slashes(spark):
    rows = spark.createDataFrame(
        [(f"home/{room}/{what}", b"12") for room in "abc" for what in ("temp", "light")],
        "subject string, payload binary",
    )
    found = oz.spark.explain(spark, rows, ["mqtt:home/+/temp"])
    assert found.figures["separator"] == "/"
    [order] = found.orders
    assert (order["order"], order["example"]["becomes"]) == ([1, 3, 2], "home/temp/+")


def test_thousands_of_subscriptions(spark, tmp_path):
    records = random_records(9, count=200)
    rows = as_dataframe(spark, record_journal(tmp_path / "recorded", records))
    patterns = [f"a.{number}.*" for number in range(3000)] + ["*.b"]
    found = oz.spark.explain(spark, rows, patterns)
    assert len(found.patterns) == 3001
    matched = [one for one in records if one.kind == 0 and does_match(oz.compile("*.b"), one.subject)]
    assert found.patterns[-1]["matched"]["messages"] == len(matched)


def test_an_empty_journal(spark, tmp_path):
    found = oz.spark.explain(spark, record_journal(tmp_path / "recorded", []), ["a.*", "redis:x*"])
    assert [one["selectivity"] for one in found.patterns] == [None, None]
    assert (found.figures["traffic"]["messages"], found.orders) == (0, [])


def test_what_cannot_be_explained_is_said(spark, flights):
    with pytest.raises(ValueError, match="no pattern at all"):
        oz.spark.explain(spark, flights, [])
    with pytest.raises(ValueError, match="separator is empty"):
        oz.spark.explain(spark, flights, ["a"], separator="")
    with pytest.raises(oz.PatternError):
        oz.spark.explain(spark, flights, ["a..b"])
    with pytest.raises(oz.JournalError, match="no journal here"):
        oz.spark.explain(spark, "nothing-here", ["a"])
