"""The figures of a report beside the same computed by plain Python."""

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
from spark.plain_report import HOUR, SECOND, PlainReport
from spark.recorded import START, as_dataframe, random_records, record_journal

HOURS = Steps.spanning(START, START + 24 * HOUR, HOUR)


# A report is some thirty queries: the suite makes each kind of it once.
@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.heavy)])
def recorded(request, tmp_path_factory):
    """Give a journal, and what is in it."""
    directory, records = tmp_path_factory.mktemp("report") / "recorded", random_records(request.param)
    return record_journal(directory, records), records


@pytest.fixture(scope="module")
def made(spark, recorded):
    """Give the figures of a report on it, and the same by plain Python."""
    directory, records = recorded
    spark.catalog.clearCache()
    figures = oz.spark.report(spark, directory, most=1000).figures
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty(), "nothing stays in Spark's memory"
    return figures, PlainReport(records)


def test_totals_and_rates(made):
    figures, plain = made
    wanted = plain.total()
    assert {name: figures["total"][name] for name in wanted} == wanted
    assert figures["total"]["messages_per_second"] == wanted["messages"] / wanted["seconds"]


def test_time_line_counts_every_message_in_its_step(made):
    figures, plain = made
    steps = figures["timeline"]["steps"]
    assert [step["messages"] for step in steps] == plain.timeline(steps)
    assert sum(step["payload_bytes"] for step in steps) == plain.total()["payload_bytes"]
    assert 50 <= len(steps) <= 120


def test_each_branch_of_the_tree_sums_up_what_begins_so(made):
    figures, plain = made
    seen = set()

    def check(node):
        for child in node["children"]:
            found = (child["messages"], child["payload_bytes"], child["subjects"])
            assert found == plain.level(child["subject"]), child["subject"]
            seen.add(child["subject"])
            check(child)

    check(figures["levels"])
    assert {name for name in seen if "." not in name} == {
        name.split(".")[0] for name in map(_text, _names(plain))
    }
    assert max(name.count(".") for name in seen) == 2


def _names(plain):
    return [one.subject for one in plain.messages]


def _text(subject):
    return subject if isinstance(subject, str) else subject.decode(errors="replace")


def test_top_subjects(made):
    figures, plain = made
    everything = [plain.amounts(name) for name in plain.by_subject]
    for key in ("messages", "payload_bytes"):
        found = figures["subjects"][f"by_{key}"]
        assert sorted(found, key=repr) == sorted(everything, key=repr)
        assert [one[key] for one in found] == sorted((one[key] for one in everything), reverse=True)


def test_silent_subjects_and_the_longest_silences(made):
    figures, plain = made
    found, total = figures["silent"], plain.total()
    assert found["after_seconds"] == total["seconds"] / 10
    quiet = plain.silent(total["last_ns"] - round(found["after_seconds"] * SECOND))
    assert {one["subject"] for one in found["most_messages"]} == quiet
    assert found["count"] == len(quiet)
    for one in found["most_messages"]:
        amounts = plain.amounts(one["subject"])
        assert one["silent_seconds"] == (total["last_ns"] - amounts["last_ns"]) / SECOND
    step_ns = figures["timeline"]["step_seconds"] * SECOND
    wanted = {name: pause / SECOND for name, pause in plain.pauses().items() if pause > step_ns}
    assert {one["subject"]: one["seconds"] for one in found["longest"]} == wanted
    assert wanted


def test_losses_by_publisher_and_hour(made):
    figures, plain = made
    found, wanted = figures["losses"], plain.losses()
    names = ("lost", "unknown", "missing", "restarts", "gaps", "damaged")
    cells = {
        (one["origin"], one["time_ns"]): {name: one[name] for name in names if one[name]}
        for one in found["by_publisher_and_period"]
    }
    is_lossy = {
        key: dict(counts) for key, counts in wanted.items() if counts.keys() & {"gaps", "missing", "damaged"}
    }
    assert cells == is_lossy
    assert found["hours_per_period"] == 1
    for name in names:
        assert found[name] == sum(counts[name] for counts in wanted.values()), name
    for one in found["by_period"]:
        in_hour = [counts for (_, hour), counts in wanted.items() if hour == one["time_ns"]]
        assert one["lost"] == sum(counts["lost"] for counts in in_hour)
        assert one["time_ns"] % HOUR == 0


