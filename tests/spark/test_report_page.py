"""The page of a report: whole, safe, and readable without looking."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")
pytest.importorskip("matplotlib", reason="needs: pip install '.[spark]'")

import oz.spark
from oz.spark.jobs.reporting import writing
from oz.spark.jobs.reporting.parts import LossMark, TimeSteps, by_size, over_time, tracks
from spark.recorded import random_records, record_journal

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
            assert value.startswith(("data:", "#")), (tag, name, value)
    assert not re.search(r"url\((?!#)|@import|https?:|//[a-z]", text)
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
    assert page.tags.count("svg") == len(told)
    assert page.tags.count("table") >= len(told)
    assert page.tags.count("th") > 50


def test_no_id_is_there_twice_and_each_reference_is_to_one(page, text):
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 100
    assert set(re.findall(r"(?:href=\"#|url\(#)([\w-]+)", text)) <= set(ids)


def test_it_is_made_for_a_phone_and_for_the_dark(text):
    assert 'name="viewport" content="width=device-width' in text
    assert "prefers-color-scheme:dark" in text
    svg = "".join(re.findall("<svg.*?</svg>", text, re.DOTALL))
    assert not re.findall(r"#[0-9a-f]{6}\b", svg)  # colours of its own, the same in the light and in the dark
    assert set(re.findall(r"var\((.*?)\)", svg)) == {"--soft", "--line", "--bar", "--loss"}


def test_a_strangers_link_is_not_written_through(report, tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr("oz.spark.jobs.report.refuse_planted", refuse)
    for kind in ("html", "json"):
        with pytest.raises(PermissionError, match="out"):
            report.save(**{kind: tmp_path / "out"})
    assert list(tmp_path.iterdir()) == []


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


START = 1_772_366_400_000_000_000
HOUR = 3600 * 10**9


def corners(drawn, colour):
    """Return, of each shape of a colour, the points that it goes through."""
    shapes = re.findall(rf'<path d="([^"]*)"[^>]*style="fill: var\({colour}\)', drawn)
    return [
        [tuple(map(float, point)) for point in re.findall(r"[ML] ([\d.]+) ([\d.]+)", one)] for one in shapes
    ]


def words(drawn):
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawn)


def test_steps_are_as_high_as_their_values():
    drawn = over_time("t", [0, 3, 1, 4], TimeSteps(START, HOUR, 4), title="Payload", unit="kB")
    (outline,) = corners(drawn, "--bar")
    heights = sorted({y for _, y in outline}, reverse=True)
    unit = (heights[0] - heights[-1]) / 4
    assert [round((heights[0] - y) / unit, 2) for y in heights] == [0, 1, 3, 4]
    assert {"Payload", "Time (UTC)", "0 kB", "4 kB", "12:00", "16:00", "2026-03-01"} <= set(words(drawn))


def test_sizes_stand_where_their_bins_are():
    drawn = by_size("s", [2, 0, 4, 1], [0, 1, 2, 4])
    bars = corners(drawn, "--bar")
    tall = [max(y for _, y in bar) - min(y for _, y in bar) for bar in bars]
    assert [round(4 * one / max(tall), 2) for one in tall] == [2, 0, 4, 1]
    assert {"Messages", "0 B", "1 B", "2 B", "4 B"} <= set(words(drawn))
    assert {"512 B", "1 KiB"} <= set(words(by_size("s", [1, 1], [512, 1024])))
    assert {"512 KiB", "1 MiB"} <= set(words(by_size("s", [1, 1], [1 << 19, 1 << 20])))


def test_a_chart_of_nothing_but_zeros_is_still_one():
    assert "0 B" in words(over_time("t", [0], TimeSteps(START, HOUR, 1), title="Payload", unit="B"))


def test_steps_of_less_than_a_second_are_told_exactly():
    drawn = over_time("t", [1, 2, 3], TimeSteps(START, 1_000, 3), title="Messages")
    assert {"0 s", "600 ns", "3 µs", "Time since 2026-03-01 12:00:00.000000 UTC"} <= set(words(drawn))


def test_marks_stand_at_their_places_and_are_the_stronger_the_more():
    marks = [LossMark(0, 0, 0.5), LossMark(0, 3, 1), LossMark(1, 1, 0)]
    drawn = tracks("l", ["$a$", "b"], marks, TimeSteps(START, HOUR, 4), title="The stronger, the more")
    left = [min(x for x, _ in shape) for shape in corners(drawn, "--loss")]
    hours = (left[1] - left[0]) / 3
    assert [round((x - left[0]) / hours) for x in left] == [0, 3, 1]
    assert re.findall(r"fill: var\(--loss\)(?:; fill-opacity: ([\d.]+))?", drawn) == ["0.675", "", "0.35"]
    assert {"$a$", "b", "Publisher"} <= set(words(drawn))


NO_MATPLOTLIB = """
import sys
sys.modules["matplotlib"] = None
from oz.cli import main
main(["spark", "report", "nothing-here", "--html", "page.html"])
"""


def test_without_matplotlib_the_extra_is_named_before_anything_is_read(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", NO_MATPLOTLIB], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 1
    assert "oz.spark needs matplotlib, which is not installed" in ran.stderr
    assert "pip install '.[spark]'" in ran.stderr
    assert "no journal" not in ran.stderr + ran.stdout
