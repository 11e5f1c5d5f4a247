"""The page of a report: whole, safe, and readable without looking."""

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from recorded import random_records, record_journal

import oz.spark
from oz.spark.jobs.reporting import writing
from oz.spark.jobs.reporting.parts import columns, mark, tracks

VOID = {"meta", "link", "br"}
EVIL = "<script>alert(1)</script>.&\"'"


class Page(HTMLParser):
    """Checks that tags are closed, and keeps what is in the page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.attributes, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def report(spark, tmp_path_factory):
    """Report on a journal whose path is markup too."""
    directory = tmp_path_factory.mktemp("page") / "<img src=x onerror=alert(1)>"
    return oz.spark.report(spark, record_journal(directory, random_records(7)), most=60)


@pytest.fixture(scope="module")
def text(report):
    return report.html()


@pytest.fixture(scope="module")
def page(text):
    return Page(text.removeprefix("<!DOCTYPE html>"))


def test_every_tag_is_closed_and_there_is_no_script(page, text):
    assert text.startswith("<!DOCTYPE html>")
    assert not {"script", "iframe", "object", "embed", "form", "img"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def test_nothing_is_loaded_from_anywhere(page, text):
    for tag, name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "action"):
            assert value.startswith("data:"), (tag, name, value)
    assert not re.search(r"url\(|@import|https?:|//[a-z]", text)
    assert "default-src 'none'" in text


def test_subjects_stand_in_the_page_as_they_are(page, text):
    said = "".join(page.words)
    assert "alert(1)</script>.&\"'" in said
    assert EVIL not in text
    assert "raw.\\xff.x" in said
    assert "(empty)" in said
    assert "\u202e" not in text
    assert "x.\\u202ey" in said


def test_each_chart_has_an_alternative_and_a_table(page):
    roles = [value for tag, name, value in page.attributes if (tag, name) == ("figure", "role")]
    told = [value for tag, name, value in page.attributes if (tag, name) == ("figure", "aria-label")]
    assert roles == ["img"] * page.tags.count("figure")
    assert len(told) == len(roles) >= 4
    assert all(len(one) > 30 for one in told)
    assert page.tags.count("table") >= len(told)
    assert page.tags.count("th") > 50


def test_it_is_made_for_a_phone_and_for_the_dark(text):
    assert 'name="viewport" content="width=device-width' in text
    assert "prefers-color-scheme:dark" in text


def test_a_source_with_an_evil_name_is_harmless(report, page, tmp_path):
    assert "img" not in page.tags
    assert "<img src=x onerror=alert(1)>" in "".join(page.words)
    report.save(html=tmp_path / "page.html", json=tmp_path / "figures.json")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == report.html()
    assert (tmp_path / "figures.json").read_text(encoding="utf-8").startswith("{")


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (0, "", "0"),
        (7, "", "7"),
        (999, "", "999"),
        (999.6, "", "1.00k"),
        (12345, "", "12.3k"),
        (1_200_000, "B", "1.20 MB"),
        (0.00056, "", "0.00056"),
        (0.5, "B", "0.50 B"),
        (2**80, "B", "1208926 EB"),
        (None, "B", "–"),
    ],
)
def test_numbers_are_short(value, unit, written):
    assert writing.number(value, unit) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0 s"), (2e-6, "2 µs"), (0.0032, "3.2 ms"), (45, "45 s"), (90, "2 min"), (7500, "2 h 5 min"),
     (3600, "1 h"), (1_051_200, "12 d 4 h"), (None, "–")],
)  # fmt: skip
def test_durations_are_short(seconds, written):
    assert writing.duration(seconds) == written


def test_times_are_in_utc_and_as_fine_as_the_step():
    assert writing.moment(1_772_366_400_123_456_789) == "2026-03-01 12:00:00"
    assert writing.moment(1_772_366_400_123_456_789, step_ns=1000) == "2026-03-01 12:00:00.123456"
    assert writing.moment(-1) == "1969-12-31 23:59:59"


def test_columns_are_as_high_as_their_values():
    drawn = columns("told", [0, 3, 1, 4], scale=["4", "2", "0"], labels=["a", "b"])
    assert re.findall(r"--share:([\d.]+)%", drawn) == ["0.00", "75.00", "25.00", "100.00"]
    assert "--count:4" in drawn
    assert re.findall(r"<span>(.*?)</span>", drawn) == ["4", "2", "0", "a", "b"]


def test_a_chart_of_nothing_but_zeros_is_still_one():
    drawn = columns("told", [0, 0], scale=["0", "0", "0"], labels=["a"])
    assert re.findall(r"--share:([\d.]+)%", drawn) == ["0.00", "0.00"]


def test_marks_stand_at_their_places_and_are_the_darker_the_more():
    drawn = tracks("told", [("a", mark(0, 4, 0.5) + mark(3, 4, 1)), ("b", "")], labels=["x", "y"])
    assert re.findall(r"left:([\d.]+)%;width:([\d.]+)%;opacity:([\d.]+)", drawn) == [
        ("0.00", "25.00", "0.65"),
        ("75.00", "25.00", "1.00"),
    ]
    assert re.findall(r"<b>(.*?)</b>", drawn) == ["a", "b"]