def test_numbers_are_followed_from_piece_to_piece_of_a_large_record(spark, tmp_path, monkeypatch):
    records = random_records(10)
    whole = by_hour(narrow_rows(spark, record_journal(tmp_path / "recorded", records)), HOURS, is_whole=True)
    wanted = sorted(map(str, whole.collect()))
    monkeypatch.setattr(counts, "_PIECE", 7)
    rows = narrow_rows(spark, tmp_path / "recorded")
    assert sorted(map(str, by_hour(rows, HOURS, is_whole=True).collect())) == wanted
    assert sum(row.missing for row in whole.collect()) > 0


def test_publishers(made):
    figures, plain = made
    found = {one["origin"]: one for one in figures["publishers"]["most"]}
    for origin in {one.origin for one in plain.messages}:
        of_it = [one for one in plain.messages if one.origin == origin]
        row = found.pop(None if origin is None else origin.hex())
        assert (row["messages"], row["payload_bytes"]) == (len(of_it), sum(len(one.payload) for one in of_it))
        assert (row["first_ns"], row["last_ns"]) == (of_it[0].time_ns, of_it[-1].time_ns)
    assert not found


def test_payload_sizes(made):
    figures, plain = made
    sizes = [len(one.payload) for one in plain.messages]
    found = figures["sizes"]
    assert {share: plain.quantile(float(share)) for share in found["quantiles"]} == found["quantiles"]
    assert (found["least"], found["greatest"]) == (min(sizes), max(sizes))
    for one in found["histogram"]:
        within = [size for size in sizes if one["from"] <= size <= one["to"]]
        assert (one["messages"], one["payload_bytes"]) == (len(within), sum(within))
    assert sum(one["messages"] for one in found["histogram"]) == len(sizes)


def test_what_is_bounded_says_how_much_it_leaves_out(spark, tmp_path):
    records = random_records(3)
    record_journal(tmp_path / "recorded", records)
    plain = PlainReport(records)
    figures = oz.spark.report(spark, tmp_path / "recorded", most=2, levels=2).figures
    root = figures["levels"]
    assert len(root["children"]) == 2
    named = sum(child["messages"] for child in root["children"])
    assert root["others"]["messages"] == plain.total()["messages"] - named
    everyone = figures["publishers"]
    assert everyone["others"]["count"] == everyone["count"] - 2
    assert everyone["others"]["messages"] == plain.total()["messages"] - sum(
        one["messages"] for one in everyone["most"]
    )
    assert figures["losses"]["publisher_count"] > len(figures["losses"]["publishers"]) == 2
    json.loads(oz.spark.Report(figures).json())


def test_a_pattern_selects_what_is_reported_on(spark, tmp_path):
    records = random_records(4)
    record_journal(tmp_path / "recorded", records)
    pattern = oz.parse("redis:[ab]*")
    plain = PlainReport([one for one in records if one.kind == 0 and pattern.matches(one.subject)])
    figures = oz.spark.report(spark, tmp_path / "recorded", pattern=pattern).figures
    assert figures["total"]["messages"] == plain.total()["messages"]
    assert figures["total"]["subjects"] == plain.total()["subjects"]
    assert figures["losses"]["missing"] == 0
    assert not figures["losses"]["are_numbers_known"]


def test_a_comma_in_a_pattern_is_refused_and_never_matches_nothing_in_silence(spark, recorded):
    with pytest.raises(oz.OptionError, match=r"option pattern='a\.>,b\.>': a comma is part of a subject"):
        oz.spark.report(spark, recorded[0], pattern="a.>,b.>")


@pytest.mark.parametrize("other", ["lake", pytest.param("dataframe", marks=pytest.mark.heavy)])
def test_a_journal_a_dataframe_and_a_lake_give_the_same(spark, recorded, made, tmp_path, other):
    source = as_dataframe(spark, recorded[0])
    if other == "lake":
        source.write.partitionBy("kind").parquet(str(tmp_path / "lake"))
        source = str(tmp_path / "lake")
    found = oz.spark.report(spark, source, most=1000).figures
    assert made[0].keys() == found.keys()
    differing = {name for name in found if found[name] != made[0][name]}
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
