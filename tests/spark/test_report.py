"""The report counts what plain Python counts, and its page is whole and escapes subjects."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz.spark
from oz.journal import Writer
from oz.spark.archive import archive_batch

SCHEMA = (
    "offset long, time timestamp, kind byte, subject string, payload binary, "
    "origin binary, sequence long, lost long"
)
START = datetime(2026, 3, 1, tzinfo=UTC)
SUBJECTS = ["flight.JFK", "flight.EWR", "md.<b>.&", "weather\n", "alone"]


def records():
    """Return 400 records: publisher `a` skips 5 numbers; two gap records, one of unknown size."""
    found = []
    for offset in range(400):
        time = START + timedelta(seconds=3 * offset)
        if offset in (100, 200):
            found.append((offset, time, 1, ">", b"", b"a", None, 5 if offset == 100 else None))
            continue
        origin = [b"a", b"b", None][offset % 3]
        sequence = offset // 3 + (5 if origin == b"a" and offset > 100 else 0)
        subject = SUBJECTS[offset % 4] if offset != 7 else SUBJECTS[4]
        payload = b"x" * (offset % 50)
        found.append((offset, time, 0, subject, payload, origin, sequence if origin else None, None))
    return found


@pytest.fixture(scope="module")
def rows(spark):
    return spark.createDataFrame(records(), SCHEMA).cache()


@pytest.fixture(scope="module")
def figures(spark, rows):
    return oz.spark.report(spark, rows, top=3).figures


def test_totals_tables_and_sizes(figures):
    messages = [each for each in records() if each[2] == 0]
    sizes = sorted(len(each[4]) for each in messages)
    total = figures["total"]
    assert (total["messages"], total["bytes"], total["subjects"]) == (398, sum(sizes), 5)
    assert (total["first"], total["last"]) == ("2026-03-01T00:00:00+00:00", "2026-03-01T00:19:57+00:00")
    assert (total["seconds"], total["publishers"]) == (1197.0, 3)
    counts = Counter(each[3] for each in messages)
    by_messages = [(row["subject"], row["messages"]) for row in figures["subjects"]["by_messages"]]
    assert by_messages == sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:3]
    one_token = {
        row["prefix"]: row["messages"] for row in figures["subjects"]["prefixes"] if row["depth"] == 1
    }
    assert one_token["flight"] == counts["flight.JFK"] + counts["flight.EWR"]
    assert figures["sizes"]["max"] == 49
    assert abs(figures["sizes"]["p50"] - sizes[len(sizes) // 2]) <= 1
    assert sum(each["messages"] for each in figures["sizes"]["bins"]) == 398


def test_rates_have_an_interval_for_each_time(figures):
    bins = figures["rates"]["bins"]
    assert figures["rates"]["seconds"] == 10
    assert len(bins) == 120
    assert sum(each["messages"] for each in bins) == 398
    assert {each["time"]: each["lost"] for each in bins if each["lost"]} == {"2026-03-01T00:05:00+00:00": 5}


def test_losses_by_publisher(figures):
    assert figures["losses"] == {"gaps": 2, "lost": 5, "unknown": 1}
    by_origin = {row["origin"]: row for row in figures["publishers"]}
    assert [by_origin["61"][name] for name in ("lost", "gaps")] == [5, 2]
    lost = {row["origin"]: row["missing"] for row in figures["publishers"]}
    numbers = [each[6] for each in records() if each[5] == b"a" and each[2] == 0]
    assert lost["61"] == numbers[-1] - numbers[0] + 1 - len(numbers)
    assert lost["62"] == 1  # the gap record at offset 100 has a number of this publisher
    assert lost[None] is None


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = Counter(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        for name, value in attrs:
            assert name not in ("src", "onload", "onclick")
            assert name != "href" or value.startswith("#")

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_loads_nothing_and_escapes_subjects(spark, rows, tmp_path):
    report = oz.spark.report(spark, rows, top=5)
    report.save(html=tmp_path / "page.html", json=tmp_path / "figures.json")
    assert json.loads((tmp_path / "figures.json").read_text()) == report.figures
    page = Page((tmp_path / "page.html").read_text())
    assert page.tags["svg"] == 4
    assert page.tags["script"] == page.tags["link"] == page.tags["b"] - 6 == 0
    assert "md.<b>.&" in page.text
    assert r"weather\n" in page.text


def test_a_pattern_selects_messages_and_an_empty_source_has_a_page(spark, rows):
    report = oz.spark.report(spark, rows, "flight.>")
    assert report.figures["total"]["subjects"] == 2
    assert {row["missing"] for row in report.figures["publishers"]} == {None}
    assert "flight.&gt;" in report.html
    empty = oz.spark.report(spark, rows.where("false"))
    assert empty.figures["total"]["messages"] == 0
    assert "No messages." in empty.html
    with pytest.raises(ValueError, match="top=0"):
        oz.spark.report(spark, rows, top=0)


def without_times(figures):
    return {name: value for name, value in figures.items() if name not in ("source", "made")}


def test_a_journal_an_archive_and_a_dataframe_give_the_same_figures(spark, rows, tmp_path):
    with Writer(tmp_path / "journal") as writer:
        names = [each.partition(" ")[0] for each in SCHEMA.split(", ")][1:]
        for _, *values in records():
            writer.append([dict(zip(names, values, strict=True))])
    full = oz.spark.read(spark, tmp_path / "journal", gaps=True)
    archive_batch(tmp_path / "archive")(full, 0)
    expected = without_times(oz.spark.report(spark, rows).figures)
    for source in (tmp_path / "journal", tmp_path / "archive"):
        assert without_times(oz.spark.report(spark, source).figures) == expected
    part = oz.spark.report(spark, tmp_path / "journal", start=300, end=350).figures
    assert part["total"]["messages"] == 50
    with pytest.raises(ValueError, match="start and end are for journals"):
        oz.spark.report(spark, tmp_path / "archive", start=300)
