"""The page of a report in a real browser: from disk, as wide as a phone, in the light and in the dark."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")
pytest.importorskip("matplotlib", reason="needs: pip install '.[spark]'")

from oz.spark.jobs.report import Report
from oz.spark.jobs.reporting.page import STYLE
from oz.spark.jobs.reporting.parts import LossMark, TimeSteps, by_size, over_time, tracks
from spark import browser as chromium

pytestmark = pytest.mark.skipif(
    chromium.PROGRAM is None, reason=f"there is no browser: none of {', '.join(chromium.NAMES)} is in PATH"
)

START = 1_772_366_400_000_000_000
SPANS = [
    TimeSteps(START, 1_000, 100),
    TimeSteps(START + 123_456_789, 500_000_000, 90),
    TimeSteps(START, 10**9, 119),
    TimeSteps(START, 60 * 10**9, 1),
    TimeSteps(START, 300 * 10**9, 60),
    TimeSteps(START, 3600 * 10**9, 100),
    TimeSteps(START, 86_400 * 10**9, 110),
    TimeSteps(START, 14 * 86_400 * 10**9, 100),
]

# Of each text of a chart: how large its letters are, where it stands, and its contrast to its card.
TEXTS = """
(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number)
      .map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return JSON.stringify([...document.querySelectorAll("svg")].map(svg => {
    const card = light(getComputedStyle(svg.closest("section")).backgroundColor);
    const whole = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].map(text => {
      const style = getComputedStyle(text), matrix = text.getScreenCTM(), box = text.getBoundingClientRect();
      const pair = [light(style.fill), card].sort((a, b) => b - a);
      return {said: text.textContent, contrast: (pair[0] + 0.05) / (pair[1] + 0.05),
        pixels: parseFloat(style.fontSize) * Math.hypot(matrix.a, matrix.b),
        box: [box.left - whole.left, box.top - whole.top, box.right - whole.left, box.bottom - whole.top],
        whole: [whole.width, whole.height]};
    });
  }));
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of figures that `oz spark report --json` wrote of the records of seed 7 in `recorded.py`."""
    figures = json.loads((Path(__file__).parent / "report_figures.json").read_text("utf-8"))
    path = tmp_path_factory.mktemp("page") / "report.html"
    Report(figures).save(html=path)
    return path


@pytest.fixture(scope="module")
def charts(tmp_path_factory):
    """Charts of all spans of time, and of many publishers and sizes, each in a card as in a report."""
    drawn = [by_size("sizes", [5] * 34, [0] + [1 << bits for bits in range(33)])]
    for number, span in enumerate(SPANS):
        values = [step * 12_345 % 7_777_777 for step in range(span.count)]
        drawn.append(over_time(f"time{number}", values, span, title="Payload", unit="B"))
    marks = [LossMark(step % 12, step * 60, step % 5 / 4) for step in range(12)]
    rows = [f"{row:06x}" for row in range(12)]
    drawn.append(
        tracks("losses", rows, marks, TimeSteps(START, 3600 * 10**9, 744), title="The stronger, the more")
    )
    cards = "".join(f"<section><figure>{one}</figure></section>" for one in drawn)
    path = tmp_path_factory.mktemp("charts") / "charts.html"
    path.write_text(
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>charts</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style><body><main>{cards}</main>",
        encoding="utf-8",
    )
    return path


def overlap(one, other):
    return all(one[at] < other[at + 2] - 0.5 and other[at] < one[at + 2] - 0.5 for at in (0, 1))


def assert_is_readable(charts, width):
    assert charts
    for texts in charts:
        assert len(texts) >= 4
        for number, text in enumerate(texts):
            left, top, right, bottom = text["box"]
            assert text["pixels"] >= 10, text
            assert text["contrast"] >= 4.5, text
            assert min(left, top) >= -1, text
            assert right <= text["whole"][0] + 1, text
            assert bottom <= text["whole"][1] + 1, text
            assert text["whole"][0] >= min(width * 0.8, 300), text
            assert not [each["said"] for each in texts[:number] if overlap(each["box"], text["box"])], text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_the_page_opens_from_disk_and_is_readable(browser, page, width, scheme):
    browser.open(page, width=width, scheme=scheme)
    assert browser.trouble() == []
    assert browser.asked_for() == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert_is_readable(json.loads(browser.evaluate(TEXTS)), width)


@pytest.mark.parametrize("width", [400, 1200])
def test_charts_are_readable_whatever_they_show(browser, charts, width):
    browser.open(charts, width=width)
    assert browser.trouble() == []
    assert_is_readable(json.loads(browser.evaluate(TEXTS)), width)


def test_trouble_would_be_seen(browser, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text('<!DOCTYPE html><title>bad</title><img src="absent.png"><script>absent()</script>')
    browser.open(path, width=400)
    assert {event["method"] for event in browser.trouble()} >= {
        "Runtime.exceptionThrown",
        "Network.loadingFailed",
    }
