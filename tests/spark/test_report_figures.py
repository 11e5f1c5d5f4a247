"""The figures of a report on a few records."""

import json

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz
import oz.spark
from oz.journal import Record, Writer
from oz.spark.jobs.reporting import counts
from oz.spark.jobs.reporting.counts import by_hour
from oz.spark.jobs.reporting.rows import narrow_rows
from oz.spark.jobs.reporting.steps import Steps
from spark.recorded import START, as_dataframe, random_records, record_journal

SECOND = 10**9
HOUR = 3600 * SECOND
HOURS = Steps.spanning(START, START + 24 * HOUR, HOUR)
P, Q = b"\x01" * 16, b"\x02" * 16  # publishers


def message(seconds, subject, size, origin, sequence):
    return Record(subject, b"x" * size, START + seconds * SECOND, origin, sequence)


RECORDS = [
    message(0, "a.x.1", 10, P, 0),
    message(60, "a.x.1", 20, P, 1),
    message(120, "a.y", 30, P, 5),  # 3 are missing
    message(1800, "b", 0, Q, 0),
    Record.of_gap("nats:>", 2, origin=P, sequence=6, time_ns=START + HOUR),
    Record.of_gap("nats:>", None, origin=Q, sequence=1, time_ns=START + HOUR),
    message(5400, "a.x.1", 40, P, 8),  # 2 are missing
    message(7200, "a.x.2", 50, P, 0),  # a restart
    Record("", b"", START + 2 * HOUR, kind=2),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return record_journal(tmp_path_factory.mktemp("report") / "recorded", RECORDS)


@pytest.fixture(scope="module")
def figures(spark, recorded):
    spark.catalog.clearCache()
    made = oz.spark.report(spark, recorded).figures
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty(), "the report leaves cached tables"
    return made


def test_totals_and_rates(figures):
    total = figures["total"]
    assert (total["messages"], total["payload_bytes"], total["subjects"]) == (6, 150, 4)
    assert (total["first_ns"], total["last_ns"], total["seconds"]) == (START, START + 2 * HOUR, 7200)
    assert total["messages_per_second"] == 6 / 7200


def test_time_line_counts_each_message(figures):
    steps = figures["timeline"]["steps"]
    assert 50 <= len(steps) <= 120
    in_half_hours = [0] * 5
    for step in steps:
        in_half_hours[(step["time_ns"] - START) // (HOUR // 2)] += step["messages"]
    assert in_half_hours == [3, 1, 0, 1, 1]
    assert sum(step["payload_bytes"] for step in steps) == 150


def test_tree_sums_messages_bytes_and_subjects(figures):
    found = {}

    def add(node):
        for child in node["children"]:
            found[child["subject"]] = (child["messages"], child["payload_bytes"], child["subjects"])
            add(child)

    add(figures["levels"])
    assert found == {
        "a": (5, 150, 3),
        "a.x": (4, 120, 2),
        "a.x.1": (3, 70, 1),
        "a.x.2": (1, 50, 1),
        "a.y": (1, 30, 1),
        "b": (1, 0, 1),
    }


def test_top_subjects(figures):
    by_bytes = figures["subjects"]["by_payload_bytes"]
    assert [(one["subject"], one["payload_bytes"]) for one in by_bytes] == [
        ("a.x.1", 70),
        ("a.x.2", 50),
        ("a.y", 30),
        ("b", 0),
    ]
    assert figures["subjects"]["by_messages"][0] == {
        "subject": "a.x.1",
        "messages": 3,
        "payload_bytes": 70,
        "first_ns": START,
        "last_ns": START + 5400 * SECOND,
    }


def test_silent_subjects_and_longest_pauses(figures):
    silent = figures["silent"]
    assert (silent["after_seconds"], silent["count"]) == (720, 3)
    found = {one["subject"]: one["silent_seconds"] for one in silent["most_messages"]}
    assert found == {"a.x.1": 1800, "a.y": 7080, "b": 5400}
    assert [(one["subject"], one["seconds"]) for one in silent["longest"]] == [("a.x.1", 5340)]


def test_losses_by_publisher_and_hour(figures):
    losses = figures["losses"]
    names = ("lost", "unknown", "missing", "restarts", "gaps", "damaged")
    assert {name: losses[name] for name in names} == {
        "lost": 2,
        "unknown": 1,
        "missing": 5,
        "restarts": 1,
        "gaps": 2,
        "damaged": 1,
    }
    cells = {
        (one["origin"], (one["time_ns"] - START) // HOUR): {name: one[name] for name in names if one[name]}
        for one in losses["by_publisher_and_period"]
    }
    assert cells == {
        (P.hex(), 0): {"missing": 3},
        (P.hex(), 1): {"lost": 2, "gaps": 1, "missing": 2},
        (Q.hex(), 1): {"unknown": 1, "gaps": 1},
        (None, 2): {"damaged": 1},
    }


def test_publishers(figures):
    found = {one["origin"]: (one["messages"], one["payload_bytes"]) for one in figures["publishers"]["most"]}
    assert found == {P.hex(): (5, 150), Q.hex(): (1, 0)}


def test_payload_sizes(figures):
    sizes = figures["sizes"]
    assert (sizes["least"], sizes["greatest"], sizes["quantiles"]["0.5"]) == (0, 50, 20)
    found = {(one["from"], one["to"]): one["messages"] for one in sizes["histogram"] if one["messages"]}
    assert found == {(0, 0): 1, (8, 15): 1, (16, 31): 2, (32, 63): 2}


def test_limits_leave_counts_of_the_remainder(spark, recorded):
    figures = oz.spark.report(spark, recorded, most=1, levels=1).figures
    (child,) = figures["levels"]["children"]
    assert (child["subject"], figures["levels"]["others"]["messages"]) == ("a", 1)
    others = figures["publishers"]["others"]
    assert (others["count"], others["messages"]) == (1, 1)
    json.loads(oz.spark.Report(figures).json())


def test_pattern_selects_messages(spark, recorded):
    figures = oz.spark.report(spark, recorded, pattern=oz.compile("a.x.*")).figures
    assert (figures["total"]["messages"], figures["total"]["subjects"]) == (4, 2)
    assert figures["losses"]["missing"] == 0
    assert not figures["losses"]["are_numbers_known"]


def test_numbers_are_followed_from_piece_to_piece_of_a_large_record(spark, tmp_path, monkeypatch):
    records = random_records(10)
    whole = by_hour(narrow_rows(spark, record_journal(tmp_path / "recorded", records)), HOURS, is_whole=True)
    wanted = sorted(map(str, whole.collect()))
    monkeypatch.setattr(counts, "_PIECE", 7)
    rows = narrow_rows(spark, tmp_path / "recorded")
    assert sorted(map(str, by_hour(rows, HOURS, is_whole=True).collect())) == wanted
    assert sum(row.missing for row in whole.collect()) > 0


def test_a_comma_in_a_pattern_is_refused_and_never_matches_nothing_in_silence(spark, recorded):
    with pytest.raises(oz.OptionError, match=r"option pattern='a\.>,b\.>': a comma is part of a subject"):
        oz.spark.report(spark, recorded, pattern="a.>,b.>")


@pytest.mark.parametrize("other", ["lake", pytest.param("dataframe", marks=pytest.mark.heavy)])
def test_a_journal_a_dataframe_and_a_lake_give_the_same(spark, recorded, figures, tmp_path, other):
    source = as_dataframe(spark, recorded)
    if other == "lake":
        source.write.partitionBy("kind").parquet(str(tmp_path / "lake"))
        source = str(tmp_path / "lake")
    found = oz.spark.report(spark, source).figures
    assert figures.keys() == found.keys()
    differing = {name for name in found if found[name] != figures[name]}
    assert differing <= {"source", "made"}


def test_a_dataframe_of_subjects_and_payloads_is_enough(spark):
    rows = spark.createDataFrame(
        [("a.b", b"123", 5), ("a.c", None, 7)], "subject string, payload binary, time_ns long"
    )
    figures = oz.spark.report(spark, rows).figures
    assert (figures["total"]["messages"], figures["total"]["payload_bytes"]) == (2, 3)
    assert figures["losses"]["lost"] == 0


@pytest.mark.parametrize("records", [[], [Record.of_gap("nats:>", 3, time_ns=START)]])
def test_a_journal_without_a_message(spark, tmp_path, records):
    with Writer(tmp_path / "recorded") as writer:
        writer.append(records)
    made = oz.spark.report(spark, tmp_path / "recorded")
    assert made.figures["total"]["messages"] == 0
    assert "no message" in made.html()
    json.loads(made.json())


@pytest.fixture
def empty_lake(spark, tmp_path):
    Writer(tmp_path / "recorded").close()
    oz.spark.archive(spark, tmp_path / "recorded", tmp_path / "lake")
    return tmp_path / "lake"


@pytest.mark.heavy
def test_a_lake_to_which_nothing_was_archived_yet(spark, empty_lake):
    assert oz.spark.report(spark, empty_lake).figures["total"]["messages"] == 0


@pytest.mark.heavy
def test_one_message(spark, tmp_path):
    with Writer(tmp_path / "recorded") as writer:
        writer.append([Record("a", b"", START)])
    made = oz.spark.report(spark, tmp_path / "recorded")
    assert made.figures["total"]["messages_per_second"] is None
    assert made.figures["sizes"]["quantiles"]["0.5"] == 0
    assert '<figure role="img"' in made.html()


@pytest.mark.heavy
def test_times_far_apart_make_no_more_steps(spark, tmp_path):
    with Writer(tmp_path / "recorded") as writer:
        writer.append([Record("a", b"1", 0), Record("a", b"2", START), Record("a", b"3", START + 1)])
    figures = oz.spark.report(spark, tmp_path / "recorded").figures
    assert len(figures["timeline"]["steps"]) <= 120
    assert [one["messages"] for one in figures["timeline"]["steps"] if one["messages"]] == [1, 2]
    assert figures["losses"]["periods"] <= 744


def test_what_is_no_journal_is_said(spark, tmp_path):
    with pytest.raises(oz.JournalError, match="no journal here"):
        oz.spark.report(spark, tmp_path / "nothing")
    with pytest.raises(ValueError, match="most=0"):
        oz.spark.report(spark, tmp_path, most=0)
    assert not (tmp_path / "nothing").exists()
